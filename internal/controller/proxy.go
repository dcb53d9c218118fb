// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"steelyard/internal/cluster"
	"steelyard/internal/config"
	"steelyard/internal/drain"
	agentpb "steelyard/internal/gen/agentpb"
	"steelyard/internal/gen/agentpb/agentpbconnect"
	pb "steelyard/internal/gen/controllerpb"
	"steelyard/internal/pki"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// Headers of AgentService's clients, at a controller.
const (
	ForwarderHeader = "Steelyard-Forwarder"
	ProjectHeader   = "Steelyard-Project"
)

// AllForwarders in the header selects every forwarder; a comma separates several names. For ApplyConfig only.
const AllForwarders = "*"

// agentService serves AgentService at a controller. It answers apply, diff and drains from the store, and forwards the rest to the agent.
type agentService struct {
	agentpbconnect.UnimplementedAgentServiceHandler
	server *Server
}

// target returns the forwarder and the project of a request's headers.
func (s *Server) target(ctx context.Context, header http.Header) (forwarder, project string, err error) {
	project = header.Get(ProjectHeader)
	if project == "" {
		project = defaultProject
	}
	if forwarder = header.Get(ForwarderHeader); forwarder == "" {
		list, err := s.ListForwarders(ctx, connect.NewRequest(&pb.ListForwardersRequest{}))
		if err != nil {
			return "", "", err
		}
		if all := list.Msg.GetForwarders(); len(all) == 1 {
			return all[0].GetName(), project, nil
		} else if len(all) == 0 {
			return "", "", invalid(errors.New("no forwarder has joined: create a token for one by `steelyard token create --new-forwarder NAME`, and start its agent with it"))
		}
		return "", "", invalid(fmt.Errorf("no forwarder is named, and there are %d: name one by --forwarder; `steelyard get forwarders` lists them", len(list.Msg.GetForwarders())))
	}
	return forwarder, project, errors.Join(pki.CheckName("forwarder", forwarder), pki.CheckName("project", project))
}

// ApplyConfig implements the service.
func (a *agentService) ApplyConfig(ctx context.Context, request *connect.Request[agentpb.ApplyConfigRequest]) (*connect.Response[agentpb.ApplyConfigResponse], error) {
	if names := request.Header().Get(ForwarderHeader); strings.Contains(names, ",") || names == AllForwarders || strings.HasPrefix(names, GroupHeader) {
		return a.applyToMany(ctx, names, request)
	}
	forwarder, project, err := a.server.target(ctx, request.Header())
	if err != nil {
		return nil, err
	}
	if err := a.server.checkWhole(ctx, []string{forwarder}); err != nil {
		return nil, err
	}
	response, err := a.server.ApplyConfig(ctx, from(ctx), forwarder, project, request.Msg)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(response), nil
}

// forward passes all other methods to the agent: over this controller's connection, or through the controller that has the connection.
func (s *Server) forward(own http.Handler) http.Handler {
	const service = "/" + agentpbconnect.AgentServiceName + "/"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == agentpbconnect.AgentServiceApplyConfigProcedure {
			own.ServeHTTP(w, r)
			return
		}
		err := func() error {
			caller := from(r.Context())
			method := strings.TrimPrefix(r.URL.Path, service)
			if !caller.mayRead() {
				return denied("%s may not read", caller)
			}
			if !caller.admin() && !onlyReads(method) && method != "DiffConfig" && method != "SetDrain" {
				return denied("%s may not call %s", caller, method)
			}
			if method == "ClaimAddresses" && !caller.relayed { // its audit record would not name the addresses
				return denied("a controller claims addresses from other hosts only by ApplyConfig with force: use `steelyard apply --force`")
			}
			forwarder, project, err := s.target(r.Context(), r.Header)
			if err != nil {
				return err
			}
			if method == "SetDrain" && !s.isOlder(forwarder) {
				own.ServeHTTP(w, r)
				return nil
			}
			if err := s.rewrite(r, caller, method, forwarder, project); err != nil {
				return err
			}
			return s.forwardTo(w, r, caller, forwarder)
		}()
		if err != nil {
			_ = connect.NewErrorWriter().Write(w, r, err)
		}
	})
}

// onlyReads reports whether a method of AgentService has no side effects. A method that is unknown here may have some.
func onlyReads(method string) bool {
	known := agentpb.File_steelyard_agent_v1_agent_proto.Services().ByName("AgentService").Methods().ByName(protoreflect.Name(method))
	if known == nil {
		return false
	}
	options, ok := known.Options().(*descriptorpb.MethodOptions)
	return ok && options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
}

// rewrite decodes a request and checks the caller's right, for methods that readers may not call.
func (s *Server) rewrite(r *http.Request, caller principal, method, forwarder, project string) error {
	limit := int64(64 << 10)
	if method == "DiffConfig" {
		limit = config.MaxFileBytes + 1<<20
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, limit))
	if err != nil {
		return invalid(err)
	}
	if !caller.relayed {
		switch method {
		case "DiffConfig":
			body, err = s.diffBody(r, caller, body, forwarder, project)
		case "SetDrain":
			err = s.drainAllowed(r, caller, body, forwarder)
		}
	}
	if err != nil {
		return err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Del("Content-Length")
	return nil
}

// message decodes a request that is forwarded.
func message[M any, P interface {
	*M
	protoMessage
}](r *http.Request, body []byte) (P, codec, error) {
	m := P(new(M))
	c, ok := codecOf(r.Header.Get("Content-Type"))
	if !ok || r.Header.Get("Content-Encoding") != "" {
		return nil, codec{}, invalid(errors.New("through a controller, this method accepts connect, gRPC and gRPC-web, with protobuf or JSON, uncompressed"))
	}
	if err := c.unmarshal(body, m); err != nil {
		return nil, c, invalid(err)
	}
	return m, c, nil
}

// diffBody replaces a project's file by the whole file of the forwarder.
func (s *Server) diffBody(r *http.Request, caller principal, body []byte, forwarder, project string) ([]byte, error) {
	m, c, err := message[agentpb.DiffConfigRequest](r, body)
	if err != nil || len(m.GetYaml()) == 0 {
		return body, err
	}
	if !caller.mayApply(project) {
		return nil, denied("%s may not apply in the project %s", caller, project)
	}
	plans, err := s.compute(r.Context(), s.newWorkOf(caller, project), []string{forwarder}, project, m.GetFile(), m.GetYaml())
	if err != nil {
		return nil, err
	}
	m.Yaml = plans[0].merged
	return c.marshal(m)
}

// drainAllowed checks an order to drain, and writes its audit record, for an agent that stores drains itself.
func (s *Server) drainAllowed(r *http.Request, caller principal, body []byte, forwarder string) error {
	m, _, err := message[agentpb.SetDrainRequest](r, body)
	if err != nil {
		return err
	}
	if !caller.mayDrain(m.GetService()) {
		return denied(mayNotDrain, caller)
	}
	order, err := drain.Read(m)
	if err != nil {
		return invalid(err)
	}
	txn := s.record(new(cluster.Txn), caller.String(), order.String(), forwarder, "", m.GetServer()+" "+m.GetService())
	if _, err := s.store.Commit(r.Context(), txn); err != nil {
		return unavailable(fmt.Errorf("nothing was changed, because the audit record cannot be written: %w", err))
	}
	return nil
}

// forwardTo forwards a request to the forwarder's agent.
func (s *Server) forwardTo(w http.ResponseWriter, r *http.Request, caller principal, forwarder string) error {
	s.mu.Lock()
	one := s.sessions[forwarder]
	s.mu.Unlock()
	var transport http.RoundTripper
	to := &url.URL{Scheme: "http", Host: "agent"}
	switch {
	case one != nil:
		transport = one.transport
	case caller.relayed:
		return unavailable(fmt.Errorf("the agent of %s is changing controllers: try again", forwarder))
	default:
		other, entry, err := read[owner](r.Context(), s.store, keyOwners+forwarder)
		if err != nil {
			return err
		}
		if entry.Revision == 0 || other.ID == s.id {
			return unavailable(fmt.Errorf("no agent of %q is connected: its forwarder keeps its configuration", forwarder))
		}
		if to, err = url.Parse(other.URL); err != nil {
			return unavailable(err)
		}
		transport = s.peers
		r.Header.Set(behalfHeader, caller.String())
		r.Header.Set(ForwarderHeader, forwarder)
	}
	(&httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(to)
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			_ = connect.NewErrorWriter().Write(w, r, unavailable(fmt.Errorf("the agent of %s does not answer: %w", forwarder, err)))
		},
	}).ServeHTTP(w, r)
	return nil
}

// peerTransport returns the HTTP client side of connections to other controllers.
func peerTransport(identity func() *tls.Config) *http.Transport {
	return &http.Transport{TLSClientConfig: identity(), TLSHandshakeTimeout: 5 * time.Second, IdleConnTimeout: time.Minute}
}

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

// Headers by which a client of AgentService says what it means.
const (
	ForwarderHeader = "Steelyard-Forwarder"
	ProjectHeader   = "Steelyard-Project"
)

// AllForwarders in the header means every forwarder; several have commas between them. For ApplyConfig alone.
const AllForwarders = "*"

// agentService answers AgentService at a controller: apply, diff and drains from what the store has, the rest by the agent.
type agentService struct {
	agentpbconnect.UnimplementedAgentServiceHandler
	server *Server
}

// target returns what a request's headers mean.
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
			return "", "", invalid(errors.New("no forwarder has joined: make a token for one, `steelyard token create --new-forwarder NAME`, with which its agent joins"))
		}
		return "", "", invalid(fmt.Errorf("which of %d forwarders? Name it by --forwarder: `steelyard get forwarders` lists them", len(list.Msg.GetForwarders())))
	}
	return forwarder, project, errors.Join(pki.CheckName("forwarder", forwarder), pki.CheckName("project", project))
}

// ApplyConfig implements the service.
func (a *agentService) ApplyConfig(ctx context.Context, request *connect.Request[agentpb.ApplyConfigRequest]) (*connect.Response[agentpb.ApplyConfigResponse], error) {
	if names := request.Header().Get(ForwarderHeader); strings.Contains(names, ",") || names == AllForwarders {
		return a.applyToMany(ctx, names, request)
	}
	forwarder, project, err := a.server.target(ctx, request.Header())
	if err != nil {
		return nil, err
	}
	response, err := a.server.ApplyConfig(ctx, from(ctx), forwarder, project, request.Msg)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(response), nil
}

// forward sends everything but apply and drains to the agent, by this controller or by the one that has its connection.
func (s *Server) forward(own http.Handler) http.Handler {
	const service = "/" + agentpbconnect.AgentServiceName + "/"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == agentpbconnect.AgentServiceApplyConfigProcedure {
			own.ServeHTTP(w, r)
			return
		}
		err := func() error {
			who := from(r.Context())
			method := strings.TrimPrefix(r.URL.Path, service)
			if !who.mayRead() {
				return denied("%s may not read", who)
			}
			if !who.admin() && !onlyReads(method) && method != "DiffConfig" && method != "SetDrain" {
				return denied("%s may not call %s", who, method)
			}
			if method == "ClaimAddresses" && !who.relayed { // which no record would say
				return denied("at a controller, addresses are claimed from other hosts by ApplyConfig with force")
			}
			forwarder, project, err := s.target(r.Context(), r.Header)
			if err != nil {
				return err
			}
			if method == "SetDrain" && !s.isOlder(forwarder) {
				own.ServeHTTP(w, r)
				return nil
			}
			if err := s.rewrite(r, who, method, forwarder, project); err != nil {
				return err
			}
			return s.hand(w, r, who, forwarder)
		}()
		if err != nil {
			_ = connect.NewErrorWriter().Write(w, r, err)
		}
	})
}

// onlyReads reports whether the contract says that a method of AgentService changes nothing. One that it does not know may.
func onlyReads(method string) bool {
	known := agentpb.File_steelyard_agent_v1_agent_proto.Services().ByName("AgentService").Methods().ByName(protoreflect.Name(method))
	if known == nil {
		return false
	}
	options, ok := known.Options().(*descriptorpb.MethodOptions)
	return ok && options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
}

// rewrite reads a request, and checks those that are not for readers.
func (s *Server) rewrite(r *http.Request, who caller, method, forwarder, project string) error {
	limit := int64(64 << 10)
	if method == "DiffConfig" {
		limit = config.MaxFileBytes + 1<<20
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, limit))
	if err != nil {
		return invalid(err)
	}
	if !who.relayed {
		switch method {
		case "DiffConfig":
			body, err = s.diffBody(r, who, body, forwarder, project)
		case "SetDrain":
			err = s.drainAllowed(r, who, body, forwarder)
		}
	}
	if err != nil {
		return err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Del("Content-Length")
	return nil
}

// message decodes a request that passes through.
func message[M any, P interface {
	*M
	protoMessage
}](r *http.Request, body []byte) (P, codec, error) {
	m := P(new(M))
	c, ok := codecOf(r.Header.Get("Content-Type"))
	if !ok || r.Header.Get("Content-Encoding") != "" {
		return nil, codec{}, invalid(errors.New("this method takes connect, gRPC and gRPC-web through a controller, with protobuf or JSON, and not compressed"))
	}
	if err := c.unmarshal(body, m); err != nil {
		return nil, c, invalid(err)
	}
	return m, c, nil
}

// diffBody replaces a project's file by the forwarder's whole one.
func (s *Server) diffBody(r *http.Request, who caller, body []byte, forwarder, project string) ([]byte, error) {
	m, c, err := message[agentpb.DiffConfigRequest](r, body)
	if err != nil || len(m.GetYaml()) == 0 {
		return body, err
	}
	if !who.mayApply(project) {
		return nil, denied("%s may not apply in the project %s", who, project)
	}
	plans, err := s.compute(r.Context(), s.newWorkOf(who, project), []string{forwarder}, project, m.GetFile(), m.GetYaml())
	if err != nil {
		return nil, err
	}
	m.Yaml = plans[0].merged
	return c.marshal(m)
}

// drainAllowed checks and records an order to drain, for an agent that keeps it alone.
func (s *Server) drainAllowed(r *http.Request, who caller, body []byte, forwarder string) error {
	m, _, err := message[agentpb.SetDrainRequest](r, body)
	if err != nil {
		return err
	}
	if !who.mayDrain(m.GetService()) {
		return denied(mayNotDrain, who)
	}
	order, err := drain.Read(m)
	if err != nil {
		return invalid(err)
	}
	txn := s.record(new(cluster.Txn), who.String(), order.String(), forwarder, "", m.GetServer()+" "+m.GetService())
	if _, err := s.store.Commit(r.Context(), txn); err != nil {
		return unavailable(fmt.Errorf("nothing was changed, as it cannot be recorded: %w", err))
	}
	return nil
}

// hand sends a request on its way.
func (s *Server) hand(w http.ResponseWriter, r *http.Request, who caller, forwarder string) error {
	s.mu.Lock()
	one := s.sessions[forwarder]
	s.mu.Unlock()
	var transport http.RoundTripper
	to := &url.URL{Scheme: "http", Host: "agent"}
	switch {
	case one != nil:
		transport = one.transport
	case who.relayed:
		return unavailable(fmt.Errorf("the agent of %s is changing controllers: try again", forwarder))
	default:
		other, entry, err := read[owner](r.Context(), s.store, keyOwners+forwarder)
		if err != nil {
			return err
		}
		if entry.Revision == 0 || other.ID == s.id {
			return unavailable(fmt.Errorf("no agent of %q is connected: its forwarder keeps what it has", forwarder))
		}
		if to, err = url.Parse(other.URL); err != nil {
			return unavailable(err)
		}
		transport = s.peers
		r.Header.Set(behalfHeader, who.String())
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

// peerTransport reaches other controllers.
func peerTransport(identity func() *tls.Config) *http.Transport {
	return &http.Transport{TLSClientConfig: identity(), TLSHandshakeTimeout: 5 * time.Second, IdleConnTimeout: time.Minute}
}

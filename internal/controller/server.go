// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"steelyard/internal/cluster"
	pb "steelyard/internal/gen/controllerpb"
	"steelyard/internal/gen/controllerpb/controllerpbconnect"
	"steelyard/internal/pki"

	"connectrpc.com/connect"
)

var _ controllerpbconnect.ControllerServiceHandler = (*Server)(nil)

func cutPrefix(key, prefix string) (string, bool) { return strings.CutPrefix(key, prefix) }

func decodeRecord(entry cluster.Entry, into any) error {
	if err := json.Unmarshal(entry.Value, into); err != nil {
		return connect.NewError(connect.CodeInternal, fmt.Errorf("%s in etcd: %w", entry.Key, err))
	}
	return nil
}

// ---- membership ---------------------------------------------------------------------------------

// CreateToken implements the service.
func (s *Server) CreateToken(ctx context.Context, request *connect.Request[pb.CreateTokenRequest]) (*connect.Response[pb.CreateTokenResponse], error) {
	caller, m := from(ctx), request.Msg
	if !caller.admin() {
		return nil, denied("only an admin creates tokens, and %s is none", caller)
	}
	if err := pki.CheckName("member", m.GetName()); err != nil {
		return nil, invalid(err)
	}
	if m.GetRole() < pb.Role_ROLE_FORWARDER || m.GetRole() > pb.Role_ROLE_VIEWER {
		return nil, invalid(errors.New("the role is missing: forwarder, admin, operator or viewer"))
	}
	if (m.GetRole() == pb.Role_ROLE_OPERATOR) != (len(m.GetProjects()) > 0) {
		return nil, invalid(errors.New("only an operator has projects, and needs one at least: name them by --projects"))
	}
	life := time.Duration(m.GetValidS()) * time.Second
	switch {
	case life == 0:
		life = defaultTokens
	case life > 30*24*time.Hour:
		return nil, invalid(errors.New("a token is valid for 30 days at most: use a shorter --valid"))
	}
	lease, err := s.store.Grant(ctx, life)
	if err != nil {
		return nil, unavailable(err)
	}
	expires := s.now().Add(life)
	var token pki.Token
	_, err = s.retry(ctx, func() (*cluster.Txn, error) {
		a, err := s.present(ctx)
		if err != nil {
			return nil, err
		}
		if err := a.check(caller, s.now()); err != nil {
			return nil, err
		}
		if token, err = pki.NewToken(a.signs.Hash()); err != nil {
			return nil, err
		}
		record := tokenRecord{m.GetName(), m.GetRole(), m.GetProjects(), token.SecretHash(), expires.Unix(), token.Authority}
		txn := new(cluster.Txn).Unchanged(a.in.Get(keyAuthority)).Put(keyTokens+token.ID, encode(record), lease)
		return s.record(txn, caller.String(), "create token", "", "", "for "+m.GetName()+", "+roleText(m.GetRole())), nil
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.CreateTokenResponse{Token: token.String(), ExpiresUnixS: uint64(expires.Unix())}), nil
}

func roleText(role pb.Role) string {
	return strings.ToLower(strings.TrimPrefix(role.String(), "ROLE_"))
}

// errVoidToken names no details, because unauthenticated callers receive it.
var errVoidToken = connect.NewError(connect.CodeUnauthenticated,
	errors.New("this token is not valid: it was used, has expired, or its authority was replaced; create another one by `steelyard token create`"))

// Join implements the service.
func (s *Server) Join(ctx context.Context, request *connect.Request[pb.JoinRequest]) (*connect.Response[pb.JoinResponse], error) {
	token, err := pki.ParseToken(request.Msg.GetToken())
	if err != nil {
		return nil, invalid(err)
	}
	var a *authorities
	var certificate *x509.Certificate
	_, err = s.retry(ctx, func() (*cluster.Txn, error) {
		record, entry, err := read[tokenRecord](ctx, s.store, keyTokens+token.ID)
		if err != nil {
			return nil, err
		}
		// The lease alone ends a token: the controller that created it may have another clock.
		if entry.Revision == 0 || !token.Matches(record.Secret) {
			return nil, errVoidToken
		}
		if a, err = s.present(ctx); err != nil {
			return nil, err
		}
		if record.Authority != a.signs.Hash() {
			return nil, errVoidToken
		}
		joined := member{Role: record.Role, Projects: record.Projects, Joined: s.now().Unix()}
		if certificate, err = a.signs.Sign(request.Msg.GetRequest(), pki.Name{Kind: joined.kind(), Name: record.Name}, s.now()); err != nil {
			return nil, invalid(err)
		}
		if at := request.Msg.GetClockUnixS(); at >= uint64(certificate.NotAfter.Unix()) { // otherwise the member could neither use its certificate nor join again
			return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("the controller's clock says %s, yours %s: one of the two clocks is wrong",
				s.now().UTC().Format(time.RFC3339), time.Unix(int64(at), 0).UTC().Format(time.RFC3339)))
		}
		joined.Key = pki.KeyHash(certificate)
		txn := new(cluster.Txn).Unchanged(entry).Delete(entry.Key).Put(keyMembers+record.Name, encode(joined), 0)
		txn.Unchanged(a.in.Get(keyAuthority)).Unchanged(a.in.Get(keyNext)) // fails if the authority has been replaced meanwhile
		return s.record(txn, joined.kind()+"/"+record.Name, "join", "", "", "as "+roleText(record.Role)), nil
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(s.issued(ctx, a, certificate.Raw)), nil
}

func (s *Server) issued(ctx context.Context, a *authorities, certificate []byte) *pb.JoinResponse {
	return &pb.JoinResponse{Certificate: certificate, Authorities: pki.Raw(a.chain()), Controllers: s.controllers(ctx)}
}

// Renew implements the service.
func (s *Server) Renew(ctx context.Context, request *connect.Request[pb.RenewRequest]) (*connect.Response[pb.JoinResponse], error) {
	caller := from(ctx)
	a, err := s.present(ctx)
	if err == nil {
		err = a.check(caller, s.now()) // identify() has checked it against the cached authorities only
	}
	if err != nil {
		return nil, err
	}
	certificate, err := a.signs.Sign(request.Msg.GetRequest(), caller.Name, s.now())
	if err != nil {
		return nil, invalid(err)
	}
	// The key stays the same while the membership lasts, so a lost answer does no harm.
	if pki.KeyHash(certificate) != caller.Key {
		return nil, invalid(errors.New("a certificate is renewed for the same key: join again for another one"))
	}
	return connect.NewResponse(s.issued(ctx, a, certificate.Raw)), nil
}

// ---- forwarders ---------------------------------------------------------------------------------

// ListForwarders implements the service.
func (s *Server) ListForwarders(ctx context.Context, _ *connect.Request[pb.ListForwardersRequest]) (*connect.Response[pb.ListForwardersResponse], error) {
	if caller := from(ctx); !caller.mayRead() {
		return nil, denied("%s may not read", caller)
	}
	now, err := s.store.Snapshot(ctx, keyMembers, keyOwners, keyStatus, keyDesired, keyConfigs, keyRefusals, keyLoads)
	if err != nil {
		return nil, unavailable(err)
	}
	forwarders := map[string]*pb.Forwarder{}
	for _, entry := range now.List(keyMembers) {
		var m member
		if err := decodeRecord(entry, &m); err != nil {
			return nil, err
		}
		if m.Role == pb.Role_ROLE_FORWARDER {
			name := nameOf(entry.Key, keyMembers)
			if forwarders[name], err = forwarderIn(now, name); err != nil {
				return nil, err
			}
		}
	}
	for _, entry := range now.List(keyConfigs) {
		name, project, _ := strings.Cut(nameOf(entry.Key, keyConfigs), "/")
		if f := forwarders[name]; f != nil {
			f.Projects = append(f.Projects, project)
		}
	}
	for _, entry := range now.List(keyRefusals) {
		name, project, _ := strings.Cut(nameOf(entry.Key, keyRefusals), "/")
		var one refusal
		if err := decodeRecord(entry, &one); err != nil {
			return nil, err
		}
		if f := forwarders[name]; f != nil {
			f.TakenBack = append(f.TakenBack, project+": "+one.Error)
		}
	}
	response := &pb.ListForwardersResponse{}
	for _, name := range slices.Sorted(maps.Keys(forwarders)) {
		response.Forwarders = append(response.Forwarders, forwarders[name])
	}
	return connect.NewResponse(response), nil
}

// forwarderIn returns the state of a forwarder in a snapshot.
func forwarderIn(snapshot cluster.Snapshot, name string) (*pb.Forwarder, error) {
	var has owner
	var now status
	var load measured
	for key, into := range map[string]any{keyOwners: &has, keyStatus: &now, keyLoads: &load} {
		if entry := snapshot.Get(key + name); entry.Revision != 0 {
			if err := decodeRecord(entry, into); err != nil {
				return nil, err
			}
		}
	}
	desired := snapshot.Get(keyDesired + name).Revision
	return &pb.Forwarder{
		Name: name, Controller: has.URL, DesiredRevision: desired, AppliedRevision: now.Applied,
		InForwarder: now.InForwarder && now.Applied == desired && load.Down == "", Lost: load.Down, Error: now.Error, ChangedUnixS: uint64(now.At),
	}, nil
}

// ---- projects -----------------------------------------------------------------------------------

// SetProject implements the service.
func (s *Server) SetProject(ctx context.Context, request *connect.Request[pb.SetProjectRequest]) (*connect.Response[pb.SetProjectResponse], error) {
	caller, wanted := from(ctx), request.Msg.GetProject()
	if !caller.admin() {
		return nil, denied("only an admin changes projects, and %s is none", caller)
	}
	if err := pki.CheckName("project", wanted.GetName()); err != nil {
		return nil, invalid(err)
	}
	vips, err := prefixesOf("VIP", wanted.GetVipPrefixes())
	if err != nil {
		return nil, invalid(err)
	}
	servers, err := prefixesOf("server", wanted.GetServerPrefixes())
	if err != nil {
		return nil, invalid(err)
	}
	_, err = s.retry(ctx, func() (*cluster.Txn, error) {
		record, entry, err := read[project](ctx, s.store, keyProjects+wanted.GetName())
		if err != nil {
			return nil, err
		}
		record.VIPs, record.Servers = vips, servers
		record.MaxServices, record.MaxServers, record.Forwarders = wanted.GetMaxServices(), wanted.GetMaxServers(), wanted.GetForwarders()
		slices.Sort(record.Forwarders)
		txn := new(cluster.Txn).Unchanged(entry).Put(entry.Key, encode(record), 0)
		detail := fmt.Sprintf("services %d, servers %d, forwarders %s, VIPs in %s, servers in %s", record.MaxServices, record.MaxServers,
			strings.Join(record.Forwarders, ","), prefixText(record.VIPs), prefixText(record.Servers))
		return s.record(txn, caller.String(), "set project", "", wanted.GetName(), detail), nil
	})
	return connect.NewResponse(&pb.SetProjectResponse{}), err
}

// RemoveProject implements the service.
func (s *Server) RemoveProject(ctx context.Context, request *connect.Request[pb.RemoveProjectRequest]) (*connect.Response[pb.RemoveProjectResponse], error) {
	caller, name := from(ctx), request.Msg.GetName()
	if !caller.admin() {
		return nil, denied("only an admin removes projects, and %s is none", caller)
	}
	_, err := s.retry(ctx, func() (*cluster.Txn, error) {
		now, err := s.store.Snapshot(ctx, keyProjects+name, keyVIPs)
		if err != nil {
			return nil, unavailable(err)
		}
		var record project
		entry := now.Get(keyProjects + name)
		if entry.Revision == 0 {
			return nil, missing("there is no project %q", name)
		}
		if err := decodeRecord(entry, &record); err != nil {
			return nil, err
		}
		open, err := requestsOf(name, now.List(keyVIPs))
		switch {
		case err != nil:
			return nil, err
		case open.Services > 0:
			return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("the project %s has %d requests: end them first (`steelyard nfv delete`)", name, open.Services))
		case record.total().Services > 0:
			return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("the project %s has %d services: apply files without any first",
				name, record.total().Services))
		}
		txn := new(cluster.Txn).Unchanged(entry).NoneSince(keyVIPs, now.Revision).Delete(entry.Key)
		return s.record(txn, caller.String(), "remove project", "", name, ""), nil
	})
	return connect.NewResponse(&pb.RemoveProjectResponse{}), err
}

// ListProjects implements the service.
func (s *Server) ListProjects(ctx context.Context, _ *connect.Request[pb.ListProjectsRequest]) (*connect.Response[pb.ListProjectsResponse], error) {
	if caller := from(ctx); !caller.mayRead() {
		return nil, denied("%s may not read", caller)
	}
	entries, _, err := s.store.List(ctx, keyProjects)
	if err != nil {
		return nil, unavailable(err)
	}
	response := &pb.ListProjectsResponse{}
	for _, entry := range entries {
		var p project
		if err := decodeRecord(entry, &p); err != nil {
			return nil, err
		}
		total := p.total()
		response.Projects = append(response.Projects, &pb.Project{
			Name: nameOf(entry.Key, keyProjects), MaxServices: p.MaxServices, MaxServers: p.MaxServers, Forwarders: p.Forwarders,
			Services: total.Services, Servers: total.Servers, VipPrefixes: prefixTexts(p.VIPs), ServerPrefixes: prefixTexts(p.Servers),
		})
	}
	return connect.NewResponse(response), nil
}

// ---- records ------------------------------------------------------------------------------------

// ListAudit implements the service.
func (s *Server) ListAudit(ctx context.Context, request *connect.Request[pb.ListAuditRequest]) (*connect.Response[pb.ListAuditResponse], error) {
	if caller := from(ctx); !caller.mayRead() {
		return nil, denied("%s may not read", caller)
	}
	limit := int64(request.Msg.GetLimit())
	if limit == 0 {
		limit = 100
	}
	read := min(limit, 1000)
	if request.Msg.GetEvents() {
		read = maxAudit
	}
	entries, err := s.store.Last(ctx, keyAudit, read)
	if err != nil {
		return nil, unavailable(err)
	}
	response := &pb.ListAuditResponse{}
	for _, entry := range entries {
		var a audit
		if err := decodeRecord(entry, &a); err != nil {
			return nil, err
		}
		if request.Msg.GetEvents() && !slices.Contains(eventKinds, a.What) || int64(len(response.Records)) >= min(limit, 1000) {
			continue
		}
		response.Records = append(response.Records, &pb.AuditRecord{
			AtUnixMs: uint64(a.At), Who: a.Who, What: a.What, Forwarder: a.Forwarder, Project: a.Project, Detail: a.Detail, Revision: entry.Revision,
		})
	}
	return connect.NewResponse(response), nil
}

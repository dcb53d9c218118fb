// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	who, m := from(ctx), request.Msg
	if !who.admin() {
		return nil, denied("only an admin makes tokens, and %s is none", who)
	}
	if err := pki.CheckName("member", m.GetName()); err != nil {
		return nil, invalid(err)
	}
	if m.GetRole() < pb.Role_ROLE_FORWARDER || m.GetRole() > pb.Role_ROLE_VIEWER {
		return nil, invalid(errors.New("the role is missing: forwarder, admin, operator or viewer"))
	}
	if (m.GetRole() == pb.Role_ROLE_OPERATOR) != (len(m.GetProjects()) > 0) {
		return nil, invalid(errors.New("an operator, and nobody else, has projects: name at least one"))
	}
	life := time.Duration(m.GetValidS()) * time.Second
	switch {
	case life == 0:
		life = defaultTokens
	case life > 30*24*time.Hour:
		return nil, invalid(errors.New("a token holds for 30 days at most"))
	}
	token, err := pki.NewToken(s.authority.Hash())
	if err != nil {
		return nil, err
	}
	lease, err := s.store.Grant(ctx, life)
	if err != nil {
		return nil, unavailable(err)
	}
	expires := s.now().Add(life)
	txn := new(cluster.Txn).Put(keyTokens+token.ID, encode(tokenRecord{m.GetName(), m.GetRole(), m.GetProjects(), token.SecretHash(), expires.Unix()}), lease)
	s.record(txn, who.String(), "create token", "", "", "for "+m.GetName()+", "+roleText(m.GetRole()))
	if _, err := s.store.Commit(ctx, txn); err != nil {
		return nil, unavailable(err)
	}
	return connect.NewResponse(&pb.CreateTokenResponse{Token: token.String(), ExpiresUnixS: uint64(expires.Unix())}), nil
}

func roleText(role pb.Role) string {
	return strings.ToLower(strings.TrimPrefix(role.String(), "ROLE_"))
}

// Join implements the service.
func (s *Server) Join(ctx context.Context, request *connect.Request[pb.JoinRequest]) (*connect.Response[pb.JoinResponse], error) {
	refused := connect.NewError(connect.CodeUnauthenticated, errors.New("this token is not valid: it was used, or has expired; make another one by `steelyard token create`"))
	token, err := pki.ParseToken(request.Msg.GetToken())
	if err != nil {
		return nil, invalid(err)
	}
	record, entry, err := read[tokenRecord](ctx, s.store, keyTokens+token.ID)
	if err != nil {
		return nil, err
	}
	// The lease removes it too, but later if etcd had no leader.
	if entry.Revision == 0 || !token.Matches(record.Secret) || s.now().Unix() > record.Expires {
		return nil, refused
	}
	joined := member{Role: record.Role, Projects: record.Projects, Joined: s.now().Unix()}
	certificate, err := s.authority.Sign(request.Msg.GetRequest(), pki.Name{Kind: joined.kind(), Name: record.Name}, s.now())
	if err != nil {
		return nil, invalid(err)
	}
	joined.Key = pki.KeyHash(certificate)
	txn := new(cluster.Txn).Unchanged(entry).Delete(entry.Key).Put(keyMembers+record.Name, encode(joined), 0)
	s.record(txn, joined.kind()+"/"+record.Name, "join", "", "", "as "+roleText(record.Role))
	if _, err := s.store.Commit(ctx, txn); errors.Is(err, cluster.ErrConflict) {
		return nil, refused
	} else if err != nil {
		return nil, unavailable(err)
	}
	return connect.NewResponse(s.issued(ctx, certificate.Raw)), nil
}

func (s *Server) issued(ctx context.Context, certificate []byte) *pb.JoinResponse {
	return &pb.JoinResponse{Certificate: certificate, Authorities: [][]byte{s.authority.Certificate.Raw}, Controllers: s.controllers(ctx)}
}

// Renew implements the service.
func (s *Server) Renew(ctx context.Context, request *connect.Request[pb.RenewRequest]) (*connect.Response[pb.JoinResponse], error) {
	who := from(ctx)
	certificate, err := s.authority.Sign(request.Msg.GetRequest(), who.Name, s.now())
	if err != nil {
		return nil, invalid(err)
	}
	// The key stays for as long as the membership: an answer that is lost costs nothing.
	if pki.KeyHash(certificate) != who.Key {
		return nil, invalid(errors.New("a certificate is renewed for the same key: join again for another one"))
	}
	return connect.NewResponse(s.issued(ctx, certificate.Raw)), nil
}

// RemoveMember implements the service.
func (s *Server) RemoveMember(ctx context.Context, request *connect.Request[pb.RemoveMemberRequest]) (*connect.Response[pb.RemoveMemberResponse], error) {
	who, name := from(ctx), request.Msg.GetName()
	if !who.admin() {
		return nil, denied("only an admin removes members, and %s is none", who)
	}
	_, err := s.retry(ctx, func() (*cluster.Txn, error) {
		entry, err := s.store.Get(ctx, keyMembers+name)
		if err != nil {
			return nil, unavailable(err)
		}
		if entry.Revision == 0 {
			return nil, missing("there is no member %q", name)
		}
		configs, _, err := s.store.List(ctx, keyConfigs+name+"/")
		if err != nil {
			return nil, unavailable(err)
		}
		desired, err := s.store.Get(ctx, keyDesired+name)
		if err != nil {
			return nil, unavailable(err)
		}
		txn := new(cluster.Txn).Unchanged(entry).Unchanged(desired).Delete(entry.Key).Delete(keyDesired + name).Delete(keyStatus + name)
		for _, one := range configs {
			key := keyProjects + nameOf(one.Key, keyConfigs+name+"/")
			record, projectEntry, err := read[project](ctx, s.store, key)
			if err != nil {
				return nil, err
			}
			delete(record.Usage, name)
			txn.Unchanged(one).Delete(one.Key).Unchanged(projectEntry).Put(key, encode(record), 0)
		}
		return s.record(txn, who.String(), "remove member", "", "", name), nil
	})
	return connect.NewResponse(&pb.RemoveMemberResponse{}), err
}

// ---- forwarders ---------------------------------------------------------------------------------

// ListForwarders implements the service.
func (s *Server) ListForwarders(ctx context.Context, _ *connect.Request[pb.ListForwardersRequest]) (*connect.Response[pb.ListForwardersResponse], error) {
	if who := from(ctx); !who.mayRead() {
		return nil, denied("%s may not read", who)
	}
	members, _, err := s.store.List(ctx, keyMembers)
	if err != nil {
		return nil, unavailable(err)
	}
	response := &pb.ListForwardersResponse{}
	for _, entry := range members {
		var m member
		if err := decodeRecord(entry, &m); err != nil {
			return nil, err
		}
		if m.Role != pb.Role_ROLE_FORWARDER {
			continue
		}
		f, err := s.forwarder(ctx, nameOf(entry.Key, keyMembers))
		if err != nil {
			return nil, err
		}
		response.Forwarders = append(response.Forwarders, f)
	}
	return connect.NewResponse(response), nil
}

func (s *Server) forwarder(ctx context.Context, name string) (*pb.Forwarder, error) {
	owner, _, err := read[owner](ctx, s.store, keyOwners+name)
	if err != nil {
		return nil, err
	}
	now, _, err := read[status](ctx, s.store, keyStatus+name)
	if err != nil {
		return nil, err
	}
	desired, err := s.store.Get(ctx, keyDesired+name)
	if err != nil {
		return nil, unavailable(err)
	}
	configs, _, err := s.store.List(ctx, keyConfigs+name+"/")
	if err != nil {
		return nil, unavailable(err)
	}
	f := &pb.Forwarder{
		Name: name, Controller: owner.URL, DesiredRevision: desired.Revision, AppliedRevision: now.Applied,
		InForwarder: now.InForwarder && now.Applied == desired.Revision, Error: now.Error, ChangedUnixS: uint64(now.At),
	}
	for _, config := range configs {
		f.Projects = append(f.Projects, nameOf(config.Key, keyConfigs+name+"/"))
	}
	return f, nil
}

// await waits until an agent has answered to a revision; nil: no agent is connected.
func (s *Server) await(ctx context.Context, forwarder string, revision int64) (*status, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)*9/10)
		defer cancel()
	}
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})
	defer stop()
	for {
		s.mu.Lock()
		seen := s.seen
		s.mu.Unlock()
		now, _, err := read[status](ctx, s.store, keyStatus+forwarder)
		if err == nil && (now.Applied >= revision || now.Refused == revision) {
			return &now, nil
		}
		entry, ownerErr := s.store.Get(ctx, keyOwners+forwarder)
		if err == nil && ownerErr == nil && entry.Revision == 0 {
			return nil, nil
		}
		if ctx.Err() != nil {
			return nil, unavailable(fmt.Errorf("the configuration is saved, but the agent of %s has not answered yet", forwarder))
		}
		if err := errors.Join(err, ownerErr); err != nil {
			return nil, unavailable(err)
		}
		s.mu.Lock()
		for s.seen == seen && ctx.Err() == nil {
			s.changed.Wait()
		}
		s.mu.Unlock()
	}
}

// ---- projects -----------------------------------------------------------------------------------

// SetProject implements the service.
func (s *Server) SetProject(ctx context.Context, request *connect.Request[pb.SetProjectRequest]) (*connect.Response[pb.SetProjectResponse], error) {
	who, wanted := from(ctx), request.Msg.GetProject()
	if !who.admin() {
		return nil, denied("only an admin changes projects, and %s is none", who)
	}
	if err := pki.CheckName("project", wanted.GetName()); err != nil {
		return nil, invalid(err)
	}
	_, err := s.retry(ctx, func() (*cluster.Txn, error) {
		record, entry, err := read[project](ctx, s.store, keyProjects+wanted.GetName())
		if err != nil {
			return nil, err
		}
		record.MaxServices, record.MaxServers, record.Forwarders = wanted.GetMaxServices(), wanted.GetMaxServers(), wanted.GetForwarders()
		slices.Sort(record.Forwarders)
		txn := new(cluster.Txn).Unchanged(entry).Put(entry.Key, encode(record), 0)
		detail := fmt.Sprintf("services %d, servers %d, forwarders %s", record.MaxServices, record.MaxServers, strings.Join(record.Forwarders, ","))
		return s.record(txn, who.String(), "set project", "", wanted.GetName(), detail), nil
	})
	return connect.NewResponse(&pb.SetProjectResponse{}), err
}

// RemoveProject implements the service.
func (s *Server) RemoveProject(ctx context.Context, request *connect.Request[pb.RemoveProjectRequest]) (*connect.Response[pb.RemoveProjectResponse], error) {
	who, name := from(ctx), request.Msg.GetName()
	if !who.admin() {
		return nil, denied("only an admin removes projects, and %s is none", who)
	}
	_, err := s.retry(ctx, func() (*cluster.Txn, error) {
		record, entry, err := read[project](ctx, s.store, keyProjects+name)
		switch {
		case err != nil:
			return nil, err
		case entry.Revision == 0:
			return nil, missing("there is no project %q", name)
		case record.total().Services > 0:
			return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("the project %s has %d services: apply files without any first",
				name, record.total().Services))
		}
		return s.record(new(cluster.Txn).Unchanged(entry).Delete(entry.Key), who.String(), "remove project", "", name, ""), nil
	})
	return connect.NewResponse(&pb.RemoveProjectResponse{}), err
}

// ListProjects implements the service.
func (s *Server) ListProjects(ctx context.Context, _ *connect.Request[pb.ListProjectsRequest]) (*connect.Response[pb.ListProjectsResponse], error) {
	if who := from(ctx); !who.mayRead() {
		return nil, denied("%s may not read", who)
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
			Services: total.Services, Servers: total.Servers,
		})
	}
	return connect.NewResponse(response), nil
}

// ---- records ------------------------------------------------------------------------------------

// ListAudit implements the service.
func (s *Server) ListAudit(ctx context.Context, request *connect.Request[pb.ListAuditRequest]) (*connect.Response[pb.ListAuditResponse], error) {
	if who := from(ctx); !who.mayRead() {
		return nil, denied("%s may not read", who)
	}
	limit := int64(request.Msg.GetLimit())
	if limit == 0 {
		limit = 100
	}
	entries, err := s.store.Last(ctx, keyAudit, min(limit, 1000))
	if err != nil {
		return nil, unavailable(err)
	}
	response := &pb.ListAuditResponse{}
	for _, entry := range entries {
		var a audit
		if err := decodeRecord(entry, &a); err != nil {
			return nil, err
		}
		response.Records = append(response.Records, &pb.AuditRecord{
			AtUnixMs: uint64(a.At), Who: a.Who, What: a.What, Forwarder: a.Forwarder, Project: a.Project, Detail: a.Detail, Revision: entry.Revision,
		})
	}
	return connect.NewResponse(response), nil
}

// Watch implements the service.
func (s *Server) Watch(ctx context.Context, request *connect.Request[pb.WatchRequest], stream *connect.ServerStream[pb.WatchResponse]) error {
	if who := from(ctx); !who.mayRead() {
		return denied("%s may not read", who)
	}
	after := request.Msg.GetAfterRevision()
	if after == 0 {
		var err error
		if _, after, err = s.store.List(ctx, keyControllers); err != nil {
			return unavailable(err)
		}
	}
	// The first one says from where: a caller that was cut off goes on from the last revision that it has.
	if err := stream.Send(&pb.WatchResponse{Revision: after, What: "watching"}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(s.ctx, cancel)
	defer stop()
	var failed error
	err := s.store.Watch(ctx, "", after, func(event cluster.Event) {
		if message := describe(event); message != nil && failed == nil {
			if failed = stream.Send(message); failed != nil {
				cancel()
			}
		}
	})
	return errors.Join(failed, err)
}

// describe returns the event of a change in the store; nil: it is nobody's concern.
func describe(event cluster.Event) *pb.WatchResponse {
	kind, name, _ := strings.Cut(event.Key, "/")
	message := &pb.WatchResponse{Revision: event.Revision, Forwarder: name}
	switch kind + "/" {
	case keyDesired:
		message.What = "desired"
	case keyStatus:
		var now status
		if event.Deleted || json.Unmarshal(event.Value, &now) != nil {
			return nil
		}
		message.What, message.Detail = "status", fmt.Sprintf("revision %d", now.Applied)
		if now.Error != "" {
			message.Detail += ": " + now.Error
		}
	case keyOwners:
		var now owner
		if message.What = "owner-gone"; !event.Deleted {
			message.What = "owner"
			_ = json.Unmarshal(event.Value, &now) // without it, the event has no detail
			message.Detail = now.URL
		}
	case keyMembers:
		if message.What = "removed"; !event.Deleted {
			message.What = "joined"
		}
	default:
		return nil
	}
	return message
}

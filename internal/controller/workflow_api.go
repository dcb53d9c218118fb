// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"steelyard/internal/cluster"
	"steelyard/internal/dpclient"
	agentpb "steelyard/internal/gen/agentpb"
	"steelyard/internal/gen/agentpb/agentpbconnect"
	pb "steelyard/internal/gen/nfvpb"
	"steelyard/internal/gen/nfvpb/nfvpbconnect"
	"steelyard/internal/nfv"
	"steelyard/internal/pki"
	"steelyard/internal/placement"
	"steelyard/internal/stall"

	"connectrpc.com/connect"
)

// maxBalancing bounds the size of a request: 4096 real services with settings.
const maxBalancing = 4 << 20

// Bounds of the size of requests in etcd.
const (
	maxRequest      = 1 << 20 // bytes of a record; etcd accepts 1.5 MB
	maxOpenRequests = 4096    // of a project, unless its quota of services says otherwise
)

// workflowService serves NfvService. Any controller answers; only the leader works on recorded requests.
type workflowService struct{ server *Server }

var _ nfvpbconnect.NfvServiceHandler = workflowService{}

func (w workflowService) find(ctx context.Context, id string) (*nfv.Record, *pb.Balancing, cluster.Entry, error) {
	record, entry, err := read[nfv.Record](ctx, w.server.store, keyRequests+id)
	if err != nil {
		return nil, nil, entry, err
	}
	if entry.Revision == 0 {
		return nil, nil, entry, missing("there is no request %q: `steelyard get requests` lists them", id)
	}
	wanted, err := record.Balancing()
	return &record, wanted, entry, err
}

// normalRequest checks a request and the caller's right to it, and returns it with defaults filled in.
func (s *Server) normalRequest(ctx context.Context, asked *pb.Balancing) (*pb.Balancing, error) {
	project, caller := cmp.Or(asked.GetProject(), nfv.DefaultProject), from(ctx)
	if err := pki.CheckName("project", project); err != nil {
		return nil, invalid(err)
	}
	if !caller.mayApply(project) { // before its settings are parsed
		return nil, denied("%s may not request in the project %s", caller, project)
	}
	done, err := s.inFlight.startComputing(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer done()
	wanted, err := nfv.Normal(asked)
	if err == nil {
		err = nfv.Check(wanted)
	}
	if err != nil {
		return nil, invalid(err)
	}
	return wanted, nil
}

// RequestBalancing implements the service: steps 1 and 2.
func (w workflowService) RequestBalancing(ctx context.Context, request *connect.Request[pb.RequestBalancingRequest]) (
	*connect.Response[pb.RequestBalancingResponse], error) {
	s, caller := w.server, from(ctx)
	if err := pki.CheckName("request", request.Msg.GetBalancing().GetId()); err != nil {
		return nil, invalid(err)
	}
	wanted, err := s.normalRequest(ctx, request.Msg.GetBalancing())
	if err != nil {
		return nil, err
	}
	response := &pb.RequestBalancingResponse{}
	tries, alone := 0, false
	defer func() {
		if alone {
			<-s.alone
		}
	}()
	revision, err := s.retry(ctx, func() (*cluster.Txn, error) {
		// With a quota, only one of several concurrent requests succeeds. From the second attempt on, requests run one at a time.
		if tries++; tries == 2 {
			select {
			case s.alone <- struct{}{}:
				alone = true
			case <-ctx.Done():
				return nil, unavailable(ctx.Err())
			}
		}
		record, entry, err := read[nfv.Record](ctx, s.store, keyRequests+wanted.GetId())
		if err != nil {
			return nil, err
		}
		if entry.Revision != 0 {
			if !record.Same(wanted) {
				return nil, connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("there is a request %s already, with other contents: use another ID, or delete it first", wanted.GetId()))
			}
			response.Existed = true
			response.Status, err = record.Status(entry.Revision)
			return nil, err
		}
		fresh, err := nfv.NewRecord(wanted, s.now())
		if err != nil {
			return nil, err
		}
		if response.Status, err = fresh.Status(0); err != nil {
			return nil, err
		}
		data := encode(fresh)
		if len(data) > maxRequest {
			return nil, invalid(fmt.Errorf("the request has %d kB, at most %d are possible: split it into several requests", len(data)>>10, maxRequest>>10))
		}
		if err := s.store.Room(ctx, len(data)); err != nil {
			return nil, unstored(err)
		}
		txn := new(cluster.Txn).Unchanged(entry).Put(entry.Key, data, 0)
		if err := w.claim(ctx, txn, wanted); err != nil {
			return nil, err
		}
		return s.record(txn, caller.String(), "request", "", wanted.GetProject(), wanted.GetId()), nil
	})
	if err != nil {
		return nil, err
	}
	if !response.Existed {
		response.Status.Revision = revision
	}
	return connect.NewResponse(response), nil
}

// claim adds to a transaction a new request's claims: its VIP, and its part of the project's quota.
func (w workflowService) claim(ctx context.Context, txn *cluster.Txn, wanted *pb.Balancing) error {
	own := usageOf(wanted)
	if err := w.claimVIP(ctx, txn, wanted); err != nil {
		return err
	}
	p, entry, err := read[project](ctx, w.server.store, keyProjects+wanted.GetProject())
	if err == nil && (entry.Revision != 0 || wanted.GetProject() == nfv.DefaultProject) {
		err = w.claimAddresses(ctx, txn, wanted, p)
	}
	switch {
	case err != nil:
		return err
	case entry.Revision == 0 && wanted.GetProject() != nfv.DefaultProject:
		return missing("there is no project %q: `steelyard get projects` lists them", wanted.GetProject())
	case p.Workflow:
		txn.Exists(entry.Key) // the workflow may change the project meanwhile, but it must not be removed
		return w.quota(ctx, txn, wanted.GetProject(), own, p)
	case wanted.GetProject() == defaultProject || p.total().Services > 0:
		return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("the project %s has services by files: requests need a project of their own, such as %s",
			wanted.GetProject(), nfv.DefaultProject))
	}
	p.Workflow = true // permanent while the project exists
	txn.Unchanged(entry).Put(entry.Key, encode(p), 0)
	return w.quota(ctx, txn, wanted.GetProject(), own, p)
}

// quota rejects a request with which the project would exceed its quota. It counts requests, not files: a request that moves is in two files.
func (w workflowService) quota(ctx context.Context, txn *cluster.Txn, name string, own usage, p project) error {
	held, revision, err := w.server.store.List(ctx, keyVIPs)
	if err != nil {
		return unavailable(err)
	}
	open, err := requestsOf(name, held)
	if err != nil {
		return err
	}
	if may := cmp.Or(p.MaxServices, maxOpenRequests); open.Services+own.Services > may {
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("the requests of the project %s have %d services, with this one %d, its quota is %d: delete some, or ask an admin to raise it",
			name, open.Services, open.Services+own.Services, may))
	}
	if p.MaxServers > 0 && open.Servers+own.Servers > p.MaxServers {
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("the requests of the project %s have %d servers, with this one %d, its quota is %d: delete some, or ask an admin to raise it",
			name, open.Servers, open.Servers+own.Servers, p.MaxServers))
	}
	if p.MaxServices > 0 || p.MaxServers > 0 { // concurrent requests conflict, so that each one is counted
		txn.NoneSince(keyVIPs, revision)
	}
	return nil
}

// change changes a record on behalf of a caller.
func (w workflowService) change(ctx context.Context, id, what string, change func(*nfv.Record) (bool, error)) (*pb.Status, error) {
	s, caller := w.server, from(ctx)
	var status *pb.Status
	revision, err := s.retry(ctx, func() (*cluster.Txn, error) {
		record, wanted, entry, err := w.find(ctx, id)
		if err != nil {
			return nil, err
		}
		if !caller.mayApply(wanted.GetProject()) {
			return nil, denied("%s may not change requests of the project %s", caller, wanted.GetProject())
		}
		ended := record.Ended()
		changed, err := change(record)
		if err == nil {
			status, err = record.Status(entry.Revision)
		}
		if err != nil || !changed {
			return nil, err
		}
		txn := new(cluster.Txn).Unchanged(entry).Put(entry.Key, encode(record), 0)
		if record.Ended() && !ended {
			if err := s.release(ctx, txn, wanted); err != nil {
				return nil, err
			}
		}
		return s.record(txn, caller.String(), what, record.Forwarder, wanted.GetProject(), id), nil
	})
	if err == nil && revision != 0 {
		status.Revision = revision
	}
	return status, err
}

// ConfirmRoute implements the service: step 5 is done.
func (w workflowService) ConfirmRoute(ctx context.Context, request *connect.Request[pb.ConfirmRouteRequest]) (*connect.Response[pb.ConfirmRouteResponse], error) {
	status, err := w.change(ctx, request.Msg.GetId(), "confirm route", func(r *nfv.Record) (bool, error) {
		if r.Route == nil || r.Route.Generation != request.Msg.GetGeneration() {
			have := uint64(0)
			if r.Route != nil {
				have = r.Route.Generation
			}
			return false, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("the route of %s has generation %d now, not %d: read it again",
				request.Msg.GetId(), have, request.Msg.GetGeneration()))
		}
		if r.Route.Confirmed {
			return false, nil
		}
		r.Route.Confirmed = true
		return true, nil
	})
	return connect.NewResponse(&pb.ConfirmRouteResponse{Status: status}), err
}

// DeleteBalancing implements the service.
func (w workflowService) DeleteBalancing(ctx context.Context, request *connect.Request[pb.DeleteBalancingRequest]) (
	*connect.Response[pb.DeleteBalancingResponse], error) {
	status, err := w.change(ctx, request.Msg.GetId(), "delete request", func(r *nfv.Record) (bool, error) { return r.Delete(w.server.now()), nil })
	return connect.NewResponse(&pb.DeleteBalancingResponse{Status: status}), err
}

// GetBalancing implements the service. It queries the forwarder for health and ranges.
func (w workflowService) GetBalancing(ctx context.Context, request *connect.Request[pb.GetBalancingRequest]) (*connect.Response[pb.GetBalancingResponse], error) {
	if caller := from(ctx); !caller.mayRead() {
		return nil, denied("%s may not read", caller)
	}
	record, wanted, entry, err := w.find(ctx, request.Msg.GetId())
	if err != nil {
		return nil, err
	}
	status, err := record.Status(entry.Revision)
	if err != nil {
		return nil, err
	}
	if forwarder := record.Forwarder; forwarder != "" && record.State != pb.State_STATE_CONFIGURING {
		for n, name := range nfv.ServiceNames(wanted) {
			if err := w.server.fillAt(ctx, nfv.Services(status.Wanted)[n], forwarder, wanted.GetProject()+"."+name); err != nil {
				status.Warnings = append(status.Warnings, "health and ranges are unknown: "+messageOf(err))
				break
			}
		}
	}
	return connect.NewResponse(&pb.GetBalancingResponse{Status: status}), nil
}

// agentOf returns a client of a forwarder's agent, over the controller that has its connection.
func (s *Server) agentOf(ctx context.Context, forwarder string) (agentpbconnect.AgentServiceClient, func(http.Header), error) {
	s.mu.Lock()
	one := s.sessions[forwarder]
	s.mu.Unlock()
	if one != nil {
		return one.agent, func(http.Header) {}, nil
	}
	other, entry, err := read[owner](ctx, s.store, keyOwners+forwarder)
	if err != nil {
		return nil, nil, err
	}
	if entry.Revision == 0 || other.ID == s.id {
		return nil, nil, unavailable(fmt.Errorf("no agent of %q is connected", forwarder))
	}
	mark := func(h http.Header) {
		h.Set(behalfHeader, pki.Controller+"/"+s.id)
		h.Set(ForwarderHeader, forwarder)
	}
	return agentpbconnect.NewAgentServiceClient(&http.Client{Transport: s.peers}, other.URL), mark, nil
}

// fillAt does the same as fill at a forwarder, or at the first node of a group that answers.
func (s *Server) fillAt(ctx context.Context, v *pb.VirtualService, place, name string) error {
	if !isGroup(place) {
		return s.fill(ctx, v, place, name)
	}
	nodes, err := s.nodesOf(ctx, nameOf(place, GroupHeader))
	for _, node := range nodes {
		if err = s.fill(ctx, v, node, name); err == nil {
			return nil
		}
	}
	return err
}

// fill adds the forwarder's state of a service: the health of its real services, and their ranges.
func (s *Server) fill(ctx context.Context, v *pb.VirtualService, forwarder, name string) error {
	ctx, cancel := stall.WithTimeout(ctx, measureTimeout)
	defer cancel()
	agent, mark, err := s.agentOf(ctx, forwarder)
	if err != nil {
		return err
	}
	request := connect.NewRequest(&agentpb.ListServicesRequest{Name: name})
	mark(request.Header())
	response, err := agent.ListServices(ctx, request)
	if err != nil {
		return err
	}
	if len(response.Msg.GetServices()) != 1 {
		return errors.New("the forwarder does not have the service")
	}
	fillRanges(v, response.Msg.GetServices()[0].GetServers())
	return nil
}

// fillRanges computes the ranges of equation (10): adjacent parts of new sessions. Servers that are not up have none.
func fillRanges(v *pb.VirtualService, servers []*agentpb.ServerInfo) {
	known, sum := map[string]*agentpb.ServerInfo{}, 0.0
	for _, server := range servers {
		address, err := dpclient.ServerAddressFromWire(server.GetServer())
		if err != nil {
			continue // its health stays unknown
		}
		known[nfv.Key(v.GetProtocol(), address.Addr(), address.Port())] = server
		sum += partOf(server)
	}
	at := 0.0
	for _, r := range v.GetRealServices() {
		server := known[r.GetKey()]
		if server == nil {
			continue
		}
		if server.GetServer().GetState() != dpclient.ServerDown {
			r.Health = 1
		}
		part := 0.0
		if sum > 0 {
			part = partOf(server) / sum
		}
		r.Reserved = &pb.Range{From: at, To: at + part}
		at += part
	}
}

// partOf returns a server's measured share, or else its weight, if it accepts new sessions.
func partOf(server *agentpb.ServerInfo) float64 {
	if server.GetServer().GetState() != dpclient.ServerUp || server.GetServer().GetBackup() {
		return 0
	}
	if share := server.GetShare().GetShare(); share > 0 {
		return share
	}
	return float64(server.GetServer().GetWeight())
}

// ListBalancings implements the service.
func (w workflowService) ListBalancings(ctx context.Context, request *connect.Request[pb.ListBalancingsRequest]) (
	*connect.Response[pb.ListBalancingsResponse], error) {
	if caller := from(ctx); !caller.mayRead() {
		return nil, denied("%s may not read", caller)
	}
	entries, revision, err := w.server.store.List(ctx, keyRequests)
	if err != nil {
		return nil, unavailable(err)
	}
	response := &pb.ListBalancingsResponse{Revision: revision}
	for _, entry := range entries {
		status, err := statusOf(entry)
		if err != nil {
			return nil, err
		}
		project := request.Msg.GetProject()
		if (project == "" || project == status.GetWanted().GetProject()) && (request.Msg.GetRemoved() || status.GetState() != pb.State_STATE_REMOVED) {
			response.Balancings = append(response.Balancings, status)
		}
	}
	return connect.NewResponse(response), nil
}

func statusOf(entry cluster.Entry) (*pb.Status, error) {
	var r nfv.Record
	if err := json.Unmarshal(entry.Value, &r); err != nil {
		return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("%s in etcd: %w", entry.Key, err))
	}
	return r.Status(entry.Revision)
}

// WatchBalancings implements the service.
func (w workflowService) WatchBalancings(ctx context.Context, request *connect.Request[pb.WatchBalancingsRequest],
	stream *connect.ServerStream[pb.WatchBalancingsResponse]) error {
	describe := func(event cluster.Event) (*pb.WatchBalancingsResponse, error) {
		id := nameOf(event.Key, keyRequests)
		if request.Msg.GetId() != "" && request.Msg.GetId() != id {
			return nil, nil
		}
		if event.Deleted {
			return &pb.WatchBalancingsResponse{Forgotten: true, Status: &pb.Status{Wanted: &pb.Balancing{Id: id}, Revision: event.Revision}}, nil
		}
		status, err := statusOf(event.Entry)
		if err != nil {
			return nil, err
		}
		return &pb.WatchBalancingsResponse{Status: status}, nil
	}
	return follow(ctx, w.server, keyRequests, func(ctx context.Context) (int64, error) {
		if err := stream.Send(nil); err != nil { // sends the headers, so that the caller knows that the watch is open
			return 0, err
		}
		if after := request.Msg.GetAfterRevision(); after != 0 {
			return after, nil
		}
		entries, revision, err := w.server.store.List(ctx, keyRequests)
		if err != nil {
			return 0, unavailable(err)
		}
		for _, entry := range entries {
			message, err := describe(cluster.Event{Entry: entry})
			if err == nil && message != nil {
				err = stream.Send(message)
			}
			if err != nil {
				return 0, err
			}
		}
		return revision, nil
	}, describe, stream.Send)
}

// GetPlacement implements the service.
func (w workflowService) GetPlacement(ctx context.Context, _ *connect.Request[pb.GetPlacementRequest]) (*connect.Response[pb.GetPlacementResponse], error) {
	s := w.server
	if caller := from(ctx); !caller.mayRead() {
		return nil, denied("%s may not read", caller)
	}
	p, _, err := s.loadPicture(ctx)
	if err != nil {
		return nil, err
	}
	leads, _, err := read[owner](ctx, s.store, keyLeader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	options := placement.New(s.placing).Options()
	forwarders, services := p.forwarders(now), p.services(s.now(), now)
	response := &pb.GetPlacementResponse{Leader: leads.URL, MissingSpare: options.MissingSpare(now, forwarders, services)}
	for _, r := range options.Rank(now, forwarders, services) {
		one := &pb.Place{Forwarder: r.Name, Serves: r.Away.IsZero(), Why: r.Text, Load: r.Number, Workers: r.Load.Busy, Table: r.Load.Table, Link: r.Load.Link,
			Services: uint32(r.Services)}
		if !one.Serves {
			one.Why = r.Why
		}
		if _, _, known := p.loadOf(r.Name); known {
			for _, name := range p.living(r.Name) {
				one.AgeMs = max(one.AgeMs, uint64(s.loadAge(name).Milliseconds()))
			}
		}
		response.Forwarders = append(response.Forwarders, one)
	}
	return connect.NewResponse(response), nil
}

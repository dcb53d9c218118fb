// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"steelyard/internal/dpclient"
	pb "steelyard/internal/gen/agentpb"
	"steelyard/internal/model"
	"steelyard/internal/sampling"
	"steelyard/internal/store"

	"connectrpc.com/connect"
)

// ListServices implements the service: the agent's desired services, with the forwarder's counters.
func (s *Server) ListServices(ctx context.Context, request *connect.Request[pb.ListServicesRequest]) (
	*connect.Response[pb.ListServicesResponse], error) {
	snapshot := s.Store.Snapshot()
	name, names := request.Msg.GetName(), request.Msg.GetNames()
	services, err := chooseServices(snapshot, name, names)
	if err != nil {
		return nil, invalid(err)
	}
	response := &pb.ListServicesResponse{}
	asked := []*model.ServiceKey{nil} // nil: all services in one request
	if name != "" || len(names) > 0 {
		asked = nil
		for i := range services {
			asked = append(asked, &services[i].Key)
		}
	}
	totals := map[model.ServiceKey]*dpclient.ServiceStats{}
	counters := map[model.ServerRef]*dpclient.Traffic{}
	err = s.withForwarder(ctx, func(c *dpclient.Client) error {
		for _, only := range asked {
			if err := c.EachService(ctx, only, func(stats *dpclient.ServiceStats) error {
				return noteTraffic(stats, totals, counters)
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		response.Warnings = append(response.Warnings, "no counters: "+errorText(err))
	}
	response.SampledNs = uint64(time.Since(s.Started))
	for _, service := range services {
		info := s.describe(service, snapshot)
		info.Traffic, info.SynDefence = totals[service.Key].GetTraffic(), totals[service.Key].GetSynDefence()
		info.RefusedByClientLimits = totals[service.Key].GetRefusedByClientLimits()
		info.Drops, info.Unavailable = totals[service.Key].GetDrops(), totals[service.Key].GetUnavailable()
		if name != "" {
			s.concern(info, service.Key, snapshot.Config)
		}
		for i, server := range service.Servers {
			info.Servers[i].Traffic = counters[model.ServerRef{Service: service.Key, Address: server.Address}]
		}
		s.shares(info, &service, totals[service.Key])
		response.Services = append(response.Services, info)
	}
	return connect.NewResponse(response), nil
}

func chooseServices(snapshot store.Snapshot, name string, names []string) ([]model.Service, error) {
	if snapshot.Config == nil {
		if name != "" {
			return nil, fmt.Errorf("no configuration is loaded: see `steelyard get status`")
		}
		return nil, nil
	}
	switch {
	case name == "" && len(names) == 0:
		return snapshot.Config.Services, nil
	case name == "":
		wanted := make(map[string]bool, len(names))
		for _, one := range names {
			wanted[one] = true
		}
		var some []model.Service
		for _, service := range snapshot.Config.Services {
			if wanted[service.Name] {
				some = append(some, service)
			}
		}
		return some, nil
	}
	for i, service := range snapshot.Config.Services {
		if service.Name == name {
			return snapshot.Config.Services[i : i+1], nil
		}
	}
	return nil, fmt.Errorf("no service is named %q: see `steelyard get services`", name)
}

func noteTraffic(stats *dpclient.ServiceStats, totals map[model.ServiceKey]*dpclient.ServiceStats,
	counters map[model.ServerRef]*dpclient.Traffic) error {
	key, err := dpclient.KeyFromWire(stats.GetService().GetKey())
	if err != nil {
		return err
	}
	totals[key] = stats
	for _, server := range stats.GetServers() {
		address, err := dpclient.ServerAddressFromWire(server.GetServer())
		if err != nil {
			return err
		}
		counters[model.ServerRef{Service: key, Address: address}] = server.GetTraffic()
	}
	return nil
}

func (s *Server) describe(service model.Service, snapshot store.Snapshot) *pb.ServiceInfo {
	info := &pb.ServiceInfo{
		Service: dpclient.SpecToWire(service.Key, model.ServiceSpec{
			Name: service.Name, Mode: service.Mode, Policy: service.Policy, Timeouts: service.Timeouts,
		}),
		Health: describePolicy(service.Health),
	}
	forwarder, _ := s.Reconciler.Status()
	marks, silent := forwarder.Marks, s.silent()
	for _, server := range service.Servers {
		ref := model.ServerRef{Service: service.Key, Address: server.Address}
		one := &pb.ServerInfo{
			Server:        dpclient.ServerToWire(server.Address, snapshot.States[ref]),
			DrainedByFile: server.Drain,
		}
		if order, ok := snapshot.Drained[ref]; ok {
			one.DrainedByCommand, one.KilledByCommand = !order.Kill, order.Kill
		}
		one.KilledUnixMs = unixMillis(snapshot.KilledAt[ref])
		if state, ok := s.Checker.State(ref); ok {
			one.Health = &pb.HealthState{
				Up: state.Up, Streak: uint32(state.Streak), LastPassed: state.LastPassed,
				LastError: state.LastError, LastCheckUnixMs: unixMillis(state.LastCheck),
				LastDurationUs: uint64(state.LastDuration.Microseconds()), ChangedUnixMs: unixMillis(state.Changed),
				Undecided: uint32(state.Undecided), UndecidedError: state.UndecidedError,
			}
			one.Health.Target, one.Health.Fallback = checkTarget(service, server, marks.Refused)
		}
		one.Load, one.UnansweredSyns = s.load(ref), silent[ref]
		info.Servers = append(info.Servers, one)
	}
	return info
}

// checkTarget returns the target of a server's checks and, if it should be the VIP, why it is not.
func checkTarget(service model.Service, server model.Server, refused string) (target, fallback string) {
	address := server.Address
	if service.Health.Port != 0 {
		address = netip.AddrPortFrom(address.Addr(), service.Health.Port)
	}
	switch {
	case !service.Mode.OwnsVIP():
		return address.String(), ""
	case refused != "":
		return address.String(), refused
	}
	return netip.AddrPortFrom(service.Key.VIP, address.Port()).String(), ""
}

func describePolicy(h model.Health) *pb.HealthPolicy {
	policy := &pb.HealthPolicy{
		Type: string(h.Type), Port: uint32(h.Port), Path: model.HideQuery(h.Path), Host: h.Host,
		IntervalMs: uint64(h.Interval.Milliseconds()), TimeoutMs: uint64(h.Timeout.Milliseconds()),
		Rise: uint32(h.Rise), Fall: uint32(h.Fall), JitterPercent: uint32(h.Jitter),
		LingerMs: uint64(h.Linger.Milliseconds()),
	}
	if h.Type == model.HealthHTTP {
		policy.Expect = h.Expect.String()
	}
	return policy
}

// maxSessions bounds a listing, and so its memory and the forwarder's time.
const maxSessions = 100_000

// ListSessions implements the service.
func (s *Server) ListSessions(ctx context.Context, request *connect.Request[pb.ListSessionsRequest]) (
	*connect.Response[pb.ListSessionsResponse], error) {
	var filter dpclient.SessionFilter
	if text := request.Msg.GetClient(); text != "" {
		client, err := netip.ParseAddr(text)
		if err != nil {
			return nil, invalid(fmt.Errorf("%q is not a client's address: write one like 192.0.2.7", text))
		}
		filter.Client = client.Unmap()
	}
	if name := request.Msg.GetService(); name != "" {
		services, err := chooseServices(s.Store.Snapshot(), name, nil)
		if err != nil {
			return nil, invalid(err)
		}
		filter.Service = &services[0].Key
	}
	limit := int(min(request.Msg.GetLimit(), maxSessions))
	if limit == 0 {
		limit = 1000
	}
	response := &pb.ListSessionsResponse{}
	err := s.withForwarder(ctx, func(c *dpclient.Client) (err error) {
		response.Sessions, response.More, err = c.Sessions(ctx, filter, limit)
		return err
	})
	return connect.NewResponse(response), err
}

// ListDrops implements the service.
func (s *Server) ListDrops(ctx context.Context, _ *connect.Request[pb.ListDropsRequest]) (
	*connect.Response[pb.ListDropsResponse], error) {
	response := &pb.ListDropsResponse{}
	err := s.withForwarder(ctx, func(c *dpclient.Client) (err error) {
		response.Drops, err = c.Drops(ctx)
		return err
	})
	return connect.NewResponse(response), err
}

// ListPorts implements the service.
func (s *Server) ListPorts(ctx context.Context, _ *connect.Request[pb.ListPortsRequest]) (
	*connect.Response[pb.ListPortsResponse], error) {
	response := &pb.ListPortsResponse{}
	err := s.withForwarder(ctx, func(c *dpclient.Client) (err error) {
		response.Ports, err = c.Ports(ctx)
		return err
	})
	response.SpeedBits = linkSpeeds(response.GetPorts())
	return connect.NewResponse(response), err
}

// ListWorkers implements the service.
func (s *Server) ListWorkers(ctx context.Context, _ *connect.Request[pb.ListWorkersRequest]) (
	*connect.Response[pb.ListWorkersResponse], error) {
	response := &pb.ListWorkersResponse{}
	err := s.withForwarder(ctx, func(c *dpclient.Client) (err error) {
		response.Workers, err = c.Workers(ctx)
		return err
	})
	return connect.NewResponse(response), err
}

// ListSlots implements the service.
func (s *Server) ListSlots(ctx context.Context, _ *connect.Request[pb.ListSlotsRequest]) (
	*connect.Response[pb.ListSlotsResponse], error) {
	response := &pb.ListSlotsResponse{}
	err := s.withForwarder(ctx, func(c *dpclient.Client) (err error) {
		response.Slots, err = c.Slots(ctx)
		return err
	})
	return connect.NewResponse(response), err
}

// ListAccess implements the service.
func (s *Server) ListAccess(ctx context.Context, _ *connect.Request[pb.ListAccessRequest]) (
	*connect.Response[pb.ListAccessResponse], error) {
	response := &pb.ListAccessResponse{}
	err := s.withForwarder(ctx, func(c *dpclient.Client) error {
		access, err := c.Access(ctx)
		response.Lists, response.Sets, response.SetsBytes = access.GetLists(), access.GetSets(), access.GetSetsBytes()
		response.DroppedEarly = access.GetDroppedEarly()
		return err
	})
	for _, file := range s.SetFiles() {
		one := &pb.AccessSetFile{Set: file.Set, Path: file.Path}
		if !file.Loaded.IsZero() {
			one.LoadedUnixMs = uint64(file.Loaded.UnixMilli())
		}
		if file.Err != nil {
			one.Error = file.Err.Error()
		}
		response.SetFiles = append(response.SetFiles, one)
	}
	return connect.NewResponse(response), err
}

// ListSnat implements the service.
func (s *Server) ListSnat(ctx context.Context, _ *connect.Request[pb.ListSnatRequest]) (
	*connect.Response[pb.ListSnatResponse], error) {
	response := &pb.ListSnatResponse{}
	err := s.withForwarder(ctx, func(c *dpclient.Client) (err error) {
		response.Rules, err = c.SNAT(ctx)
		return err
	})
	return connect.NewResponse(response), err
}

// ListAttacks implements the service.
func (s *Server) ListAttacks(ctx context.Context, _ *connect.Request[pb.ListAttacksRequest]) (
	*connect.Response[pb.ListAttacksResponse], error) {
	response := &pb.ListAttacksResponse{}
	err := s.withForwarder(ctx, func(c *dpclient.Client) error {
		attacks, leftOut, err := c.Attacks(ctx)
		response.LeftOut = leftOut
		for _, attack := range attacks {
			response.Attacks = append(response.Attacks, attackInfo(attack, s.Sources(attack)))
		}
		return err
	})
	return connect.NewResponse(response), err
}

func attackInfo(attack *dpclient.Attack, sources sampling.Sources) *pb.Attack {
	info := &pb.Attack{Attack: attack, Samples: sources.Samples}
	for _, source := range sources.Networks {
		info.From = append(info.From, &pb.Attack_Source{
			Address: source.Network.Addr().AsSlice(), Length: uint32(source.Network.Bits()), Percent: source.Percent})
	}
	switch {
	case sources.Spoofed:
		info.Spread = pb.Attack_SPREAD_SPOOFED
	case sources.Many:
		info.Spread = pb.Attack_SPREAD_MANY
	case sources.Clients && len(info.From) == 0:
		info.Spread = pb.Attack_SPREAD_CLIENTS
	}
	return info
}

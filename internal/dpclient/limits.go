// SPDX-License-Identifier: Apache-2.0

package dpclient

import (
	"context"
	"fmt"
	"net/netip"

	pb "steelyard/internal/gen/forwarderpb"
	"steelyard/internal/model"
)

// LimitToWire writes a limit.
func LimitToWire(limit model.Limit) *pb.Limit {
	spec := limit.Spec
	wire := &pb.Limit{
		Name: limit.Name, Tenant: limit.Tenant, Unit: pb.LimitUnit(spec.Unit), PerSecond: spec.PerSecond, Burst: spec.Burst,
		Layer: pb.LimitLayer(spec.Layer), Direction: pb.LimitDirection(spec.Direction), Action: pb.LimitAction(spec.Action),
		Dscp: uint32(spec.Mark), Engine: pb.LimitEngine(spec.Engine), Batch: spec.Batch,
	}
	if spec.ByClient {
		wire.Clients = &pb.LimitClients{Within: prefixesToWire(limit.Within), Prefix4: uint32(spec.Prefix4),
			Prefix6: uint32(spec.Prefix6), Most: spec.MaxClients}
	}
	for _, key := range limit.Services {
		wire.Services = append(wire.Services, keyToWire(key))
	}
	for _, vip := range limit.VIPs {
		wire.Vips = append(wire.Vips, vip.AsSlice())
	}
	for _, server := range limit.Servers {
		wire.Servers = append(wire.Servers, &pb.ServerKey{Service: keyToWire(server.Service),
			Address: server.Address.Addr().AsSlice(), Port: uint32(server.Address.Port())})
	}
	return wire
}

// LimitFromWire reads a limit. Values that the contract lets out have their defaults.
func LimitFromWire(wire *pb.Limit) (model.Limit, error) {
	limit := model.Limit{Name: wire.GetName(), Tenant: wire.GetTenant(), Spec: limitSpecFromWire(wire)}
	var err error
	if limit.Within, err = prefixesFromWire(wire.GetClients().GetWithin()); err != nil {
		return limit, fmt.Errorf("limit %s: %w", limit.Name, err)
	}
	for _, key := range wire.GetServices() {
		service, err := KeyFromWire(key)
		if err != nil {
			return limit, fmt.Errorf("limit %s: %w", limit.Name, err)
		}
		limit.Services = append(limit.Services, service)
	}
	for _, bytes := range wire.GetVips() {
		vip, err := addressFromWire(bytes)
		if err != nil {
			return limit, fmt.Errorf("limit %s: a VIP: %w", limit.Name, err)
		}
		limit.VIPs = append(limit.VIPs, vip)
	}
	for _, server := range wire.GetServers() {
		service, err := KeyFromWire(server.GetService())
		if err != nil {
			return limit, fmt.Errorf("limit %s: %w", limit.Name, err)
		}
		address, err := ServerAddressFromWire(&pb.Server{Address: server.GetAddress(), Port: server.GetPort()})
		if err != nil {
			return limit, fmt.Errorf("limit %s: %w", limit.Name, err)
		}
		limit.Servers = append(limit.Servers, model.ServerRef{Service: service, Address: address})
	}
	limit.Sort()
	return limit, nil
}

func limitSpecFromWire(wire *pb.Limit) model.LimitSpec {
	spec := model.LimitSpec{
		Unit: model.LimitUnit(wire.GetUnit()), PerSecond: wire.GetPerSecond(), Burst: wire.GetBurst(),
		Action: max(model.LimitAction(wire.GetAction()), model.LimitDrop), Engine: model.LimitEngine(wire.GetEngine()),
	}
	if spec.Unit == model.LimitBits {
		spec.Layer = max(model.LimitLayer(wire.GetLayer()), model.LimitL3)
	}
	if spec.Unit != model.LimitSessions {
		spec.Direction = max(model.LimitDirection(wire.GetDirection()), model.LimitBoth)
	}
	if spec.Action == model.LimitMark {
		spec.Mark = model.DSCP(wire.GetDscp())
	}
	if spec.Engine == model.EngineLightLock {
		spec.Batch = wire.GetBatch()
	}
	if clients := wire.GetClients(); clients != nil {
		or := func(n, def uint32) uint32 {
			if n == 0 {
				return def
			}
			return n
		}
		spec.ByClient = true
		spec.Prefix4 = uint8(or(clients.GetPrefix4(), model.LimitPrefix4))
		spec.Prefix6 = uint8(or(clients.GetPrefix6(), model.LimitPrefix6))
		spec.MaxClients = or(clients.GetMost(), model.LimitMaxClients)
	}
	return spec
}

// LimitClientFromWire reads the network of a client.
func LimitClientFromWire(wire *pb.LimitClient) (netip.Prefix, error) {
	prefixes, err := prefixesFromWire([]*pb.Prefix{{Address: wire.GetAddress(), Length: wire.GetLength()}})
	if err != nil {
		return netip.Prefix{}, err
	}
	return prefixes[0], nil
}

// EachLimit calls f with every limit's counters, or with one limit's if name is not empty. Of limits by
// clients it lists at most `worst` clients. The cursor is an index into the list of names. If limits are added or removed between two pages, later ones
// move: one may be repeated, which is hidden from f, or be missed.
func (c *Client) EachLimit(ctx context.Context, name string, worst int, f func(*pb.LimitStats) error) error {
	request := &pb.ListLimitsRequest{Name: name, Worst: uint32(worst)}
	last := "" // names ascend
	for {
		response, err := c.call(ctx, &pb.Request{Body: &pb.Request_ListLimits{ListLimits: request}})
		if err != nil {
			return err
		}
		page := response.GetListLimits()
		for _, limit := range page.GetLimits() {
			if limit.GetLimit().GetName() <= last {
				continue
			}
			last = limit.GetLimit().GetName()
			if err := f(limit); err != nil {
				return err
			}
		}
		if page.GetNextCursor() == 0 || page.GetNextCursor() == request.Cursor {
			return nil
		}
		request.Cursor = page.GetNextCursor()
	}
}

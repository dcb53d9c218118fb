// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"

	"steelyard/internal/cluster"
	"steelyard/internal/drain"
	agentpb "steelyard/internal/gen/agentpb"
	"steelyard/internal/model"

	"connectrpc.com/connect"
)

const mayNotDrain = "%s may drain servers of services of its own projects only: name one by --service"

// drainPlan is an order to drain, computed from the desired configuration of a forwarder.
type drainPlan struct {
	desired cluster.Entry
	servers []drained
	names   []string        // of servers
	done    int             // the number of servers whose orders are stored
	same    map[string]bool // names of servers that had the same order before
	keys    []string        // keys of the last transaction
	found   int64           // revision of the desired configuration
}

// SetDrain implements the service. The store keeps the order, and the agent receives it when it is connected.
func (a *agentService) SetDrain(ctx context.Context, request *connect.Request[agentpb.SetDrainRequest]) (*connect.Response[agentpb.SetDrainResponse], error) {
	s, caller := a.server, from(ctx)
	if !caller.mayDrain(request.Msg.GetService()) {
		return nil, denied(mayNotDrain, caller)
	}
	wanted, err := drain.Read(request.Msg)
	if err != nil {
		return nil, invalid(err)
	}
	forwarder, _, err := s.target(ctx, request.Header())
	if err != nil {
		return nil, err
	}
	p := &drainPlan{}
	for p.done == 0 || p.done < len(p.servers) {
		n := 0
		revision, err := s.retry(ctx, func() (*cluster.Txn, error) {
			if err := s.findDrained(ctx, forwarder, request.Msg, !wanted.Drain, p); err != nil {
				return nil, err
			}
			n = min(maxDrains, len(p.servers)-p.done)
			return s.orderDrain(ctx, caller, forwarder, wanted, request.Msg, p, n)
		})
		if err != nil {
			return nil, err
		}
		p.done, p.found = p.done+n, revision
	}
	response := &agentpb.SetDrainResponse{Servers: p.names}
	for _, name := range p.names {
		if p.same[name] {
			response.Unchanged = append(response.Unchanged, name)
		}
	}
	if warning := s.awaitDrain(ctx, forwarder, p); warning != "" {
		response.Warnings = []string{warning}
	}
	return connect.NewResponse(response), nil
}

// findDrained finds the servers that a request names. It starts anew if the desired configuration has changed since the last call.
func (s *Server) findDrained(ctx context.Context, forwarder string, request *agentpb.SetDrainRequest, end bool, p *drainPlan) error {
	now, err := s.store.Snapshot(ctx, keyMembers+forwarder, keyDesired+forwarder)
	if err != nil {
		return unavailable(err)
	}
	desired := now.Get(keyDesired + forwarder)
	switch {
	case now.Get(keyMembers+forwarder).Revision == 0:
		return missing("there is no forwarder %q: `steelyard get forwarders` lists them", forwarder)
	case desired.Revision == 0:
		return invalid(errors.New("no configuration was applied to " + forwarder + ": apply one first"))
	case desired.Revision == p.desired.Revision:
		return nil
	}
	text, err := s.store.Load(ctx, desired.Value)
	if err != nil {
		return unavailable(err)
	}
	w := s.newWork(defaultProject)
	parsed, err := w.parse(w.mergedParser, "forwarder "+forwarder, text.Text)
	if err != nil {
		return err
	}
	refs, names, err := drain.Find(parsed, "its configuration", request.GetServer(), request.GetService(), end)
	if err != nil {
		return invalid(err)
	}
	services := make(map[model.ServiceKey]string, len(parsed.Services))
	for i := range parsed.Services {
		services[parsed.Services[i].Key] = parsed.Services[i].Name
	}
	*p = drainPlan{desired: desired, names: names, same: map[string]bool{}}
	for _, ref := range refs {
		p.servers = append(p.servers, drained{ref, services[ref.Service]})
	}
	return nil
}

// orderDrain makes the transaction for the next n servers of a plan. It overrides earlier orders.
func (s *Server) orderDrain(ctx context.Context, caller principal, forwarder string, wanted drain.Order, request *agentpb.SetDrainRequest, p *drainPlan, n int) (*cluster.Txn, error) {
	some := p.servers[p.done : p.done+n]
	places, _, err := s.placesOf(ctx, forwarder, some)
	if err != nil {
		return nil, err
	}
	txn := new(cluster.Txn).Exists(keyMembers + forwarder).Unchanged(p.desired)
	p.keys = nil
	for i, one := range some {
		at := places[drain.Text(one.ref)]
		var has drainRecord
		if at.entry.Revision != 0 {
			if err := decodeRecord(at.entry, &has); err != nil {
				return nil, err
			}
		}
		p.same[p.names[p.done+i]] = has.order() == wanted && wanted.Deadline == 0 // a deadline starts again
		record := recordOf(wanted)
		record.Service = at.service
		txn.Unchanged(at.vip).Put(at.entry.Key, encode(record), 0)
		p.keys = append(p.keys, at.entry.Key)
	}
	if p.done == 0 && !caller.relayed {
		s.record(txn, caller.String(), wanted.String(), forwarder, "", request.GetServer()+" "+request.GetService())
	}
	return txn, nil
}

// awaitDrain waits until the agent has an order. Returns why the forwarder does not have it, or "".
func (s *Server) awaitDrain(ctx context.Context, forwarder string, p *drainPlan) string {
	var now status
	away := false
	err := s.observe(ctx, forwarder, p.found, func() bool {
		now = status{}
		if entry := s.mirror.Get(keyStatus + forwarder); entry.Revision != 0 && decodeRecord(entry, &now) == nil && now.Drains >= p.found {
			return true
		}
		away = s.mirror.Get(keyOwners+forwarder).Revision == 0
		replaced := !slices.ContainsFunc(p.keys, func(key string) bool { return s.mirror.Get(key).Revision == p.found })
		return away || replaced
	})
	switch {
	case err != nil:
		return "saved, but " + err.Error()
	case away:
		return "saved; no agent of " + forwarder + " is connected: it receives this when it connects"
	}
	return now.DrainWarning
}

// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"

	"steelyard/internal/cluster"
	agentpb "steelyard/internal/gen/agentpb"
	pb "steelyard/internal/gen/nfvpb"
	"steelyard/internal/nfv"

	"connectrpc.com/connect"
)

// The traffic of services is read from agents: of all services at once, or, where there are many, of requested ones only, by name and in rotation.
const (
	maxTraffic  = 64   // services whose traffic is stored
	maxServices = 2000 // on a forwarder with more, services are queried by name
	maxNames    = 128  // names per query; at most half of them are of services that wait for their first session
)

// asked is the location of a requested service.
type asked struct {
	forwarder string
	services  []string
	waits     bool // for the service's first session
}

// requested are the requested services at a forwarder, in order.
type requested struct{ waiting, others []string }

// someServices is a meter's state of services that it reads in rotation.
type someServices struct {
	received       uint64 // packets, of all workers
	seen           map[string]sample
	waiting, other int // positions of the rotations
}

type sample struct{ packets, received uint64 }

// seeRequest records where a request's service is. The caller holds mu.
func (s *Server) seeRequest(event cluster.Event) {
	id := nameOf(event.Key, keyRequests)
	delete(s.asked, id)
	var r struct {
		State     pb.State        `json:"state"`
		Forwarder string          `json:"forwarder"`
		Wanted    json.RawMessage `json:"wanted"`
	}
	if event.Deleted || json.Unmarshal(event.Value, &r) != nil || r.Forwarder == "" || r.State == pb.State_STATE_FAILED {
		return
	}
	record := request{Record: &nfv.Record{Wanted: r.Wanted}, id: id}
	var err error
	if record.wanted, err = record.Balancing(); err != nil {
		return // the leader logs the error
	}
	s.asked[id] = asked{r.Forwarder, record.names(), r.State == pb.State_STATE_ROUTED}
}

func (s *Server) requestedOf(forwarder string) requested {
	var of requested
	place := forwarder
	if group := s.groupName(forwarder); group != "" {
		place = GroupHeader + group
	}
	s.mu.Lock()
	for _, one := range s.asked {
		switch {
		case one.forwarder != place:
		case one.waits:
			of.waiting = append(of.waiting, one.services...)
		default:
			of.others = append(of.others, one.services...)
		}
	}
	s.mu.Unlock()
	slices.Sort(of.waiting)
	slices.Sort(of.others)
	return of
}

// turn returns the next `limit` items of a list, in rotation.
func turn(list []string, from *int, limit int) []string {
	if len(list) <= limit {
		return list
	}
	*from %= len(list)
	some := slices.Concat(list[*from:], list[:*from])[:limit]
	*from += limit
	return some
}

// readServices reads the traffic of services.
func (m *meter) readServices(ctx context.Context, services uint32, of requested) {
	request := &agentpb.ListServicesRequest{}
	if services > maxServices {
		request.Names = slices.Clone(turn(of.waiting, &m.some.waiting, maxNames/2))
		request.Names = append(request.Names, turn(of.others, &m.some.other, maxNames-len(request.Names))...)
		if len(request.Names) == 0 {
			m.load.Services, m.some.seen = nil, nil
			return
		}
	}
	list, err := m.session.agent.ListServices(ctx, connect.NewRequest(request))
	if err != nil {
		return
	}
	if services <= maxServices {
		m.load.Services = maxOf(m.traffic(list.Msg), of)
		return
	}
	list.Msg.Services = slices.DeleteFunc(list.Msg.Services, func(one *agentpb.ServiceInfo) bool {
		return !slices.Contains(request.Names, one.GetService().GetName())
	})
	m.load.Services = maxOf(m.partly(list.Msg, of), of)
}

// maxOf keeps the services that have just received the session that they waited for, and then the busiest ones.
func maxOf(services map[string]traffic, of requested) map[string]traffic {
	if len(services) <= maxTraffic {
		return services
	}
	waited := map[string]int{}
	for _, name := range of.waiting {
		if services[name].Created > 0 {
			waited[name] = 1
		}
	}
	names := slices.SortedFunc(maps.Keys(services), func(a, b string) int {
		return cmp.Or(waited[b]-waited[a], cmp.Compare(services[b].Part, services[a].Part), strings.Compare(a, b))
	})
	for _, name := range names[maxTraffic:] {
		delete(services, name)
	}
	return services
}

func packetsOf(service *agentpb.ServiceInfo) uint64 {
	return service.GetTraffic().GetPacketsIn() + service.GetTraffic().GetPacketsOut()
}

func partOfAll(packets, all uint64) float64 {
	return math.Round(100*min(1, float64(packets)/float64(all))) / 100
}

// traffic returns each service's part of all packets since the last reading, for the services of projects. Services without counters, as when the
// agent has none from its forwarder, keep their last value.
func (m *meter) traffic(list *agentpb.ListServicesResponse) map[string]traffic {
	now, since, sum := map[string]uint64{}, map[string]uint64{}, uint64(0)
	for _, service := range list.GetServices() {
		name := service.GetService().GetName()
		before, ok := m.packets[name]
		if service.GetTraffic() == nil {
			if ok {
				now[name] = before
			}
			continue
		}
		now[name] = packetsOf(service)
		if ok && now[name] >= before {
			since[name] = now[name] - before
			sum += since[name]
		}
	}
	known := m.packets != nil && sum > 0
	if len(now) > 0 || len(list.GetServices()) == 0 {
		m.packets = now
	}
	result := map[string]traffic{}
	for _, service := range list.GetServices() {
		name := service.GetService().GetName()
		if !strings.Contains(name, ".") { // the default project has no requests
			continue
		}
		if service.GetTraffic() == nil {
			if before, ok := m.load.Services[name]; ok {
				result[name] = before
			}
			continue
		}
		one := traffic{-1, service.GetTraffic().GetSessionsCreated()}
		if known {
			one.Part = partOfAll(since[name], sum)
		}
		result[name] = one
	}
	return result
}

// partly returns the traffic of services that are read in rotation: each one's part of the packets that the workers have received since its last
// reading. Services that were not read, and those without counters, keep their last value.
func (m *meter) partly(list *agentpb.ListServicesResponse, of requested) map[string]traffic {
	result, seen := map[string]traffic{}, map[string]sample{}
	for _, name := range slices.Concat(of.waiting, of.others) { // drops services that have left
		if known, ok := m.load.Services[name]; ok {
			result[name] = known
		}
		if before, ok := m.some.seen[name]; ok {
			seen[name] = before
		}
	}
	for _, service := range list.GetServices() {
		if service.GetTraffic() == nil {
			continue
		}
		name := service.GetService().GetName()
		one, now := traffic{-1, service.GetTraffic().GetSessionsCreated()}, sample{packetsOf(service), m.some.received}
		if before, ok := seen[name]; ok && now.packets >= before.packets && now.received > before.received {
			one.Part = partOfAll(now.packets-before.packets, now.received-before.received)
		}
		result[name], seen[name] = one, now
	}
	m.some.seen = seen
	return result
}

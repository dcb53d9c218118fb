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

// The traffic of services is read from agents: of all services at once, or, where there are many, of those of requests by name and in turns.
const (
	mostTraffic  = 64   // services whose traffic is kept
	mostServices = 2000 // a forwarder with more is asked by name
	mostAsked    = 128  // names at once; at most half of them of services that wait for their first session
)

// asked is where the service of a request is.
type asked struct {
	forwarder string
	services  []string
	waits     bool // for its first session
}

// requested are the services of requests at a forwarder, in order.
type requested struct{ waiting, others []string }

// someServices is what a meter remembers of services that it reads in turns.
type someServices struct {
	received       uint64 // packets, by all workers
	seen           map[string]sample
	waiting, other int // whose turn it is
}

type sample struct{ packets, received uint64 }

// seeRequest notes where a request's service is; with mu.
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
		return // the leader logs it
	}
	s.asked[id] = asked{r.Forwarder, record.names(), r.State == pb.State_STATE_ROUTED}
}

func (s *Server) requestedOf(forwarder string) requested {
	var of requested
	s.mu.Lock()
	for _, one := range s.asked {
		switch {
		case one.forwarder != forwarder:
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

// turn returns some of a list, and other ones the next time.
func turn(list []string, from *int, most int) []string {
	if len(list) <= most {
		return list
	}
	*from %= len(list)
	some := slices.Concat(list[*from:], list[:*from])[:most]
	*from += most
	return some
}

// readServices reads the traffic of services.
func (m *meter) readServices(ctx context.Context, services uint32, of requested) {
	request := &agentpb.ListServicesRequest{}
	if services > mostServices {
		request.Names = slices.Clone(turn(of.waiting, &m.some.waiting, mostAsked/2))
		request.Names = append(request.Names, turn(of.others, &m.some.other, mostAsked-len(request.Names))...)
		if len(request.Names) == 0 {
			m.load.Services, m.some.seen = nil, nil
			return
		}
	}
	list, err := m.session.agent.ListServices(ctx, connect.NewRequest(request))
	if err != nil {
		return
	}
	if services <= mostServices {
		m.load.Services = mostOf(m.traffic(list.Msg), of)
		return
	}
	list.Msg.Services = slices.DeleteFunc(list.Msg.Services, func(one *agentpb.ServiceInfo) bool {
		return !slices.Contains(request.Names, one.GetService().GetName())
	})
	m.load.Services = mostOf(m.partly(list.Msg, of), of)
}

// mostOf keeps those that wait for the session that they have had now, and then the busiest ones.
func mostOf(services map[string]traffic, of requested) map[string]traffic {
	if len(services) <= mostTraffic {
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
	for _, name := range names[mostTraffic:] {
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

// traffic returns which part of all packets each service of a project had since the last reading. Those without counters (the agent had none
// from its forwarder) stay as they are known.
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
		if !strings.Contains(name, ".") { // of the project default, which has no requests
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

// partly is traffic for services that are read in turns: each one's part is that of what the workers have received since its last turn.
// Those whose turn it is not, and those without counters, stay as they are known.
func (m *meter) partly(list *agentpb.ListServicesResponse, of requested) map[string]traffic {
	result, seen := map[string]traffic{}, map[string]sample{}
	for _, name := range slices.Concat(of.waiting, of.others) { // without those that have left
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

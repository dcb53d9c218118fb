// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"steelyard/internal/cluster"
	"steelyard/internal/config"
	pb "steelyard/internal/gen/controllerpb"
	nfvpb "steelyard/internal/gen/nfvpb"
	"steelyard/internal/nfv"
	"steelyard/internal/placement"
	"steelyard/internal/stall"
)

// picture is a copy of the stored state that the workflow and placement need. Its times are by this process's clock.
type picture struct {
	requests map[string]*request
	sorted   []string              // IDs; nil: not computed
	byVIP    map[string][]*request // open requests, in the order of IDs; nil: not computed
	members  map[string]member
	owners   map[string]string // URLs, by forwarder
	status   map[string]status
	loads    map[string]measured
	loadSeen map[string]time.Time
	away     map[string]time.Time // since when a forwarder does not serve
	projects map[string]project
	refused  map[string]refusal // by FORWARDER/PROJECT
	groups   map[string]groupOf // by forwarder
	groupSet map[string]config.Group
	nodes    map[string]nodeStatus
}

// request is a record with its decoded contents.
type request struct {
	*nfv.Record
	id     string
	wanted *nfvpb.Balancing
	entry  cluster.Entry
	seen   time.Time // when this process first read this revision
	broken error     // why it cannot be decoded
}

// names are the names of the request's services at forwarders.
func (r *request) names() []string {
	names := nfv.ServiceNames(r.wanted)
	for i, name := range names {
		names[i] = r.wanted.GetProject() + "." + name
	}
	return names
}

// copy returns a copy of the record that the caller may change.
func (r *request) copy() *nfv.Record {
	next := *r.Record
	next.History, next.Refused = slices.Clone(r.History), maps.Clone(r.Record.Refused)
	if r.Route != nil {
		route := *r.Route
		next.Route = &route
	}
	return &next
}

// loadPicture reads a picture, and the revision from which its changes must be watched.
func (s *Server) loadPicture(ctx context.Context) (*picture, int64, error) {
	p := &picture{requests: map[string]*request{}, members: map[string]member{}, owners: map[string]string{}, status: map[string]status{},
		loads: map[string]measured{}, loadSeen: map[string]time.Time{}, away: map[string]time.Time{}, projects: map[string]project{}, refused: map[string]refusal{},
		groups: map[string]groupOf{}, groupSet: map[string]config.Group{}, nodes: map[string]nodeStatus{}}
	now, first := time.Now(), int64(0)
	for _, kind := range seenKinds {
		entries, revision, err := s.store.List(ctx, kind)
		if err != nil {
			return nil, 0, unavailable(err)
		}
		for _, entry := range entries {
			p.note(cluster.Event{Entry: entry}, now)
		}
		if first == 0 {
			first = revision // the watch repeats changes that were read already, which is harmless
		}
	}
	return p, first, nil
}

// reload reads one key again.
func (p *picture) reload(ctx context.Context, store *cluster.Store, key string) error {
	entry, err := store.Get(ctx, key)
	if err == nil {
		p.note(cluster.Event{Entry: entry, Deleted: entry.Revision == 0}, time.Now())
	}
	return err
}

// keep decodes a value into a map, or removes its entry.
func keep[T any](into map[string]T, name string, event cluster.Event) {
	var value T
	if event.Deleted || json.Unmarshal(event.Value, &value) != nil {
		delete(into, name)
		return
	}
	into[name] = value
}

// note applies one change.
func (p *picture) note(event cluster.Event, now time.Time) {
	kind, name, _ := strings.Cut(event.Key, "/")
	switch kind + "/" {
	case keyRequests:
		p.noteRequest(name, event, now)
	case keyMembers:
		if keep(p.members, name, event); p.members[name].Role != pb.Role_ROLE_FORWARDER {
			delete(p.members, name)
		}
	case keyOwners:
		if event.Deleted {
			delete(p.owners, name)
			return
		}
		var o owner
		_ = json.Unmarshal(event.Value, &o) // if it is unreadable, the URL stays empty
		p.owners[name] = o.URL
	case keyStatus:
		keep(p.status, name, event)
	case keyRefusals:
		keep(p.refused, name, event)
	case keyLoads:
		keep(p.loads, name, event)
		p.loadSeen[name] = now
	case keyProjects:
		keep(p.projects, name, event)
	case keyGroupOf:
		keep(p.groups, name, event)
	case keyGroups:
		keep(p.groupSet, name, event)
	case keyNodes:
		keep(p.nodes, name, event)
	}
}

func (p *picture) noteRequest(id string, event cluster.Event, now time.Time) {
	before := p.requests[id]
	if before != nil && event.Revision < before.entry.Revision || before != nil && !event.Deleted && event.Revision == before.entry.Revision {
		return // an event of our own write, which is applied already
	}
	if p.sorted, p.byVIP = nil, nil; event.Deleted {
		delete(p.requests, id)
		return
	}
	r := &request{Record: &nfv.Record{}, id: id, entry: event.Entry, seen: now, wanted: &nfvpb.Balancing{}}
	if r.broken = json.Unmarshal(event.Value, r.Record); r.broken == nil {
		r.wanted, r.broken = r.Balancing()
	}
	p.requests[id] = r
}

// ids returns the IDs of all requests, in order.
func (p *picture) ids() []string {
	if p.sorted == nil {
		p.sorted = slices.Sorted(maps.Keys(p.requests))
	}
	return p.sorted
}

// forwarders returns all candidates for placement, and removed forwarders that still have services.
func (p *picture) forwarders(now time.Time) []placement.Forwarder {
	var list []placement.Forwarder
	for _, name := range p.candidates() {
		f := placement.Forwarder{Name: name, Load: placement.Load{Busy: -1, Table: -1, Link: -1}}
		load, seen, known := p.loadOf(name)
		if known {
			f.Load = placement.Load{Busy: load.Busy, Table: load.Table, Link: load.Link, At: seen}
		}
		switch {
		case p.ownerOf(name) == "":
			f.Why = "its agent is not connected"
			if isGroup(name) {
				f.Why = "no node of it serves, with its agent connected"
			}
		case load.Down != "":
			f.Why = "its forwarder does not run: " + load.Down
		}
		p.since(&f, now)
		list = append(list, f)
	}
	for _, r := range p.requests {
		known := slices.Contains(p.candidates(), r.Forwarder)
		if at := (placement.Forwarder{Name: r.Forwarder, Why: "was removed"}); at.Name != "" && !known && !slices.ContainsFunc(list, func(f placement.Forwarder) bool {
			return f.Name == at.Name
		}) {
			p.since(&at, now)
			list = append(list, at)
		}
	}
	return list
}

// since sets since when a forwarder does not serve.
func (p *picture) since(f *placement.Forwarder, now time.Time) {
	if f.Why == "" {
		delete(p.away, f.Name)
		return
	}
	if p.away[f.Name].IsZero() {
		p.away[f.Name] = now
	}
	f.Away = p.away[f.Name].Add(stall.Late(p.away[f.Name])) // after a stall of this process, the agent may be back although no reading shows it yet
}

// sharing returns the open requests for the VIP of a request, including itself. They have one forwarder.
func (p *picture) sharing(of *request) []*request {
	if p.byVIP == nil {
		p.byVIP = map[string][]*request{}
		for _, id := range p.ids() {
			if r := p.requests[id]; r.broken == nil && !r.Ended() {
				vip := r.wanted.GetVirtual().GetVip()
				p.byVIP[vip] = append(p.byVIP[vip], r)
			}
		}
	}
	return p.byVIP[of.wanted.GetVirtual().GetVip()]
}

// besides returns the other open requests for a request's VIP.
func (p *picture) besides(of *request) []*request {
	return slices.DeleteFunc(slices.Clone(p.sharing(of)), func(r *request) bool { return r.id == of.id })
}

// services returns all requests that have a forwarder. Requests for one VIP at one forwarder count as one service, under the ID of the first. wall is
// the clock of records; another controller may have written them by its own clock.
func (p *picture) services(wall, now time.Time) []placement.Service {
	type place struct{ vip, at string }
	var list []placement.Service
	known := map[place]int{}
	for _, id := range p.ids() {
		r := p.requests[id]
		if r.broken != nil || r.Ended() || r.Forwarder == "" && r.Leaving == "" {
			continue
		}
		s := p.service(r, wall, now)
		at := place{r.wanted.GetVirtual().GetVip(), s.At}
		if i, ok := known[at]; ok {
			list[i] = joined(list[i], s)
			continue
		}
		known[at] = len(list)
		list = append(list, s)
	}
	return list
}

// joined merges two services that have one forwarder and move together.
func joined(a, b placement.Service) placement.Service {
	a.Count = max(1, a.Count) + 1
	a.Spare, a.Fixed = a.Spare || b.Spare, a.Fixed && b.Fixed
	if b.Since.After(a.Since) {
		a.Since = b.Since
	}
	if b.Part >= 0 {
		a.Part = max(a.Part, 0) + b.Part
	}
	return a
}

func (p *picture) service(r *request, wall, now time.Time) placement.Service {
	s := placement.Service{Key: r.id, At: cmp.Or(r.Forwarder, r.Leaving), Group: r.wanted.GetGroup(), Spare: r.wanted.GetSpare(), Fixed: !r.Movable(), Part: -1}
	s.Since = now.Add(-max(now.Sub(r.seen), wall.Sub(time.UnixMilli(r.Placed))))
	if s.Group != "" {
		s.Group = r.wanted.GetProject() + "." + s.Group
	}
	load, _, _ := p.loadOf(s.At)
	for _, name := range r.names() {
		if traffic, ok := load.Services[name]; ok && traffic.Part >= 0 {
			s.Part = max(s.Part, 0) + traffic.Part
		}
	}
	return s
}

// refusals adds why forwarders cannot serve anything new of a project.
func (p *picture) refusals(name string, to map[string]string) {
	allowed := p.projects[name].Forwarders
	for _, forwarder := range p.candidates() {
		now, known := p.statusOf(forwarder)
		excluded := slices.ContainsFunc(p.nodesAt(forwarder), func(node string) bool { return !slices.Contains(allowed, node) })
		switch {
		case !known && !isGroup(forwarder): // without local addresses it cannot serve
			to[forwarder] = "no configuration of its own was applied to it yet"
		case len(allowed) > 0 && excluded:
			to[forwarder] = "the project " + name + " may not use it"
		case now.Refused > now.Applied && to[forwarder] == "":
			to[forwarder] = "its configuration is not in force: " + now.Error
		}
	}
}

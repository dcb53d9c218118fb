// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// A request is placed at a forwarder, or at a group of forwarders: "group/NAME". A group counts as one forwarder, whose nodes have the same services.

func isGroup(place string) bool { return strings.HasPrefix(place, GroupHeader) }

// placeOf returns the place to which a forwarder belongs: its group, or itself.
func (p *picture) placeOf(forwarder string) string {
	if group := p.groups[forwarder].Group; group != "" {
		return GroupHeader + group
	}
	return forwarder
}

// nodesAt returns the forwarders of a place; none: it is gone.
func (p *picture) nodesAt(place string) []string {
	if !isGroup(place) {
		return []string{place}
	}
	group := p.groupSet[nameOf(place, GroupHeader)]
	return group.Forwarders()
}

// candidates returns all places, in order.
func (p *picture) candidates() []string {
	var places []string
	for name := range p.members {
		places = append(places, p.placeOf(name))
	}
	slices.Sort(places)
	return slices.Compact(places)
}

// living returns the forwarders of a place that serve: of a group, the nodes that their peers hear.
func (p *picture) living(place string) []string {
	if !isGroup(place) {
		return []string{place}
	}
	v := &groupView{Group: p.groupSet[nameOf(place, GroupHeader)], status: p.nodes, owned: map[string]bool{}}
	for _, name := range v.Forwarders() {
		v.owned[name] = p.owners[name] != ""
	}
	var names []string
	for _, node := range v.Nodes {
		if v.isMember(node.Forwarder) && !v.isSilent(node) && p.loads[node.Forwarder].Down == "" {
			names = append(names, node.Forwarder)
		}
	}
	return names
}

// connected returns the living forwarders whose agents are connected.
func (p *picture) connected(place string) []string {
	return slices.DeleteFunc(p.living(place), func(name string) bool { return p.owners[name] == "" })
}

// ownerOf returns the URL of a controller that has an agent of the place; "": none has.
func (p *picture) ownerOf(place string) string {
	for _, name := range p.connected(place) {
		return p.owners[name]
	}
	return ""
}

// loadOf returns the load of a place, and when it was read: of a group that of its busiest node.
func (p *picture) loadOf(place string) (measured, time.Time, bool) {
	if !isGroup(place) {
		load, known := p.loads[place]
		return load, p.loadSeen[place], known
	}
	sum, seen, known := measured{Busy: -1, Table: -1, Link: -1, Services: map[string]traffic{}}, time.Time{}, false
	for _, name := range p.living(place) {
		load, ok := p.loads[name]
		if !ok {
			continue
		}
		if at := p.loadSeen[name]; !known || at.Before(seen) {
			seen = at
		}
		known = true
		sum.Busy, sum.Table, sum.Link = max(sum.Busy, load.Busy), max(sum.Table, load.Table), max(sum.Link, load.Link)
		for service, one := range load.Services {
			all := sum.Services[service]
			sum.Services[service] = traffic{max(all.Part, one.Part), all.Created + one.Created}
		}
	}
	return sum, seen, known
}

// statusOf returns the status of a place: of a group what all of its connected nodes have.
func (p *picture) statusOf(place string) (status, bool) {
	if !isGroup(place) {
		now, known := p.status[place]
		return now, known
	}
	var all status
	found := false
	for _, name := range p.connected(place) {
		now, known := p.status[name]
		if !known {
			return status{}, false
		}
		if !found {
			all, found = now, true
			continue
		}
		all.Applied, all.InForwarder = min(all.Applied, now.Applied), all.InForwarder && now.InForwarder
		if now.Refused > all.Refused {
			all.Refused, all.Error = now.Refused, now.Error
		}
	}
	return all, found
}

// refusedAt returns why a forwarder of a place has refused a revision of a project's file.
func (p *picture) refusedAt(place, project string) (last refusal, found bool) {
	for _, name := range p.nodesAt(place) {
		if r, ok := p.refused[name+"/"+project]; ok && (!found || r.Revision > last.Revision) {
			last, found = r, true
		}
	}
	return last, found
}

// hopsOf returns the next hops of a group, of a family, by nodes that have confirmed a request's service in their own files.
func (p *picture) hopsOf(place string, f *partFile, id string, family netip.Addr) []string {
	group := p.groupSet[nameOf(place, GroupHeader)]
	first := func(lists ...[]netip.Addr) []string {
		for _, list := range lists {
			for _, address := range list {
				if address.Is4() == family.Is4() {
					return []string{address.String()}
				}
			}
		}
		return nil
	}
	var hops []string
	for _, name := range p.living(place) {
		if since := f.nodes[name]; since == 0 || p.status[name].Confirmed < max(since, f.has[id]) {
			continue
		}
		if !group.ECMP { // VRRP moves it
			return first(group.NextHops, group.Local)
		}
		node := group.Of(name)
		hops = append(hops, first(node.NextHops, []netip.Addr{node.Sync.Addr()})...)
	}
	return hops
}

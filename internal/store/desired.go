// SPDX-License-Identifier: Apache-2.0

package store

import (
	"net/netip"
	"time"

	"steelyard/internal/model"
)

// Desired is the desired contents of a forwarder.
type Desired struct {
	Table      *model.Table // nil while there is no configuration or before the forwarder was first read
	Config     *model.Config
	Generation uint64 // of the configuration
	Version    uint64 // of the store
	// For DesiredSince: Table has only these services, and Servers has the changed servers of others.
	// nil: Table has everything.
	Services map[model.ServiceKey]struct{}
	Servers  map[model.ServerRef]model.ServerSpec
}

// Desired returns the whole desired table and clears the list of changes.
func (s *Store) Desired() Desired {
	return s.DesiredSince(nil)
}

// DesiredSince is Desired for a caller whose forwarder matches everything desired under the configuration `before`: it omits what is known not to have
// changed since. With nil it omits nothing.
func (s *Store) DesiredSince(before *model.Config) Desired {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running.config == nil || !s.adopted {
		return Desired{}
	}
	config := s.running.config
	desired := Desired{Config: config, Generation: s.running.generation, Version: s.version}
	if before != nil {
		if changed, ok := model.ChangedServices(before, config); ok {
			desired.Services, desired.Servers = changed, s.takeDirty(changed)
		}
	}
	desired.Table = s.table(config, desired.Services)
	s.all = false
	clear(s.dirty)
	return desired
}

// takeDirty returns the changed servers, except those of some services, and clears the list.
func (s *Store) takeDirty(but map[model.ServiceKey]struct{}) map[model.ServerRef]model.ServerSpec {
	servers := make(map[model.ServerRef]model.ServerSpec, len(s.dirty))
	for ref := range s.dirty {
		if _, left := but[ref.Service]; left {
			continue
		}
		if server, ok := s.running.servers[ref]; ok {
			servers[ref] = s.spec(ref, server, s.running.marked[ref.Service])
		}
	}
	clear(s.dirty)
	return servers
}

// Changes are the servers that have changed, or All: then only Desired has the changes.
type Changes struct {
	Servers map[model.ServerRef]model.ServerSpec
	Version uint64
	All     bool
}

// TakeChanges returns the changes since the last call or Desired, and clears them unless All is set.
func (s *Store) TakeChanges() Changes {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all {
		return Changes{All: true}
	}
	return Changes{Servers: s.takeDirty(nil), Version: s.version}
}

// Preview returns the desired table under config.
func (s *Store) Preview(config *model.Config) *model.Table {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table(config, nil)
}

// table returns the desired table under config; only: restricted to these services, nil: all.
func (s *Store) table(config *model.Config, only map[model.ServiceKey]struct{}) *model.Table {
	table := model.NewTable()
	for _, local := range config.LocalAddresses {
		table.LocalAddresses[local] = model.LocalSpec{}
	}
	for _, local := range config.PeerLocals {
		table.LocalAddresses[local] = model.LocalSpec{OfPeer: true}
	}
	for _, service := range config.Services {
		if _, wanted := only[service.Key]; only != nil && !wanted {
			continue
		}
		entry := &model.TableService{
			Spec: model.ServiceSpec{
				Name: service.Name, Mode: service.Mode, Policy: service.Policy, Timeouts: service.Timeouts,
			},
			Servers: make(map[netip.AddrPort]model.ServerSpec, len(service.Servers)),
		}
		for _, server := range service.Servers {
			ref := model.ServerRef{Service: service.Key, Address: server.Address}
			entry.Servers[server.Address] = s.spec(ref, server, isMarked(service))
		}
		table.Services[service.Key] = entry
	}
	for _, rule := range config.SNAT {
		table.SNAT[rule.Name] = rule
	}
	for _, set := range config.AccessSets {
		if data := s.sets[set.File]; data != nil {
			set.File, set.Data = "", data
		}
		table.AccessSets[set.Name] = set
	}
	for _, list := range config.AccessLists {
		table.AccessLists[list.Name] = list
	}
	table.GlobalAccess = config.GlobalAccess
	for _, limit := range config.ResolveLimits() {
		table.Limits[limit.Name] = limit
	}
	for _, shaping := range config.ResolveShaping() {
		table.Shaping[shaping.Port] = shaping
	}
	return table
}

func (s *Store) spec(ref model.ServerRef, server model.Server, marked bool) model.ServerSpec {
	spec := model.ServerSpec{Weight: server.Weight, State: s.state(ref, server), Backup: server.Backup, MaxSessions: server.MaxSessions}
	if marked {
		spec.CheckMark = s.marks.of[ref].mark
	}
	return spec
}

func (s *Store) state(ref model.ServerRef, server model.Server) model.State {
	v, known := s.health[ref]
	order, ordered := s.drains.orders[ref]
	drained := server.Drain || ordered
	state := model.Up
	switch {
	case known && !v.up && (v.checked || !drained): // a failing server is down even if it is drained
		state = model.Down
	case drained:
		state = model.Drain
	}
	if until := s.killedAt(ref, server); order.Kill || !until.IsZero() && !until.After(time.Now()) {
		state = model.Kill
	}
	return state
}

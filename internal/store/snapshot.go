// SPDX-License-Identifier: Apache-2.0

package store

import (
	"maps"
	"time"

	"steelyard/internal/model"
)

// Snapshot is the store's contents at one moment.
type Snapshot struct {
	Config     *model.Config // nil: none yet; immutable
	Generation uint64
	States     map[model.ServerRef]model.ServerSpec
	Drained    map[model.ServerRef]Drain     // by command
	KilledAt   map[model.ServerRef]time.Time // for drains with a deadline, by command or file
}

// IsDrained reports whether the file or a command drains a server, even if it is also down.
func (s Snapshot) IsDrained(ref model.ServerRef, server model.Server) bool {
	_, ordered := s.Drained[ref]
	return server.Drain || ordered
}

// Drained returns the drains by command.
func (s *Store) Drained() map[model.ServerRef]Drain {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.drains.orders)
}

// States appends the states of a service's servers, in their order. They are constant while Version is.
func (s *Store) States(service *model.Service, into []model.State) []model.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range service.Servers {
		ref := model.ServerRef{Service: service.Key, Address: service.Servers[i].Address}
		state := model.Down // not in the running configuration
		if server, ok := s.running.servers[ref]; ok {
			state = s.state(ref, server)
		}
		into = append(into, state)
	}
	return into
}

// Snapshot returns a copy of the store's current contents.
func (s *Store) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	snapshot := Snapshot{
		Config: s.running.config, Generation: s.running.generation,
		States:  make(map[model.ServerRef]model.ServerSpec, len(s.running.servers)),
		Drained: maps.Clone(s.drains.orders), KilledAt: map[model.ServerRef]time.Time{},
	}
	for ref, server := range s.running.servers {
		snapshot.States[ref] = s.spec(ref, server, s.running.marked[ref.Service])
		if at := s.killedAt(ref, server); !at.IsZero() {
			snapshot.KilledAt[ref] = at
		}
	}
	return snapshot
}

// SPDX-License-Identifier: Apache-2.0

// Package store holds what the agent wants its forwarder to be: the configuration, what health checks
// found, and which servers are drained by command. It tells a reconciler what has changed.
package store

import (
	"net/netip"
	"slices"
	"sync"

	"steelyard/internal/model"
)

// Target is a server to be checked.
type Target struct {
	Ref    model.ServerRef
	Policy model.Health
	Up     bool // what it is taken for until checks say otherwise
	Proven bool // false: the first check decides, whatever rise and fall say
}

// Checks runs health checks; Store.SetUp is told of every server that goes up or down.
type Checks interface {
	// Watch replaces the servers to be checked. Those that stay keep their state.
	Watch(targets []Target)
}

// verdict is what is known of a server's health.
type verdict struct {
	up     bool
	proven bool
}

// Store is safe for use by several goroutines.
type Store struct {
	checks Checks
	drains *drainFile
	wake   chan struct{}

	mu         sync.Mutex
	config     *model.Config
	generation uint64
	version    uint64                           // grows with every change of what is desired
	servers    map[model.ServerRef]model.Server // of config
	verdicts   map[model.ServerRef]verdict
	adopted    bool
	all        bool // everything may have changed
	dirty      map[model.ServerRef]struct{}
}

// Open reads the drains that an earlier agent left in directory.
func Open(directory string, checks Checks) (*Store, error) {
	drains, err := openDrains(directory)
	if err != nil {
		return nil, err
	}
	return &Store{
		checks: checks, drains: drains, wake: make(chan struct{}, 1),
		verdicts: map[model.ServerRef]verdict{}, dirty: map[model.ServerRef]struct{}{},
	}, nil
}

// Adopt takes over what the forwarder held when it was first read: servers that were down stay down
// until checks pass, those up stay up until checks fail. Later calls do nothing: from then on the
// agent knows better. Nothing is checked before, as only the forwarder knows what was down.
func (s *Store) Adopt(table *model.Table) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.adopted {
		return
	}
	s.adopted = true
	for key, service := range table.Services {
		for address, server := range service.Servers {
			s.verdicts[model.ServerRef{Service: key, Address: address}] = verdict{
				up: server.State != model.Down,
				// Draining hides what checks had found.
				proven: server.State != model.Drain,
			}
		}
	}
	if s.config != nil {
		s.settle()
	}
}

// SetConfig makes config the desired one and returns its generation. Drains of servers that it no
// longer has are forgotten.
func (s *Store) SetConfig(config *model.Config) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config = config
	s.generation++
	s.servers = map[model.ServerRef]model.Server{}
	for _, service := range config.Services {
		for _, server := range service.Servers {
			s.servers[model.ServerRef{Service: service.Key, Address: server.Address}] = server
		}
	}
	if s.adopted {
		s.settle()
	} else {
		s.signal()
	}
	return s.generation, s.drains.keep(func(ref model.ServerRef) bool {
		_, ok := s.servers[ref]
		return ok
	})
}

// settle gives every server of the configuration a verdict and has the right ones checked.
func (s *Store) settle() {
	verdicts := make(map[model.ServerRef]verdict, len(s.servers))
	var targets []Target
	for _, service := range s.config.Services {
		isKeptUp := func(server model.Server) bool {
			return s.verdicts[model.ServerRef{Service: service.Key, Address: server.Address}].up
		}
		// A newcomer must prove itself only where others can serve meanwhile.
		newcomer := verdict{up: !slices.ContainsFunc(service.Servers, isKeptUp)}
		for _, server := range service.Servers {
			ref := model.ServerRef{Service: service.Key, Address: server.Address}
			v, known := s.verdicts[ref]
			if !known {
				v = newcomer
			}
			if service.Health.Type == model.HealthNone {
				v = verdict{up: true, proven: true}
			} else {
				targets = append(targets, Target{Ref: ref, Policy: service.Health, Up: v.up, Proven: v.proven})
			}
			verdicts[ref] = v
		}
	}
	s.verdicts = verdicts
	s.checks.Watch(targets)
	s.all = true
	s.signal()
}

// Version grows with every change; a Reconciler says which one the forwarder has.
func (s *Store) Version() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// SetUp notes that checks found a server up or down.
func (s *Store) SetUp(ref model.ServerRef, up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, known := s.verdicts[ref]
	if !known {
		return
	}
	s.verdicts[ref] = verdict{up: up, proven: true}
	if old.up != up {
		s.touch(ref)
	}
}

// SetDrain drains servers, or ends that; it survives the agent.
func (s *Store) SetDrain(refs []model.ServerRef, drain bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.drains.set(refs, drain); err != nil {
		return err
	}
	for _, ref := range refs {
		s.touch(ref)
	}
	return nil
}

func (s *Store) touch(ref model.ServerRef) {
	s.dirty[ref] = struct{}{}
	s.signal()
}

func (s *Store) signal() {
	s.version++
	select {
	case s.wake <- struct{}{}:
	default: // a wake-up is pending and will see this change too
	}
}

// Wake receives after changes; several may share one.
func (s *Store) Wake() <-chan struct{} {
	return s.wake
}

// Desired is what a forwarder should hold.
type Desired struct {
	Table      *model.Table // nil while there is no configuration or the forwarder was never read
	Generation uint64       // of the configuration
	Version    uint64       // of the store
}

// Desired returns the whole table to be reached, and forgets what has changed.
func (s *Store) Desired() Desired {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.config == nil || !s.adopted {
		return Desired{}
	}
	s.all = false
	clear(s.dirty)
	return Desired{s.table(s.config), s.generation, s.version}
}

// Changes are the servers that have changed, or All: only Desired can tell.
type Changes struct {
	Servers map[model.ServerRef]model.ServerSpec
	Version uint64
	All     bool
}

// TakeChanges returns what has changed since the last call or Desired, and forgets it unless All.
func (s *Store) TakeChanges() Changes {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all {
		return Changes{All: true}
	}
	changes := Changes{Servers: make(map[model.ServerRef]model.ServerSpec, len(s.dirty)), Version: s.version}
	for ref := range s.dirty {
		if server, ok := s.servers[ref]; ok {
			changes.Servers[ref] = s.spec(ref, server)
		}
	}
	clear(s.dirty)
	return changes
}

// Preview returns the table that config would lead to.
func (s *Store) Preview(config *model.Config) *model.Table {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table(config)
}

func (s *Store) table(config *model.Config) *model.Table {
	table := model.NewTable()
	for _, local := range config.LocalAddresses {
		table.LocalAddresses[local] = struct{}{}
	}
	for _, service := range config.Services {
		entry := &model.TableService{
			Spec: model.ServiceSpec{
				Name: service.Name, Mode: service.Mode, Scheduler: service.Scheduler, Timeouts: service.Timeouts,
			},
			Servers: make(map[netip.AddrPort]model.ServerSpec, len(service.Servers)),
		}
		for _, server := range service.Servers {
			ref := model.ServerRef{Service: service.Key, Address: server.Address}
			entry.Servers[server.Address] = s.spec(ref, server)
		}
		table.Services[service.Key] = entry
	}
	return table
}

func (s *Store) spec(ref model.ServerRef, server model.Server) model.ServerSpec {
	state := model.Up
	if v, known := s.verdicts[ref]; known && !v.up {
		state = model.Down
	}
	if server.Drain || s.drains.has(ref) {
		state = model.Drain
	}
	return model.ServerSpec{Weight: server.Weight, State: state}
}

// Snapshot is what the store held at one moment.
type Snapshot struct {
	Config     *model.Config // nil: none yet; never changed once given out
	Generation uint64
	States     map[model.ServerRef]model.ServerSpec
	Drained    map[model.ServerRef]bool // by command
}

// Snapshot returns what the store holds.
func (s *Store) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	snapshot := Snapshot{
		Config: s.config, Generation: s.generation,
		States:  make(map[model.ServerRef]model.ServerSpec, len(s.servers)),
		Drained: map[model.ServerRef]bool{},
	}
	for ref, server := range s.servers {
		snapshot.States[ref] = s.spec(ref, server)
		if s.drains.has(ref) {
			snapshot.Drained[ref] = true
		}
	}
	return snapshot
}

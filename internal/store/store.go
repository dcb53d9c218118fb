// SPDX-License-Identifier: Apache-2.0

// Package store holds the desired state of the agent's forwarder: the configuration, the results of health checks, and the drains by command. It
// notifies a reconciler of changes.
package store

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"steelyard/internal/model"
)

// Target is a server to be checked.
type Target struct {
	Ref     model.ServerRef
	Epoch   uint64 // changes if the server was removed and added again, which voids earlier results
	Policy  model.Health
	Mark    uint32 // for checks on the VIP; 0: checks use its own address
	Marked  uint64 // version of the store since which it has this mark
	Up      bool   // assumed state until checks decide
	Checked bool   // false: no check has decided yet; the first one does, regardless of rise and fall
}

// Checks runs health checks; it calls Store.SetUp for every server that goes up or down.
type Checks interface {
	// Watch replaces the servers to be checked. Remaining ones keep their state.
	Watch(targets []Target)
}

// serverHealth is the current health of a server.
type serverHealth struct {
	up      bool
	checked bool
}

// Store is safe for use by several goroutines.
type Store struct {
	checks Checks
	drains *drainFile
	wake   chan struct{}

	mu         sync.Mutex
	running    numbered // the desired configuration
	accepted   numbered // the last one that the forwarder accepted
	refused    numbered // the one that the forwarder refused, replaced by accepted; config nil: none
	generation uint64   // the last number assigned
	version    uint64   // grows with every change of the desired state
	health     map[model.ServerRef]serverHealth
	epochs     map[model.ServerRef]uint64 // of checked servers
	epoch      uint64                     // the last one assigned
	marks      marks
	adopted    bool
	all        bool // everything may have changed
	dirty      map[model.ServerRef]struct{}
	deadline   *time.Timer               // of the next drain; nil: none
	sets       map[string]*model.SetData // contents of the files of access sets
	unsaved    error                     // why drains could not be saved
	retry      *time.Timer               // retries to save drains; nil: not needed so far
	ordered    chan struct{}             // closed when the next drain is ordered at this agent
}

// numbered is a configuration with its generation and its servers.
type numbered struct {
	config     *model.Config
	generation uint64
	servers    map[model.ServerRef]model.Server
	names      map[model.ServiceKey]string
	marked     map[model.ServiceKey]bool // services whose servers are checked on the VIP
}

func (n *numbered) has(ref model.ServerRef) bool {
	_, ok := n.servers[ref]
	return ok
}

func isMarked(service model.Service) bool {
	return service.Mode.OwnsVIP() && service.Health.Type != model.HealthNone
}

func number(config *model.Config, generation uint64) numbered {
	count := 0
	for i := range config.Services {
		count += len(config.Services[i].Servers)
	}
	n := numbered{config, generation, make(map[model.ServerRef]model.Server, count),
		make(map[model.ServiceKey]string, len(config.Services)), make(map[model.ServiceKey]bool, len(config.Services))}
	for _, service := range config.Services {
		n.names[service.Key] = service.Name
		n.marked[service.Key] = isMarked(service)
		for _, server := range service.Servers {
			n.servers[model.ServerRef{Service: service.Key, Address: server.Address}] = server
		}
	}
	return n
}

// Open reads the drains that an earlier agent saved in directory.
func Open(directory string, checks Checks) (*Store, error) {
	drains, err := openDrains(directory)
	if err != nil {
		return nil, err
	}
	s := &Store{
		checks: checks, drains: drains, wake: make(chan struct{}, 1), ordered: make(chan struct{}),
		marks: newMarks(), health: map[model.ServerRef]serverHealth{}, epochs: map[model.ServerRef]uint64{}, dirty: map[model.ServerRef]struct{}{},
	}
	drains.name = s.nameOf
	return s, nil
}

// Adopt initializes the store from the forwarder's state when it is first read: servers that were down stay down until checks pass, and those up stay
// up until checks fail. Later calls do nothing, because the agent's own state is newer. No server is checked before, because only the forwarder knows
// which servers were down.
func (s *Store) Adopt(table *model.Table) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.adopted {
		return
	}
	s.adopted = true
	for key, service := range table.Services {
		for address, server := range service.Servers {
			ref := model.ServerRef{Service: key, Address: address}
			s.health[ref] = serverHealth{
				up: server.State != model.Down,
				// State kill hides the result of checks; state drain may hide that there was none yet.
				checked: server.State != model.Drain && server.State != model.Kill,
			}
			s.marks.adopt(ref, server.CheckMark)
		}
	}
	if s.running.config != nil {
		s.settle()
	}
}

// SetConfig makes config the desired one and returns its generation. Until the forwarder has accepted it,
// the states of the previous servers are kept, for Refuse.
func (s *Store) SetConfig(config *model.Config) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.generation++
	s.running, s.refused = number(config, s.generation), numbered{}
	s.refresh()
	return s.generation
}

// SetFiles sets the contents of the files of access sets. The contents of other files are unknown.
func (s *Store) SetFiles(sets map[string]*model.SetData) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if maps.EqualFunc(s.sets, sets, (*model.SetData).Equal) {
		return
	}
	s.sets = maps.Clone(sets)
	s.all = true
	s.signal()
}

func (s *Store) refresh() {
	if s.adopted {
		s.settle()
	} else {
		s.signal()
	}
}

// Accept records that the forwarder has accepted a configuration, which becomes the one to fall back to. It removes drains of servers that the
// configuration lacks.
func (s *Store) Accept(config *model.Config, generation uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused.generation == generation && s.refused.config != nil {
		s.running, s.refused = s.refused, numbered{}
		s.refresh()
	}
	if s.accepted.generation == generation {
		return nil
	}
	if s.accepted = s.running; s.running.generation != generation {
		s.accepted = number(config, generation)
	}
	maps.DeleteFunc(s.health, func(ref model.ServerRef, _ serverHealth) bool { return !s.has(ref) })
	s.marks.keep(s.wantsMark)
	return s.saved(s.drains.keep(s.has, s.isFileDrained))
}

// has reports whether a server is in the running configuration or in the fallback.
func (s *Store) has(ref model.ServerRef) bool {
	return s.running.has(ref) || s.accepted.has(ref)
}

// wantsMark reports whether the server is checked on the VIP in one of them.
func (s *Store) wantsMark(ref model.ServerRef) bool {
	return s.running.marked[ref.Service] && s.running.has(ref) || s.accepted.marked[ref.Service] && s.accepted.has(ref)
}

// isFileDrained reports whether one of them drains the server with a deadline.
func (s *Store) isFileDrained(ref model.ServerRef) bool {
	return s.running.servers[ref].DrainDeadline != 0 || s.accepted.servers[ref].DrainDeadline != 0
}

// Refuse falls back from a configuration that the forwarder refused to the last accepted one, and keeps the refused one for Refused. Returns false if
// there is none to fall back to.
func (s *Store) Refuse(generation uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running.generation != generation {
		return true // the refused configuration has been replaced meanwhile
	}
	if s.accepted.config == nil || s.accepted.generation == generation {
		return false
	}
	s.refused, s.running = s.running, s.accepted
	s.refresh()
	return true
}

// Refused returns the configuration that Refuse replaced, or nil.
func (s *Store) Refused() (*model.Config, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused.config, s.refused.generation
}

// Abandon drops a refused configuration.
func (s *Store) Abandon(generation uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch generation {
	case s.refused.generation:
		s.refused = numbered{}
	case s.running.generation:
		s.running = s.accepted
		if s.running.config == nil {
			s.health, s.epochs = map[model.ServerRef]serverHealth{}, map[model.ServerRef]uint64{}
			s.checks.Watch(nil)
		}
	default:
		return
	}
	if s.running.config != nil {
		s.refresh()
	}
}

// settle sets a health state for every server of the configuration, and updates the checks.
func (s *Store) settle() {
	health := make(map[model.ServerRef]serverHealth, len(s.running.servers))
	epochs := make(map[model.ServerRef]uint64, len(s.epochs))
	var targets []Target
	s.drains.rename()
	s.marks.keep(s.wantsMark)
	for _, service := range s.running.config.Services {
		isKeptUp := func(server model.Server) bool {
			return s.health[model.ServerRef{Service: service.Key, Address: server.Address}].up
		}
		// A new server must pass a check first only if other servers can serve meanwhile.
		newcomer := serverHealth{up: !slices.ContainsFunc(service.Servers, isKeptUp)}
		for _, server := range service.Servers {
			ref := model.ServerRef{Service: service.Key, Address: server.Address}
			v, known := s.health[ref]
			if !known {
				v = newcomer
			}
			if service.Health.Type == model.HealthNone {
				v = serverHealth{up: true, checked: true}
			} else {
				if epochs[ref] = s.epochs[ref]; epochs[ref] == 0 {
					s.epoch++
					epochs[ref] = s.epoch
				}
				target := Target{Ref: ref, Epoch: epochs[ref], Policy: service.Health, Up: v.up, Checked: v.checked}
				if s.running.marked[service.Key] {
					given := s.marks.assign(ref, s.version+1)
					target.Mark, target.Marked = given.mark, given.since
				}
				targets = append(targets, target)
			}
			health[ref] = v
			if server.DrainDeadline != 0 {
				s.drains.begin(ref)
			}
		}
	}
	for ref, v := range s.health {
		if !s.running.has(ref) && s.accepted.has(ref) { // needed if Refuse falls back to it
			health[ref] = v
		}
	}
	s.health, s.epochs = health, epochs
	s.checks.Watch(targets)
	s.all = true
	s.signal()
	s.awaitDeadline()
}

// ServiceName returns a service's name, or its key as text if no configuration here has it.
func (s *Store) ServiceName(key model.ServiceKey) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.nameOf(key), key.String())
}

// nameOf returns a service's name, or "" if no configuration here has it. Requires mu.
func (s *Store) nameOf(key model.ServiceKey) string {
	return cmp.Or(s.running.names[key], s.accepted.names[key])
}

// Config returns the running configuration, nil if there is none.
func (s *Store) Config() *model.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running.config
}

// KeysOf returns the keys of the services with these names.
func (s *Store) KeysOf(names map[string]bool) []model.ServiceKey {
	var keys []model.ServiceKey
	if config := s.Config(); config != nil {
		for i := range config.Services {
			if names[config.Services[i].Name] {
				keys = append(keys, config.Services[i].Key)
			}
		}
	}
	return keys
}

// Version is incremented by every change; a Reconciler reports the version that the forwarder has.
func (s *Store) Version() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// SetUp records that checks found a server up or down. The epoch is that of their Target: results for a removed server do not apply to its successor.
// Returns whether the result was recorded.
func (s *Store) SetUp(ref model.ServerRef, epoch uint64, up bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, known := s.health[ref]
	if !known || s.epochs[ref] != epoch {
		return false
	}
	s.health[ref] = serverHealth{up: up, checked: true}
	if old.up != up || !up && !old.checked { // a drained server is down only once a check has failed
		s.touch(ref)
	}
	return true
}

// SetDrain drains or kills servers, or ends that with nil. The command outlives the agent, unless an error
// says that it could not be saved; it applies even then.
func (s *Store) SetDrain(refs []model.ServerRef, drain *Drain) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.saved(s.drains.set(refs, drain))
	for _, ref := range refs {
		s.touch(ref)
	}
	s.awaitDeadline()
	close(s.ordered)
	s.ordered = make(chan struct{})
	return err
}

// DrainNode drains this node, or ends that. It reports whether that is a change. It applies even if it cannot be saved.
func (s *Store) DrainNode(drain bool) (changed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drains.node == drain {
		return false, s.unsaved
	}
	s.drains.node, s.drains.unsaved = drain, true
	return true, s.saved(s.drains.save())
}

// IsNodeDrained reports whether this node is drained.
func (s *Store) IsNodeDrained() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drains.node
}

// saveRetry is the delay before another attempt to save the state.
const saveRetry = 5 * time.Second

// saved records the result of writing the state, and schedules another attempt after a failure.
func (s *Store) saved(err error) error {
	if s.unsaved == nil && err != nil {
		s.retry = time.AfterFunc(saveRetry, s.save)
	}
	s.unsaved = err
	return err
}

func (s *Store) save() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unsaved == nil {
		return
	}
	if s.unsaved = s.drains.save(); s.unsaved != nil {
		s.retry.Reset(saveRetry)
	}
}

// Unsaved returns why active drains are not on disk; nil: they are.
func (s *Store) Unsaved() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unsaved
}

// longestWait bounds the wait for a deadline from before the agent's start, which counts by the wall clock: that may be set meanwhile.
const longestWait = time.Minute

// awaitDeadline kills drained servers when their deadline is reached.
func (s *Store) awaitDeadline() {
	if s.deadline != nil {
		s.deadline.Stop()
		s.deadline = nil
	}
	now, wait := time.Now(), longestWait
	waiting := map[model.ServerRef]struct{}{}
	for ref, server := range s.running.servers {
		until := s.killedAt(ref, server)
		if until.IsZero() || !until.After(now) {
			continue
		}
		waiting[ref] = struct{}{}
		wait = min(wait, until.Sub(now))
	}
	if len(waiting) == 0 {
		return
	}
	s.deadline = time.AfterFunc(wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for ref := range waiting {
			if until := s.killedAt(ref, s.running.servers[ref]); !until.IsZero() && !until.After(time.Now()) {
				s.touch(ref)
			}
		}
		s.awaitDeadline()
	})
}

// killedAt returns when the server's sessions are or were ended; zero: never.
func (s *Store) killedAt(ref model.ServerRef, server model.Server) time.Time {
	var at time.Time
	if order, ok := s.drains.orders[ref]; ok {
		at = order.Until
	}
	if began, ok := s.drains.began[ref]; ok && server.DrainDeadline != 0 {
		if until := began.Add(server.DrainDeadline); at.IsZero() || until.Before(at) {
			at = until
		}
	}
	return at
}

func (s *Store) touch(ref model.ServerRef) {
	s.dirty[ref] = struct{}{}
	s.signal()
}

func (s *Store) signal() {
	s.version++
	select {
	case s.wake <- struct{}{}:
	default: // the pending wake-up covers this change, too
	}
}

// Wake receives after changes; several changes may share one wake-up.
func (s *Store) Wake() <-chan struct{} {
	return s.wake
}

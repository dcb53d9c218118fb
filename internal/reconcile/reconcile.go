// SPDX-License-Identifier: Apache-2.0

// Package reconcile keeps a forwarder in sync with the store: it reads the forwarder's contents, sends the minimal changes as one transaction, and starts
// again whenever the connection ends, without a limit on attempts.
package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"steelyard/internal/model"
	"steelyard/internal/stall"
	"steelyard/internal/store"
)

// Forwarder is a connection to a forwarder.
type Forwarder interface {
	ReadTable(ctx context.Context) (*model.Table, uint64, error)
	// Apply applies all changes or none. After an error other than Refused, the connection is unusable.
	Apply(ctx context.Context, changes []model.Change) (revision uint64, err error)
	// PutSet uploads the data of an access set for the next Apply; errors are as those of Apply.
	PutSet(ctx context.Context, data *model.SetData) error
	Revision(ctx context.Context) (uint64, error)
	Marks(ctx context.Context) (model.Marks, error)
	Done() <-chan struct{} // closed when the connection has ended
	Close() error
}

// Options of a Reconciler.
type Options struct {
	Dial func(ctx context.Context) (Forwarder, error)
	Log  *slog.Logger
	// Delay between attempts to connect: First, then twice as long each time, up to Longest.
	First, Longest time.Duration
	// How often to check whether another client has changed the forwarder.
	Poll time.Duration
	// How often to retry a refused configuration, as the cause may be gone.
	Retry time.Duration
	// If an answer of the forwarder takes longer, the connection is closed.
	AnswerTimeout time.Duration
}

// Status is the forwarder's state compared with the desired one.
type Status struct {
	Connected  bool
	Revision   uint64 // the forwarder's
	Generation uint64 // of the forwarder's configuration; 0: none from this agent
	Changes    int    // number of changes sent for that configuration
	Version    uint64 // of the store that the forwarder has
	Marks      model.Marks
	Refused    uint64 // generation of the refused configuration; 0: none
	Err        error  // why it is not connected, or the refusal; nil: no fault
}

// Reconciler keeps one forwarder in sync with its store.
type Reconciler struct {
	store   *store.Store
	options Options
	logged  string // the last logged connection error; used only by Run

	mu      sync.Mutex
	status  Status
	changed chan struct{} // closed and replaced when status changes
}

// New returns a reconciler that does nothing until Run.
func New(s *store.Store, options Options) *Reconciler {
	return &Reconciler{
		store: s, options: options, changed: make(chan struct{}),
		status: Status{Err: errors.New("not connected yet")},
	}
}

// Status returns the status, and a channel that is closed when it changes.
func (r *Reconciler) Status() (Status, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status, r.changed
}

func (r *Reconciler) update(change func(*Status)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.status)
	close(r.changed)
	r.changed = make(chan struct{})
}

// Wait returns when the forwarder has this version of the store.
func (r *Reconciler) Wait(ctx context.Context, version uint64) (Status, error) {
	return r.await(ctx, func(s Status) bool { return s.Version >= version })
}

// WaitConfig returns when the forwarder has the configuration of this generation, or has refused it.
func (r *Reconciler) WaitConfig(ctx context.Context, generation uint64) (Status, error) {
	status, err := r.await(ctx, func(s Status) bool { return s.Generation >= generation || s.Refused >= generation })
	if err == nil && status.Refused >= generation {
		err = status.Err
	}
	return status, err
}

func (r *Reconciler) await(ctx context.Context, reached func(Status) bool) (Status, error) {
	for {
		status, changed := r.Status()
		if reached(status) {
			return status, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if status.Err != nil {
				return status, status.Err
			}
			return status, errors.New("the forwarder did not answer in time: see `steelyard get status`")
		}
	}
}

// Run works until ctx ends.
func (r *Reconciler) Run(ctx context.Context) {
	pause := r.options.First
	for {
		synced, err := r.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if synced {
			pause = r.options.First
		}
		r.update(func(s *Status) { s.Connected, s.Err = false, err })
		if err.Error() != r.logged {
			r.logged = err.Error()
			r.options.Log.Warn("forwarder is not in sync; trying again", "error", err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		pause = min(2*pause, r.options.Longest)
	}
}

// session runs one connection. It reports whether the forwarder was in sync at least once.
func (r *Reconciler) session(ctx context.Context) (synced bool, err error) {
	conn, err := r.dial(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	l := &link{Reconciler: r, conn: conn}
	if err := l.begin(ctx); err != nil {
		return false, err
	}
	if status, _ := r.Status(); r.logged != "" && status.Err == nil {
		r.options.Log.Info("forwarder is in sync again", "revision", status.Revision)
	}
	r.logged = ""
	poll := time.NewTicker(r.options.Poll)
	defer poll.Stop()
	retry := time.NewTicker(r.options.Retry)
	defer retry.Stop()
	for {
		select {
		case <-r.store.Wake():
			err = l.sync(ctx)
		case <-poll.C:
			err = l.check(ctx)
		case <-retry.C:
			err = l.retry(ctx)
		case <-conn.Done():
			return true, errors.New("the forwarder closed the connection: see `journalctl -u steelyard-forwarder`")
		case <-ctx.Done():
			return true, ctx.Err()
		}
		if err != nil {
			return true, err
		}
	}
}

func (r *Reconciler) dial(ctx context.Context) (Forwarder, error) {
	ctx, cancel := stall.WithTimeout(ctx, r.options.AnswerTimeout)
	defer cancel()
	return r.options.Dial(ctx)
}

// link is a connection with the known contents of the forwarder.
type link struct {
	*Reconciler
	conn     Forwarder
	actual   *model.Table
	revision uint64
	synced   *model.Config // actual matches this configuration; nil: unknown
	refused  uint64        // a refused generation without an earlier one to fall back to: only states are sent
}

// begin reads the forwarder's contents and corrects them.
func (l *link) begin(ctx context.Context) error {
	if err := l.read(ctx); err != nil {
		return err
	}
	refused, _ := l.store.Refused()
	if err := l.syncAll(ctx); err != nil || refused == nil {
		return err
	}
	return l.retry(ctx)
}

func (l *link) read(ctx context.Context) error {
	ctx, cancel := stall.WithTimeout(ctx, l.options.AnswerTimeout)
	defer cancel()
	table, revision, err := l.conn.ReadTable(ctx)
	if err != nil {
		return fmt.Errorf("reading the forwarder's configuration: %w", err)
	}
	l.actual, l.revision, l.synced = table, revision, nil
	l.store.Adopt(table)
	l.update(func(s *Status) { s.Connected, s.Revision, s.Refused, s.Err = true, revision, 0, nil })
	return l.noteMarks(ctx)
}

// noteMarks reads the state of marked health checks. It runs before the status reports that the servers are
// configured.
func (l *link) noteMarks(ctx context.Context) error {
	marks, err := l.conn.Marks(ctx)
	if err != nil {
		return err
	}
	if before, _ := l.Status(); before.Marks.Refused != marks.Refused && marks.Refused != "" {
		l.options.Log.Warn("servers of dr and ipip services are checked on their own addresses, not on the VIP",
			"reason", marks.Refused)
	}
	l.update(func(s *Status) { s.Marks = marks })
	return nil
}

// check reads the forwarder again if another client has changed it.
func (l *link) check(ctx context.Context) error {
	ctx, cancel := stall.WithTimeout(ctx, l.options.AnswerTimeout)
	defer cancel()
	revision, err := l.conn.Revision(ctx)
	if err != nil {
		return err
	}
	if revision == l.revision {
		return l.noteMarks(ctx)
	}
	l.options.Log.Warn("another client changed the forwarder; restoring the configuration",
		"revision", revision, "expected", l.revision)
	return l.begin(ctx)
}

func (l *link) sync(ctx context.Context) error {
	changes := l.store.TakeChanges()
	if changes.All || l.refused != 0 {
		return l.syncAll(ctx)
	}
	if err := l.send(ctx, l.changed(changes.Servers)); err != nil {
		return err
	}
	l.update(func(s *Status) { s.Version = max(s.Version, changes.Version) })
	return nil
}

// changed returns the changes that set servers to these specs. A server that the forwarder lacks is added
// with its service.
func (l *link) changed(servers map[model.ServerRef]model.ServerSpec) []model.Change {
	var changes []model.Change
	for ref, spec := range servers {
		if old, ok := l.actual.Server(ref); ok && old != spec {
			changes = append(changes, model.Change{
				Kind: model.PutServer, Service: ref.Service, Address: ref.Address, Server: spec})
		}
	}
	return changes
}

// diff returns the changes to the desired contents.
func (l *link) diff(desired store.Desired) []model.Change {
	if desired.Services == nil {
		return model.Diff(l.actual, desired.Table)
	}
	return append(model.Diff(l.actual.Part(desired.Services), desired.Table), l.changed(desired.Servers)...)
}

func (l *link) syncAll(ctx context.Context) error {
	before := l.synced
	l.synced = nil // until the forwarder matches again
	if l.refused != 0 {
		before = nil
	}
	desired := l.store.DesiredSince(before)
	if desired.Table == nil {
		return nil
	}
	if desired.Generation == l.refused {
		return l.syncStates(ctx, desired)
	}
	changes := l.diff(desired)
	err := l.send(ctx, changes)
	if isRefused(err) {
		l.noteRefusal(desired.Generation, err)
		if l.store.Refuse(desired.Generation) {
			return nil // the store wakes this link for the previous configuration
		}
		l.refused = desired.Generation
		return l.syncStates(ctx, l.store.Desired())
	}
	if err != nil {
		return err
	}
	l.synced = desired.Config
	l.accept(desired.Config, desired.Generation, len(changes))
	refused, _ := l.store.Refused()
	l.update(func(s *Status) {
		s.Version = desired.Version
		if refused == nil {
			s.Refused, s.Err = 0, nil
		}
	})
	return nil
}

// syncStates sends the server states from health checks and drains, for servers that the forwarder has,
// while the forwarder refuses the configuration.
func (l *link) syncStates(ctx context.Context, desired store.Desired) error {
	target := model.NewTable() // l.actual with the desired server states
	target.LocalAddresses = l.actual.LocalAddresses
	target.SNAT = l.actual.SNAT
	target.AccessSets = l.actual.AccessSets
	target.AccessLists, target.GlobalAccess = l.actual.AccessLists, l.actual.GlobalAccess
	target.Limits, target.Shaping = l.actual.Limits, l.actual.Shaping
	for key, service := range l.actual.Services {
		servers := maps.Clone(service.Servers)
		for address, spec := range servers {
			if wanted, ok := desired.Table.Server(model.ServerRef{Service: key, Address: address}); ok {
				spec.State = wanted.State
				servers[address] = spec
			}
		}
		target.Services[key] = &model.TableService{Spec: service.Spec, Servers: servers}
	}
	if err := l.send(ctx, model.Diff(l.actual, target)); err != nil {
		return err
	}
	l.update(func(s *Status) { s.Version = desired.Version })
	return nil
}

// retry retries what the forwarder has refused, if that is still desired.
func (l *link) retry(ctx context.Context) error {
	if l.refused != 0 {
		l.refused = 0
		return l.syncAll(ctx)
	}
	config, generation := l.store.Refused()
	if config == nil {
		return nil
	}
	changes := model.Diff(l.actual, l.store.Preview(config))
	l.synced = nil // check results of new servers are not in it
	err := l.send(ctx, changes)
	if isRefused(err) {
		l.noteRefusal(generation, err)
		return nil
	}
	if err != nil {
		return err
	}
	l.accept(config, generation, len(changes))
	return nil // the store wakes this link for the remaining changes
}

func (l *link) accept(config *model.Config, generation uint64, changes int) {
	l.refused = 0
	if err := l.store.Accept(config, generation); err != nil { // only the removal of old drains failed
		l.options.Log.Warn("writing the state file", "error", err)
	}
	l.update(func(s *Status) {
		if s.Generation != generation {
			s.Generation, s.Changes = generation, changes
		}
		if s.Refused == generation {
			s.Refused, s.Err = 0, nil
		}
	})
}

func (l *link) noteRefusal(generation uint64, err error) {
	status, _ := l.Status()
	if status.Refused != generation || status.Err == nil || status.Err.Error() != err.Error() {
		l.options.Log.Error("the forwarder refuses the configuration and keeps its last one; retrying periodically",
			"generation", generation, "error", err)
	}
	l.update(func(s *Status) { s.Refused, s.Err = generation, err })
}

func isRefused(err error) bool {
	var refusal interface{ Refused() bool }
	return errors.As(err, &refusal) && refusal.Refused()
}

func (l *link) send(ctx context.Context, changes []model.Change) error {
	if len(changes) == 0 {
		return nil
	}
	prefixes, err := l.sendSets(ctx, changes)
	if err != nil {
		return err
	}
	// A large transaction has many messages, and a large set's table takes time to build.
	limit := l.options.AnswerTimeout * time.Duration(1+len(changes)/1000+prefixes/prefixesPerTimeout)
	ctx, cancel := stall.WithTimeout(ctx, limit)
	defer cancel()
	revision, err := l.conn.Apply(ctx, changes)
	if err != nil {
		return err
	}
	l.logChanges(changes)
	for _, change := range changes {
		if err := l.actual.Do(change); err != nil {
			return err
		}
	}
	l.revision = revision
	l.update(func(s *Status) { s.Revision = revision })
	l.options.Log.Info("forwarder changed", "changes", len(changes), "kinds", summary(changes), "revision", revision)
	return l.noteMarks(ctx)
}

// prefixesPerTimeout is the number of prefixes that the forwarder loads within AnswerTimeout, with ample margin.
const prefixesPerTimeout = 200_000

// sendSets uploads the data of changed access sets, before the transaction that refers to it. It returns the number of prefixes.
func (l *link) sendSets(ctx context.Context, changes []model.Change) (int, error) {
	prefixes := 0
	for _, change := range changes {
		data := change.AccessSet.Data
		if change.Kind != model.PutAccessSet || data == nil || data.Bytes == nil {
			continue
		}
		prefixes += data.Prefixes
		limited, cancel := stall.WithTimeout(ctx, l.options.AnswerTimeout*time.Duration(1+data.Prefixes/prefixesPerTimeout))
		err := l.conn.PutSet(limited, data)
		cancel()
		if err != nil {
			return prefixes, err
		}
	}
	return prefixes, nil
}

// maxLogged limits the changes of one transaction that are logged one by one.
const maxLogged = 20

// logChanges logs the changes, before they are applied to l.actual.
func (l *link) logChanges(changes []model.Change) {
	if len(changes) > maxLogged {
		return
	}
	for _, change := range changes {
		d := model.Describe(change, l.actual, l.store.ServiceName)
		l.options.Log.Info("forwarder: "+d.Action, "object", d.Object, "detail", d.Detail)
	}
}

// summary counts changes by kind, for the log.
func summary(changes []model.Change) string {
	counts := map[model.ChangeKind]int{}
	for _, change := range changes {
		counts[change.Kind]++
	}
	text := ""
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		text += fmt.Sprintf("%d %s, ", counts[kind], kind)
	}
	return text[:len(text)-2]
}

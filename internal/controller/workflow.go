// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"steelyard/internal/cluster"
	pb "steelyard/internal/gen/nfvpb"
	"steelyard/internal/nfv"
	"steelyard/internal/placement"
	"steelyard/internal/stall"

	"connectrpc.com/connect"
)

// Keys of the NFV workflow: docs/design/0048-nfv-workflow.md.
const (
	keyRequests = "requests/"
	keyVIPs     = "vips/" // by address: the requests for it
	keyLoads    = "loads/"
	keyLeader   = "leader"
	keySpare    = "spare" // why the other forwarders could not replace a lost one
)

// seenKinds are the keys of the leader's picture.
var seenKinds = []string{keyRequests, keyMembers, keyOwners, keyStatus, keyRefusals, keyLoads, keyProjects, keyGroupOf, keyGroups, keyNodes}

// leader is the controller that works on requests. Only one goroutine uses it, except for inbox.
type leader struct {
	*Server
	fence   int64 // revision of keyLeader: compared by every step
	planner *placement.Planner
	picture *picture
	files   map[fileKey]*partFile
	bad     map[badKey]error // why a service cannot be in a forwarder's file
	// Refused services, until a file contains them again. The store keeps only the last refusal of a file, until the next confirmation; a slow leader
	// would miss it there.
	refusals map[badKey]refusedService
	fresh    map[int64]int // number of services in a revision of a file that no forwarder had confirmed before
	lacking  time.Time     // since when spare capacity is missing, or is restored
	inbox
}

// inbox collects the events of the watch.
type inbox struct {
	wake    chan struct{}
	mu      sync.Mutex
	pending []cluster.Event
}

func (i *inbox) add(event cluster.Event) {
	i.mu.Lock()
	i.pending = append(i.pending, event)
	i.mu.Unlock()
	i.poke()
}

func (i *inbox) poke() {
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

func (i *inbox) empty() []cluster.Event {
	i.mu.Lock()
	defer i.mu.Unlock()
	events := i.pending
	i.pending = nil
	return events
}

// runWorkflow works on requests while this controller is the leader.
func (s *Server) runWorkflow(ctx context.Context) {
	for ctx.Err() == nil {
		fence, err := s.lead(ctx)
		if err == nil && fence != 0 {
			s.log.Info("this controller works on requests", "fence", fence)
			err = s.workAs(ctx, fence)
			s.log.Info("this controller has stopped working on requests", "reason", err)
		}
		pause(ctx, s.workflowTick)
	}
}

// lead becomes the leader. Returns 0 if another controller leads.
func (s *Server) lead(ctx context.Context) (int64, error) {
	lease := s.currentLease()
	if lease == 0 {
		return 0, nil
	}
	ctx, cancel := stall.WithTimeout(ctx, leaseLife)
	defer cancel()
	entry, err := s.store.Get(ctx, keyLeader)
	if err != nil {
		return 0, err
	}
	if entry.Revision != 0 {
		var held owner // our own key is left over if the answer to its creation or removal was lost
		if decodeRecord(entry, &held) != nil || held.ID != s.id {
			return 0, nil
		}
	}
	fence, err := s.store.Commit(ctx, new(cluster.Txn).Unchanged(entry).Put(keyLeader, encode(owner{ID: s.id, URL: s.url}), lease))
	if errors.Is(err, cluster.ErrConflict) {
		return 0, nil
	}
	return fence, err
}

// newLeader reads the leader's initial state from the store, at a revision.
func (s *Server) newLeader(ctx context.Context, fence int64) (*leader, int64, error) {
	picture, revision, err := s.loadPicture(ctx)
	return &leader{Server: s, fence: fence, planner: placement.New(s.placing), picture: picture, files: map[fileKey]*partFile{}, bad: map[badKey]error{},
		refusals: map[badKey]refusedService{}, fresh: map[int64]int{}, inbox: inbox{wake: make(chan struct{}, 1)}}, revision, err
}

var errNotLeader = errors.New("another controller may be the leader")

// workAs does the leader's work. It ends when this controller no longer leads, or does not reach etcd.
func (s *Server) workAs(ctx context.Context, fence int64) error {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	defer s.abdicate(fence)
	l, revision, err := s.newLeader(ctx, fence)
	if err != nil {
		return err
	}
	watching.Go(func() {
		_ = s.store.Watch(ctx, "", revision, l.add)
		cancel() // missed events cannot be recovered: start anew
	})
	tick := time.NewTicker(s.workflowTick)
	defer tick.Stop()
	for {
		if err := l.pass(ctx); err != nil {
			return err
		}
		select {
		case <-l.wake:
		case <-tick.C:
			if err := l.reportSpare(ctx); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		for _, event := range l.empty() {
			if event.Key == keyLeader && (event.Deleted || event.Revision != fence) {
				return errNotLeader
			}
			l.see(event)
		}
	}
}

// abdicate deletes this leader's key, so that another controller can lead.
func (s *Server) abdicate(fence int64) {
	ctx, cancel := stall.WithTimeout(context.WithoutCancel(s.ctx), 2*time.Second)
	defer cancel()
	_, _ = s.store.Commit(ctx, new(cluster.Txn).At(keyLeader, fence).Delete(keyLeader)) // if this fails, the lease removes it
}

// see applies a change of the store.
func (l *leader) see(event cluster.Event) {
	l.picture.note(event, time.Now())
	if place, ok := cutPrefix(event.Key, keyConfigs); ok { // another writer may have changed it
		forwarder, project, _ := strings.Cut(place, "/")
		key := fileKey{l.picture.placeOf(forwarder), project}
		if f := l.files[key]; f != nil && f.own < event.Revision {
			l.files[key] = &partFile{own: event.Revision, nodes: f.nodes, lost: f}
		}
	}
	if place, ok := cutPrefix(event.Key, keyRefusals); ok && !event.Deleted {
		l.seeRefusal(place, event)
	}
}

// seeRefusal applies the refusal of a file and the roll-back of its change. Their events are from one transaction, in any order.
func (l *leader) seeRefusal(place string, event cluster.Event) {
	node, project, _ := strings.Cut(place, "/")
	forwarder := l.picture.placeOf(node)
	f := l.files[fileKey{forwarder, project}]
	if f != nil && f.own == event.Revision {
		f = f.lost
	}
	if f == nil || f.own >= event.Revision {
		return // a new leader, which has not written the file; or a newer file
	}
	var r refusal
	if decodeRecord(event.Entry, &r) == nil && r.Revision == f.own {
		for id := range f.has {
			if known := l.picture.requests[id]; known != nil && !known.Settled(forwarder) {
				l.refusals[badKey{forwarder, id}] = refusedService{r.Error, l.fresh[f.own] > 1}
			}
		}
	}
	nodes := maps.Clone(f.nodes)
	if nodes[node] == f.own {
		nodes[node] = 0 // the refused file was its first one
	}
	l.files[fileKey{forwarder, project}] = &partFile{own: event.Revision, text: f.text, nodes: nodes, retry: time.Now().Add(retryFile)}
}

// pass does all work that is possible now.
func (l *leader) pass(ctx context.Context) error {
	for again := true; again; {
		again = false
		for _, id := range l.picture.ids() {
			changed, err := l.step(ctx, id)
			if err != nil {
				return err
			}
			again = again || changed
		}
		moved, err := l.move(ctx)
		if err != nil {
			return err
		}
		written, err := l.writeFiles(ctx)
		if err != nil {
			return err
		}
		again = again || moved || written
	}
	return nil
}

// step makes one step of one request.
func (l *leader) step(ctx context.Context, id string) (bool, error) {
	known := l.picture.requests[id]
	if known.broken != nil {
		return false, nil // the error was logged
	}
	if known.Forgotten(l.now()) && time.Since(known.seen) > nfv.EndShown {
		_, err := l.store.Commit(ctx, new(cluster.Txn).At(keyLeader, l.fence).Unchanged(known.entry).Delete(known.entry.Key))
		return false, l.lost(ctx, err)
	}
	next := known.copy()
	changed, err := next.Step(&world{l, known})
	if err != nil {
		known.broken = err
		l.log.Error("a request cannot be worked on", "request", id, "error", err)
		return false, nil
	}
	if !changed {
		return false, nil
	}
	return true, l.save(ctx, known, next)
}

// save writes a record after a step, unless the record has changed or this controller no longer leads.
func (l *leader) save(ctx context.Context, known *request, next *nfv.Record) error {
	txn := new(cluster.Txn).At(keyLeader, l.fence).Unchanged(known.entry).Put(known.entry.Key, encode(next), 0)
	if next.Ended() && !known.Ended() {
		if err := l.release(ctx, txn, known.wanted); err != nil {
			return err
		}
	}
	if next.State != known.State || next.Forwarder != known.Forwarder {
		detail := known.id + ": " + nfv.StateText(next.State)
		l.record(txn, "controller/"+l.id, "request", next.Forwarder, known.wanted.GetProject(), detail)
	}
	revision, err := l.store.Commit(ctx, txn)
	if err == nil {
		l.log.Info("request", "id", known.id, "state", nfv.StateText(next.State), "forwarder", next.Forwarder, "why", next.Why)
		l.picture.note(cluster.Event{Entry: cluster.Entry{Key: known.entry.Key, Value: encode(next), Revision: revision}}, time.Now())
		if next.State != pb.State_STATE_CONFIGURING {
			delete(l.refusals, badKey{known.Forwarder, known.id})
		}
		return nil
	}
	if err = l.lost(ctx, err); err == nil { // the request's owner has changed it
		err = l.picture.reload(ctx, l.store, known.entry.Key)
	}
	return err
}

// lost decides after a failed transaction whether this controller still leads; a conflict alone shows only that a key has changed.
func (l *leader) lost(ctx context.Context, err error) error {
	if !errors.Is(err, cluster.ErrConflict) {
		return err
	}
	entry, err := l.store.Get(ctx, keyLeader)
	if err == nil && entry.Revision != l.fence {
		err = errNotLeader
	}
	return err
}

// follow moves requests to the forwarder of another request for their VIP: a leader that died may have moved only some of them.
func (l *leader) follow(ctx context.Context) (bool, error) {
	moved := false
	for _, id := range l.picture.ids() {
		r := l.picture.requests[id]
		if r.broken != nil || r.Ended() || !r.Follows(r.Forwarder) {
			continue
		}
		for _, other := range l.picture.besides(r) {
			if other.Forwarder == "" || other.Forwarder == r.Forwarder || other.Leaving != r.Forwarder || r.Leaving == other.Forwarder {
				continue
			}
			next := r.copy()
			next.Move(other.Forwarder, "the request "+other.id+" for the VIP is moving there", l.now())
			if err := l.save(ctx, r, next); err != nil {
				return moved, err
			}
			moved = true
			break
		}
	}
	return moved, nil
}

// move moves services away from forwarders that are dead or overloaded.
func (l *leader) move(ctx context.Context) (bool, error) {
	if moved, err := l.follow(ctx); moved || err != nil {
		return moved, err
	}
	now := time.Now()
	moves := l.planner.Moves(now, l.picture.forwarders(now), l.picture.services(l.now(), now))
	moved := false
	for _, m := range moves {
		known := l.picture.requests[m.Key]
		if known == nil || known.Forwarder != m.From {
			continue
		}
		for _, r := range l.picture.sharing(known) {
			if !r.Follows(m.From) {
				continue
			}
			next := r.copy()
			next.Move(m.To, m.Why, l.now())
			if err := l.save(ctx, r, next); err != nil {
				return moved, err
			}
			moved = true
		}
	}
	return moved, nil
}

// reportSpare writes the key that says whether the other forwarders could replace a lost one.
func (l *leader) reportSpare(ctx context.Context) error {
	now := time.Now()
	why := l.planner.Options().MissingSpare(now, l.picture.forwarders(now), l.picture.services(l.now(), now))
	entry, err := l.store.Get(ctx, keySpare)
	if err != nil {
		return err
	}
	if (why == "") == (entry.Revision == 0) {
		l.lacking = time.Time{}
		return nil
	}
	if l.lacking.IsZero() {
		l.lacking = now
	}
	if now.Sub(l.lacking) < l.spareSettle {
		return nil
	}
	txn := new(cluster.Txn).At(keyLeader, l.fence).Unchanged(entry)
	if why == "" {
		txn.Delete(keySpare)
	} else {
		txn.Put(keySpare, []byte(why), 0)
	}
	_, err = l.store.Commit(ctx, txn)
	return l.lost(ctx, err)
}

// describeRequest returns the message of a change of a request, for watches of forwarders.
func describeRequest(event cluster.Event) (forwarder, what, detail string) {
	id := nameOf(event.Key, keyRequests)
	if event.Deleted {
		return "", "request", id + ": forgotten"
	}
	var r nfv.Record
	if json.Unmarshal(event.Value, &r) != nil {
		return "", "request", id
	}
	detail = id + ": " + nfv.StateText(r.State)
	if n := len(r.History); n > 0 && r.History[n-1].Detail != "" {
		detail += ", " + r.History[n-1].Detail
	}
	return r.Forwarder, "request", detail
}

// refusedForGood reports whether an error means that a file is invalid, rather than that it could not be tried.
func refusedForGood(err error) bool {
	return slices.Contains([]connect.Code{connect.CodeInvalidArgument, connect.CodeResourceExhausted, connect.CodePermissionDenied, connect.CodeNotFound},
		connect.CodeOf(err))
}

// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	pb "steelyard/internal/gen/nfvpb"
	"steelyard/internal/nfv"
	"steelyard/internal/placement"

	"connectrpc.com/connect"
)

// workflowFile names the workflow's files in messages.
const workflowFile = "the workflow of NFV"

type fileKey struct{ forwarder, project string }

type badKey struct{ forwarder, id string }

// partFile is the file that the workflow has written for a project at a forwarder.
type partFile struct {
	text     []byte
	own      int64            // revision of the project's part
	revision int64            // of the forwarder's file that contains it
	has      map[string]int64 // by service: the revision since which it is in the file without an interruption
	nodes    map[string]int64 // by forwarder of the place: the revision since which it has the project's file; 0: it does not
	hops     []netip.Addr     // at which routers reach the forwarder
	lost     *partFile        // the file that another writer has replaced
	retry    time.Time        // when a refused text that has not changed is tried again; zero: none was refused
}

// isFor reports whether the file was written for these nodes.
func (f *partFile) isFor(nodes []string) bool {
	return len(f.nodes) == len(nodes) && !slices.ContainsFunc(nodes, func(name string) bool { _, has := f.nodes[name]; return !has })
}

// nodesOf returns the nodes of the former file that are at the place still, and adds the new ones, which have no file yet. f may be nil.
func (f *partFile) nodesOf(names []string) map[string]int64 {
	nodes := map[string]int64{}
	for _, name := range names {
		if nodes[name] = 0; f != nil {
			nodes[name] = f.nodes[name]
		}
	}
	return nodes
}

// refusedService is why a forwarder has refused a file that contains a service.
type refusedService struct {
	why     string
	company bool // the file contained other new services, which may be the cause
}

// retryFile is the pause before a refused text is tried again.
const retryFile = 10 * time.Second

// writeFiles makes all files of the workflow match the records.
func (l *leader) writeFiles(ctx context.Context) (bool, error) {
	wanted := map[fileKey][]*request{}
	for key, f := range l.files {
		nodes := l.picture.nodesAt(key.forwarder)
		if key.forwarder != l.picture.placeOf(key.forwarder) || len(nodes) == 0 { // it has joined a group, or the group has ended
			delete(l.files, key)
			continue
		}
		if f.nodes != nil && !f.isFor(nodes) {
			f.text = nil // computed anew: a new node lacks the file
		}
		wanted[key] = nil
	}
	for project, p := range l.picture.projects {
		if p.Workflow {
			for forwarder := range p.Usage {
				wanted[fileKey{l.picture.placeOf(forwarder), project}] = nil
			}
		}
	}
	for _, id := range l.picture.ids() {
		r := l.picture.requests[id]
		for _, forwarder := range []string{r.Forwarder, r.Leaving} {
			if r.broken == nil && forwarder != "" && r.On(forwarder) && len(l.picture.nodesAt(forwarder)) > 0 {
				key := fileKey{l.picture.placeOf(forwarder), r.wanted.GetProject()}
				wanted[key] = append(wanted[key], r)
			}
		}
	}
	written := false
	for key, list := range wanted {
		now, err := l.writeFile(ctx, key, list)
		if err != nil {
			return written, err
		}
		written = written || now
	}
	return written, nil
}

// choose returns the services that may be in a file together. Of those that were refused together, it returns one.
func choose(forwarder string, list []*request) (settled, fresh []*request) {
	alone := false
	for _, r := range list {
		switch {
		case r.Settled(forwarder):
			settled = append(settled, r)
		case !r.Alone:
			fresh = append(fresh, r)
		case !alone:
			alone, fresh = true, append(fresh, r)
		}
	}
	if alone { // it is tried without other new services
		fresh = slices.DeleteFunc(fresh, func(r *request) bool { return !r.Alone && r.Revision == 0 })
	}
	return settled, fresh
}

func textOf(list []*request) ([]byte, error) {
	slices.SortFunc(list, func(a, b *request) int { return strings.Compare(a.id, b.id) })
	services := make([]*pb.Balancing, len(list))
	for i, r := range list {
		services[i] = r.wanted
	}
	return nfv.Text(services)
}

// writeFile makes one file match the records. Returns true if something has changed.
func (l *leader) writeFile(ctx context.Context, key fileKey, list []*request) (bool, error) {
	settled, fresh := choose(key.forwarder, list)
	all := slices.Concat(settled, fresh)
	text, err := textOf(all)
	if err != nil {
		return false, err
	}
	before := l.files[key]
	if before != nil && before.text != nil && bytes.Equal(before.text, text) && (before.retry.IsZero() || time.Now().Before(before.retry)) {
		return false, nil
	}
	plans, err := l.prepareFile(ctx, key, text)
	found := false
	if refusedForGood(err) && len(fresh) > 0 {
		// Some of the new services are at fault: try them one by one.
		all, found = slices.Clone(settled), true
		for _, r := range fresh {
			if text, err = textOf(append(slices.Clone(all), r)); err != nil {
				return false, err
			}
			if _, err = l.prepareFile(ctx, key, text); refusedForGood(err) {
				l.bad[badKey{key.forwarder, r.id}] = fmt.Errorf("%s", messageOf(err))
				continue
			} else if err != nil {
				return false, err
			}
			all = append(all, r)
		}
		if text, err = textOf(all); err != nil {
			return false, err
		}
		plans, err = l.prepareFile(ctx, key, text)
	}
	if connect.CodeOf(err) == connect.CodeNotFound && len(list) == 0 { // the forwarder or the project was removed, and has no services
		delete(l.files, key)
		return found, nil
	}
	if refusedForGood(err) { // even the old services are refused now: after another project's change, or the forwarder's removal
		l.log.Warn("a forwarder's file cannot be brought up to date", "forwarder", key.forwarder, "project", key.project, "error", err)
		l.files[key] = &partFile{text: text, nodes: before.nodesOf(l.picture.nodesAt(key.forwarder)), retry: time.Now().Add(retryFile)}
		return found, nil
	}
	if err != nil {
		return found, err
	}
	written, err := l.commitFile(ctx, key, plans, all, len(all)-len(settled))
	return written || found, err
}

func messageOf(err error) string {
	var known *connect.Error
	if errors.As(err, &known) {
		return known.Message()
	}
	return err.Error()
}

// prepareFile computes the change of a forwarder's file, or of those of a group's nodes. A project without services at a forwarder has no part there.
func (l *leader) prepareFile(ctx context.Context, key fileKey, text []byte) ([]*plan, error) {
	w := l.newWork(key.project)
	w.workflow = true
	plans, err := l.compute(ctx, w, l.picture.nodesAt(key.forwarder), key.project, workflowFile, text)
	for _, p := range plans {
		if err == nil {
			err = l.saveTexts(ctx, w, p)
		}
	}
	return plans, err
}

// commitFile writes a file, unless another writer has changed it; then the leader first applies that change.
func (l *leader) commitFile(ctx context.Context, key fileKey, plans []*plan, services []*request, fresh int) (bool, error) {
	p := plans[0]
	f := &partFile{text: p.text, own: p.own.Revision, revision: p.desired.Revision, has: map[string]int64{}, nodes: map[string]int64{},
		hops: slices.Concat(p.parsed.NextHops, p.parsed.LocalAddresses)}
	before := l.files[key]
	for _, other := range plans {
		f.own, f.revision = min(f.own, other.own.Revision), min(f.revision, other.desired.Revision)
		if f.nodes[other.forwarder] = other.own.Revision; before != nil && before.nodes[other.forwarder] != 0 {
			f.nodes[other.forwarder] = before.nodes[other.forwarder]
		}
	}
	if slices.ContainsFunc(plans, func(p *plan) bool { return !p.same() || p.own.Revision == 0 }) {
		txn := txnOf(plans).At(keyLeader, l.fence)
		l.record(txn, "controller/"+l.id, "apply", key.forwarder, key.project, fmt.Sprintf("%s, %d services", workflowFile, len(services)))
		revision, err := l.store.Commit(ctx, txn)
		if err != nil {
			delete(l.files, key) // computed again from the current state
			if err = l.lost(ctx, err); err == nil {
				l.poke()
			}
			return false, err
		}
		f.own, f.revision = revision, revision
		for _, p := range plans {
			if p.own.Revision == 0 || before == nil || before.nodes[p.forwarder] == 0 {
				f.nodes[p.forwarder] = revision
			}
		}
	}
	if len(l.fresh) > 4096 { // old entries; they matter for a minute only
		clear(l.fresh)
	}
	l.fresh[f.revision] = max(l.fresh[f.revision], fresh)
	for _, r := range services {
		if f.has[r.id] = f.own; before != nil && before.has[r.id] != 0 {
			f.has[r.id] = before.has[r.id]
		}
		delete(l.bad, badKey{key.forwarder, r.id})
		delete(l.refusals, badKey{key.forwarder, r.id})
	}
	l.files[key] = f
	return true, nil
}

// world is the state that a request's step reads: nfv.World.
type world struct {
	*leader
	of *request
}

func (w *world) Now() time.Time { return w.now() }

func (w *world) Waited() time.Duration { return time.Since(w.of.seen) }

func (w *world) Place() placement.Choice {
	now := time.Now()
	s := w.picture.service(w.of, w.now(), now)
	s.At, s.Refused = "", w.of.Refusals(w.now())
	w.picture.refusals(w.of.wanted.GetProject(), s.Refused)
	w.joinSharers(s.Refused)
	shares := map[string]bool{}
	for _, r := range w.picture.sharing(w.of) {
		shares[r.id] = true
	}
	others := slices.DeleteFunc(w.picture.services(w.now(), now), func(other placement.Service) bool { return shares[other.Key] })
	return w.planner.Options().Place(now, s, w.picture.forwarders(now), others)
}

// joinSharers adds why forwarders cannot serve a request whose VIP has other requests: they are elsewhere, or are refused there.
func (w *world) joinSharers(to map[string]string) {
	others := w.picture.besides(w.of)
	for _, other := range others {
		if other.Forwarder == "" {
			continue
		}
		for _, name := range w.picture.candidates() {
			if name != other.Forwarder {
				to[name] = "the request " + other.id + " serves the VIP at " + other.Forwarder
			}
		}
		return
	}
	for _, other := range others {
		for name, why := range other.Refusals(w.now()) {
			to[name] = cmp.Or(to[name], "refuses the request "+other.id+" of the VIP: "+why)
		}
	}
}

func (w *world) Sharers() []nfv.Sharer {
	var list []nfv.Sharer
	for _, other := range w.picture.besides(w.of) {
		list = append(list, nfv.Sharer{Record: other.Record, ID: other.id, Behind: w.isBehind(other)})
	}
	return list
}

// isBehind reports whether a request is served where its route leads, but not yet where the VIP's next route will lead.
func (w *world) isBehind(other *request) bool {
	at := other.Leaving
	if at == "" && other.Movable() {
		at = other.Forwarder
	}
	switch {
	case at == "", at == w.of.Forwarder, w.picture.ownerOf(at) == "", w.picture.loads[at].Down != "":
		return false // no packets arrive there, or they are allowed to
	case other.Forwarder != w.of.Forwarder:
		return true
	case other.State != pb.State_STATE_CONFIGURING:
		return false
	case other.Revision == 0:
		return true
	}
	done, err := (&world{w.leader, other}).Confirmed(other.Forwarder, other.Revision)
	return !done || err != nil
}

func (w *world) File(forwarder string) (int64, error) {
	if err := w.bad[badKey{forwarder, w.of.id}]; err != nil {
		delete(w.bad, badKey{forwarder, w.of.id}) // the record has it from now on
		return 0, err
	}
	if f := w.files[fileKey{forwarder, w.of.wanted.GetProject()}]; f != nil && f.has[w.of.id] != 0 {
		return f.revision, nil
	}
	return 0, nil
}

func (w *world) Confirmed(forwarder string, revision int64) (bool, error) {
	project := w.of.wanted.GetProject()
	if r, ok := w.refusals[badKey{forwarder, w.of.id}]; ok {
		return false, fmt.Errorf("it refuses this: %s", r.why)
	}
	if r, taken := w.picture.refusedAt(forwarder, project); taken && r.has(revision) {
		return false, fmt.Errorf("it refuses this: %s", r.Error) // the version that it has confirmed since does not contain the service
	}
	f := w.files[fileKey{forwarder, project}]
	if f == nil || f.has[w.of.id] == 0 {
		return false, nil // a new leader has not read the file and the next hop yet
	}
	now, _ := w.picture.statusOf(forwarder)
	switch {
	case now.Applied >= max(revision, f.has[w.of.id]): // the service may have been out of the file meanwhile
		return now.InForwarder, nil
	case now.Refused == revision, now.Refused > revision && w.fresh[now.Refused] > 0: // a later file of this leader contains it, too
		return false, fmt.Errorf("it refuses this: %s", now.Error)
	}
	return false, nil
}

func (w *world) Sessions(forwarder string) bool {
	load, _, _ := w.picture.loadOf(forwarder)
	return slices.ContainsFunc(w.of.names(), func(name string) bool { return load.Services[name].Created > 0 })
}

func (w *world) NextHops(forwarder string, family netip.Addr) ([]string, bool) {
	f := w.files[fileKey{forwarder, w.of.wanted.GetProject()}]
	if f == nil {
		return nil, isGroup(forwarder)
	}
	if isGroup(forwarder) {
		return w.picture.hopsOf(forwarder, f, w.of.id, family), true
	}
	for _, hop := range f.hops { // the first of its family
		if hop.Is4() == family.Is4() {
			return []string{hop.String()}, false
		}
	}
	return nil, false
}

func (w *world) Company(forwarder string) bool {
	if r, ok := w.refusals[badKey{forwarder, w.of.id}]; ok {
		return r.company
	}
	now, _ := w.picture.statusOf(forwarder)
	last, _ := w.picture.refusedAt(forwarder, w.of.wanted.GetProject())
	return w.fresh[max(now.Refused, last.Revision)] > 1
}

var _ nfv.World = (*world)(nil)

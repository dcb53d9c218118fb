// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"steelyard/internal/cluster"
	"steelyard/internal/drain"
	pb "steelyard/internal/gen/controllerpb"
	"steelyard/internal/model"
	"steelyard/internal/nfv"
	"steelyard/internal/stall"

	"connectrpc.com/connect"
)

// Orders to drain, between the store and an agent: docs/design/0042-controller.md.

const (
	maxDrains = 40 // servers of one transaction: each has up to three of its 128 operations
	// Orders for one forwarder that its agent may add to: there are as many as servers in its file, unless it is not itself.
	maxDrainsOfAgent = 1 << 16
)

// drainRecord is what was ordered last for a server of a service.
type drainRecord struct {
	Drain      bool   `json:"drain"` // false: it has ended, which is kept until the agent has heard of it
	Kill       bool   `json:"kill,omitempty"`
	DeadlineMs uint64 `json:"deadline_ms,omitempty"`
	// At which agent's socket it was given, and its number there; empty: at a controller.
	Agent  string `json:"agent,omitempty"`
	Number uint64 `json:"number,omitempty"`
	// Of a request: its service's name. Files of other forwarders may have the same VIP.
	Service string `json:"service,omitempty"`
}

func recordOf(order drain.Order) drainRecord {
	return drainRecord{Drain: order.Drain, Kill: order.Kill, DeadlineMs: uint64(order.Deadline.Milliseconds())}
}

func (r drainRecord) order() drain.Order {
	return drain.Order{Drain: r.Drain, Kill: r.Kill, Deadline: time.Duration(r.DeadlineMs) * time.Millisecond}
}

// judgement says which of its own orders an agent has told: what has become of them is in the store.
type judgement struct {
	Agent  string `json:"agent"`
	Number uint64 `json:"number"`
}

// drainSession is what a session knows of its agent's drains.
type drainSession struct {
	wake    chan struct{}   // orders have changed
	told    atomic.Bool     // the agent has more of its own
	listens bool            // to that
	older   bool            // the agent takes none
	sent    []cluster.Entry // what it has; nil: that is not known
	until   int64           // the highest revision of an order that it has
	warning string
}

func (d *drainSession) poke() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// in adds to a status what is known of drains.
func (d *drainSession) in(now status) status {
	now.Drains, now.DrainWarning, now.NoDrains = d.until, d.warning, d.older
	return now
}

// seeDrain wakes those whom a change concerns; with mu.
func (s *Server) seeDrain(event cluster.Event) {
	for _, begin := range []string{keyDrains, keyJudged} {
		if place, ok := cutPrefix(event.Key, begin); ok {
			name, _, _ := strings.Cut(place, "/")
			if one := s.sessions[name]; one != nil {
				one.drains.poke()
			}
		}
	}
	if strings.HasPrefix(event.Key, keyMoving) {
		for _, one := range s.sessions {
			one.drains.poke()
		}
	}
}

// isOlder reports whether a forwarder's agent keeps drains alone.
func (s *Server) isOlder(forwarder string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var now status
	entry := s.mirror.Get(keyStatus + forwarder)
	return entry.Revision != 0 && decodeRecord(entry, &now) == nil && now.NoDrains
}

// drainsFor returns the orders that a session's agent is to have: those for its forwarder, and those for the services of all requests, which may come to it. They
// are as the mirror has them, unless it is older than the session. Their revision is that of their last change: etcd's own says nothing of their age when it was
// restored from a backup.
func (s *Server) drainsFor(one *session) (revision int64, orders []cluster.Entry, judged cluster.Entry, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mirror.Revision < one.fence {
		return 0, nil, cluster.Entry{}, false
	}
	orders = slices.Concat(s.mirror.List(keyDrains+one.forwarder+"/"), s.mirror.List(keyMoving))
	judged = s.mirror.Get(keyJudged + one.forwarder)
	revision = max(one.joined, judged.Revision, s.mirror.Get(keyForgotten+one.forwarder).Revision, s.mirror.Get(keyForgotten+AllForwarders).Revision)
	for _, order := range orders {
		revision = max(revision, order.Revision)
	}
	return revision, orders, judged, true
}

// pushDrains sends orders that are new, and judges those that the agent was given itself. If the agent is not to be asked, it does nothing.
func (s *Server) pushDrains(ctx context.Context, one *session) error {
	d := &one.drains
	told := d.told.Swap(false)
	revision, orders, judged, known := s.drainsFor(one)
	sent := append(orders, judged)
	same := func(a, b cluster.Entry) bool { return a.Key == b.Key && a.Revision == b.Revision }
	if !known || d.older || !told && d.sent != nil && slices.EqualFunc(sent, d.sent, same) {
		return nil
	}
	d.sent = nil
	request, err := drainsRequest(revision, orders, judged)
	if err != nil {
		return err
	}
	sending, cancel := stall.WithDeadline(ctx, pushTimeout)
	defer cancel()
	response, err := one.member.SetDrains(sending, connect.NewRequest(request))
	if connect.CodeOf(err) == connect.CodeUnimplemented {
		s.log.Info("this agent is of an older version: a host that replaces it loses its drains", "forwarder", one.forwarder)
		d.older = true
		return nil
	}
	if err != nil {
		return err
	}
	answer := response.Msg
	d.warning = strings.Join(answer.GetWarnings(), "; ")
	if answer.GetOlder() {
		d.warning = "the agent has newer orders to drain than the store, and keeps them: was etcd restored from a backup?"
		time.AfterFunc(10*time.Second, d.poke) // so that its own orders are heard of
	} else {
		d.sent = sent
		for _, order := range orders {
			d.until = max(d.until, order.Revision)
		}
	}
	if !d.listens {
		d.listens = true
		go s.listenForDrains(ctx, one, answer.GetLast())
	}
	if len(answer.GetOwn()) > 0 {
		err = s.judge(ctx, one, answer.GetAgent(), answer.GetOwn())
	} else if !answer.GetOlder() { // whatever it orders from now on is newer than what it has heard of
		err = s.forgetEnded(ctx, one, orders)
	}
	if err != nil {
		d.sent = nil // ask again: nothing else may change that would have this looked at
		return err
	}
	if one.noted == nil { // the first status follows
		return nil
	}
	return s.note(ctx, one, d.in(*one.noted))
}

// drainsRequest makes a message of orders; those that have ended are left out.
func drainsRequest(revision int64, orders []cluster.Entry, judged cluster.Entry) (*pb.SetDrainsRequest, error) {
	request := &pb.SetDrainsRequest{Revision: revision}
	for _, entry := range orders {
		var order drainRecord
		if err := decodeRecord(entry, &order); err != nil {
			return nil, err
		}
		if !order.Drain {
			continue
		}
		_, server, _ := strings.Cut(entry.Key, "/") // without the kind
		_, server, _ = strings.Cut(server, "/")     // nor the forwarder or the VIP
		request.Orders = append(request.Orders, &pb.DrainOrder{Server: server, Drain: true, Kill: order.Kill, DeadlineMs: order.DeadlineMs,
			Revision: entry.Revision, Agent: order.Agent, Number: order.Number, Service: order.Service})
	}
	if judged.Revision != 0 {
		var until judgement
		if err := decodeRecord(judged, &until); err != nil {
			return nil, err
		}
		request.Agent, request.Judged = until.Agent, until.Number
	}
	return request, nil
}

// listenForDrains hears of orders at the agent's own socket.
func (s *Server) listenForDrains(ctx context.Context, one *session, last uint64) {
	for ctx.Err() == nil {
		response, err := one.member.AwaitDrains(ctx, connect.NewRequest(&pb.AwaitDrainsRequest{After: last}))
		if err != nil {
			pause(ctx, time.Second)
			continue
		}
		last = response.Msg.GetLast()
		one.drains.told.Store(true)
		one.drains.poke()
	}
}

// judge writes the agent's own orders to the store, but those for which the store has a newer one than the agent had heard of.
func (s *Server) judge(ctx context.Context, one *session, agent string, own []*pb.DrainOrder) error {
	s.mu.Lock()
	has := len(s.mirror.List(keyDrains + one.forwarder + "/"))
	s.mu.Unlock()
	if has+len(own) > maxDrainsOfAgent {
		return fmt.Errorf("the agent tells %d orders to drain beside %d: that cannot be", len(own), has)
	}
	for some := range slices.Chunk(own, maxDrains) {
		_, err := s.retry(ctx, func() (*cluster.Txn, error) {
			judgedKey := keyJudged + one.forwarder
			places, now, err := s.placesOf(ctx, one.forwarder, drainedBy(some), judgedKey)
			if err == nil {
				err = s.findForeign(ctx, one.forwarder, places)
			}
			if err != nil {
				return nil, err
			}
			var judged judgement
			if entry := now.Get(judgedKey); entry.Revision != 0 {
				if err := decodeRecord(entry, &judged); err != nil {
					return nil, err
				}
			}
			txn := new(cluster.Txn).At(keyOwners+one.forwarder, one.fence).Unchanged(now.Get(judgedKey))
			fresh := false
			for _, order := range some {
				if judged.Agent == agent && order.GetNumber() <= judged.Number {
					continue // by an answer that was lost
				}
				fresh = true
				s.judgeOne(txn, one, places, agent, order)
			}
			if !fresh {
				return nil, nil
			}
			return txn.Put(judgedKey, encode(judgement{agent, some[len(some)-1].GetNumber()}), 0), nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// judgeOne adds the fate of one own order to a transaction.
func (s *Server) judgeOne(txn *cluster.Txn, one *session, places map[string]place, agent string, order *pb.DrainOrder) {
	wanted := drain.FromWire(order)
	what, who := wanted.String(), "forwarder/"+one.forwarder
	at, known := places[order.GetServer()]
	if !known { // of a kind that this controller does not know
		s.record(txn, who, what, one.forwarder, "", order.GetServer()+", at its own socket: not understood")
		return
	}
	if at.foreign {
		s.record(txn, who, what, one.forwarder, "", order.GetServer()+", at its own socket: void, as it does not have this service any more")
		return
	}
	var has drainRecord
	if at.entry.Revision != 0 && decodeRecord(at.entry, &has) != nil {
		has = drainRecord{} // nobody can use it
	}
	// Of the agent's own orders, the later one counts, also if it had not heard yet that the one before is in the store.
	if at.entry.Revision > order.GetRevision() && has.Agent != agent {
		s.record(txn, who, what, one.forwarder, "", order.GetServer()+", at its own socket: void, as a newer order was given at a controller")
		return
	}
	record := recordOf(wanted)
	record.Agent, record.Number, record.Service = agent, order.GetNumber(), at.service
	txn.Unchanged(at.vip).Unchanged(at.entry).Put(at.entry.Key, encode(record), 0)
	s.record(txn, who, what, one.forwarder, "", order.GetServer()+", at its own socket")
}

// drained is a server that an order is for, and its service's name; "": that is not known.
type drained struct {
	ref     model.ServerRef
	service string
}

func drainedBy(orders []*pb.DrainOrder) []drained {
	var servers []drained
	for _, order := range orders {
		if ref, err := drain.Parse(order.GetServer()); err == nil {
			servers = append(servers, drained{ref, order.GetService()})
		}
	}
	return servers
}

// place is where the order for a server is kept, as it was read.
type place struct {
	entry   cluster.Entry
	vip     cluster.Entry // the requests that have the VIP; revision 0: none
	request string        // its id, and the name of its service, if the order is for that
	service string
	// For own orders: the request is not at the agent's forwarder, which has no say in it.
	foreign bool
}

// findForeign marks places of requests that a forwarder does not have.
func (s *Server) findForeign(ctx context.Context, forwarder string, places map[string]place) error {
	for text, at := range places {
		if at.request == "" {
			continue
		}
		record, entry, err := read[nfv.Record](ctx, s.store, keyRequests+at.request)
		if err != nil {
			return err
		}
		at.foreign = entry.Revision == 0 || !record.On(forwarder)
		places[text] = at
	}
	return nil
}

// placesOf reads what was ordered for up to maxDrains servers of a forwarder, by their texts, and other keys, at one revision.
func (s *Server) placesOf(ctx context.Context, forwarder string, servers []drained, more ...string) (map[string]place, cluster.Snapshot, error) {
	keys := func(ref model.ServerRef) (own, moving, vip string) {
		address, text := ref.Service.VIP.String(), drain.Text(ref)
		return keyDrains + forwarder + "/" + text, keyMoving + address + "/" + text, keyVIPs + address
	}
	reads := more
	for _, one := range servers {
		own, moving, vip := keys(one.ref)
		reads = append(reads, own, moving, vip)
	}
	now, err := s.store.Snapshot(ctx, reads...)
	if err != nil {
		return nil, now, unavailable(err)
	}
	places := map[string]place{}
	for _, one := range servers {
		own, moving, vip := keys(one.ref)
		at := place{entry: now.Get(own), vip: now.Get(vip)}
		if at.vip.Revision != 0 {
			var has holder
			if err := decodeRecord(at.vip, &has); err != nil {
				return nil, now, err
			}
			if request, name := has.serviceOf(one.ref.Service); request != "" && (one.service == "" || one.service == name) { // else a file has the same VIP
				at.entry, at.request, at.service = now.Get(moving), request, name
			}
		}
		places[drain.Text(one.ref)] = at
	}
	return places, now, nil
}

// forgetEnded removes what an agent needs no more: ends of drains that it has heard of. Those of requests stay for as long as the request does, as
// another agent may be away with an older order.
func (s *Server) forgetEnded(ctx context.Context, one *session, orders []cluster.Entry) error {
	return s.forgetDrains(ctx, one, orders, func(entry cluster.Entry) bool {
		var order drainRecord
		return strings.HasPrefix(entry.Key, keyDrains) && decodeRecord(entry, &order) == nil && !order.Drain
	})
}

// dropDrains removes orders for servers that are not in what a forwarder has confirmed.
func (s *Server) dropDrains(ctx context.Context, one *session, desired cluster.Entry, text []byte) error {
	s.mu.Lock()
	orders := s.mirror.List(keyDrains + one.forwarder + "/")
	current := s.mirror.Get(desired.Key).Revision == desired.Revision // else an order may be for what comes next
	s.mu.Unlock()
	if !current || len(orders) == 0 {
		return nil
	}
	w := s.newWork(defaultProject)
	parsed, err := w.parse(w.whole, "forwarder "+one.forwarder, text)
	if err != nil {
		return err
	}
	has := map[string]bool{}
	for i := range parsed.Services {
		for _, server := range parsed.Services[i].Servers {
			has[drain.Text(model.ServerRef{Service: parsed.Services[i].Key, Address: server.Address})] = true
		}
	}
	return s.forgetDrains(ctx, one, orders, func(entry cluster.Entry) bool { return !has[nameOf(entry.Key, keyDrains+one.forwarder+"/")] })
}

// forgetDrains removes orders that nobody has changed meanwhile.
func (s *Server) forgetDrains(ctx context.Context, one *session, orders []cluster.Entry, void func(cluster.Entry) bool) error {
	var gone []cluster.Entry
	for _, entry := range orders {
		if void(entry) {
			gone = append(gone, entry)
		}
	}
	for some := range slices.Chunk(gone, maxOperations) {
		txn := new(cluster.Txn).At(keyOwners+one.forwarder, one.fence).Put(keyForgotten+one.forwarder, nil, 0)
		for _, entry := range some {
			txn.Unchanged(entry).Delete(entry.Key)
		}
		if _, err := s.store.Commit(ctx, txn); err != nil && !errors.Is(err, cluster.ErrConflict) { // then it is looked at again
			return err
		}
	}
	return nil
}

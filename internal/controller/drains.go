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
	// Maximum own orders of an agent. An honest agent has at most one per server in its file; a compromised one may send more.
	maxDrainsOfAgent = 1 << 16
)

// drainRecord is the last order for a server of a service.
type drainRecord struct {
	Drain      bool   `json:"drain"` // false: the drain has ended; the record stays until the agent has received this
	Kill       bool   `json:"kill,omitempty"`
	DeadlineMs uint64 `json:"deadline_ms,omitempty"`
	// The agent at whose socket the order was given, and its number there; empty: at a controller.
	Agent  string `json:"agent,omitempty"`
	Number uint64 `json:"number,omitempty"`
	// Of a request: its service's name, because files of other forwarders may have the same VIP.
	Service string `json:"service,omitempty"`
}

func recordOf(order drain.Order) drainRecord {
	return drainRecord{Drain: order.Drain, Kill: order.Kill, DeadlineMs: uint64(order.Deadline.Milliseconds())}
}

func (r drainRecord) order() drain.Order {
	return drain.Order{Drain: r.Drain, Kill: r.Kill, Deadline: time.Duration(r.DeadlineMs) * time.Millisecond}
}

// judgement names the agent's own orders that the store already reflects.
type judgement struct {
	Agent  string `json:"agent"`
	Number uint64 `json:"number"`
}

// drainSession is the state of drains in a session.
type drainSession struct {
	wake    chan struct{}   // orders have changed
	hasOwn  atomic.Bool     // the agent has reported further orders of its own
	listens bool            // the controller waits for the agent's own orders
	older   bool            // the agent accepts no orders
	sent    []cluster.Entry // the orders that the agent has; nil: unknown
	until   int64           // the highest revision of an order that the agent has
	warning string
}

func (d *drainSession) poke() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// in adds the state of drains to a status.
func (d *drainSession) in(now status) status {
	now.Drains, now.DrainWarning, now.NoDrains = d.until, d.warning, d.older
	return now
}

// seeDrain wakes the sessions that a change concerns. The caller holds mu.
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

// isOlder reports whether a forwarder's agent is of a version that stores drains itself.
func (s *Server) isOlder(forwarder string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var now status
	entry := s.mirror.Get(keyStatus + forwarder)
	return entry.Revision != 0 && decodeRecord(entry, &now) == nil && now.NoDrains
}

// drainsFor returns the orders for a session's agent: those for its forwarder, and those for the services of all requests, which may move to it. They
// come from the mirror, unless it is older than the session. Their revision is that of their last change: etcd's own revision says nothing about
// their age after etcd was restored from a backup.
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

// pushDrains sends new orders, and stores those that were given at the agent's own socket. It does nothing while the agent must not be called.
func (s *Server) pushDrains(ctx context.Context, one *session) error {
	d := &one.drains
	hasOwn := d.hasOwn.Swap(false)
	revision, orders, judged, known := s.drainsFor(one)
	sent := append(orders, judged)
	same := func(a, b cluster.Entry) bool { return a.Key == b.Key && a.Revision == b.Revision }
	if !known || d.older || !hasOwn && d.sent != nil && slices.EqualFunc(sent, d.sent, same) {
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
		s.log.Info("the agent is of an older version, which stores drains itself: a host that replaces it loses them", "forwarder", one.forwarder)
		d.older = true
		return nil
	}
	if err != nil {
		return err
	}
	answer := response.Msg
	d.warning = strings.Join(answer.GetWarnings(), "; ")
	if answer.GetOlder() {
		d.warning = "the agent has newer orders to drain than the store, as after a restore of etcd from a backup, and keeps them"
		time.AfterFunc(10*time.Second, d.poke) // to learn the agent's own orders
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
	} else if !answer.GetOlder() { // its orders from now on are newer than those that it has received
		err = s.forgetEnded(ctx, one, orders)
	}
	if err != nil {
		d.sent = nil // the next push repeats this: no other event may cause one
		return err
	}
	if one.noted == nil { // the first status follows
		return nil
	}
	return s.note(ctx, one, d.in(*one.noted))
}

// drainsRequest encodes orders as a message, without those that have ended.
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
		_, server, _ := strings.Cut(entry.Key, "/") // cuts the kind
		_, server, _ = strings.Cut(server, "/")     // cuts the forwarder or the VIP
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

// listenForDrains waits for orders at the agent's own socket.
func (s *Server) listenForDrains(ctx context.Context, one *session, last uint64) {
	for ctx.Err() == nil {
		response, err := one.member.AwaitDrains(ctx, connect.NewRequest(&pb.AwaitDrainsRequest{After: last}))
		if err != nil {
			pause(ctx, time.Second)
			continue
		}
		last = response.Msg.GetLast()
		one.drains.hasOwn.Store(true)
		one.drains.poke()
	}
}

// judge writes the agent's own orders to the store, except those for which the store has a newer order than the agent had received.
func (s *Server) judge(ctx context.Context, one *session, agent string, own []*pb.DrainOrder) error {
	s.mu.Lock()
	has := len(s.mirror.List(keyDrains + one.forwarder + "/"))
	s.mu.Unlock()
	if has+len(own) > maxDrainsOfAgent {
		return fmt.Errorf("the agent reports %d orders of its own beside %d, more than it can have servers: check its host", len(own), has)
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
					continue // stored already; only the answer was lost
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

// judgeOne adds one own order of the agent, or its rejection, to a transaction.
func (s *Server) judgeOne(txn *cluster.Txn, one *session, places map[string]place, agent string, order *pb.DrainOrder) {
	wanted := drain.FromWire(order)
	what, caller := wanted.String(), "forwarder/"+one.forwarder
	at, known := places[order.GetServer()]
	if !known { // of a kind that this controller does not know
		s.record(txn, caller, what, one.forwarder, "", order.GetServer()+", at its own socket: not understood")
		return
	}
	if at.foreign {
		s.record(txn, caller, what, one.forwarder, "", order.GetServer()+", at its own socket: void, as it does not have this service any more")
		return
	}
	var has drainRecord
	if at.entry.Revision != 0 && decodeRecord(at.entry, &has) != nil {
		has = drainRecord{} // unreadable
	}
	// Of two orders of this agent the later one wins, even if the agent had not yet received the revision under which the earlier one is stored.
	if at.entry.Revision > order.GetRevision() && has.Agent != agent {
		s.record(txn, caller, what, one.forwarder, "", order.GetServer()+", at its own socket: void, as a newer order was given at a controller")
		return
	}
	record := recordOf(wanted)
	record.Agent, record.Number, record.Service = agent, order.GetNumber(), at.service
	txn.Unchanged(at.vip).Unchanged(at.entry).Put(at.entry.Key, encode(record), 0)
	s.record(txn, caller, what, one.forwarder, "", order.GetServer()+", at its own socket")
}

// drained is a server with an order, and its service's name; "": unknown.
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

// place is the entry of the order for a server, as it was read.
type place struct {
	entry   cluster.Entry
	vip     cluster.Entry // the requests that have the VIP; revision 0: none
	request string        // ID of the request whose service the order concerns, and the service's name
	service string
	// For own orders: the request is at another forwarder, so the agent may not change its orders.
	foreign bool
}

// findForeign marks places of requests that are at other forwarders.
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

// placesOf reads the orders for up to maxDrains servers of a forwarder, by their texts, and further keys, at one revision.
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
			if request, name := has.serviceOf(one.ref.Service); request != "" && (one.service == "" || one.service == name) { // otherwise a file's service has the same VIP
				at.entry, at.request, at.service = now.Get(moving), request, name
			}
		}
		places[drain.Text(one.ref)] = at
	}
	return places, now, nil
}

// forgetEnded removes the ends of drains (orders without `drain`) that the agent has received. Those for servers of requests stay as long as the
// request: another agent may reconnect with an older order.
func (s *Server) forgetEnded(ctx context.Context, one *session, orders []cluster.Entry) error {
	return s.forgetDrains(ctx, one, orders, func(entry cluster.Entry) bool {
		var order drainRecord
		return strings.HasPrefix(entry.Key, keyDrains) && decodeRecord(entry, &order) == nil && !order.Drain
	})
}

// dropDrains removes orders for servers that are not in the configuration that a forwarder has confirmed.
func (s *Server) dropDrains(ctx context.Context, one *session, desired cluster.Entry, text []byte) error {
	s.mu.Lock()
	orders := s.mirror.List(keyDrains + one.forwarder + "/")
	current := s.mirror.Get(desired.Key).Revision == desired.Revision // otherwise an order may be for the next configuration
	s.mu.Unlock()
	if !current || len(orders) == 0 {
		return nil
	}
	w := s.newWork(defaultProject)
	parsed, err := w.parse(w.mergedParser, "forwarder "+one.forwarder, text)
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

// forgetDrains removes orders, unless they have changed meanwhile.
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
		if _, err := s.store.Commit(ctx, txn); err != nil && !errors.Is(err, cluster.ErrConflict) { // on a conflict, the next pass tries again
			return err
		}
	}
	return nil
}

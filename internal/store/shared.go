// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"time"

	"steelyard/internal/model"
)

// Where controllers send orders to drain, an agent has two kinds: theirs, and its own ones that no controller has stored yet. Both are in force:
// docs/design/0042-controller.md.

// shared is the agent's record of both kinds. It is immutable.
type shared struct {
	agent    string                  // a random ID, so that a replaced host's own orders differ from its successor's
	last     uint64                  // number of the last own order
	former   uint64                  // number of the last own order before this start, as far as is known
	heard    bool                    // a controller has received own orders of this start
	revision int64                   // of the controllers' orders
	given    map[givenKey]givenDrain // the controllers' orders, also for servers that are elsewhere or not configured yet
	own      map[model.ServerRef]OwnDrain
}

// givenKey is the object of a controllers' order: a server of the service with a name, or of any service with the key.
type givenKey struct {
	ref     model.ServerRef
	service string
}

type givenDrain struct {
	Drain
	revision int64
}

// OwnDrain is an order given at the agent's own socket.
type OwnDrain struct {
	Ref      model.ServerRef
	Service  string // its name then; empty: unknown
	Drain    *Drain // nil: a drain ends
	Number   uint64
	Revision int64 // of the controllers' orders that the agent had at that time
}

// GivenDrain is an order that a controller has given or accepted.
type GivenDrain struct {
	Ref      model.ServerRef
	Service  string // the order applies to a service of that name only; empty: to any
	Kill     bool
	Deadline time.Duration // since the order; 0: none
	Revision int64
	// The own order that it was before, if any.
	Agent  string
	Number uint64
}

// GivenDrains are all orders of controllers, at one revision.
type GivenDrains struct {
	Revision int64
	Orders   []GivenDrain
	// The own orders of this agent up to a number are stored: Orders includes their result.
	Agent  string
	Judged uint64
}

// stride is added to the number of own orders at each start, because orders from when the disk was full may be lost.
const stride = 1 << 20

// Share starts to share orders with controllers. Existing orders become the agent's own ones.
func (s *Store) Share() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drains.former != nil {
		s.drains.shared = s.drains.former
		s.drains.shared.last += stride
		s.drains.shared.former = s.drains.shared.last
		s.drains.orders = s.drains.shared.inForce(s.nameOf)
		return nil
	}
	s.drains.shared = &shared{agent: rand.Text()}
	next := s.drains.shared
	for _, ref := range sorted(s.drains.orders) {
		order := s.drains.orders[ref]
		next = next.with([]model.ServerRef{ref}, &order, s.nameOf)
	}
	return s.saved(s.drains.share(next, s.drains.began))
}

// TakeGiven replaces the orders of controllers, unless these are older, and drops own ones that are stored. taken: they were not older; changed: other
// orders are in force now. As with SetDrain, they apply even if they cannot be saved.
func (s *Store) TakeGiven(given GivenDrains) (taken, changed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drains.shared == nil {
		return false, false, nil
	}
	next := s.drains.shared.hearing(given)
	if given.Revision < next.revision {
		return false, false, s.saved(s.drains.share(next, s.drains.began))
	}
	before := s.drains.orders
	err = s.saved(s.drains.share(next.taking(given, time.Now()), s.drains.began))
	for ref := range s.drains.orders {
		if was, known := before[ref]; !known || was != s.drains.orders[ref] {
			changed = true
			s.touch(ref)
		}
	}
	for ref := range before {
		if _, stays := s.drains.orders[ref]; !stays {
			changed = true
			s.touch(ref)
		}
	}
	s.awaitDeadline()
	return true, changed, err
}

// OwnDrains returns the own orders that no controller has stored yet, in order, and the number of the last own order.
func (s *Store) OwnDrains() (agent string, last uint64, own []OwnDrain) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drains.shared == nil {
		return "", 0, nil
	}
	own = slices.SortedFunc(maps.Values(s.drains.shared.own), func(a, b OwnDrain) int { return cmp.Compare(a.Number, b.Number) })
	return s.drains.shared.agent, s.drains.shared.last, own
}

// AwaitOwn waits until the number of the last own order exceeds after, and returns it.
func (s *Store) AwaitOwn(ctx context.Context, after uint64) (uint64, error) {
	for {
		s.mu.Lock()
		ordered := s.ordered
		s.mu.Unlock()
		if _, last, _ := s.OwnDrains(); last > after {
			return last, nil
		}
		select {
		case <-ordered:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func (d *shared) clone() *shared {
	next := *d
	next.given, next.own = maps.Clone(d.given), maps.Clone(d.own)
	if next.own == nil {
		next.own = map[model.ServerRef]OwnDrain{}
	}
	return &next
}

func (d *shared) equal(other *shared) bool {
	same := func(a, b OwnDrain) bool { return a.Number == b.Number }
	return d.agent == other.agent && d.revision == other.revision && maps.Equal(d.given, other.given) && maps.EqualFunc(d.own, other.own, same)
}

// with adds an own order for some servers.
func (d *shared) with(refs []model.ServerRef, drain *Drain, name func(model.ServiceKey) string) *shared {
	next := d.clone()
	for _, ref := range refs {
		next.last++
		next.own[ref] = OwnDrain{ref, name(ref.Service), drain, next.last, d.revision}
	}
	return next
}

// keeping drops own orders for removed servers, as with a file. Controllers do the same with theirs; until then, an own order that ends one of theirs
// must stay.
func (d *shared) keeping(keep func(model.ServerRef) bool) *shared {
	next, given := d.clone(), make(map[model.ServerRef]bool, len(d.given))
	for key := range d.given {
		given[key.ref] = true
	}
	maps.DeleteFunc(next.own, func(ref model.ServerRef, own OwnDrain) bool { return !keep(ref) && (own.Drain != nil || !given[ref]) })
	return next
}

// hearing renumbers own orders of this start if controllers have stored orders with these numbers, because the file was an older one.
func (d *shared) hearing(given GivenDrains) *shared {
	if d.heard {
		return d
	}
	next := d.clone()
	next.heard = true
	if given.Agent != d.agent || given.Judged <= d.former {
		return next
	}
	next.last += given.Judged - d.former
	for ref, own := range d.own {
		if own.Number > d.former {
			own.Number += given.Judged - d.former
			next.own[ref] = own
		}
	}
	return next
}

// taking replaces the orders of controllers. A deadline starts when the agent first receives the order, or when it was given here.
func (d *shared) taking(given GivenDrains, now time.Time) *shared {
	next := d.clone()
	next.revision, next.given = given.Revision, make(map[givenKey]givenDrain, len(given.Orders))
	for _, order := range given.Orders {
		key, one := givenKey{order.Ref, order.Service}, givenDrain{Drain{Kill: order.Kill}, order.Revision}
		if order.Deadline > 0 {
			before, own := d.given[key], d.own[order.Ref]
			switch {
			case before.revision == order.Revision:
				one.Until = before.Until
			case order.Agent == d.agent && order.Number == own.Number && own.Drain != nil:
				one.Until = own.Drain.Until
			default:
				one.Until = now.Add(order.Deadline)
			}
		}
		next.given[key] = one
	}
	if given.Agent == d.agent {
		maps.DeleteFunc(next.own, func(_ model.ServerRef, own OwnDrain) bool { return own.Number <= given.Judged })
	}
	return next
}

// inForce merges both kinds, under the services' current names.
func (d *shared) inForce(name func(model.ServiceKey) string) map[model.ServerRef]Drain {
	orders := make(map[model.ServerRef]Drain, len(d.given)+len(d.own))
	for _, key := range d.sorted() { // so that an order for the service's name wins
		if has := name(key.ref.Service); key.service == "" || has == "" || has == key.service {
			orders[key.ref] = d.given[key].Drain
		}
	}
	for ref, own := range d.own {
		if own.Drain != nil {
			orders[ref] = *own.Drain
		} else {
			delete(orders, ref)
		}
	}
	return orders
}

func (d *shared) sorted() []givenKey {
	return slices.SortedFunc(maps.Keys(d.given), func(a, b givenKey) int {
		return cmp.Or(compare(a.ref, b.ref), cmp.Compare(a.service, b.service))
	})
}

// savedShared is shared on disk.
type savedShared struct {
	Agent    string       `json:"agent"`
	Last     uint64       `json:"last"`
	Revision int64        `json:"revision"`
	Given    []savedDrain `json:"given,omitempty"`
	Own      []savedDrain `json:"own,omitempty"`
}

func (d *shared) saved() *savedShared {
	saved := &savedShared{Agent: d.agent, Last: d.last, Revision: d.revision}
	for _, key := range d.sorted() {
		one := saveDrain(key.ref, d.given[key].Drain)
		one.Service, one.Revision = key.service, d.given[key].revision
		saved.Given = append(saved.Given, one)
	}
	for _, ref := range sorted(d.own) {
		own, order := d.own[ref], Drain{}
		if own.Drain != nil {
			order = *own.Drain
		}
		one := saveDrain(ref, order)
		one.Service, one.Ended, one.Number, one.Revision = own.Service, own.Drain == nil, own.Number, own.Revision
		saved.Own = append(saved.Own, one)
	}
	return saved
}

func (d *savedShared) read() *shared {
	read := &shared{agent: d.Agent, last: d.Last, revision: d.Revision, given: map[givenKey]givenDrain{}, own: map[model.ServerRef]OwnDrain{}}
	for _, one := range d.Given {
		read.given[givenKey{one.ref(), one.Service}] = givenDrain{one.order(), one.Revision}
	}
	for _, one := range d.Own {
		own := OwnDrain{one.ref(), one.Service, nil, one.Number, one.Revision}
		if order := one.order(); !one.Ended {
			own.Drain = &order
		}
		read.own[own.Ref] = own
	}
	return read
}

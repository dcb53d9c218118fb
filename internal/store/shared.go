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

// Where controllers give orders to drain, an agent has theirs, and its own that no controller has judged yet, which are in force until then:
// docs/design/0042-controller.md.

// shared is what an agent knows of both. It is replaced as a whole.
type shared struct {
	agent    string                  // at random, so that the own orders of a host that is replaced are another's
	last     uint64                  // number of the last own order
	former   uint64                  // of those before this start, as far as is known
	heard    bool                    // no controller was told of orders after these until it is set
	revision int64                   // of those that controllers have given
	given    map[givenKey]givenDrain // by controllers: also for servers that are not here, or not yet
	own      map[model.ServerRef]OwnDrain
}

// givenKey is what an order of controllers is for: a server of the service that has a name, or of whatever service has the key.
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
	Service  string // its name then; empty: that is not known
	Drain    *Drain // nil: a drain ends
	Number   uint64
	Revision int64 // of the orders of controllers that the agent had when it was given
}

// GivenDrain is an order that a controller has given or judged.
type GivenDrain struct {
	Ref      model.ServerRef
	Service  string // the order is for a service of that name only; empty: whatever its name
	Kill     bool
	Deadline time.Duration // since the order; 0: none
	Revision int64
	// The own order that it was before, if it was one.
	Agent  string
	Number uint64
}

// GivenDrains are all orders that controllers have given, as they were at a revision.
type GivenDrains struct {
	Revision int64
	Orders   []GivenDrain
	// The own orders of an agent are judged up to a number: what has become of them is in Orders.
	Agent  string
	Judged uint64
}

// stride is added to the number of own orders at each start, as those given while the disk was full may have been forgotten since.
const stride = 1 << 20

// Share has the agent's orders judged by controllers from now on. Those of the time before become its own orders.
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

// TakeGiven replaces the orders of controllers, unless these are older, and drops own ones that were judged. taken says whether they were not older, changed
// whether something else is in force now. As with SetDrain, they apply even if they cannot be saved.
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

// OwnDrains returns the own orders that no controller has judged yet, as they were given, and the number of the last own order.
func (s *Store) OwnDrains() (agent string, last uint64, own []OwnDrain) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drains.shared == nil {
		return "", 0, nil
	}
	own = slices.SortedFunc(maps.Values(s.drains.shared.own), func(a, b OwnDrain) int { return cmp.Compare(a.Number, b.Number) })
	return s.drains.shared.agent, s.drains.shared.last, own
}

// AwaitOwn returns the number of the last own order when that is higher than after.
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

// keeping drops own orders for servers that have left, which are forgotten as in a file. Controllers do the same with theirs; until then, one that
// ends a drain of theirs is needed.
func (d *shared) keeping(keep func(model.ServerRef) bool) *shared {
	next, given := d.clone(), make(map[model.ServerRef]bool, len(d.given))
	for key := range d.given {
		given[key.ref] = true
	}
	maps.DeleteFunc(next.own, func(ref model.ServerRef, own OwnDrain) bool { return !keep(ref) && (own.Drain != nil || !given[ref]) })
	return next
}

// hearing gives own orders of this start other numbers if controllers have judged orders with these: the file was an older one.
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

// taking replaces the orders of controllers. A deadline begins when the agent first hears of the order, or when it was given here.
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

// inForce returns what both come to, with the services' names as they are.
func (d *shared) inForce(name func(model.ServiceKey) string) map[model.ServerRef]Drain {
	orders := make(map[model.ServerRef]Drain, len(d.given)+len(d.own))
	for _, key := range d.sorted() { // so that of two orders, that for the service's name counts
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

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

// An agent of controllers has two kinds of orders to drain: those of the controllers, and own ones, given at its socket, that no controller has
// stored yet. Both are in force: docs/design/0042-controller.md.

// shared is the agent's record of both kinds. It is immutable.
type shared struct {
	agent       string                                 // a random ID, so that a replaced host's own orders differ from its successor's
	last        uint64                                 // number of the last own order
	former      uint64                                 // number of the last own order before this start, as far as is known
	confirmed   bool                                   // a controller has received own orders of this start
	revision    int64                                  // of the controllers' orders
	controllers map[controllerDrainKey]controllerDrain // the controllers' orders, also for servers that are elsewhere or not configured yet
	own         map[model.ServerRef]OwnDrain
}

// controllerDrainKey is the object of a controllers' order: a server of the service with a name, or of any service with the key.
type controllerDrainKey struct {
	ref     model.ServerRef
	service string
}

type controllerDrain struct {
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

// ControllerDrain is an order that a controller has given or accepted.
type ControllerDrain struct {
	Ref      model.ServerRef
	Service  string // the order applies to a service of that name only; empty: to any
	Kill     bool
	Deadline time.Duration // since the order; 0: none
	Revision int64
	// The own order that it was before, if any.
	Agent  string
	Number uint64
}

// ControllerDrains are all orders of controllers, at one revision.
type ControllerDrains struct {
	Revision int64
	Orders   []ControllerDrain
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

// ReplaceControllerDrains replaces the orders of controllers, unless the update is older, and drops own orders that controllers have stored.
// accepted: the update was not older; changed: it changes the orders in force. As with SetDrain, they apply even if they cannot be saved.
func (s *Store) ReplaceControllerDrains(update ControllerDrains) (accepted, changed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drains.shared == nil {
		return false, false, nil
	}
	next := s.drains.shared.renumbered(update)
	if update.Revision < next.revision {
		return false, false, s.saved(s.drains.share(next, s.drains.began))
	}
	before := s.drains.orders
	err = s.saved(s.drains.share(next.replacing(update, time.Now()), s.drains.began))
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
	next.controllers, next.own = maps.Clone(d.controllers), maps.Clone(d.own)
	if next.own == nil {
		next.own = map[model.ServerRef]OwnDrain{}
	}
	return &next
}

func (d *shared) equal(other *shared) bool {
	same := func(a, b OwnDrain) bool { return a.Number == b.Number }
	return d.agent == other.agent && d.revision == other.revision && maps.Equal(d.controllers, other.controllers) && maps.EqualFunc(d.own, other.own, same)
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
	next, ordered := d.clone(), make(map[model.ServerRef]bool, len(d.controllers))
	for key := range d.controllers {
		ordered[key.ref] = true
	}
	maps.DeleteFunc(next.own, func(ref model.ServerRef, own OwnDrain) bool { return !keep(ref) && (own.Drain != nil || !ordered[ref]) })
	return next
}

// renumbered renumbers own orders of this start if controllers have stored orders with these numbers, because the file was an older one.
func (d *shared) renumbered(update ControllerDrains) *shared {
	if d.confirmed {
		return d
	}
	next := d.clone()
	next.confirmed = true
	if update.Agent != d.agent || update.Judged <= d.former {
		return next
	}
	next.last += update.Judged - d.former
	for ref, own := range d.own {
		if own.Number > d.former {
			own.Number += update.Judged - d.former
			next.own[ref] = own
		}
	}
	return next
}

// replacing replaces the orders of controllers. A deadline starts when the agent first receives the order, or when it was given here.
func (d *shared) replacing(update ControllerDrains, now time.Time) *shared {
	next := d.clone()
	next.revision, next.controllers = update.Revision, make(map[controllerDrainKey]controllerDrain, len(update.Orders))
	for _, order := range update.Orders {
		key, one := controllerDrainKey{order.Ref, order.Service}, controllerDrain{Drain{Kill: order.Kill}, order.Revision}
		if order.Deadline > 0 {
			before, own := d.controllers[key], d.own[order.Ref]
			switch {
			case before.revision == order.Revision:
				one.Until = before.Until
			case order.Agent == d.agent && order.Number == own.Number && own.Drain != nil:
				one.Until = own.Drain.Until
			default:
				one.Until = now.Add(order.Deadline)
			}
		}
		next.controllers[key] = one
	}
	if update.Agent == d.agent {
		maps.DeleteFunc(next.own, func(_ model.ServerRef, own OwnDrain) bool { return own.Number <= update.Judged })
	}
	return next
}

// inForce merges both kinds, under the services' current names.
func (d *shared) inForce(name func(model.ServiceKey) string) map[model.ServerRef]Drain {
	orders := make(map[model.ServerRef]Drain, len(d.controllers)+len(d.own))
	for _, key := range d.sorted() { // so that an order for the service's name wins
		if has := name(key.ref.Service); key.service == "" || has == "" || has == key.service {
			orders[key.ref] = d.controllers[key].Drain
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

func (d *shared) sorted() []controllerDrainKey {
	return slices.SortedFunc(maps.Keys(d.controllers), func(a, b controllerDrainKey) int {
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
		one := saveDrain(key.ref, d.controllers[key].Drain)
		one.Service, one.Revision = key.service, d.controllers[key].revision
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
	read := &shared{agent: d.Agent, last: d.Last, revision: d.Revision, controllers: map[controllerDrainKey]controllerDrain{}, own: map[model.ServerRef]OwnDrain{}}
	for _, one := range d.Given {
		read.controllers[controllerDrainKey{one.ref(), one.Service}] = controllerDrain{one.order(), one.Revision}
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

// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"steelyard/internal/connlimit"
	"steelyard/internal/pki"
)

// Bounds of connections whose callers are not known yet. Joining, or showing a certificate, takes less than a second.
const (
	maxGuests        = 512
	maxGuestsFrom    = 64  // one address, or one /64 of IPv6
	maxConnectionsOf = 256 // of one certificate; agents, which have one each, and controllers are not counted
	guestLife        = 30 * time.Second
)

// guests is a listener that bounds what strangers hold: each connection is a guest until its caller is known to be a member. One that stays
// too long is closed, whatever it does. If there are too many of one address, the oldest of them is; if there are too many of all, the oldest of the
// network and the address that have most, so that a few addresses cannot crowd out the others. Those that have sent nothing go first.
type guests struct {
	net.Listener

	budgets buckets

	mu      sync.Mutex
	all     list.List            // of *guest, the oldest first
	from    map[netip.Prefix]int // guests of an address
	near    map[netip.Prefix]int // guests of a network
	members map[string]int       // connections of a certificate
}

type guest struct {
	net.Conn
	host *guests
	from netip.Prefix
	near netip.Prefix
	at   time.Time // since when it is connected
	late *time.Timer

	place  *list.Element // with host.mu; nil: a guest no more
	member string        // with host.mu: the hash of its certificate; "": it is not counted

	heard  atomic.Bool // it has sent anything
	closed context.Context
	close  context.CancelFunc
	readMu sync.Mutex
	resume time.Time // nothing is read before; zero: at once
}

func newGuests(listener net.Listener) *guests {
	return &guests{Listener: listener, from: map[netip.Prefix]int{}, near: map[netip.Prefix]int{}, members: map[string]int{}}
}

func (g *guests) Accept() (net.Conn, error) {
	conn, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return g.enter(conn), nil
}

func (g *guests) enter(conn net.Conn) *guest {
	one := &guest{Conn: conn, host: g, from: connlimit.HostOf(conn.RemoteAddr()), at: time.Now()}
	one.near = networkOf(one.from)
	one.closed, one.close = context.WithCancel(context.Background())
	if wait := g.budgets.charge("connections of "+one.from.String(), connections); wait > 0 {
		one.pause(wait)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.from[one.from] >= maxGuestsFrom {
		g.evict(func(other *guest) bool { return other.from == one.from })
	}
	if g.all.Len() >= maxGuests {
		network := most(g.near, func(netip.Prefix) bool { return true })
		address := most(g.from, func(p netip.Prefix) bool { return networkOf(p) == network })
		if g.from[address] > 1 {
			g.evict(func(other *guest) bool { return other.from == address })
		} else {
			g.evict(func(other *guest) bool { return other.near == network })
		}
	}
	g.from[one.from]++
	g.near[one.near]++
	one.place = g.all.PushBack(one)
	one.late = time.AfterFunc(guestLife, func() { one.Close() })
	return one
}

// evict closes the oldest guest of some that has sent nothing, or else the oldest one. With g.mu.
func (g *guests) evict(of func(*guest) bool) {
	var oldest *guest
	for at := g.all.Front(); at != nil; at = at.Next() {
		one := at.Value.(*guest)
		if !of(one) {
			continue
		}
		if silent := !one.heard.Load(); oldest == nil || silent {
			oldest = one
			if silent {
				break
			}
		}
	}
	if oldest != nil {
		oldest.leave()
		oldest.close()
		oldest.Conn.Close()
	}
}

// networkOf returns the network of an address: 24 bits, 48 of IPv6.
func networkOf(from netip.Prefix) netip.Prefix {
	bits := 24
	if from.Addr().Is6() {
		bits = 48
	}
	network, _ := from.Addr().Prefix(bits) // the zero value has none
	return network
}

// most returns the prefix with the highest count, of those that are of concern.
func most(counts map[netip.Prefix]int, concerns func(netip.Prefix) bool) (found netip.Prefix) {
	highest := 0
	for prefix, count := range counts {
		if count > highest && concerns(prefix) {
			found, highest = prefix, count
		}
	}
	return found
}

// leave with host.mu.
func (g *guest) leave() {
	if g.place == nil {
		return
	}
	g.late.Stop()
	g.host.all.Remove(g.place)
	g.place = nil
	if g.host.from[g.from]--; g.host.from[g.from] == 0 {
		delete(g.host.from, g.from)
	}
	if g.host.near[g.near]--; g.host.near[g.near] == 0 {
		delete(g.host.near, g.near)
	}
}

// admit says that the caller is a member.
func (g *guest) admit() {
	g.host.mu.Lock()
	defer g.host.mu.Unlock()
	g.leave()
}

// join says that the caller is the member with a certificate. Returns false if that has too many connections.
func (g *guest) join(certificate string) bool {
	g.host.mu.Lock()
	defer g.host.mu.Unlock()
	if g.member == certificate || g.closed.Err() != nil {
		return true
	}
	if g.host.members[certificate] >= maxConnectionsOf {
		return false
	}
	g.leave()
	g.host.members[certificate]++
	g.member = certificate
	return true
}

func (g *guest) Close() error {
	g.host.mu.Lock()
	g.leave()
	if g.member != "" {
		if g.host.members[g.member]--; g.host.members[g.member] == 0 {
			delete(g.host.members, g.member)
		}
		g.member = ""
	}
	g.close()
	g.host.mu.Unlock()
	return g.Conn.Close()
}

type guestKey struct{}

// withGuest lets requests find the connection that they come by.
func withGuest(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(*tls.Conn); ok {
		return context.WithValue(ctx, guestKey{}, secure.NetConn())
	}
	return ctx
}

// admitted notes that the caller of a request is a member. Returns false if that has too many connections.
func admitted(ctx context.Context, who caller) bool {
	one, ok := ctx.Value(guestKey{}).(*guest)
	if !ok {
		return true
	}
	if who.relayed || who.certificate == nil {
		one.admit()
		return true
	}
	return one.join(pki.KeyHash(who.certificate))
}

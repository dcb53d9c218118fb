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

// Bounds of connections whose clients have not authenticated yet. Joining, or presenting a certificate, takes less than a second.
const (
	maxGuests        = 512
	maxGuestsFrom    = 64  // of one address, or one /64 of IPv6
	maxConnectionsOf = 256 // of one certificate; agents, which have one connection each, and controllers are not counted
	guestLife        = 30 * time.Second
)

// guests is a listener that bounds unauthenticated connections. A connection is a guest until its client is known to be a member. A guest that
// stays too long is closed, whatever it sends. Above a bound, one guest is evicted: the oldest of the address that has too many, or, if all guests
// together are too many, the oldest of the network and address with the most guests, so that a few addresses cannot displace the others. Guests
// that have sent nothing go first.
type guests struct {
	net.Listener

	budgets buckets

	mu      sync.Mutex
	all     list.List            // of *guest, oldest first
	from    map[netip.Prefix]int // guests per address
	near    map[netip.Prefix]int // guests per network
	members map[string]int       // connections per certificate
}

type guest struct {
	net.Conn
	host *guests
	from netip.Prefix
	near netip.Prefix
	at   time.Time // when it connected
	late *time.Timer

	place  *list.Element // guarded by host.mu; nil: no longer a guest
	member string        // guarded by host.mu: the hash of its certificate; "": not counted

	heard  atomic.Bool // it has sent data
	closed context.Context
	close  context.CancelFunc
	readMu sync.Mutex
	resume time.Time // reading is paused until then; zero: not paused
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
		network := maximum(g.near, func(netip.Prefix) bool { return true })
		address := maximum(g.from, func(p netip.Prefix) bool { return networkOf(p) == network })
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

// evict closes the oldest of the guests that match, preferring those that have sent nothing. Requires g.mu.
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

// networkOf returns the network of an address: /24, or /48 of IPv6.
func networkOf(from netip.Prefix) netip.Prefix {
	bits := 24
	if from.Addr().Is6() {
		bits = 48
	}
	network, _ := from.Addr().Prefix(bits) // the zero address has no prefix
	return network
}

// most returns the prefix with the highest count, among those for which concerns returns true.
func maximum(counts map[netip.Prefix]int, concerns func(netip.Prefix) bool) (found netip.Prefix) {
	highest := 0
	for prefix, count := range counts {
		if count > highest && concerns(prefix) {
			found, highest = prefix, count
		}
	}
	return found
}

// leave removes the connection from the guests. Requires host.mu.
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

// accept marks the client as a member.
func (g *guest) accept() {
	g.host.mu.Lock()
	defer g.host.mu.Unlock()
	g.leave()
}

// join marks the client as the member with a certificate. Returns false if that member has too many connections.
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

// withGuest stores the connection in the context of its requests.
func withGuest(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(*tls.Conn); ok {
		return context.WithValue(ctx, guestKey{}, secure.NetConn())
	}
	return ctx
}

// accepted marks the caller of a request as a member. Returns false if that member has too many connections.
func accepted(ctx context.Context, caller principal) bool {
	one, ok := ctx.Value(guestKey{}).(*guest)
	if !ok {
		return true
	}
	if caller.relayed || caller.certificate == nil {
		one.accept()
		return true
	}
	return one.join(pki.KeyHash(caller.certificate))
}

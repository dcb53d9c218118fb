// SPDX-License-Identifier: Apache-2.0

// Package connlimit bounds the connections of a listener with unauthenticated clients, so that they cannot use up the process's descriptors.
package connlimit

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
)

// Listen returns a listener with at most total connections, and perHost of one address (of IPv6: a /64). A further one closes the oldest of that
// address, or of the address that has most: so no caller keeps another one out.
func Listen(listener net.Listener, total, perHost int) net.Listener {
	return &limited{Listener: listener, total: total, perHost: perHost, of: map[netip.Prefix]*list.List{}}
}

type limited struct {
	net.Listener
	total, perHost int

	mu  sync.Mutex
	all int
	of  map[netip.Prefix]*list.List // of *conn, the oldest first
}

type conn struct {
	net.Conn
	in    *limited
	host  netip.Prefix
	place *list.Element // with in.mu; nil: it is closed
}

func (l *limited) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	one := &conn{Conn: accepted, in: l, host: HostOf(accepted.RemoteAddr())}
	if old := l.enter(one); old != nil {
		old.Close()
	}
	return one, nil
}

// enter counts a connection, and returns one that is to be closed for it; nil: none.
func (l *limited) enter(one *conn) (old *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.of[one.host]
	switch {
	case own != nil && own.Len() >= l.perHost:
		old = own.Front().Value.(*conn)
	case l.all >= l.total:
		var maximum *list.List
		for _, of := range l.of {
			if maximum == nil || of.Len() > maximum.Len() {
				maximum = of
			}
		}
		old = maximum.Front().Value.(*conn)
	}
	if old != nil {
		l.leave(old)
	}
	if own = l.of[one.host]; own == nil {
		own = list.New()
		l.of[one.host] = own
	}
	one.place = own.PushBack(one)
	l.all++
	return old
}

// leave with l.mu.
func (l *limited) leave(one *conn) {
	if one.place == nil {
		return
	}
	own := l.of[one.host]
	own.Remove(one.place)
	one.place = nil
	l.all--
	if own.Len() == 0 {
		delete(l.of, one.host)
	}
}

func (c *conn) Close() error {
	c.in.mu.Lock()
	c.in.leave(c)
	c.in.mu.Unlock()
	return c.Conn.Close()
}

// HostOf returns the prefix that counts as one host: an IPv4 address, or a /64 of IPv6. The zero value if the address is not of TCP.
func HostOf(address net.Addr) netip.Prefix {
	tcp, ok := address.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	host, _ := ip.Prefix(bits) // the length fits
	return host
}

// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Connections of checks end by FIN, as those of clients do: a reset would be an error in the server's log. The side that closes
// first keeps its port in TIME-WAIT for a minute (RFC 9293 3.6.1). The ports for each destination are limited, and the
// kernel bounds the total number of TIME-WAIT entries: checks above one of these bounds end by a reset.

const (
	// timeWait is how long Linux keeps TIME-WAIT.
	timeWait = 60 * time.Second
	// maxLingering bounds the connections that wait for the server's FIN.
	maxLingering = 1024
	// maxUnread bounds the bytes that are read from a server after the check.
	maxUnread = 256 << 10
)

type lingerKey struct{}

// lingering is how connections of a check are closed.
type lingering struct {
	limit       time.Duration // for the server's FIN; 0: they end by a reset
	serverFirst bool          // the server closes first: it was requested to
}

func withLinger(ctx context.Context, how lingering) context.Context {
	return context.WithValue(ctx, lingerKey{}, how)
}

// closer closes connections of checks.
type closer struct {
	perDestination, all float64 // connections in TIME-WAIT at once, half of the maximum
	lingering           atomic.Int32

	mu     sync.Mutex
	total  bucket
	each   map[netip.AddrPort]*bucket
	sweep  time.Time
	resets atomic.Uint64 // connections that were to end by FIN
}

// bucket counts connections in TIME-WAIT: a full bucket drains within one TIME-WAIT.
type bucket struct {
	level float64
	at    time.Time
}

func (b *bucket) leak(maximum float64, now time.Time) {
	b.level = max(0, b.level-maximum*now.Sub(b.at).Seconds()/timeWait.Seconds())
	b.at = now
}

func newCloser() *closer {
	// The bucket's capacity may be used at once, and again in the time in which it refills: together half of the ports or entries.
	first, last := 32768, 60999
	if data, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		_, _ = fmt.Sscan(string(data), &first, &last)
	}
	maximum := 16384
	if data, err := os.ReadFile("/proc/sys/net/ipv4/tcp_max_tw_buckets"); err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil {
			maximum = n
		}
	}
	return &closer{
		perDestination: float64(max(0, last-first)) / 4, all: float64(min(maximum, 131072)) / 4, each: map[netip.AddrPort]*bucket{},
	}
}

// allow reports whether one more connection to a destination may end in TIME-WAIT.
func (c *closer) allow(to netip.AddrPort, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.sweep) > timeWait {
		c.sweep = now
		for destination, one := range c.each {
			if one.leak(c.perDestination, now); one.level == 0 {
				delete(c.each, destination)
			}
		}
	}
	one := c.each[to]
	if one == nil {
		one = &bucket{at: now}
		c.each[to] = one
	}
	one.leak(c.perDestination, now)
	c.total.leak(c.all, now)
	if one.level+1 > c.perDestination || c.total.level+1 > c.all {
		return false
	}
	one.level++
	c.total.level++
	return true
}

// dial returns a Dial whose connections close as the check's context says.
func (c *closer) dial(dial Dial) Dial {
	return func(ctx context.Context, to Endpoint) (net.Conn, error) {
		conn, err := dial(ctx, to)
		tcp, ok := conn.(*net.TCPConn)
		if err != nil || !ok {
			return conn, err
		}
		how, _ := ctx.Value(lingerKey{}).(lingering)
		return &closing{TCPConn: tcp, closer: c, how: how, to: to.Address}, nil
	}
}

// closing is a connection with an orderly Close.
type closing struct {
	*net.TCPConn
	closer *closer
	how    lingering
	to     netip.AddrPort
	once   sync.Once
}

// Close closes the connection as its check requires. The check does not wait for the server's FIN.
func (c *closing) Close() error {
	c.once.Do(func() {
		switch {
		case c.how.limit <= 0:
			c.reset()
		case c.closer.lingering.Add(1) > maxLingering:
			c.closer.lingering.Add(-1)
			c.closer.resets.Add(1)
			c.reset()
		default:
			_ = c.SetDeadline(time.Now().Add(c.how.limit)) // it ends the transport's reading too
			go c.finish()
		}
	})
	return nil
}

// finish sends a FIN and waits for the server's. The server's data must be read until then: the kernel answers data by a reset
// if it is not read, or comes once the socket is closed. No port is used up if the server closes first.
func (c *closing) finish() {
	defer c.closer.lingering.Add(-1)
	if c.how.serverFirst {
		_ = c.SetReadDeadline(time.Now().Add(c.how.limit / 2))
		if c.readToEnd() {
			_ = c.TCPConn.Close()
			return
		}
	}
	if !c.closer.allow(c.to, time.Now()) {
		c.closer.resets.Add(1)
		c.reset()
		return
	}
	_ = c.CloseWrite()
	_ = c.SetReadDeadline(time.Now().Add(c.how.limit))
	c.readToEnd()
	_ = c.TCPConn.Close()
}

// readToEnd discards the server's data, and reports whether its FIN arrived.
func (c *closing) readToEnd() bool {
	n, err := io.Copy(io.Discard, io.LimitReader(c.TCPConn, maxUnread))
	return err == nil && n < maxUnread
}

func (c *closing) reset() {
	_ = c.SetLinger(0)
	_ = c.TCPConn.Close()
}

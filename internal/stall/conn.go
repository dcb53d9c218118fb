// SPDX-License-Identifier: Apache-2.0

package stall

import (
	"net"
	"sync"
	"time"
)

// Conn is a connection that closes if nothing arrives for so long while this process runs.
type Conn struct {
	net.Conn
	watch  *Watch
	limit  time.Duration
	mu     sync.Mutex
	heard  time.Time
	closed bool
	stop   func() bool
}

// NewConn guards a connection whose peer sends data more often than the limit. It is for HTTP/2, whose
// own pings detect a dead peer too, but mistake a stall of this host for one: then the time-out for the
// acknowledgement expires before the acknowledgement is read. The pings only make the peer send.
func NewConn(conn net.Conn, limit time.Duration) *Conn { return process.NewConn(conn, limit) }

// NewConn is the function of this name, for a watch.
func (w *Watch) NewConn(conn net.Conn, limit time.Duration) *Conn {
	c := &Conn{Conn: conn, watch: w, limit: limit, heard: time.Now()}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stop = w.After(limit, c.check)
	return c
}

func (c *Conn) Read(data []byte) (int, error) {
	n, err := c.Conn.Read(data)
	if n > 0 {
		c.mu.Lock()
		c.heard = time.Now()
		c.mu.Unlock()
	}
	return n, err
}

// check closes a connection that was silent for too long.
func (c *Conn) check() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	if left := c.limit - c.watch.Since(c.heard); left > 0 {
		c.stop = c.watch.After(max(left, grace), c.check)
		return
	}
	c.closed = true
	raw := c.Conn
	if tls, is := raw.(interface{ NetConn() net.Conn }); is { // which would wait to send its alert
		raw = tls.NetConn()
	}
	_ = raw.Close()
}

// Close closes the connection.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.stop()
	c.mu.Unlock()
	return c.Conn.Close()
}

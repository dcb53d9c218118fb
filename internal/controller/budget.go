// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"steelyard/internal/pki"

	"connectrpc.com/connect"
)

// budget limits the rate of requests or connections of one client: a token bucket.
type budget struct{ rate, burst float64 }

// The budgets. A client that resets each request at once (HTTP/2 rapid reset, CVE-2023-44487) is charged as much as one that waits for answers.
var (
	memberRequests    = budget{500, 2000} // per certificate
	anonymousRequests = budget{20, 200}   // of an address without a certificate, or a /64 of IPv6
	connections       = budget{50, 500}   // of an address or /64, with and without certificates
)

const (
	maxBuckets = 8192
	maxPause   = 10 * time.Second
	maxStreams = 100 // concurrent, of a connection
)

// buckets are the token buckets of all clients.
type buckets struct {
	mu  sync.Mutex
	of  map[string]*bucket
	now func() time.Time // nil: the clock
}

// bucket is the part of a client's budget that is used and not refilled yet.
type bucket struct {
	budget
	used float64
	at   time.Time
}

func (b *bucket) refill(now time.Time) {
	b.used = max(0, b.used-b.rate*now.Sub(b.at).Seconds())
	b.at = now
}

// charge consumes one token of a client's budget. Returns how long the client must pause if the bucket is empty, or 0.
func (b *buckets) charge(client string, of budget) time.Duration {
	now := time.Now()
	if b.now != nil {
		now = b.now()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	one := b.of[client]
	if one == nil {
		b.expire(now)
		one = &bucket{budget: of, at: now}
		b.of[client] = one
	}
	one.refill(now)
	one.used++
	over := time.Duration((one.used - one.burst) / one.rate * float64(time.Second))
	return min(max(0, over), maxPause)
}

// expire removes full buckets, and all buckets if that does not free enough. Requires b.mu.
func (b *buckets) expire(now time.Time) {
	if b.of == nil {
		b.of = map[string]*bucket{}
	}
	if len(b.of) < maxBuckets {
		return
	}
	for client, one := range b.of {
		if one.refill(now); one.used == 0 {
			delete(b.of, client)
		}
	}
	if len(b.of) >= maxBuckets {
		clear(b.of)
	}
}

// clientOf returns the client of a request and its budget. Controllers have no budget: "".
func clientOf(r *http.Request, source netip.Prefix) (string, budget) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return "requests of " + source.String(), anonymousRequests
	}
	certificate := r.TLS.PeerCertificates[0]
	if name, err := pki.HolderOf(certificate); err == nil && name.Kind == pki.Controller {
		return "", budget{}
	}
	return "certificate " + pki.KeyHash(certificate), memberRequests
}

// limited charges each request to its client before any other work. It refuses a request over the budget, and stops reading the connection for a
// while, so that the client has to queue its further requests.
func (s *Server) limited(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		one, remote := r.Context().Value(guestKey{}).(*guest)
		if !remote {
			next.ServeHTTP(w, r)
			return
		}
		client, of := clientOf(r, one.from)
		if client == "" {
			next.ServeHTTP(w, r)
			return
		}
		if wait := one.host.budgets.charge(client, of); wait > 0 {
			one.pause(wait)
			_ = connect.NewErrorWriter().Write(w, r, connect.NewError(connect.CodeResourceExhausted,
				errors.New("too many requests of this client: wait, and send fewer per second")))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// pause stops reading a connection for a while.
func (g *guest) pause(length time.Duration) {
	until := time.Now().Add(length)
	g.readMu.Lock()
	defer g.readMu.Unlock()
	if until.After(g.resume) {
		g.resume = until
	}
}

func (g *guest) Read(data []byte) (int, error) {
	for {
		g.readMu.Lock()
		wait := time.Until(g.resume)
		g.readMu.Unlock()
		if wait <= 0 {
			break
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-g.closed.Done():
			timer.Stop()
		}
		if g.closed.Err() != nil {
			break
		}
	}
	n, err := g.Conn.Read(data)
	if n > 0 {
		g.heard.Store(true)
	}
	return n, err
}

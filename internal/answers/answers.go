// SPDX-License-Identifier: Apache-2.0

// Package answers finds servers that answer no SYN although they pass their health checks: checks and sessions have different source addresses, so their
// answers may take different paths. docs/design/0015-health-by-mode.md.
package answers

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"steelyard/internal/dpclient"
	"steelyard/internal/model"
)

const (
	// Window is the time over which SYNs and answers are counted.
	Window = 10 * time.Second
	// every is the time between two readings; at most one in a share of the time is spent on them.
	every = 2 * time.Second
	share = 50
	// least is the minimum number of SYNs for a result.
	minimum = 3
	// maxSessions bounds the sessions of a service that are looked at.
	maxSessions = 1000
)

// Forwarder is the part of a forwarder's client that this package calls.
type Forwarder interface {
	EachService(ctx context.Context, only *model.ServiceKey, f func(*dpclient.ServiceStats) error) error
	Sessions(ctx context.Context, filter dpclient.SessionFilter, limit int) ([]*dpclient.Session, bool, error)
	Close() error
}

// Options of a Watch.
type Options struct {
	Dial func(context.Context) (Forwarder, error)
	Name func(model.ServiceKey) string // of a service
	Log  *slog.Logger
}

// Watch reads counters until its context ends. It is safe for use by several goroutines.
type Watch struct {
	options Options

	mu      sync.Mutex
	servers map[model.ServerRef]*counted
	silent  map[model.ServerRef]uint64 // SYNs in the window, none of which was answered
}

// reading has the forwarder's counts of a server at a time.
type reading struct {
	at                             time.Time
	created, repeated, answers, in uint64
}

// counted are the readings of a server in the window, oldest first.
type counted struct{ readings []reading }

// New returns a watch that does nothing until Run.
func New(options Options) *Watch {
	return &Watch{options: options, servers: map[model.ServerRef]*counted{}, silent: map[model.ServerRef]uint64{}}
}

// Run reads until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		begun := time.Now()
		w.turn(ctx, begun)
		timer.Reset(max(every, share*time.Since(begun)))
	}
}

// Silent returns the servers that answered no SYN in the window, with the number of SYNs.
func (w *Watch) Silent() map[model.ServerRef]uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.silent)
}

// turn reads the counters once.
func (w *Watch) turn(ctx context.Context, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, Window)
	defer cancel()
	client, err := w.options.Dial(ctx)
	if err != nil {
		return // the status shows that it is not connected
	}
	defer client.Close()
	silent := map[model.ServerRef]uint64{}
	doubtful := map[model.ServiceKey]bool{} // one-way services without a sign of answers
	seen := map[model.ServerRef]*counted{}
	err = client.EachService(ctx, nil, func(stats *dpclient.ServiceStats) error {
		key, err := dpclient.KeyFromWire(stats.GetService().GetKey())
		if err != nil || key.Protocol != model.TCP {
			return err
		}
		oneWay := model.Mode(stats.GetService().GetMode()).OwnsVIP()
		for _, one := range stats.GetServers() {
			address, err := dpclient.ServerAddressFromWire(one.GetServer())
			if err != nil {
				return err
			}
			ref := model.ServerRef{Service: key, Address: address}
			c := w.servers[ref]
			if c == nil {
				c = &counted{}
			}
			seen[ref] = c
			traffic := one.GetTraffic()
			syns := c.note(reading{now, traffic.GetSessionsCreated(), one.GetDelay().GetSynRepeated(), traffic.GetPacketsOut(), traffic.GetPacketsIn()}, oneWay)
			switch {
			case syns < minimum:
			case oneWay:
				doubtful[key] = true
			default:
				silent[ref] = syns
			}
		}
		return nil
	})
	if err != nil {
		return
	}
	for key := range doubtful {
		halfOpen(ctx, client, key, seen, silent)
	}
	w.replace(seen, silent)
}

// note adds a reading, and returns the SYNs of the window if nothing says that one was answered. Sessions whose answers pass by
// have packets of clients only: a connection has four or more, and SYNs that are repeated after 1, 3 and 7 s are four.
func (c *counted) note(now reading, oneWay bool) uint64 {
	if n := len(c.readings); n > 0 {
		if last := c.readings[n-1]; now.created < last.created || now.answers < last.answers || now.in < last.in {
			c.readings = nil // another forwarder
		}
	}
	c.readings = append(c.readings, now)
	for len(c.readings) > 2 && now.at.Sub(c.readings[1].at) >= Window {
		c.readings = slices.Delete(c.readings, 0, 1)
	}
	first := c.readings[0]
	created := now.created - first.created
	if created == 0 {
		return 0
	}
	if oneWay {
		if now.in-first.in > 4*created {
			return 0
		}
		return created
	}
	if now.answers > first.answers {
		return 0
	}
	return created + now.repeated - min(now.repeated, first.repeated)
}

// halfOpen adds the servers of a one-way service whose new sessions are all half-open: the forwarder sees no answers, but the client
// acknowledges them.
func halfOpen(ctx context.Context, client Forwarder, key model.ServiceKey, seen map[model.ServerRef]*counted, silent map[model.ServerRef]uint64) {
	sessions, _, err := client.Sessions(ctx, dpclient.SessionFilter{Service: &key}, maxSessions)
	if err != nil {
		return
	}
	half, more := map[model.ServerRef]uint64{}, map[model.ServerRef]bool{}
	for _, session := range sessions {
		if session.GetAgeS() > uint32(Window/time.Second) {
			continue
		}
		address, ok := netip.AddrFromSlice(session.GetServer())
		if !ok {
			return
		}
		ref := model.ServerRef{Service: key, Address: netip.AddrPortFrom(address.Unmap(), uint16(session.GetServerPort()))}
		if seen[ref] == nil { // it has the client's port
			ref.Address = netip.AddrPortFrom(address.Unmap(), 0)
		}
		if session.GetState() == "syn-sent" {
			half[ref]++
		} else {
			more[ref] = true
		}
	}
	for ref, n := range half {
		if n >= minimum && !more[ref] {
			silent[ref] = n
		}
	}
}

// replace publishes the result, and logs new servers in it.
func (w *Watch) replace(servers map[model.ServerRef]*counted, silent map[model.ServerRef]uint64) {
	w.mu.Lock()
	before := w.silent
	w.servers, w.silent = servers, silent
	w.mu.Unlock()
	for ref, syns := range silent {
		if _, known := before[ref]; !known {
			w.options.Log.Warn("server answers no SYN", "server", model.ServerText(ref.Address), "service", w.options.Name(ref.Service),
				"unanswered", syns, "window", Window, "remedy", "its answers must return by this host: check its routes")
		}
	}
	for ref := range before {
		if _, still := silent[ref]; !still && servers[ref] != nil {
			w.options.Log.Info("server is not without answers any more", "server", model.ServerText(ref.Address), "service", w.options.Name(ref.Service))
		}
	}
}

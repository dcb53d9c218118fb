// SPDX-License-Identifier: Apache-2.0

// Package load reads the load of servers from existing sources: a node_exporter, reports by the conventions of ORCA (over HTTP, or in the answers to
// health checks), or any query to a Prometheus. If a source fails, the last value stays, with its age and the error, and its user decides when it is
// too old. See docs/server-load.md.
package load

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"steelyard/internal/egress"
	"steelyard/internal/model"
	"steelyard/internal/stall"
)

// Reading is the last load of one server.
type Reading struct {
	CPU    float64   // utilization of its processors, 0 to 1, or the service's `metric`
	RPS    float64   // requests per second, if the source reports them; 0: it does not
	At     time.Time // when CPU was read; zero: never
	Source string    // where it is read
	Err    string    // error of the last attempt; empty: it succeeded, or there was none yet
	Failed uint64    // failed attempts since the last success
}

// Target is a server whose load is read.
type Target struct {
	Ref    model.ServerRef
	Policy model.Load
	Own    model.ServerLoad
	By     egress.Author
}

// Options of Sources. Zero values select the defaults.
type Options struct {
	Egress *egress.Policy   // where sources may be; nil: anywhere but where no server is
	Now    func() time.Time // the clock
	Limit  int              // simultaneous requests; default 256
	// Done is called after each attempt, without a lock.
	Done func(ref model.ServerRef, reading Reading)
}

// Sources is safe for use by several goroutines.
type Sources struct {
	options Options
	slots   chan struct{}
	clients map[egress.Author]*http.Client // connections are kept, and one that an administrator's line opened is not for a tenant's
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	targets map[model.ServerRef]*target
}

// target is one server. The mutex of Sources guards it.
type target struct {
	Target
	reading Reading
	cpu     cpuTimes // the counters of the last scrape of a node_exporter
	timer   *time.Timer
	gone    bool
}

// New returns sources without any server; Close ends them.
func New(options Options) *Sources {
	if options.Egress == nil {
		options.Egress = &egress.Policy{}
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Limit == 0 {
		options.Limit = 256
	}
	ctx, cancel := context.WithCancel(context.Background())
	clients := map[egress.Author]*http.Client{}
	for _, by := range []egress.Author{egress.Administrator, egress.Tenant} {
		clients[by] = newClient(options.Egress.Dialer(by))
	}
	return &Sources{options: options, slots: make(chan struct{}, options.Limit), clients: clients, ctx: ctx, cancel: cancel, targets: map[model.ServerRef]*target{}}
}

// newClient returns a client that follows no redirects: another host's answer is not this server's load.
func newClient(dialer *net.Dialer) *http.Client {
	return &http.Client{
		Transport:     &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: maxHeader, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Targets returns the servers of a configuration whose load is read.
func Targets(config *model.Config, by func(service string) egress.Author) []Target {
	var targets []Target
	for i := range config.Services {
		service := &config.Services[i]
		if service.Load.Type == model.LoadNone {
			continue
		}
		for _, server := range service.Servers {
			if !server.Load.Off {
				targets = append(targets, Target{model.ServerRef{Service: service.Key, Address: server.Address}, service.Load, server.Load, by(service.Name)})
			}
		}
	}
	return targets
}

// Watch replaces the servers. Those whose source stays the same keep their readings.
func (s *Sources) Watch(targets []Target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return
	}
	next := make(map[model.ServerRef]*target, len(targets))
	for _, wanted := range targets {
		t := s.targets[wanted.Ref]
		if t == nil || t.Target != wanted {
			t = &target{Target: wanted, reading: Reading{Source: sourceOf(wanted)}}
			if wanted.Policy.Type != model.LoadHealth {
				t.timer = time.AfterFunc(rand.N(wanted.Policy.Interval), func() { s.attempt(t) })
			}
		}
		next[wanted.Ref] = t
	}
	for ref, t := range s.targets {
		if next[ref] != t {
			t.stop()
		}
	}
	s.targets = next
}

func (t *target) stop() {
	t.gone = true
	if t.timer != nil {
		t.timer.Stop()
	}
}

// Close ends all requests and waits for them.
func (s *Sources) Close() {
	s.mu.Lock()
	s.cancel()
	for _, t := range s.targets {
		t.stop()
	}
	s.mu.Unlock()
	s.running.Wait()
}

// Reading returns a server's load; false: it is not read.
func (s *Sources) Reading(ref model.ServerRef) (Reading, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.targets[ref]
	if t == nil {
		return Reading{}, false
	}
	return t.reading, true
}

// Readings returns the load of all servers.
func (s *Sources) Readings() map[model.ServerRef]Reading {
	s.mu.Lock()
	defer s.mu.Unlock()
	readings := make(map[model.ServerRef]Reading, len(s.targets))
	for ref, t := range s.targets {
		readings[ref] = t.reading
	}
	return readings
}

// Wants reports whether a server's load is in the answers to its health checks.
func (s *Sources) Wants(ref model.ServerRef) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.targets[ref]
	return t != nil && t.Policy.Type == model.LoadHealth
}

// Answered receives the answer to a health check.
func (s *Sources) Answered(ref model.ServerRef, header http.Header, body io.Reader) {
	s.mu.Lock()
	t := s.targets[ref]
	s.mu.Unlock()
	if t == nil || t.Policy.Type != model.LoadHealth {
		return
	}
	report, err := readReport(header, body)
	var value float64
	if err == nil {
		value, err = report.value(t.Policy.Metric)
	}
	s.finish(t, value, report.RPS, err)
}

// attempt runs on its own goroutine, started by the target's timer.
func (s *Sources) attempt(t *target) {
	s.mu.Lock()
	if t.gone {
		s.mu.Unlock()
		return
	}
	s.running.Add(1)
	s.mu.Unlock()
	defer s.running.Done()
	select {
	case s.slots <- struct{}{}:
	case <-s.ctx.Done():
		return
	}
	ctx, cancel := stall.WithTimeout(s.ctx, t.Policy.Timeout)
	value, rps, err := s.fetch(ctx, t)
	cancel()
	<-s.slots
	if s.ctx.Err() != nil {
		return
	}
	s.finish(t, value, rps, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !t.gone {
		t.timer.Reset(t.Policy.Interval*9/10 + rand.N(t.Policy.Interval/5))
	}
}

// errFirst means that a counter was read for the first time: there is no rate yet, which is no fault.
var errFirst = errors.New("a rate needs a second reading")

// finish notes the result of an attempt.
func (s *Sources) finish(t *target, value, rps float64, err error) {
	s.mu.Lock()
	if t.gone {
		s.mu.Unlock()
		return
	}
	if err == nil {
		value, err = normal(value, t.Policy.Full)
	}
	switch {
	case err == nil:
		t.reading.CPU, t.reading.RPS, t.reading.At = value, rps, s.options.Now()
		t.reading.Err, t.reading.Failed = "", 0
	case errors.Is(err, errFirst):
		t.reading.Err = ""
	default:
		t.reading.Err = shorten(model.HideQueryIn(err.Error(), t.Policy.Path)) // answers may quote the query
		t.reading.Failed++
	}
	reading := t.reading
	s.mu.Unlock()
	if s.options.Done != nil {
		s.options.Done(t.Ref, reading)
	}
}

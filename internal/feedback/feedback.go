// SPDX-License-Identifier: Apache-2.0

// Package feedback closes the loop from measurements to shares. Once a second it reads the forwarder's measurements, the load of servers and the
// durations of health checks, computes shares (internal/share), and sends them to the forwarder for a limited time.
package feedback

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"steelyard/internal/dpclient"
	"steelyard/internal/health"
	"steelyard/internal/load"
	"steelyard/internal/model"
	"steelyard/internal/share"
	"steelyard/internal/stall"
)

// Forwarder is the part of a forwarder's client that the loop calls; *dpclient.Client implements it.
type Forwarder interface {
	EachService(ctx context.Context, only *model.ServiceKey, f func(*dpclient.ServiceStats) error) error
	SetShares(ctx context.Context, shares []dpclient.ServiceShares, valid time.Duration) error
	Close() error
}

// Options of a Loop. Load and Check may be nil.
type Options struct {
	Config func() *model.Config // the running one; nil: none yet
	// States appends the states of a service's servers, in their order. Version: they have not changed while it has not.
	States  func(service *model.Service, into []model.State) []model.State
	Version func() uint64
	Load    func(ref model.ServerRef) (load.Reading, bool)
	Check   func(ref model.ServerRef) (health.State, bool)
	Dial    func(ctx context.Context) (Forwarder, error)
	Log     *slog.Logger
}

const (
	interval = time.Second
	// valid is the lifetime of shares at the forwarder; renew is the interval of renewals.
	valid = time.Minute
	renew = 15 * time.Second
	// up to so many services are queried by name.
	few = 32
)

// Loop keeps the shares of services current.
type Loop struct {
	options Options

	mu       sync.Mutex
	services map[model.ServiceKey]*service
	links    map[string]*path // by name
	linked   time.Time        // when they were measured
	err      error            // of the last turn
	since    time.Time
}

// New returns a loop; Run runs it.
func New(options Options) *Loop {
	return &Loop{options: options, services: map[model.ServiceKey]*service{}, links: map[string]*path{}}
}

// Run works until ctx ends. The forwarder then follows the last shares until they are too old.
func (l *Loop) Run(ctx context.Context) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var forwarder Forwarder
	for {
		select {
		case now := <-ticker.C:
			turn, cancel := stall.WithTimeout(ctx, 10*interval)
			forwarder = l.turn(turn, forwarder, now)
			cancel()
		case <-ctx.Done():
			if forwarder != nil {
				forwarder.Close()
			}
			return
		}
	}
}

// turn runs one iteration, on a given or a new connection. Returns the connection if it can be reused.
func (l *Loop) turn(ctx context.Context, forwarder Forwarder, now time.Time) Forwarder {
	wanted := l.follow()
	if len(wanted) == 0 {
		l.note(nil, now)
		return forwarder
	}
	var err error
	if forwarder == nil {
		if forwarder, err = l.options.Dial(ctx); err != nil { // no connection was opened, so there is none to close
			l.note(err, now)
			return nil
		}
	}
	err = l.step(ctx, forwarder, now, wanted)
	l.note(err, now)
	if err != nil {
		forwarder.Close()
		return nil
	}
	return forwarder
}

func (l *Loop) note(err error, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.since = now
	} else if l.err == nil && l.options.Log != nil {
		l.options.Log.Warn("shares cannot be kept current", "error", err)
	}
	l.err = err
}

// follow forgets services that have no feedback any more, and returns those that have.
func (l *Loop) follow() []*model.Service {
	config := l.options.Config()
	if config == nil {
		config = &model.Config{}
	}
	var wanted []*model.Service
	l.mu.Lock()
	defer l.mu.Unlock()
	keep := map[model.ServiceKey]bool{}
	for i := range config.Services {
		s := &config.Services[i]
		known := l.services[s.Key]
		if s.Feedback.Policy == model.FeedbackOff {
			if known != nil { // it had feedback: one more iteration revokes its shares
				known.ending = true
				keep[s.Key] = true
				wanted = append(wanted, s)
			}
			continue
		}
		if known == nil || known.feedback != s.Feedback || known.slowStart != s.Policy.SlowStart {
			l.services[s.Key] = newService(s)
		}
		keep[s.Key] = true
		wanted = append(wanted, s)
	}
	for key := range l.services {
		if !keep[key] {
			delete(l.services, key)
		}
	}
	if len(wanted) == 0 {
		clear(l.links)
	}
	return wanted
}

// Turn does one iteration of Run, at a time of the caller: for simulations.
func (l *Loop) Turn(ctx context.Context, forwarder Forwarder, now time.Time) error {
	return l.step(ctx, forwarder, now, l.follow())
}

// step reads the measurements, and sends shares that have changed or are due for renewal.
func (l *Loop) step(ctx context.Context, forwarder Forwarder, now time.Time, wanted []*model.Service) error {
	stats := map[model.ServiceKey]*dpclient.ServiceStats{}
	take := func(s *dpclient.ServiceStats) error {
		key, err := dpclient.KeyFromWire(s.GetService().GetKey())
		stats[key] = s
		return err
	}
	if len(wanted) <= few {
		for _, s := range wanted {
			if err := forwarder.EachService(ctx, &s.Key, take); err != nil {
				return err
			}
		}
	} else if err := forwarder.EachService(ctx, nil, take); err != nil {
		return err
	}
	l.mu.Lock()
	send := l.compute(now, wanted, stats)
	l.mu.Unlock()
	if len(send) == 0 {
		return nil
	}
	err := forwarder.SetShares(ctx, send, valid)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range send {
		switch s := l.services[one.Service]; {
		case s == nil:
		case err != nil: // the balancer counts them as sent, so send them again
			s.sent = time.Time{}
		case s.ending:
			delete(l.services, one.Service)
		default:
			s.sent = now
		}
	}
	return err
}

// compute returns the shares to send. Requires l.mu.
func (l *Loop) compute(now time.Time, wanted []*model.Service, stats map[model.ServiceKey]*dpclient.ServiceStats) []dpclient.ServiceShares {
	l.measureLinks(now, wanted, stats)
	version := l.options.Version()
	var send []dpclient.ServiceShares
	for _, config := range wanted {
		s, seen := l.services[config.Key], stats[config.Key]
		if s == nil || seen == nil {
			continue
		}
		if s.ending {
			send = append(send, dpclient.ServiceShares{Service: config.Key})
			continue
		}
		s.ask(l.options.States, version)
		s.result = s.balancer.Step(now, l.measured(now, s))
		s.at = now
		if s.result.Changed || now.Sub(s.sent) >= renew || seen.GetSharesValidS() == 0 {
			if one := s.shares(config); len(one.Servers) > 0 {
				send = append(send, one)
			}
		}
	}
	return send
}

// shares returns the last result in the forwarder's form. Servers that are out get the minimum share: the forwarder assumes the mean for servers without
// a share, and may count one as up again before the next iteration.
func (s *service) shares(config *model.Service) dpclient.ServiceShares {
	out := dpclient.ServiceShares{Service: config.Key}
	weights := 0.0
	for _, server := range config.Servers {
		if !server.Backup {
			weights += float64(server.Weight)
		}
	}
	for i, one := range s.result.Shares {
		server := &config.Servers[i]
		if one.State == share.Out && !server.Backup && server.Weight > 0 {
			one.Share = float64(config.Feedback.Minimum) / 100 * float64(server.Weight) / weights
		}
		if one.Share > 0 {
			out.Servers = append(out.Servers, dpclient.ServerShare{Address: s.servers[i].address, Share: one.Share})
		}
	}
	return out
}

// State is the state of a service's shares.
type State struct {
	Shares  map[model.ServerRef]share.Share
	Links   map[model.ServerRef]Link // where their use counts, or would
	Warning string
	At      time.Time // of the last computation; zero: none yet
}

// State returns the shares of a service; false: it has no feedback.
func (l *Loop) State(key model.ServiceKey) (State, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.services[key]
	if s == nil || s.ending {
		return State{}, false
	}
	state := State{Shares: make(map[model.ServerRef]share.Share, len(s.servers)), Links: map[model.ServerRef]Link{}, Warning: s.result.Warning, At: s.at}
	for i, one := range s.result.Shares {
		ref := model.ServerRef{Service: key, Address: s.servers[i].address}
		state.Shares[ref] = one
		if link, ok := s.linkOf(&s.servers[i]); ok {
			state.Links[ref] = link
		}
	}
	return state, true
}

// Warnings describes what degrades the shares.
func (l *Loop) Warnings() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var warnings []string
	if l.err != nil {
		warnings = append(warnings, "shares are not kept current: "+l.err.Error()+"; services follow their weights a minute after the last ones")
	}
	var names []string
	blind := map[string]string{}
	for _, s := range l.services {
		if s.result.Warning != "" {
			names = append(names, s.name)
			blind[s.name] = s.result.Warning
			continue
		}
		count := 0
		for _, one := range s.result.Shares {
			if one.State == share.Blind {
				count++
			}
		}
		if count > 0 && count == len(s.result.Shares) {
			names = append(names, s.name)
			blind[s.name] = "nothing is measured of its servers (" + s.result.Shares[0].Reason + "): shares follow the weights"
		}
	}
	slices.Sort(names)
	for i, name := range names {
		if i == 3 { // the rest is in `describe service`
			warnings = append(warnings, "further services have shares without measurements: see `steelyard describe service`")
			break
		}
		warnings = append(warnings, "service "+name+": "+blind[name])
	}
	return warnings
}

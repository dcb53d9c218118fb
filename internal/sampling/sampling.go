// SPDX-License-Identifier: Apache-2.0

// Package sampling fetches the forwarder's samples of packets while they are needed: by a collector, to which it exports them by sFlow, or for an attack,
// whose source networks it counts.
package sampling

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"steelyard/internal/dpclient"
	"steelyard/internal/egress"
	"steelyard/internal/model"
	"steelyard/internal/stall"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	fetchPeriod   = 200 * time.Millisecond
	listPeriod    = time.Second // of attacks
	counterPeriod = 20 * time.Second
	callTimeout   = 5 * time.Second
	retryPeriod   = time.Second
	maxPages      = 8 // answers that one turn fetches
)

// Forwarder is the part of a forwarder's client that a Sampler calls.
type Forwarder interface {
	Samples(ctx context.Context, after uint64, rates dpclient.SampleRates) (*dpclient.Samples, error)
	Attacks(ctx context.Context) ([]*dpclient.Attack, uint64, error)
	Ports(ctx context.Context) ([]*dpclient.Port, error)
	HasValidated(ctx context.Context, network netip.Prefix) (bool, error)
	Close() error
}

// Options of a Sampler.
type Options struct {
	Dial func(ctx context.Context) (Forwarder, error)
	Log  *slog.Logger
	// Where a collector may be; nil: anywhere but where no host is.
	Egress *egress.Policy
}

// Sampler fetches samples, exports them, and counts the sources of attacks.
type Sampler struct {
	options Options
	started time.Time
	missed  prometheus.Counter
	metrics exportMetrics

	// Of Run.
	forwarder Forwarder
	retry     time.Time // no connection before
	after     uint64
	export    *export // nil: none
	listed    time.Time
	counted   time.Time

	mu          sync.Mutex
	wanted      model.SFlow
	err         error // why nothing is exported
	taken, lost uint64
	attacks     attacks
}

// Sources returns the known sources of a listed attack.
func (s *Sampler) Sources(attack *dpclient.Attack) Sources {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id, ok := idOf(attack); ok {
		if counts := s.attacks.of[id]; counts != nil {
			return counts.sources(s.attacks.has)
		}
	}
	return Sources{}
}

// New returns a Sampler, which does nothing until Run.
func New(options Options) *Sampler {
	if options.Egress == nil {
		options.Egress = &egress.Policy{}
	}
	s := &Sampler{options: options, started: time.Now(), attacks: attacks{looked: map[netip.Prefix]looked{}}}
	s.missed = prometheus.NewCounter(prometheus.CounterOpts{Name: "steelyard_samples_missed_total",
		Help: "Samples that the agent fetched too late."})
	s.metrics = newExportMetrics()
	return s
}

// Configure sets the export of samples from now on.
func (s *Sampler) Configure(wanted model.SFlow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = wanted
}

// Warnings explains why nothing is exported.
func (s *Sampler) Warnings() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		return nil
	}
	return []string{s.err.Error()}
}

// Describe implements prometheus.Collector.
func (s *Sampler) Describe(ch chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(s, ch)
}

var (
	takenDesc = prometheus.NewDesc("steelyard_samples_taken_total", "Packets that workers have sampled.", nil, nil)
	lostDesc  = prometheus.NewDesc("steelyard_samples_lost_total", "Samples that found no place in a worker, or were too many.", nil, nil)
)

// Collect implements prometheus.Collector.
func (s *Sampler) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	taken, lost := s.taken, s.lost
	s.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(takenDesc, prometheus.CounterValue, float64(taken))
	ch <- prometheus.MustNewConstMetric(lostDesc, prometheus.CounterValue, float64(lost))
	s.missed.Collect(ch)
	s.metrics.collect(ch)
}

// Run works until ctx ends.
func (s *Sampler) Run(ctx context.Context) {
	ticker := time.NewTicker(fetchPeriod)
	defer ticker.Stop()
	defer s.disconnect()
	var looking sync.WaitGroup
	looking.Go(func() { s.lookUp(ctx) })
	defer looking.Wait()
	defer func() { s.export.close() }()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.turn(ctx)
		}
	}
}

func (s *Sampler) disconnect() {
	if s.forwarder != nil {
		s.forwarder.Close()
		s.forwarder, s.after = nil, 0
	}
}

// turn does the work that is due, five times a second.
func (s *Sampler) turn(ctx context.Context) {
	s.mu.Lock()
	wanted := s.wanted
	s.mu.Unlock()
	if s.export == nil || s.export.config != wanted {
		s.export.close()
		s.export = newExport(wanted, s.options.Egress, s.started, &s.metrics)
	}
	defer func() { s.note(s.export.problem()) }()
	s.export.open()
	ctx, cancel := stall.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := s.ask(ctx, wanted); err != nil {
		s.disconnect() // the agent's status shows the reason
		s.retry = time.Now().Add(retryPeriod)
	}
	s.export.send()
}

// finest returns the smaller rates; 0 is none.
func finest(a, b uint32) uint32 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// ask sends the requests that are due.
func (s *Sampler) ask(ctx context.Context, wanted model.SFlow) error {
	if s.forwarder == nil {
		if time.Now().Before(s.retry) {
			return nil
		}
		forwarder, err := s.options.Dial(ctx)
		if err != nil {
			return err
		}
		s.forwarder = forwarder
	}
	if time.Since(s.listed) >= listPeriod {
		s.listed = time.Now()
		list, _, err := s.forwarder.Attacks(ctx)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.attacks.follow(list)
		s.mu.Unlock()
	}
	rates := s.attacks.rates()
	if s.export != nil {
		rates.Received, rates.Dropped = finest(rates.Received, wanted.Sampling), finest(rates.Dropped, wanted.Drops)
	}
	if rates == (dpclient.SampleRates{}) {
		s.after = 0 // samples from before the next request are not for this client
		return nil
	}
	return s.fetch(ctx, rates)
}

// note remembers why samples cannot be sent, and logs a change.
func (s *Sampler) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil && s.err == nil:
		s.options.Log.Warn("sFlow", "error", err)
	case err == nil && s.err != nil:
		s.options.Log.Info("sFlow works again")
	}
	s.err = err
}

func (s *Sampler) fetch(ctx context.Context, rates dpclient.SampleRates) error {
	for range maxPages {
		samples, err := s.forwarder.Samples(ctx, s.after, rates)
		if err != nil {
			return err
		}
		s.after = samples.GetLast()
		s.count(samples)
		for _, sample := range samples.GetSamples() {
			s.export.add(sample, samples.GetLost())
		}
		s.mu.Lock()
		for _, sample := range samples.GetSamples() {
			s.attacks.add(sample)
		}
		s.mu.Unlock()
		if !samples.GetMore() {
			break
		}
	}
	if s.export == nil || time.Since(s.counted) < counterPeriod {
		return nil
	}
	s.counted = time.Now()
	ports, err := s.forwarder.Ports(ctx)
	for _, port := range ports {
		s.export.addCounters(port)
	}
	return err
}

func (s *Sampler) count(samples *dpclient.Samples) {
	s.missed.Add(float64(samples.GetMissed()))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken, s.lost = samples.GetTaken(), samples.GetLost()
}

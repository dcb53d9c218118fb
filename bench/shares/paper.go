// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"steelyard/internal/dpclient"
	"steelyard/internal/feedback"
	pb "steelyard/internal/gen/forwarderpb"
	"steelyard/internal/load"
	"steelyard/internal/model"
	"steelyard/internal/share"
)

// The experiment of the HVLB paper at its own scale: five links of 2.2 ms and 600 Mbit/s, ten servers, 60 flows.
const (
	links, each, flowCount = 5, 2, 60
	linkDelay              = 1100 * time.Microsecond // each way
	moreDelay              = 2500 * time.Microsecond // each way, once disturbed
	linkRate               = 600e6                   // bits/s
	onLink                 = block * 8 * time.Second / 600_000_000
	block                  = 8192 // bytes
	window                 = 8    // blocks of a flow under way at most
	blocks                 = 1000 // of a connection
	otherWork              = 0.78 // of a loaded server's processor
)

// times of a run. It is measured before and after the disturbance.
type times struct{ disturbAt, measureAt, measureFor time.Duration }

var usual = times{120 * time.Second, 300 * time.Second, 60 * time.Second}

// learning is capability feedback that is not told what links can carry.
const learning = "capability, learning"

// scenario is what is varied: how much a flow sends, and what a server's processor needs for it.
type scenario struct {
	name string
	rate float64 // bits/s of each flow
	use  float64 // of a server's processor in steady state
}

type site struct {
	late, loaded bool
	up, down     *queue
	servers      [each]*server
}

type server struct {
	site    *site
	cpu     queue
	address netip.AddrPort
	active  int
	delay   float64 // of handshakes, smoothed
	stats   pb.ServerStats
	lastCPU time.Duration
}

type world struct {
	clock    clock
	scenario scenario
	random   *rand.Rand
	sites    [links]*site
	servers  []*server
	policy   string
	turn     int
	number   float64   // the last one that the forwarder drew
	shares   []float64 // upper ends of ranges
	loop     *feedback.Loop
	config   *model.Config
	rtts     []time.Duration
	bytes    float64
	measures bool
}

func newWorld(policy string, s scenario, seed uint64) *world {
	w := &world{scenario: s, policy: policy, random: rand.New(rand.NewPCG(seed, 7))}
	w.number = w.random.Float64()
	service := model.Service{Name: "nf", Key: model.ServiceKey{Protocol: model.TCP, VIP: netip.MustParseAddr("10.0.0.80"), Port: 80}}
	for i := range w.sites {
		at := &site{up: &queue{clock: &w.clock}, down: &queue{clock: &w.clock}}
		w.sites[i] = at
		for k := range at.servers {
			one := &server{site: at, cpu: queue{clock: &w.clock}, address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}), uint16(8001+k))}
			one.stats = pb.ServerStats{Server: &pb.Server{Address: one.address.Addr().AsSlice(), Port: uint32(one.address.Port())}, Traffic: &pb.Traffic{}, Delay: &pb.DelayStats{}}
			at.servers[k] = one
			w.servers = append(w.servers, one)
			service.Servers = append(service.Servers, model.Server{Address: one.address, Weight: 1, Link: fmt.Sprint("link", i)})
		}
	}
	if strings.HasPrefix(policy, "capability") {
		service.Feedback = model.Feedback{Policy: model.FeedbackCapability, Gamma: 0.5, Minimum: 5, Settle: 30 * time.Second, Capacity: linkRate}
		if policy == learning {
			service.Feedback.Capacity, service.Feedback.Learn = 0, true
		}
	}
	w.config = &model.Config{Services: []model.Service{service}}
	w.loop = feedback.New(feedback.Options{
		Config: func() *model.Config { return w.config },
		States: allUp, Version: func() uint64 { return 1 },
		Load: w.load,
	})
	return w
}

func allUp(service *model.Service, into []model.State) []model.State {
	for range service.Servers {
		into = append(into, model.Up)
	}
	return into
}

var epoch = time.Unix(1_000_000_000, 0)

// load is the use of a server's processor in the last second.
func (w *world) load(ref model.ServerRef) (load.Reading, bool) {
	for _, one := range w.servers {
		if one.address == ref.Address {
			use := float64(one.cpu.busy-one.lastCPU) / float64(time.Second)
			one.lastCPU = one.cpu.busy
			return load.Reading{CPU: min(1, use), At: epoch.Add(w.clock.now)}, true
		}
	}
	return load.Reading{}, false
}

// The forwarder, as the loop sees it.

func (w *world) EachService(_ context.Context, _ *model.ServiceKey, f func(*dpclient.ServiceStats) error) error {
	stats := &pb.ServiceStats{Service: dpclient.SpecToWire(w.config.Services[0].Key, model.ServiceSpec{})}
	for _, one := range w.servers {
		stats.Servers = append(stats.Servers, &one.stats)
	}
	if w.shares != nil {
		stats.SharesValidS = 60
	}
	return f(stats)
}

func (w *world) SetShares(_ context.Context, shares []dpclient.ServiceShares, _ time.Duration) error {
	w.shares = make([]float64, len(w.servers))
	sum := 0.0
	for i, one := range w.servers {
		for _, s := range shares[0].Servers {
			if s.Address == one.address {
				sum += s.Share
			}
		}
		w.shares[i] = sum
	}
	return nil
}

func (w *world) Close() error { return nil }

// pick is the forwarder's choice for a new connection.
func (w *world) pick(flow int) *server {
	switch w.policy {
	case "rr":
		w.turn++
		return w.servers[w.turn%len(w.servers)]
	case "maglev": // by hash of address and port
		h := fnv.New64a()
		fmt.Fprint(h, flow, w.random.Uint64())
		return w.servers[h.Sum64()%uint64(len(w.servers))]
	case "p2c":
		one := w.servers[w.random.IntN(len(w.servers))]
		two := one
		for two == one {
			two = w.servers[w.random.IntN(len(w.servers))]
		}
		delays := one.delay > 0 && two.delay > 0 && w.random.IntN(32) > 0
		if two.cost(1, delays) < one.cost(1, delays) {
			return two
		}
		return one
	case "capability, p2c", "capability, p2c x delay":
		delays := w.policy == "capability, p2c x delay"
		one := w.draw(w.random.Float64())
		two := w.draw(w.random.Float64())
		for range 16 {
			if two == one {
				two = w.draw(w.random.Float64())
			}
		}
		if w.servers[two].cost(w.share(two), delays) < w.servers[one].cost(w.share(one), delays) {
			return w.servers[two]
		}
		return w.servers[one]
	case "capability, wlc":
		best := w.turn % len(w.servers)
		for i := range w.servers {
			at := (w.turn + i) % len(w.servers)
			if w.servers[at].cost(w.share(at), false) < w.servers[best].cost(w.share(best), false) {
				best = at
			}
		}
		w.turn = best + 1
		return w.servers[best]
	}
	w.number += 1 / math.Phi // as dataplane/balance/scheduler/scheduler_share.c does
	w.number -= math.Floor(w.number)
	return w.servers[w.draw(w.number)]
}

// cost is what a session has to expect.
func (s *server) cost(weight float64, delays bool) float64 {
	load := float64(s.active+1) / weight
	if delays {
		return load * s.delay
	}
	return load
}

// share is that of a server, as the forwarder has it; even, until it has one.
func (w *world) share(i int) float64 {
	switch {
	case w.shares == nil:
		return 1
	case i == 0:
		return w.shares[0]
	}
	return w.shares[i] - w.shares[i-1]
}

// draw is the server whose range, as long as its share, contains a number.
func (w *world) draw(number float64) int {
	if w.shares == nil {
		return int(number * float64(len(w.servers)))
	}
	ranges := make([]share.Share, len(w.shares))
	from := 0.0
	for i, to := range w.shares {
		ranges[i] = share.Share{From: from, To: to}
		from = to
	}
	return max(0, share.Draw(ranges, number))
}

func (s *server) wire() time.Duration {
	if s.site.late {
		return linkDelay + moreDelay
	}
	return linkDelay
}

// work is what a server's processor needs for a block; other work on it leaves less of it.
func (w *world) work(s *server) time.Duration {
	perServer := w.scenario.rate * flowCount / float64(len(w.servers)) / 8 / block // blocks/s in steady state
	return time.Duration(w.scenario.use / perServer * float64(time.Second))
}

// begin connects, and then sends.
func (w *world) begin(flow int) {
	s := w.pick(flow)
	s.active++
	s.stats.Traffic.SessionsCreated++
	began := w.clock.now
	s.site.up.take(0, func() {
		w.clock.after(2*s.wire(), func() {
			took := w.clock.now - began
			s.stats.Delay.Samples++
			s.stats.Delay.SumNs += uint64(took)
			if s.delay == 0 {
				s.delay = took.Seconds()
			}
			s.delay += (took.Seconds() - s.delay) / 8
			c := &connection{world: w, server: s, flow: flow}
			c.send()
		})
	})
}

type connection struct {
	world         *world
	server        *server
	flow          int
	sent, back    int
	due           time.Duration
	timer, closed bool
}

// send sends a block when it is due and the window allows it.
func (c *connection) send() {
	w := c.world
	if c.closed || c.sent == blocks || c.sent-c.back >= window || c.timer {
		return
	}
	if w.clock.now < c.due {
		c.timer = true
		w.clock.after(c.due-w.clock.now, func() { c.timer = false; c.send() })
		return
	}
	gap := time.Duration(block * 8 / w.scenario.rate * float64(time.Second))
	c.due = max(c.due, w.clock.now-gap) + gap
	c.sent++
	began := w.clock.now
	c.server.stats.Traffic.BytesIn += block
	c.server.site.up.take(onLink, func() {
		w.clock.after(c.server.wire(), func() {
			c.server.cpu.take(w.work(c.server), func() {
				w.clock.after(c.server.wire(), func() { c.confirmed(began) })
			})
		})
	})
	c.send()
}

func (c *connection) confirmed(began time.Duration) {
	w := c.world
	c.back++
	if w.measures {
		w.rtts = append(w.rtts, w.clock.now-began)
		w.bytes += block
	}
	if c.back == blocks {
		c.closed = true
		c.server.active--
		w.begin(c.flow)
		return
	}
	c.send()
}

// otherLoad takes a part of a server's processor, in slices as an operating system does.
func (w *world) otherLoad(s *server) {
	const slice = 2 * time.Millisecond
	if s.site.loaded {
		s.cpu.take(time.Duration(otherWork*float64(slice)), func() {})
	}
	w.clock.after(slice, func() { w.otherLoad(s) })
}

// result is what is measured in a state.
type result struct {
	throughput float64 // Mbit/s
	mean, p99  time.Duration
	share      [links]float64
}

// measure runs until the time and measures for a while.
func (w *world) measure(at, length time.Duration) result {
	w.clock.run(at)
	w.rtts, w.bytes, w.measures = nil, 0, true
	w.clock.run(at + length)
	w.measures = false
	r := result{throughput: w.bytes * 8 / length.Seconds() / 1e6}
	slices.Sort(w.rtts)
	sum := time.Duration(0)
	for _, one := range w.rtts {
		sum += one
	}
	if n := len(w.rtts); n > 0 {
		r.mean, r.p99 = sum/time.Duration(n), w.rtts[n*99/100]
	}
	from := 0.0
	for i, to := range w.shares {
		r.share[i/each] += to - from
		from = to
	}
	return r
}

// simulate runs one policy, in steady state and disturbed.
func simulate(policy string, s scenario, seed uint64, t times) (steady, disturbed result) {
	w := newWorld(policy, s, seed)
	for flow := range flowCount {
		w.clock.after(time.Duration(flow)*time.Millisecond, func() { w.begin(flow) })
	}
	for _, one := range w.servers {
		w.otherLoad(one)
	}
	var turn func()
	turn = func() {
		_ = w.loop.Turn(context.Background(), w, epoch.Add(w.clock.now))
		w.clock.after(time.Second, turn)
	}
	w.clock.after(time.Second, turn)
	steady = w.measure(t.disturbAt-t.measureFor, t.measureFor)
	w.sites[1].late, w.sites[3].late = true, true
	w.sites[2].loaded, w.sites[4].loaded = true, true
	disturbed = w.measure(t.measureAt, t.measureFor)
	return steady, disturbed
}

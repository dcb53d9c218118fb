// SPDX-License-Identifier: Apache-2.0

package feedback

import (
	"math"
	"net/netip"
	"time"

	"steelyard/internal/dpclient"
	"steelyard/internal/model"
	"steelyard/internal/share"
)

// service is the loop's state of a service.
type service struct {
	name      string
	feedback  model.Feedback
	slowStart uint32
	balancer  *share.Balancer
	result    share.Result // in the order of servers
	at, sent  time.Time
	ending    bool // the loop revokes its shares
	from      *model.Service
	servers   []tracked // of from
	version   uint64    // of the store, to which their states belong; 0: none
	states    []model.State
}

// counters are the forwarder's counters of a server, and the values derived from them.
type counters struct {
	seen             bool
	samples, sumNs   uint64
	repeated, began  uint64
	segments, missed uint64
	in, out          uint64
	at               time.Time
	delay            share.Measure
	syns, data       ratio
	loss             share.Measure
	rate             rate
	turn             ratio     // of the last turn: SYNs and segments together
	late             *lateness // nil: no capacity is learned
}

// ratio is how many of something were lost lately.
type ratio struct{ lost, all float64 }

func (r ratio) after(elapsed float64, window time.Duration, lost, all float64) ratio {
	decay := math.Exp(-elapsed / window.Seconds())
	return ratio{r.lost*decay + lost, r.all*decay + all}
}

// part assumes many events without a loss in addition, because few events prove little.
func (r ratio) part() float64 { return r.lost / (r.all + lossAssumed) }

func newService(s *model.Service) *service {
	slowStart := time.Duration(0) // the balancer's default
	if s.Policy.SlowStart > 0 {
		slowStart = -1 // the forwarder does it
	}
	policy := share.Capability
	if s.Feedback.Policy == model.FeedbackLatency {
		policy = share.LeastLatency
	}
	gamma := s.Feedback.Gamma
	if gamma == 0 {
		gamma = -1
	}
	return &service{
		name: s.Name, feedback: s.Feedback, slowStart: s.Policy.SlowStart,
		balancer: share.New(share.Options{
			Policy: policy, Gamma: gamma, Settle: s.Feedback.Settle, Smooth: min(5*time.Second, s.Feedback.Settle/6),
			Minimum: float64(s.Feedback.Minimum) / 100, SlowStart: slowStart,
		}),
	}
}

// Loss is the larger of two fractions over about the last half minute: handshakes with a repeated SYN, and lost ones of the sampled segments. There are
// many segments per handshake, and a server that answers few SYNs may lose no segment.
const (
	lossWindow  = 30 * time.Second
	lossAssumed = 20
)

// take computes the events since the last iteration. A counter that fell was reset by a new forwarder.
func (c *counters) take(now time.Time, s *dpclient.ServerStats) {
	traffic, delay := s.GetTraffic(), s.GetDelay()
	next := counters{
		seen: true, samples: delay.GetSamples(), sumNs: delay.GetSumNs(), repeated: delay.GetSynRepeated(), began: traffic.GetSessionsCreated(),
		segments: delay.GetSegments(), missed: delay.GetSegmentsLost(),
		in: traffic.GetBytesIn(), out: traffic.GetBytesOut(), at: now,
		delay: c.delay, syns: c.syns, data: c.data, loss: c.loss, late: c.late,
	}
	elapsed := now.Sub(c.at).Seconds()
	if c.seen && elapsed > 0 && next.samples >= c.samples && next.began >= c.began && next.in >= c.in && next.out >= c.out {
		if n := next.samples - c.samples; n > 0 && next.sumNs >= c.sumNs {
			next.delay = share.At(now, float64(next.sumNs-c.sumNs)/float64(n)/1e9)
		}
		again, missed := next.repeated-min(c.repeated, next.repeated), next.missed-min(c.missed, next.missed)
		began, segments := next.began-c.began, next.segments-min(c.segments, next.segments)
		next.syns = c.syns.after(elapsed, lossWindow, float64(again), float64(began+again))
		next.data = c.data.after(elapsed, lossWindow, float64(missed), float64(segments))
		next.turn = ratio{float64(again + missed), float64(began + again + segments)}
		if next.turn.all > 0 {
			next.loss = share.At(now, max(next.syns.part(), next.data.part()))
		}
		next.rate = rate{8 * float64(next.in-c.in) / elapsed, 8 * float64(next.out-c.out) / elapsed}
	}
	*c = next
}

// link names the link of a server: its own, unless it names one.
func link(server *model.Server) string {
	if server.Link != "" {
		return server.Link
	}
	return server.Address.Addr().String()
}

// tracked is a server of a service.
type tracked struct {
	address   netip.AddrPort
	key, link string
	on        *path     // its link; nil: no turn so far
	counters  *counters // nil: the forwarder does not list it
	held      float64   // its share there before the first turn; 0: none
	state     model.State
}

// follow updates the service's servers to those of a configuration. Remaining servers keep their counts.
func (s *service) follow(config *model.Service) {
	if s.from == config {
		return
	}
	before := make(map[netip.AddrPort]*counters, len(s.servers))
	for _, one := range s.servers {
		before[one.address] = one.counters
	}
	s.from, s.version = config, 0
	s.servers = make([]tracked, len(config.Servers))
	for i := range config.Servers {
		server := &config.Servers[i]
		s.servers[i] = tracked{address: server.Address, key: model.ServerText(server.Address), link: link(server), counters: before[server.Address]}
	}
}

// ask updates the states of its servers. Versions begin with 1.
func (s *service) ask(states func(*model.Service, []model.State) []model.State, version uint64) {
	if s.version == version && version != 0 {
		return
	}
	s.version, s.states = version, states(s.from, s.states[:0])
	for i, state := range s.states {
		s.servers[i].state = state
	}
}

// listed finds servers among those that a forwarder lists: mostly in the same order.
type listed struct {
	servers []*dpclient.ServerStats
	others  map[netip.AddrPort]*dpclient.ServerStats // nil: not needed so far
}

func (l *listed) find(i int, address netip.AddrPort) *dpclient.ServerStats {
	if i < len(l.servers) {
		if at, err := dpclient.ServerAddressFromWire(l.servers[i].GetServer()); err == nil && at == address {
			return l.servers[i]
		}
	}
	if l.others == nil {
		l.others = make(map[netip.AddrPort]*dpclient.ServerStats, len(l.servers))
		for _, one := range l.servers {
			if at, err := dpclient.ServerAddressFromWire(one.GetServer()); err == nil {
				l.others[at] = one
			}
		}
	}
	return l.others[address]
}

// measured collects the measurements of a service's servers.
func (l *Loop) measured(now time.Time, s *service) []share.Server {
	servers := make([]share.Server, len(s.servers))
	for i := range s.servers {
		server, t, one := &s.from.Servers[i], &s.servers[i], &servers[i]
		ref := model.ServerRef{Service: s.from.Key, Address: t.address}
		*one = share.Server{Key: t.key, Weight: float64(server.Weight), Up: t.state == model.Up, Held: t.held}
		if t.state == model.Drain {
			one.Why = "drained"
		}
		if server.Backup { // it gets sessions only when no other server accepts them
			one.Up, one.Why = false, "backup"
		}
		if c := t.counters; c != nil && c.seen {
			one.Delay, one.Loss = c.delay, c.loss
			if use, ok := s.use(now, t.on); ok {
				one.Link = use
			}
		}
		if l.options.Load != nil {
			if r, ok := l.options.Load(ref); ok && !r.At.IsZero() {
				one.CPU = share.At(r.At, r.CPU)
			}
		}
		l.addCheck(now, s.from, ref, one)
	}
	return servers
}

// checkInstead is how old the delay of passing handshakes is when the health checks' counts instead.
const checkInstead = 10 * time.Second

// addCheck adds a health check's duration: as the latency, and as the delay if traffic has not shown one for a while. For an HTTP check the delay is the
// time to connect.
func (l *Loop) addCheck(now time.Time, config *model.Service, ref model.ServerRef, one *share.Server) {
	if l.options.Check == nil {
		return
	}
	state, ok := l.options.Check(ref)
	if !ok || !state.LastPassed || state.LastCheck.IsZero() {
		return
	}
	took := share.At(state.LastCheck, state.LastDuration.Seconds())
	switch config.Health.Type {
	case model.HealthHTTP:
		one.Latency = took
		if state.LastConnect > 0 && now.Sub(one.Delay.At) > checkInstead {
			one.Delay = share.At(state.LastCheck, state.LastConnect.Seconds())
		}
	case model.HealthTCP:
		if now.Sub(one.Delay.At) > checkInstead {
			one.Delay = took
		}
	}
}

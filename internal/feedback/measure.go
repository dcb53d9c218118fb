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

// service is what the loop knows of one.
type service struct {
	name      string
	feedback  model.Feedback
	slowStart uint32
	balancer  *share.Balancer
	counters  map[netip.AddrPort]*counters
	order     []netip.AddrPort // of result.Shares
	result    share.Result
	at, sent  time.Time
	held      map[netip.AddrPort]float64 // shares that the forwarder follows
	states    []model.State              // of the servers of `from`, at this version of the store
	from      *model.Service
	version   uint64
	ending    bool // takes its shares back
}

// counters are what the forwarder has counted of a server so far, and what followed from it.
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
}

// ratio is how many of something were lost lately.
type ratio struct{ lost, all float64 }

func (r ratio) after(elapsed, lost, all float64) ratio {
	decay := math.Exp(-elapsed / lossWindow.Seconds())
	return ratio{r.lost*decay + lost, r.all*decay + all}
}

// part assumes many without a loss beside them, as few prove nothing.
func (r ratio) part() float64 { return r.lost / (r.all + lossAssumed) }

// rate is what a link carries, bits/s. It carries as much in each direction.
type rate struct{ in, out float64 }

func (r rate) plus(other rate) rate { return rate{r.in + other.in, r.out + other.out} }

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
		name: s.Name, feedback: s.Feedback, slowStart: s.Policy.SlowStart, counters: map[netip.AddrPort]*counters{},
		balancer: share.New(share.Options{
			Policy: policy, Gamma: gamma, Settle: s.Feedback.Settle, Smooth: min(5*time.Second, s.Feedback.Settle/6),
			Least: float64(s.Feedback.Least) / 100, SlowStart: slowStart,
		}),
	}
}

// Loss is the part of the handshakes of about the last half minute whose SYN was repeated, or that of the watched segments that
// were lost, whichever is larger: there are many segments to a handshake, and a server that answers few SYNs loses none of them.
const (
	lossWindow  = 30 * time.Second
	lossAssumed = 20
)

// take computes what happened since the last time. A counter that fell begins anew: another forwarder.
func (c *counters) take(now time.Time, s *dpclient.ServerStats) {
	traffic, delay := s.GetTraffic(), s.GetDelay()
	next := counters{
		seen: true, samples: delay.GetSamples(), sumNs: delay.GetSumNs(), repeated: delay.GetSynRepeated(), began: traffic.GetSessionsCreated(),
		segments: delay.GetSegments(), missed: delay.GetSegmentsLost(),
		in: traffic.GetBytesIn(), out: traffic.GetBytesOut(), at: now,
		delay: c.delay, syns: c.syns, data: c.data, loss: c.loss,
	}
	elapsed := now.Sub(c.at).Seconds()
	if c.seen && elapsed > 0 && next.samples >= c.samples && next.began >= c.began && next.in >= c.in && next.out >= c.out {
		if n := next.samples - c.samples; n > 0 && next.sumNs >= c.sumNs {
			next.delay = share.At(now, float64(next.sumNs-c.sumNs)/float64(n)/1e9)
		}
		again, missed := next.repeated-min(c.repeated, next.repeated), next.missed-min(c.missed, next.missed)
		began, segments := next.began-c.began, next.segments-min(c.segments, next.segments)
		next.syns = c.syns.after(elapsed, float64(again), float64(began+again))
		next.data = c.data.after(elapsed, float64(missed), float64(segments))
		if began+again+segments > 0 {
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

// measureLinks reads all counters, and returns what is on each link.
func (l *Loop) measureLinks(now time.Time, wanted []*model.Service, stats map[model.ServiceKey]*dpclient.ServiceStats) map[string]rate {
	links := map[string]rate{}
	for _, config := range wanted {
		s := l.services[config.Key]
		if s == nil || s.ending {
			continue
		}
		present := map[netip.AddrPort]*dpclient.ServerStats{}
		s.held = map[netip.AddrPort]float64{}
		for _, one := range stats[config.Key].GetServers() {
			if address, err := dpclient.ServerAddressFromWire(one.GetServer()); err == nil {
				present[address] = one
				if stats[config.Key].GetSharesValidS() > 0 {
					s.held[address] = dpclient.ShareFromWire(one.GetShare())
				}
			}
		}
		for i := range config.Servers {
			server := &config.Servers[i]
			one := present[server.Address]
			if one == nil {
				delete(s.counters, server.Address)
				continue
			}
			if s.counters[server.Address] == nil {
				s.counters[server.Address] = &counters{}
			}
			s.counters[server.Address].take(now, one)
			links[link(server)] = links[link(server)].plus(s.counters[server.Address].rate)
		}
	}
	return links
}

// servers gathers what is measured of a service's servers.
func (l *Loop) servers(now time.Time, config *model.Service, s *service, links map[string]rate) []share.Server {
	s.order = s.order[:0]
	servers := make([]share.Server, 0, len(config.Servers))
	for i := range config.Servers {
		server := &config.Servers[i]
		ref := model.ServerRef{Service: config.Key, Address: server.Address}
		one := share.Server{Key: model.ServerText(server.Address), Weight: float64(server.Weight), Up: s.states[i] == model.Up,
			Held: s.held[server.Address]}
		if s.states[i] == model.Drain {
			one.Why = "drained"
		}
		if server.Backup { // asked only when no other server takes a session
			one.Up, one.Why = false, "backup"
		}
		if c := s.counters[server.Address]; c != nil && c.seen {
			one.Delay, one.Loss = c.delay, c.loss
			if capacity := s.feedback.Capacity; capacity > 0 {
				on := links[link(server)]
				one.Link = share.At(now, max(on.in, on.out)/float64(capacity))
			}
		}
		if l.options.Load != nil {
			if r, ok := l.options.Load(ref); ok && !r.At.IsZero() {
				one.CPU = share.At(r.At, r.CPU)
			}
		}
		l.addCheck(now, config, ref, &one)
		s.order = append(s.order, server.Address)
		servers = append(servers, one)
	}
	return servers
}

// checkInstead is how old the delay of passing handshakes is when the health checks' counts instead.
const checkInstead = 10 * time.Second

// addCheck takes a health check's duration: as the delay, where no traffic has shown one for a while, and as the latency.
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
	case model.HealthTCP:
		if now.Sub(one.Delay.At) > checkInstead {
			one.Delay = took
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package feedback

import (
	"math"
	"time"

	"steelyard/internal/dpclient"
	"steelyard/internal/model"
	"steelyard/internal/share"
)

// rate is the traffic of a link, in bits/s, in one direction.
type rate struct{ in, out float64 }

func (r rate) maximum() float64 { return max(r.in, r.out) }

// path is a link with its state. It may lead to servers of several services.
type path struct {
	rate   rate    // of this turn
	late   float64 // the least excess of its servers' delays; infinite: none was measured lately
	lost   ratio   // of this turn
	used   bool    // in this turn
	learns bool    // in this iteration: a service has link_capacity: learn
	gone   bool    // no service uses it any more

	lately   ratio
	loss     share.Excess
	capacity share.Capacity
}

// What of delay and loss is a sign that a link is full.
const (
	delayFloor  = 0.0005 // seconds above the base; half the base, if that is more
	lossFloor   = 0.01   // likewise
	signSmooth  = 5 * time.Second
	signWindow  = 10 * time.Second // of loss
	signLosses  = 3                // fewer in the window are chance
	signAssumed = 20
	signFresh   = 10 * time.Second // an older delay is no evidence about the link
)

// lateness is how a server's delay has been against its base.
type lateness struct {
	excess share.Excess
	now    float64
}

// begin resets the sums of the previous iteration.
func (p *path) begin() {
	p.rate, p.late, p.lost, p.used, p.learns = rate{}, math.Inf(1), ratio{}, false, false
}

// add adds the measurements of a server behind the link.
func (p *path) add(now time.Time, c *counters) {
	p.rate.in += c.rate.in
	p.rate.out += c.rate.out
	if !p.learns {
		return
	}
	p.lost.lost += c.turn.lost
	p.lost.all += c.turn.all
	if c.late == nil {
		c.late = &lateness{}
	}
	if c.delay.At.Equal(now) {
		c.late.now = c.late.excess.Take(c.delay, signSmooth, delayFloor, p.capacity.Full())
	}
	if !c.delay.At.IsZero() && now.Sub(c.delay.At) < signFresh {
		p.late = min(p.late, c.late.now) // a queue at the link delays all servers behind it
	}
}

// learn is called once all servers of the link are added.
func (p *path) learn(now time.Time, elapsed time.Duration) (again bool) {
	p.lately = p.lately.after(elapsed.Seconds(), signWindow, p.lost.lost, p.lost.all)
	part := 0.0
	if p.lately.lost >= signLosses {
		part = p.lately.lost / (p.lately.all + signAssumed)
	}
	sign := max(p.late, p.loss.Take(share.At(now, part), time.Nanosecond, lossFloor, p.capacity.Full()))
	// Traffic of clients is counted before the link, so losses are subtracted.
	carried := max(p.rate.in*(1-part), p.rate.out)
	again = p.capacity.Step(now, carried, sign, !math.IsInf(p.late, 1)) // losses count only where delays are known
	if again {
		p.loss.Again()
	}
	return again
}

// measureLinks reads all counters, and brings links up to date.
func (l *Loop) measureLinks(now time.Time, wanted []*model.Service, stats map[model.ServiceKey]*dpclient.ServiceStats) {
	elapsed := now.Sub(l.linked)
	if l.linked.IsZero() || elapsed < 0 {
		elapsed = 0
	}
	l.linked = now
	for _, p := range l.links {
		p.begin()
	}
	var read []*service
	for _, config := range wanted {
		s := l.services[config.Key]
		if s == nil || s.ending || stats[config.Key] == nil { // as in compute
			continue
		}
		s.follow(config)
		l.name(s)
		read = append(read, s)
	}
	for _, s := range read {
		l.readServers(now, s, stats[s.from.Key])
	}
	for name, p := range l.links {
		switch {
		case !p.used:
			p.gone = true
			delete(l.links, name)
		case !p.learns:
			p.lately, p.loss, p.capacity = ratio{}, share.Excess{}, share.Capacity{}
		case p.learn(now, elapsed):
			l.again(p)
		}
	}
}

// name finds the links of a service's servers, and notes whether they are to be learned.
func (l *Loop) name(s *service) {
	for i := range s.servers {
		server := &s.servers[i]
		if server.on == nil || server.on.gone {
			if server.on = l.links[server.link]; server.on == nil {
				server.on = &path{}
				server.on.begin()
				l.links[server.link] = server.on
			}
		}
		server.on.used = true
		server.on.learns = server.on.learns || s.feedback.Learn
	}
}

// again resets the delays of servers behind a link.
func (l *Loop) again(p *path) {
	for _, s := range l.services {
		for i := range s.servers {
			if one := &s.servers[i]; one.on == p && one.counters != nil && one.counters.late != nil {
				one.counters.late.excess.Again()
				one.counters.late.now = 0 // of the base that was
			}
		}
	}
}

// readServers reads the counters of a service's servers.
func (l *Loop) readServers(now time.Time, s *service, stats *dpclient.ServiceStats) {
	there := listed{servers: stats.GetServers()}
	holds := stats.GetSharesValidS() > 0 && s.at.IsZero()
	for i := range s.servers {
		server := &s.servers[i]
		one := there.find(i, server.address)
		if one == nil {
			server.counters = nil
			continue
		}
		if holds {
			server.held = dpclient.ShareFromWire(one.GetShare())
		}
		if server.counters == nil {
			server.counters = &counters{}
		}
		server.counters.take(now, one)
		server.on.add(now, server.counters)
	}
}

// use returns the utilization of a link; false: its capacity is unknown.
func (s *service) use(now time.Time, p *path) (share.Measure, bool) {
	capacity := s.capacity(p)
	if capacity <= 0 {
		return share.Measure{}, false
	}
	return share.At(now, p.rate.maximum()/capacity), true
}

// capacity returns the capacity of a link in bits/s; 0: unknown.
func (s *service) capacity(p *path) float64 {
	if s.feedback.Learn {
		return p.capacity.Rate()
	}
	return float64(s.feedback.Capacity)
}

// Link is the state of a server's link.
type Link struct {
	Name     string
	Carries  float64 // bits/s, in the direction that has more
	Capacity float64 // bits/s; 0: not learned yet
	Learns   bool    // it is learned, not configured
	Full     bool    // it looks full, as far as that is looked at
}

// linkOf returns the state of a server's link; false: its use does not count.
func (s *service) linkOf(server *tracked) (Link, bool) {
	p := server.on
	if p == nil || !s.feedback.Learn && s.feedback.Capacity == 0 {
		return Link{}, false
	}
	return Link{Name: server.link, Carries: p.rate.maximum(), Capacity: s.capacity(p), Learns: s.feedback.Learn, Full: s.feedback.Learn && p.capacity.Full()}, true
}

// SPDX-License-Identifier: Apache-2.0

package share

import (
	"math"
	"time"
)

// Balancer is the state of the servers of one service at one forwarder. Not safe for concurrent use.
type Balancer struct {
	options Options
	known   map[string]*known
	last    time.Time // of the last step
	begun   time.Time // of the first one
	removed bool      // the last step forgot a server
}

// known is the state of a server after earlier steps.
type known struct {
	delay, loss, link, cpu, latency smoothed

	share     float64   // damped
	held      float64   // its share before this balancer's first step, until it goes out; 0: unknown
	published float64   // the last value in Result
	since     time.Time // start, or last return to service, for slow start
	seen      bool      // in this step
}

// New returns a balancer without state.
func New(options Options) *Balancer {
	return &Balancer{options: options.withDefaults(), known: map[string]*known{}}
}

// smoothed is a measure's exponential average.
type smoothed struct {
	value float64
	at    time.Time
}

// take adds a new measurement to an average. It ignores NaN and infinity, which would never leave the average.
func (s *smoothed) take(m Measure, constant time.Duration, maximum float64) {
	if m.At.IsZero() || !m.At.After(s.at) || math.IsNaN(m.Value) || math.IsInf(m.Value, 0) || m.Value < 0 {
		return
	}
	value := min(m.Value, maximum)
	if s.at.IsZero() {
		s.value = value
	} else {
		s.value += (value - s.value) * -math.Expm1(-m.At.Sub(s.at).Seconds()/constant.Seconds())
	}
	s.at = m.At
}

// trust is 1 for a fresh measurement, 0 for a stale or missing one, and decreases linearly in between.
func (b *Balancer) trust(s smoothed, now time.Time) float64 {
	if s.at.IsZero() {
		return 0
	}
	age := now.Sub(s.at)
	if age <= b.options.Fresh {
		return 1
	}
	return max(0, 1-float64(age-b.options.Fresh)/float64(max(1, b.options.Stale-b.options.Fresh)))
}

// Step processes new measurements and returns the current shares. It forgets servers that are not among them.
func (b *Balancer) Step(now time.Time, servers []Server) Result {
	elapsed := now.Sub(b.last)
	if b.last.IsZero() || elapsed < 0 {
		elapsed = 0
	}
	first := b.last.IsZero()
	if first {
		b.begun = now
	}
	b.last = now
	candidates := b.gather(now, servers, first)
	follow := byCapability
	if b.options.Policy == LeastLatency {
		follow = byLatency
	}
	speed := follow(candidates, b.options.Gamma)
	warning := settleTargets(candidates, b.options.Minimum)
	b.hold(candidates, now)
	b.move(candidates, -math.Expm1(-elapsed.Seconds()*speed/b.options.Settle.Seconds()), now)
	return b.publish(candidates, warning)
}

// candidate is a server during one step.
type candidate struct {
	*known
	Share
	weight           float64 // part of all candidates' weights, which sum to 1
	network, compute float64 // capabilities; meaningful with trust above 0
	trustN, trustC   float64
	trustU           float64 // in the use of its link
	room             float64 // 0: overloaded, set aside; 1: far from it
	target           float64
}

// in reports that shares are computed for it.
func (c *candidate) in() bool { return c.State != Out }

// gather updates the servers' state, and decides which ones are in, out or set aside.
func (b *Balancer) gather(now time.Time, servers []Server, first bool) []*candidate {
	for _, k := range b.known {
		k.seen = false
	}
	sum := 0.0
	candidates, all := make([]*candidate, 0, len(servers)), make([]candidate, len(servers))
	for i, s := range servers {
		k := b.known[s.Key]
		in := s.Up && s.Weight > 0
		if k == nil {
			k = &known{published: math.NaN()}
			b.known[s.Key] = k
			if !first { // those of the first step have been serving already
				k.since = now
			}
		}
		k.seen = true
		c := &all[i]
		c.known, c.Key = k, s.Key
		candidates = append(candidates, c)
		k.delay.take(s.Delay, b.options.Smooth, math.MaxFloat64)
		k.loss.take(s.Loss, b.options.Smooth, 1)
		k.link.take(s.Link, b.options.Smooth, 1)
		k.cpu.take(s.CPU, b.options.Smooth, 1)
		k.latency.take(s.Latency, b.options.Smooth, math.MaxFloat64)
		if !in {
			c.State, c.Reason = Out, "down"
			if s.Up {
				c.Reason = "weight 0"
			} else if s.Why != "" {
				c.Reason = s.Why
			}
			k.since, k.share, k.held = now, 0, 0 // it starts anew
			continue
		}
		c.weight = s.Weight
		sum += s.Weight
		b.assess(c, now)
		b.setAside(c, now)
	}
	b.removed = false
	for key, k := range b.known {
		if !k.seen {
			delete(b.known, key)
			b.removed = true
		}
	}
	for i, c := range candidates {
		if c.in() {
			c.weight /= sum
		}
		if first && c.in() {
			c.known.share = c.weight
			if held := servers[i].Held; held > 0 && held <= 1 {
				c.known.share, c.known.held = held, held
			}
		}
	}
	return candidates
}

// crowded is the fraction of all weights with free capacity below which shares return towards the weights: the few remaining servers cannot absorb the
// others' sessions.
const crowded = 0.2

// settleTargets scales the candidates' targets to a sum of 1, less for those with less free capacity, and keeps each
// above the least share. It returns a warning if they are too few.
func settleTargets(candidates []*candidate, minimum float64) string {
	in, sum, room := 0, 0.0, 0.0
	for _, c := range candidates {
		if c.in() {
			in++
			c.target *= c.room
			sum += c.target
			room += c.weight * c.room
		}
	}
	if in == 0 {
		return "no server is up"
	}
	follow := min(1, room/crowded)
	if sum <= 0 {
		follow = 0
	}
	for _, c := range candidates {
		if c.in() {
			target := c.weight
			if follow > 0 {
				target = follow*(minimum*c.weight+(1-minimum)*c.target/sum) + (1-follow)*c.weight
			}
			c.target = target
		}
	}
	if follow < 1 {
		return "too many servers are overloaded to spare them: shares follow the weights instead"
	}
	return ""
}

// hold keeps the shares from before this balancer while there is no measurement: an earlier balancer derived them from measurements, which are valid as
// long as any others.
func (b *Balancer) hold(candidates []*candidate, now time.Time) {
	if now.Sub(b.begun) >= b.options.Stale {
		return
	}
	sum, held := 0.0, false
	for _, c := range candidates {
		if !c.in() {
			continue
		}
		if c.State != Blind {
			return
		}
		if c.target = c.weight; c.held > 0 {
			c.target, held = c.held, true
		}
		sum += c.target
	}
	for _, c := range candidates {
		if held && c.in() {
			c.target /= sum
		}
	}
}

// move moves shares a fraction of the way to their targets.
func (b *Balancer) move(candidates []*candidate, part float64, now time.Time) {
	sum := 0.0
	for _, c := range candidates {
		if !c.in() {
			continue
		}
		c.known.share += (c.target - c.known.share) * part
		goal := c.known.share
		if b.options.SlowStart > 0 && !c.since.IsZero() {
			started := float64(now.Sub(c.since)) / float64(b.options.SlowStart)
			if started < 1 {
				// It grows with the time alone: damping on top would make it slower still.
				goal = c.target * max(started, b.options.Minimum)
				c.known.share = goal
				c.Starting = true
			}
		}
		c.Share.Share = goal
		c.Target = c.target
		sum += goal
	}
	if sum <= 0 {
		return
	}
	for _, c := range candidates {
		c.Share.Share /= sum
		if !c.Starting {
			c.known.share = c.Share.Share
		}
	}
}

// publish computes ranges of the shares, equation (10), if they differ from the published ones.
func (b *Balancer) publish(candidates []*candidate, warning string) Result {
	result := Result{Warning: warning, Changed: b.removed, Shares: make([]Share, 0, len(candidates))}
	in := 0
	for _, c := range candidates {
		if c.in() {
			in++
		}
	}
	for _, c := range candidates {
		// From and to nothing is always a change, and so is the first share.
		change := math.Abs(c.Share.Share - c.published)
		if math.IsNaN(change) || change > b.options.Deadband/float64(max(1, in)) || (c.Share.Share == 0) != (c.published == 0) {
			result.Changed = true
		}
	}
	if result.Changed {
		for _, c := range candidates {
			c.published = c.Share.Share
		}
	}
	for _, c := range candidates {
		c.Share.Share = c.published
		result.Shares = append(result.Shares, c.Share)
	}
	ranges(result.Shares)
	return result
}

// ranges lays the shares side by side; the last one that is not empty ends at 1, whatever was rounded.
func ranges(shares []Share) {
	sum := 0.0
	for _, s := range shares {
		sum += s.Share
	}
	at, last := 0.0, -1
	for i := range shares {
		shares[i].From, shares[i].To = at, at
		if shares[i].Share > 0 && sum > 0 {
			at = min(1, at+shares[i].Share/sum)
			shares[i].To = at
			last = i
		}
	}
	if last >= 0 {
		for i := last; i < len(shares); i++ {
			shares[i].To = 1
			if i > last {
				shares[i].From = 1
			}
		}
	}
	for i := range shares {
		shares[i].Share = shares[i].To - shares[i].From
	}
}

// SPDX-License-Identifier: Apache-2.0

package share

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// setAside returns a server's remaining capacity: 1 far from overload, 0 in it, and linearly less in between. A threshold with hysteresis would oscillate:
// the relieved server recovers, and is overloaded by the sessions that it then gets.
func (b *Balancer) setAside(c *candidate, now time.Time) {
	k, missing := c.known, c.Reason
	c.room = 1
	for _, one := range []struct {
		what          string
		s             smoothed
		from, maximum float64
	}{
		{"link", k.link, b.options.Busy, b.options.Overload}, {"cpu", k.cpu, b.options.Busy, b.options.Overload},
		{"loss", k.loss, b.options.MaxLoss / 2, b.options.MaxLoss},
	} {
		room := min(1, max(0, (one.maximum-one.s.value)/(one.maximum-one.from)))
		room = 1 - b.trust(one.s, now)*(1-room)
		if room >= c.room {
			continue
		}
		c.room = room
		c.Reason = fmt.Sprintf("near overload: %s %.0f %%", one.what, 100*one.s.value)
		if room == 0 {
			c.State, c.Reason = SetAside, fmt.Sprintf("overloaded: %s %.0f %%", one.what, 100*one.s.value)
		}
	}
	if c.room < 1 && missing != "" {
		c.Reason += ", " + missing
	}
}

// assess computes both capabilities, equations (5) and (6), and how far to trust them.
func (b *Balancer) assess(c *candidate, now time.Time) {
	k := c.known
	var missing []string
	note := func(what string, s smoothed) float64 {
		trust := b.trust(s, now)
		switch {
		case s.at.IsZero():
			missing = append(missing, "no "+what)
		case trust < 1:
			missing = append(missing, fmt.Sprintf("%s %.0f s old", what, now.Sub(s.at).Seconds()))
		}
		return trust
	}
	if b.options.Policy == LeastLatency {
		c.trustN = note("latency", k.latency)
		c.trustC = note("cpu", k.cpu)
		c.compute = 1 - k.cpu.value
		// The link's part of the latency does not grow with the server's load.
		link := min(k.latency.value, b.trust(k.delay, now)*k.delay.value)
		c.network = max(1e-6, link+(k.latency.value-link)/max(0.02, 1-c.trustC*k.cpu.value))
	} else {
		// (5) N = (1 − u)(1 − p/p_most) / d: free capacity, reduced by packet loss, and divided by the delay. An unknown loss counts as none, an unknown
		// use as the mean (countUse); the delay must be known.
		c.trustN, c.trustU = note("delay", k.delay), b.trust(k.link, now)
		c.network = 1 / max(k.delay.value, 1e-6)
		c.network *= 1 - b.trust(k.loss, now)*min(1, k.loss.value/b.options.MaxLoss)
		// (6) C = 1 − c: the free part. The server's size is in its weight.
		c.trustC = note("cpu", k.cpu)
		c.compute = 1 - k.cpu.value
	}
	switch {
	case len(missing) == 0:
		c.State = Measured
	case c.trustN == 0 && c.trustC == 0:
		c.State = Blind
	default:
		c.State = Partly
	}
	c.Reason = strings.Join(missing, ", ")
}

// byCapability sets targets by equations (7) to (9). Returns the speed of the approach.
func byCapability(candidates []*candidate, gamma float64) float64 {
	countUse(candidates)
	phi := offsets(candidates, func(c *candidate) (float64, float64) { return c.network, c.trustN })
	eta := offsets(candidates, func(c *candidate) (float64, float64) { return c.compute, c.trustC })
	free, weights := 0.0, 0.0
	for i, c := range candidates {
		if !c.in() {
			continue
		}
		free += c.weight * c.room * c.trustC * c.compute
		weights += c.weight * c.room * c.trustC
		c.Phi, c.Eta = phi[i], eta[i]
		a := gamma*c.Phi + (1-gamma)*c.Eta // (8)
		c.target = c.weight * (1 + a)      // (9); scaled by settleTargets
	}
	// A share acts on its target with a gain of ρ/(1−ρ), because the mean of the free capacities is the divisor of (7). A speed of 1−ρ makes the
	// whole loop equally fast at any load.
	if weights == 0 {
		return 1
	}
	return min(1, max(0.05, free/weights))
}

// countUse adds the use of links to (5). An unknown one counts as the mean of the known ones: a link whose capacity is
// not learned yet is neither better nor worse for that.
func countUse(candidates []*candidate) {
	sum, weights := 0.0, 0.0
	for _, c := range candidates {
		if c.in() {
			sum += c.known.link.value * c.trustU * c.weight
			weights += c.trustU * c.weight
		}
	}
	if weights == 0 {
		return
	}
	mean := sum / weights
	for _, c := range candidates {
		if c.in() {
			c.network *= 1 - c.trustU*c.known.link.value - (1-c.trustU)*mean
		}
	}
}

// offsets returns equation (7), the relative offset of each candidate from the weighted mean of those that
// are trusted and have room; less of it where trust is less.
func offsets(candidates []*candidate, of func(*candidate) (value, trust float64)) []float64 {
	result := make([]float64, len(candidates))
	sum, weights := 0.0, 0.0
	for _, c := range candidates {
		value, trust := of(c)
		if c.in() {
			sum += value * trust * c.weight * c.room
			weights += trust * c.weight * c.room
		}
	}
	if weights == 0 || sum <= 0 {
		return result
	}
	mean := sum / weights
	for i, c := range candidates {
		value, trust := of(c)
		if c.in() && trust > 0 {
			result[i] = trust * (value/mean - 1)
		}
	}
	return result
}

// byLatency sets targets for the least mean response time: there, one more session adds the same to it at
// every server. What it adds is the server's latency and, as queues grow with 1/(1−c), the time that it
// takes from the others. A server that adds more than the mean gets a smaller share, by the logarithm of the ratio.
// Returns the speed of the approach.
func byLatency(candidates []*candidate, _ float64) float64 {
	sum, weights := 0.0, 0.0
	for _, c := range candidates {
		if c.in() && c.trustN > 0 {
			part := c.known.share * c.trustN * c.room
			sum += part * math.Log(c.network)
			weights += part
		}
	}
	free, counted := 0.0, 0.0
	for _, c := range candidates {
		if !c.in() {
			continue
		}
		if c.trustN == 0 || weights == 0 {
			c.target = c.weight // no measurement: back to the weight
			continue
		}
		c.Phi = c.trustN * (sum/weights - math.Log(c.network))
		held := c.known.share*c.trustN + c.weight*(1-c.trustN)
		c.target = held * math.Exp(min(1, max(-1, c.Phi)))
		free += c.known.share * c.room * c.trustC * c.compute
		counted += c.known.share * c.room * c.trustC
	}
	// As with capability: near saturation, latency answers to a share with a gain of ρ/(1−ρ).
	if counted == 0 {
		return 0.25
	}
	return min(1, max(0.05, free/counted))
}

// SPDX-License-Identifier: Apache-2.0

package share

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// network simulates servers behind links of their own, which fill up: the real code learns what they can carry, and shares follow.
type network struct {
	demand   func(at time.Duration) float64        // bits/s of the service
	capacity func(i int, at time.Duration) float64 // bits/s of a link
	way      func(i int, at time.Duration) float64 // seconds; without a queue
	noise    float64                               // of delays and rates, relative
	learn    bool
	seed     uint64
}

const (
	linksOf  = 10
	queueMax = 0.02 // seconds
)

// course is what happened.
type course struct {
	at      []time.Duration
	shares  [][]float64
	learned [][]float64 // bits/s; 0: none
	full    [][]bool    // truly: more came than the link carries
}

func constant(v float64) func(time.Duration) float64 { return func(time.Duration) float64 { return v } }

func usualWay(int, time.Duration) float64 { return 0.0022 }

func (n network) run(t *testing.T, length time.Duration) course {
	t.Helper()
	random := rand.New(rand.NewPCG(n.seed, 3))
	noisy := func(v float64) float64 { return max(0, v*(1+n.noise*random.NormFloat64())) }
	b := New(Options{})
	var (
		out    course
		links  [linksOf]Capacity
		late   [linksOf]Excess
		losses [linksOf]Excess
		queue  [linksOf]float64 // seconds
		shares [linksOf]float64
	)
	for i := range shares {
		shares[i] = 1.0 / linksOf
	}
	for at := time.Duration(0); at <= length; at += time.Second {
		now := begin.Add(at)
		servers := make([]Server, linksOf)
		full, learned := make([]bool, linksOf), make([]float64, linksOf)
		for i := range servers {
			capacity, offered := n.capacity(i, at), noisy(shares[i]*n.demand(at))
			before := queue[i]
			queue[i] = min(queueMax, max(0, before+offered/capacity-1))
			lost := 0.0
			if over := before + offered/capacity - 1 - queueMax; over > 0 {
				lost = min(1, over*capacity/offered)
			}
			// A little waits at any use, as packets do not come evenly.
			use := min(0.99, offered/capacity)
			delay := noisy(n.way(i, at)+queue[i]) + 12000/capacity*use/(1-use)
			sign := late[i].Take(At(now, delay), 5*time.Second, 0.0005, links[i].Full())
			sign = max(sign, losses[i].Take(At(now, lost), 5*time.Second, 0.01, links[i].Full()))
			if links[i].Step(now, offered*(1-lost), sign, true) {
				late[i].Again()
				losses[i].Again()
			}
			servers[i] = Server{Key: fmt.Sprint(i), Weight: 1, Up: true, Delay: At(now, delay), Loss: At(now, lost), CPU: At(now, 0.3)}
			full[i] = offered > capacity
			if n.learn {
				if learned[i] = links[i].Rate(); learned[i] > 0 {
					servers[i].Link = At(now, offered/learned[i])
				}
			}
		}
		r := b.Step(now, servers)
		checkRanges(t, r)
		for i := range shares {
			shares[i] = r.Shares[i].Share
		}
		out.at = append(out.at, at)
		out.shares = append(out.shares, append([]float64(nil), shares[:]...))
		out.learned = append(out.learned, learned)
		out.full = append(out.full, full)
	}
	return out
}

// swing is the least and the most share of a link's server in a period.
func (c course) swing(link int, from, to time.Duration) (minimum, maximum float64) {
	return trace{at: c.at, shares: c.shares}.swing(link, from, to)
}

// fullPart is the part of a period in which a link was full.
func (c course) fullPart(link int, from, to time.Duration) float64 {
	full, all := 0.0, 0.0
	for i, at := range c.at {
		if at >= from && at < to {
			all++
			if c.full[i][link] {
				full++
			}
		}
	}
	return full / all
}

// capacities is the range of what was learned in a period; zero counts as none.
func (c course) capacities(link int, from, to time.Duration) (minimum, maximum float64) {
	minimum = math.Inf(1)
	for i, at := range c.at {
		if v := c.learned[i][link]; at >= from && at < to && v > 0 {
			minimum, maximum = min(minimum, v), max(maximum, v)
		}
	}
	return minimum, maximum
}

const mbit = 1e6

// narrow is one link of 200 Mbit/s among those of 600; even shares would load each with 300.
func narrow(i int, _ time.Duration) float64 {
	if i == 0 {
		return 200 * mbit
	}
	return 600 * mbit
}

// crests is a load in waves: as of day and night, but faster.
func crests(period time.Duration) func(at time.Duration) float64 {
	return func(at time.Duration) float64 {
		if at%period < period/2 {
			return 3000 * mbit
		}
		return 1200 * mbit
	}
}

// A steady load that fills a link stays where delay and loss hold it, as without learning: nothing comes and goes.
func TestSteadyLoadIsLeftAlone(t *testing.T) {
	n := network{demand: constant(3000 * mbit), capacity: narrow, way: usualWay, noise: 0.03, seed: 1}
	without := n.run(t, 2*time.Hour)
	n.learn = true
	with := n.run(t, 2*time.Hour)
	low, high := with.swing(0, time.Hour, 2*time.Hour)
	lowWithout, highWithout := without.swing(0, time.Hour, 2*time.Hour)
	if high-low > highWithout-lowWithout+2*deadband || low < 0.05 {
		t.Errorf("share %.4f to %.4f, without learning %.4f to %.4f", low, high, lowWithout, highWithout)
	}
}

// Capacities change: to a third, and to what they were.
func TestCapacityThatChangesIsFollowed(t *testing.T) {
	const period = 40 * time.Minute
	n := network{demand: crests(period), way: usualWay, noise: 0.03, seed: 2, learn: true}
	const shrinks, grows, end = 2 * period, 8 * period, 16 * period
	n.capacity = func(i int, at time.Duration) float64 {
		if at >= shrinks && at < grows {
			return narrow(i, at)
		}
		return 600 * mbit
	}
	c := n.run(t, end)
	if _, maximum := c.capacities(0, 0, shrinks); maximum > 0 {
		t.Errorf("learned %v before it was full", maximum)
	}
	learned, back := time.Duration(0), time.Duration(0)
	for i, at := range c.at {
		if learned == 0 && at > shrinks && c.learned[i][0] > 0 {
			learned = at - shrinks
		}
		if phase := at % period; back == 0 && at > grows && phase > period/4 && phase < period/2 && c.shares[i][0] > 0.09 { // well after a crest begins
			back = at - grows
		}
	}
	t.Logf("learned %v after it shrank, used again %v after it grew", learned, back)
	if minimum, maximum := c.capacities(0, grows-2*period, grows); minimum < 180*mbit || maximum > 260*mbit {
		t.Errorf("shrunken: %v to %v", minimum, maximum)
	}
	if learned == 0 || learned > 3*period || back == 0 || back > 2*period {
		t.Error("too late")
	}
	if low, high := c.swing(0, end-period, end); low < 0.09 || high > 0.11 {
		t.Errorf("after it grew again, its share is %v to %v", low, high)
	}
	for i := 1; i < linksOf; i++ {
		if _, maximum := c.capacities(i, 0, end); maximum > 0 {
			t.Errorf("link %d was never full, and has %v", i, maximum)
		}
	}
}

// flickers are late answers of one link for 10 s, 10 min after one another in the mean, and now and then far later than usual.
func flickers(i int, at time.Duration) float64 {
	random := rand.New(rand.NewPCG(uint64(at/(10*time.Second)), 8))
	if i > 0 || random.IntN(60) > 0 {
		return 0.0022
	}
	return 0.0022 + 0.002/math.Sqrt(1-random.Float64())
}

// What only looks like a full link does not become a capacity that costs it sessions.
func TestOtherCausesAreNotLearnedAsCapacity(t *testing.T) {
	wide := func(int, time.Duration) float64 { return 600 * mbit }
	wave := func(period time.Duration) func(int, time.Duration) float64 {
		return func(i int, at time.Duration) float64 {
			if i == 0 && at > 20*time.Minute && at%period >= period/2 {
				return 0.0072
			}
			return 0.0022
		}
	}
	for name, n := range map[string]network{
		"nothing":       {way: usualWay},
		"noise of 20 %": {way: usualWay, noise: 0.2},
		"a longer way": {way: func(i int, at time.Duration) float64 {
			if i == 0 && at > 20*time.Minute {
				return 0.0072
			}
			return 0.0022
		}, noise: 0.03},
		"a longer way at once":                {way: func(i int, at time.Duration) float64 { return 0.0022 + 0.005*float64(min(1, at/time.Hour)) }, noise: 0.03},
		"a way that changes every minute":     {way: wave(2 * time.Minute), noise: 0.03},
		"a way that changes every 10 minutes": {way: wave(20 * time.Minute), noise: 0.03},
		"a way that changes every hour":       {way: wave(2 * time.Hour), noise: 0.03},
		"flickers":                            {way: flickers, noise: 0.03},
		"flickers, noise of 20 %":             {way: flickers, noise: 0.2},
		"flickers, and waves of load":         {way: flickers, noise: 0.03, demand: crests(20 * time.Minute)},
	} {
		if n.demand == nil {
			n.demand = constant(3000 * mbit)
		}
		n.capacity, n.seed = wide, 3
		const from, to = time.Hour, 4 * time.Hour
		without := n.run(t, to)
		n.learn = true
		with := n.run(t, to)
		for i := range linksOf {
			low, high := with.swing(i, from, to)
			lowWithout, highWithout := without.swing(i, from, to)
			if low < lowWithout-0.005 || high > highWithout+0.005 {
				t.Errorf("%s: link %d: share %.4f to %.4f, without learning %.4f to %.4f", name, i, low, high, lowWithout, highWithout)
			}
		}
	}
}

// A service whose load comes in waves, which fill one link at each crest.
func TestLoadInWaves(t *testing.T) {
	for _, noise := range []float64{0.03, 0.2} {
		periods := []time.Duration{20 * time.Second, 2 * time.Minute, 20 * time.Minute, 2 * time.Hour}
		if noise > 0.1 {
			periods = periods[2:]
		}
		for _, period := range periods {
			n := network{demand: crests(period), capacity: narrow, way: usualWay, noise: noise, seed: 4}
			const from, to = 4 * time.Hour, 8 * time.Hour
			without := n.run(t, to)
			n.learn = true
			with := n.run(t, to)
			low, high := with.swing(0, from, to)
			lowWithout, highWithout := without.swing(0, from, to)
			minimum, maximum := with.capacities(0, from, to)
			full, fullWithout := with.fullPart(0, from, to), without.fullPart(0, from, to)
			t.Logf("noise %.0f %%, period %v: share %.4f to %.4f, full %.1f %%; not learned %.4f to %.4f, full %.1f %%; capacity %.0f to %.0f Mbit/s", 100*noise,
				period, low, high, 100*full, lowWithout, highWithout, 100*fullWithout, minimum/mbit, maximum/mbit)
			// At a crest, 85 % to 95 % of the link is 0.057 to 0.063.
			if high > highWithout+2*deadband || low < (0.9-1.5*noise)*0.057 || full > fullWithout {
				t.Errorf("noise %v, period %v: share %.4f to %.4f, without learning %.4f to %.4f", noise, period, low, high, lowWithout, highWithout)
			}
			if maximum > 0 && (minimum < 0.65*200*mbit || maximum > 1.6*200*mbit) {
				t.Errorf("noise %v, period %v: learned %v to %v", noise, period, minimum, maximum)
			}
			if noise < 0.1 && maximum == 0 {
				t.Errorf("period %v: nothing is learned", period)
			}
		}
	}
}

// Once it is known, a crest's shares stand still, but for the trials, which get rare.
func TestSharesOfALearnedLinkStandStill(t *testing.T) {
	const period = 4 * time.Hour
	n := network{demand: crests(period), capacity: narrow, way: usualWay, noise: 0.03, seed: 5, learn: true}
	for hour := range 3 {
		n.seed = uint64(hour)
		c := n.run(t, 8*period)
		const from, to = 7*period + 30*time.Minute, 7*period + 2*time.Hour
		minimum, maximum := c.swing(0, from, to)
		t.Logf("share %.4f to %.4f, full %.2f %% of the time", minimum, maximum, 100*c.fullPart(0, from, to))
		if maximum-minimum > 0.01 || c.fullPart(0, from, to) > 0.01 {
			t.Errorf("between %.4f and %.4f, full %v", minimum, maximum, c.fullPart(0, from, to))
		}
		still := math.Inf(1)
		for at := from; at+20*time.Minute <= to; at += time.Minute {
			minimum, maximum := c.swing(0, at, at+20*time.Minute)
			still = min(still, maximum-minimum)
		}
		if still > 2*deadband {
			t.Errorf("never still for 20 minutes: %.4f", still)
		}
	}
}

// steps feeds a capacity with seconds of one rate and sign.
func steps(c *Capacity, now *time.Time, seconds int, rate, sign float64) (again bool) {
	for range seconds {
		*now = now.Add(time.Second)
		again = c.Step(*now, rate, sign, true) || again
	}
	return again
}

// fill is a time in which a link is full, between others.
func fill(c *Capacity, now *time.Time, capacity float64) {
	steps(c, now, 60, 0.7*capacity, 0)
	steps(c, now, 60, capacity, 2)
	steps(c, now, 10, 0.8*capacity, 1) // averages are late
	steps(c, now, 20, 0.8*capacity, 0)
}

func TestCapacityIsLearnedTwice(t *testing.T) {
	var c Capacity
	now := begin
	fill(&c, &now, 100*mbit)
	if c.Rate() != 0 {
		t.Errorf("learned %v at once", c.Rate())
	}
	fill(&c, &now, 104*mbit)
	if got := c.Rate() / mbit; got < 98 || got > 105 {
		t.Errorf("learned %v Mbit/s", got)
	}
	before := c.Rate()
	steps(&c, &now, 3600, 0.5*before, 0)
	if c.Rate() != before {
		t.Errorf("idle, it went from %v to %v", before, c.Rate())
	}
	steps(&c, &now, 200, 0.9*before, 0)
	if c.Rate() < 1.05*before {
		t.Errorf("in use for long, more is tried: %v after %v", c.Rate(), before)
	}
	steps(&c, &now, 60, before, 2)
	if c.Rate() != before {
		t.Errorf("signs end the trial: %v after %v", c.Rate(), before)
	}
	steps(&c, &now, 60, 0.9*before, 0)
	hold := c.Rate()
	steps(&c, &now, 540, 0.9*before, 0)
	if c.Rate() != hold {
		t.Errorf("after a trial that has failed, the next one is later: %v after %v", c.Rate(), hold)
	}
}

func TestCapacityThatIsPassedIsForgotten(t *testing.T) {
	var c Capacity
	now := begin
	fill(&c, &now, 100*mbit)
	fill(&c, &now, 100*mbit)
	if c.Rate() == 0 {
		t.Fatal("not learned")
	}
	steps(&c, &now, 8, 130*mbit, 0) // a moment proves nothing
	if c.Rate() == 0 {
		t.Error("forgotten too soon")
	}
	steps(&c, &now, 30, 130*mbit, 0)
	if c.Rate() != 0 {
		t.Errorf("%v is kept while 130 Mbit/s pass without a sign", c.Rate())
	}
}

func TestSignsThatStay(t *testing.T) {
	var c Capacity
	now := begin
	steps(&c, &now, 60, 100*mbit, 0)
	if steps(&c, &now, 600, 100*mbit, 2) {
		t.Error("at the same rate nothing is known of the signs")
	}
	if !steps(&c, &now, 60, 50*mbit, 2) || c.Full() && c.Rate() != 0 {
		t.Error("signs that stay while the rate falls are of something else")
	}
}

func TestIdleLinksLearnNothing(t *testing.T) {
	var c Capacity
	now := begin
	for range 100 {
		fill(&c, &now, 0.5*mbit)
	}
	if c.Rate() != 0 {
		t.Errorf("learned %v", c.Rate())
	}
}

// observed is a capacity whose signs are the excess of delays.
type observed struct {
	Capacity
	late Excess
	now  time.Time
}

func (o *observed) run(seconds int, rate, delay float64) {
	for range seconds {
		o.now = o.now.Add(time.Second)
		if o.Step(o.now, rate, o.late.Take(At(o.now, delay), 5*time.Second, 0.0005, o.Full()), true) {
			o.late.Again()
		}
	}
}

// Another agent begins while the link is full: it learns nothing wrong, and the right thing later.
func TestCapacityAfterARestart(t *testing.T) {
	c := observed{now: begin}
	c.run(300, 100*mbit, 0.02) // the queue stands
	c.run(120, 70*mbit, 0.002)
	if c.Full() || c.Rate() != 0 {
		t.Errorf("full %v, learned %v", c.Full(), c.Rate())
	}
	for range 3 {
		c.run(700, 70*mbit, 0.002)
		c.run(120, 100*mbit, 0.02)
		c.run(120, 80*mbit, 0.002)
	}
	if got := c.Rate() / mbit; got < 95 || got > 105 {
		t.Errorf("learned %v Mbit/s", got)
	}
}

// Nothing is concluded while delays are not measured.
func TestCapacityWithoutHandshakes(t *testing.T) {
	var c Capacity
	now := begin
	for range 3 {
		steps(&c, &now, 60, 70*mbit, 0)
		steps(&c, &now, 30, 100*mbit, 2)
		for range 120 {
			now = now.Add(time.Second)
			c.Step(now, 80*mbit, 0, false)
		}
		if c.Full() {
			t.Error("still full without a sign for two minutes")
		}
	}
	if c.Rate() != 0 {
		t.Errorf("learned %v", c.Rate())
	}
}

// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestShares(t *testing.T) {
	delay := &delayView{Samples: 100, SmoothedNs: 2_345_678, Buckets: []uint64{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 60, 30, 9, 1}, SYNRepeated: 2}
	for part, want := range map[float64]time.Duration{0.5: 1024 * time.Microsecond, 0.9: 2048 * time.Microsecond, 0.99: 4096 * time.Microsecond, 1: 8192 * time.Microsecond} {
		if got := delay.below(part); got != want {
			t.Errorf("%v: below %v, want %v", part, got, want)
		}
	}
	for _, c := range []struct {
		share *shareView
		cell  string
		lines []string
	}{
		{nil, "-", []string{"2.35ms (smoothed), median below 1.024ms, 99% below 4.096ms, of 100 handshakes; 2 SYNs repeated"}},
		{&shareView{Share: 0.13, State: "measured", Phi: -0.2, Eta: 0.1, Target: 0.12}, "0.130", []string{"weight 10, share 0.130, measured\n", "φ -0.20, η +0.10, moves to 0.120"}},
		{&shareView{Share: 0.13, State: "partly", Reason: "no cpu", Starting: true}, "0.130 (partly)", []string{"share 0.130, partly, in slow start\n", "no cpu"}},
		{&shareView{Share: 0.1, State: "measured", Link: &linkView{"left", 245_000_000, 600_000_000, true, true}}, "0.100",
			[]string{"Link:       left carries 245 Mbit/s of 600 Mbit/s (learned), 41 %; it looks full\n"}},
		{&shareView{Share: 0.1, State: "measured", Link: &linkView{Name: "10.1.0.21", Carries: 1500, Capacity: 10_000_000_000}}, "0.100",
			[]string{"10.1.0.21 carries 1.5 kbit/s of 10 Gbit/s (configured), 0 %\n"}},
		{&shareView{Share: 0.1, State: "measured", Link: &linkView{Name: "left", Learned: true}}, "0.100", []string{"left carries 0 bit/s, its capacity is not learned yet\n"}},
		{&shareView{State: "measured"}, "-", []string{"weight 10 is used: no share is set in the forwarder"}},
	} {
		var out bytes.Buffer
		a := &app{out: &out}
		a.printShare(serverView{Weight: 10, Share: c.share, Delay: delay})
		for _, line := range c.lines {
			if !strings.Contains(out.String(), line) {
				t.Errorf("no %q in %q", line, out.String())
			}
		}
		if got := c.share.summary().text; got != c.cell {
			t.Errorf("%q, want %q", got, c.cell)
		}
	}
	text := (&feedbackView{Policy: "capability", Gamma: 0.5, Minimum: 5, SettleMs: 30000, LinkCapacity: 600}).text()
	if !strings.Contains(text, "settles in 30s, links of 600 bit/s\nthe forwarder uses weights") {
		t.Error(text)
	}
	if text := (&feedbackView{Policy: "capability", Learns: true}).text(); !strings.Contains(text, "capacities of links are learned") {
		t.Error(text)
	}
	table := serverTable([]serverView{{Address: "10.1.0.21", Share: &shareView{Share: 0.5, State: "measured"}, Delay: delay}, {Address: "10.1.0.22"}})
	var out bytes.Buffer
	(&app{out: &out}).print(table)
	if !strings.Contains(out.String(), "SHARE") || !strings.Contains(out.String(), "0.500") || !strings.Contains(out.String(), "2.35ms") {
		t.Error(out.String())
	}
}

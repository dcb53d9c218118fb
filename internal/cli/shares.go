// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"math"
	"strings"
	"time"

	"steelyard/internal/dpclient"
	pb "steelyard/internal/gen/agentpb"
)

// shareView is a server's measured share of new sessions.
type shareView struct {
	Share    float64   `json:"share"`          // in use by the forwarder, 0 to 1; 0: the weight is in use
	Computed float64   `json:"computed"`       // by the agent
	Target   float64   `json:"target"`         // the value that it converges to
	State    string    `json:"state"`          // "measured", "partly", "blind", "set-aside" or "out"
	Reason   string    `json:"reason"`         // which measurement is missing or old, or what delays it
	Phi      float64   `json:"phi"`            // offset of its network capability from the mean
	Eta      float64   `json:"eta"`            // … of its compute capability
	Starting bool      `json:"starting"`       // slow start
	Link     *linkView `json:"link,omitempty"` // absent: the link's use does not influence the share
}

// linkView is the link to a server, whose use influences the share.
type linkView struct {
	Name     string `json:"name"`
	Carries  uint64 `json:"carries"`  // bits/s, in the busier direction
	Capacity uint64 `json:"capacity"` // bits/s; 0: not learned yet
	Learned  bool   `json:"learned"`  // the capacity is or will be learned; otherwise configured
	Full     bool   `json:"full"`     // learned: delay or loss show that the link is full
}

// delayView has the delay of a server's answers to SYNs, measured by the forwarder.
type delayView struct {
	Samples     uint64   `json:"samples"`
	SumNs       uint64   `json:"sum_ns"`
	SmoothedNs  uint64   `json:"smoothed_ns"`
	Buckets     []uint64 `json:"buckets"` // bucket i: below 2^i µs and not in one before
	SYNRepeated uint64   `json:"syn_repeated"`
	Segments    uint64   `json:"segments"` // of the sampled sessions
	Lost        uint64   `json:"segments_lost"`
}

type feedbackView struct {
	Policy       string  `json:"policy"`
	Gamma        float64 `json:"gamma"`
	Minimum      uint32  `json:"minimum_percent"`
	SettleMs     uint64  `json:"settle_ms"`
	LinkCapacity uint64  `json:"link_capacity"` // bits/s; 0: unknown, or learned
	Learns       bool    `json:"learns_capacity"`
	Warning      string  `json:"warning"`
	ComputedMs   uint64  `json:"computed_unix_ms"` // 0: not yet
	ValidS       uint32  `json:"valid_s"`          // the forwarder uses the shares for this time; 0: it uses weights
}

func viewShare(s *pb.ShareState) *shareView {
	if s == nil {
		return nil
	}
	view := &shareView{s.GetShare(), s.GetComputed(), s.GetTarget(), s.GetState(), s.GetReason(), s.GetPhi(), s.GetEta(), s.GetStarting(), nil}
	if l := s.GetLink(); l != nil {
		view.Link = &linkView{l.GetName(), l.GetCarries(), l.GetCapacity(), l.GetLearned(), l.GetFull()}
	}
	return view
}

// bitRate formats a rate with four digits at most.
func bitRate(bits uint64) string {
	for _, unit := range []struct {
		of   uint64
		name string
	}{{1e9, "Gbit/s"}, {1e6, "Mbit/s"}, {1e3, "kbit/s"}} {
		if bits >= unit.of {
			return fmt.Sprintf("%.4g %s", float64(bits)/float64(unit.of), unit.name)
		}
	}
	return fmt.Sprintf("%d bit/s", bits)
}

func (l *linkView) text() string {
	text := l.Name + " carries " + bitRate(l.Carries)
	switch {
	case l.Capacity > 0:
		how := "configured"
		if l.Learned {
			how = "learned"
		}
		text += fmt.Sprintf(" of %s (%s), %.0f %%", bitRate(l.Capacity), how, 100*float64(l.Carries)/float64(l.Capacity))
	default:
		text += ", its capacity is not learned yet"
	}
	if l.Full {
		text += "; it looks full"
	}
	return text
}

func viewDelay(d *dpclient.DelayStats) *delayView {
	if d == nil {
		return nil
	}
	return &delayView{d.GetSamples(), d.GetSumNs(), d.GetSmoothedNs(), append([]uint64{}, d.GetBuckets()...), d.GetSynRepeated(), d.GetSegments(), d.GetSegmentsLost()}
}

func viewFeedback(f *pb.FeedbackState) *feedbackView {
	if f == nil {
		return nil
	}
	return &feedbackView{f.GetPolicy(), f.GetGamma(), f.GetMinimumPercent(), f.GetSettleMs(), f.GetLinkCapacity(), f.GetLearnsCapacity(), f.GetWarning(), f.GetComputedUnixMs(), f.GetValidS()}
}

// below returns the upper bound of the bucket with the given quantile of delays, or 0.
func (d *delayView) below(part float64) time.Duration {
	left := uint64(math.Ceil(part * float64(d.Samples)))
	for i, count := range d.Buckets {
		if count >= left {
			return time.Duration(1<<i) * time.Microsecond
		}
		left -= count
	}
	return 0
}

func (d *delayView) text() string {
	text := "no handshake measured"
	if d.Samples > 0 {
		text = fmt.Sprintf("%s (smoothed), median below %s, 99%% below %s, of %d handshakes", shortTime(d.SmoothedNs), d.below(0.5), d.below(0.99), d.Samples)
	}
	if d.SYNRepeated > 0 {
		text += fmt.Sprintf("; %s repeated", plural(int(d.SYNRepeated), "SYN"))
	}
	if d.Segments > 0 {
		text += fmt.Sprintf("; %d of %s lost", d.Lost, plural(int(d.Segments), "watched segment"))
	}
	return text
}

func shortTime(ns uint64) string {
	d := time.Duration(ns)
	switch {
	case d >= 10*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	case d >= 100*time.Microsecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Microsecond).String()
}

// summary returns the share in use, and marks one with incomplete measurements.
func (s *shareView) summary() cell {
	switch {
	case s == nil || s.Share == 0:
		return cell{"-", dim}
	case s.State == "measured":
		return cell{text: fmt.Sprintf("%.3f", s.Share)}
	}
	return cell{fmt.Sprintf("%.3f (%s)", s.Share, s.State), yellow}
}

func (a *app) printShare(s serverView) {
	if d := s.Delay; d != nil {
		a.pair("Delay", "answers to SYNs: "+d.text())
	}
	if s.Share == nil {
		return
	}
	text := fmt.Sprintf("weight %d, share %.3f", s.Weight, s.Share.Share)
	if s.Share.Share == 0 {
		text = fmt.Sprintf("weight %d is used: no share is set in the forwarder", s.Weight)
	}
	if s.Share.State != "" {
		text += ", " + s.Share.State
	}
	if s.Share.Starting {
		text += ", in slow start"
	}
	a.pair("Share", text)
	if s.Share.State != "" {
		a.pair("", fmt.Sprintf("φ %+.2f, η %+.2f, moves to %.3f", s.Share.Phi, s.Share.Eta, s.Share.Target))
	}
	if s.Share.Link != nil {
		a.pair("Link", s.Share.Link.text())
	}
	if s.Share.Reason != "" {
		a.pair("", a.paint(cell{s.Share.Reason, yellow}))
	}
}

func (f *feedbackView) text() string {
	parts := []string{f.Policy, fmt.Sprintf("gamma %g", f.Gamma), fmt.Sprintf("minimum %d%%", f.Minimum),
		"settles in " + (time.Duration(f.SettleMs) * time.Millisecond).String()}
	if f.Learns {
		parts = append(parts, "capacities of links are learned")
	}
	if f.LinkCapacity > 0 {
		parts = append(parts, fmt.Sprintf("links of %d bit/s", f.LinkCapacity))
	}
	text := strings.Join(parts, ", ")
	if f.ValidS == 0 {
		return text + "\nthe forwarder uses weights: no shares are set in it"
	}
	return text + fmt.Sprintf("\nthe forwarder uses shares, for another %d s without new ones", f.ValidS)
}

// anyServer reports whether has returns true for a server.
func anyServer(servers []serverView, has func(serverView) bool) bool {
	for _, s := range servers {
		if has(s) {
			return true
		}
	}
	return false
}

// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"time"
)

// FeedbackPolicy selects the measurements from which the servers' shares of new sessions are computed.
type FeedbackPolicy uint8

// The policies.
const (
	FeedbackOff        FeedbackPolicy = iota // none: shares by weight
	FeedbackCapability                       // free capacity of links and servers
	FeedbackLatency                          // response times: shares that minimize their mean
)

// FeedbackPolicies lists all policies.
var FeedbackPolicies = []FeedbackPolicy{FeedbackCapability, FeedbackLatency, FeedbackOff}

func (p FeedbackPolicy) String() string {
	return [...]string{"none", "capability", "latency"}[p]
}

// LearnCapacity is the word for a capacity of links that is learned.
const LearnCapacity = "learn"

// Feedback configures how the shares of a service's servers follow measurements; comparable.
type Feedback struct {
	Policy   FeedbackPolicy
	Gamma    float64       // weight of the network in a capability, 0 to 1; the rest is the server's
	Minimum  int           // minimum share of a server, percent of the even share
	Settle   time.Duration // time constant of shares
	Capacity uint64        // of each link to servers, bits/s; 0: unknown, unless Learn
	Learn    bool          // the capacity of links is learned
}

func (f Feedback) words() []setting {
	if f.Policy == FeedbackOff {
		return nil
	}
	capacity := numberText64(f.Capacity)
	if f.Learn {
		capacity = LearnCapacity
	}
	return []setting{{"policy", f.Policy.String()}, {"gamma", fmt.Sprint(f.Gamma)}, {"minimum", fmt.Sprintf("%d%%", f.Minimum)},
		{"settle", durationText(f.Settle)}, {"link_capacity", capacity}}
}

func numberText64(n uint64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// FollowsShares reports whether the scheduler follows weights, and so measured shares.
func (s Scheduler) FollowsShares() bool {
	return s != RR && s != LC
}

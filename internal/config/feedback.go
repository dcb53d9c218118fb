// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"time"

	"steelyard/internal/model"

	"go.yaml.in/yaml/v4"
)

// Shares that follow measurements.

type rawFeedback struct {
	at       position
	path     string
	policy   value[model.FeedbackPolicy]
	gamma    value[float64]
	minimum  value[int]
	settle   value[time.Duration]
	capacity value[linkCapacity]
}

// linkCapacity is a number of bits/s, or `learn`.
type linkCapacity struct {
	bits  uint64
	learn bool
}

func parseLinkCapacity(text string) (linkCapacity, error) {
	if text == model.LearnCapacity {
		return linkCapacity{learn: true}, nil
	}
	bits, err := parseRate(model.LimitBits)(text)
	if err != nil {
		err = fmt.Errorf("%w, or `%s`", err, model.LearnCapacity)
	}
	return linkCapacity{bits: bits}, err
}

var defaultFeedback = model.Feedback{Policy: model.FeedbackCapability, Gamma: 0.5, Minimum: 5, Settle: 30 * time.Second}

func parseGamma(text string) (float64, error) {
	gamma, err := parseFloat(text)
	if err != nil || !(gamma >= 0 && gamma <= 1) {
		return 0, fmt.Errorf("%q is not a number from 0 to 1: 0.5 weighs network and servers equally", text)
	}
	return gamma, checkDecimal(text)
}

func parseMinimum(text string) (int, error) {
	percent, err := parsePercent(100)(text)
	if err == nil && percent == 0 {
		err = fmt.Errorf("with 0%% a server could never show that it has recovered: use 1%% to 100%%")
	}
	return percent, err
}

var feedbackFields = []field[rawFeedback]{
	scalar(fieldDoc{name: "policy", kind: "capability, latency or none", def: defaultFeedback.Policy.String(),
		doc: "`capability`: shares follow the free capacity of links (delay, loss, use) and of servers (load). `latency`: shares move until one more session would add the same to the " +
			"mean response time at each server; it needs `http` health checks, whose duration is the response time. `none`: weights."},
		func(f *rawFeedback) *value[model.FeedbackPolicy] { return &f.policy }, parseWord(model.FeedbackPolicies...)),
	scalar(fieldDoc{name: "gamma", kind: "number, 0 to 1", def: fmt.Sprint(defaultFeedback.Gamma),
		doc: "capability: the weight of the network in a server's offset from the mean; the rest is the weight of its load."},
		func(f *rawFeedback) *value[float64] { return &f.gamma }, parseGamma),
	scalar(fieldDoc{name: "minimum", kind: "percentage, 1% to 100%", def: fmt.Sprintf("%d%%", defaultFeedback.Minimum),
		doc: "The minimum share of a server that is up, relative to the share by its weight alone. An overloaded server keeps it, because without sessions its recovery could not be measured."},
		func(f *rawFeedback) *value[int] { return &f.minimum }, parseMinimum),
	scalar(fieldDoc{name: "settle", kind: "duration, 2s to 1h", def: defaultFeedback.Settle.String(),
		doc: "The time constant with which shares follow the measurements. Measurements are averaged over a sixth of it, and at most over 5 s. Below four times " +
			"the total delay of load sources and averages, shares overshoot."},
		func(f *rawFeedback) *value[time.Duration] { return &f.settle }, parseDuration(2*time.Second, time.Hour)),
	scalar(fieldDoc{name: "link_capacity", kind: "bits per second, such as 600M, or learn",
		doc: "The capacity of each link to servers. A link's use is the traffic of its servers in the busier direction, through this forwarder and in services with `feedback`; servers with the same `link` share one. " +
			"`learn`: the capacity is the traffic that a link carried while delay and loss of TCP showed that it was full; until this was observed twice, the link's use counts as the mean. Without a capacity the use of links is ignored."},
		func(f *rawFeedback) *value[linkCapacity] { return &f.capacity }, parseLinkCapacity),
}

var feedbackObject = docsOf("feedback", "Servers' shares of new sessions follow measurements: the delay of answers to SYNs, and the loss of SYNs and of the segments "+
	"of a few sessions, both observed in forwarded traffic; the use of links; and the load of servers (`load`). Where no answers to SYNs pass (`dr`, `ipip`, UDP, no traffic for 10 s), `tcp` health checks measure the delay, "+
	"and so do the connections of `http` checks. The agent computes the shares each second (docs/design/0043-shares.md). A missing or old measurement counts as the mean, and "+
	"without any measurement shares are the weights.", feedbackFields)

var feedbackField = field[rawService]{fieldDoc{name: "feedback", kind: "mapping", object: feedbackObject,
	doc: "Measured shares instead of weights, with the scheduler `share`, `wrr`, `wlc`, `sed`, `sh`, `maglev`, `conhash` or `p2c`."},
	func(d *decoder, n *yaml.Node, path string, into *rawService) {
		into.feedback.at, into.feedback.path = positionOf(n), path
		readObject(d, n, path, feedbackFields, &into.feedback)
	}}

var serverLinkField = scalar(fieldDoc{name: "link", kind: "name",
	doc: "The name of the link in front of the server. For `feedback`, a link's use is the sum over the servers that name it, in all services with `feedback`."},
	func(s *rawServer) *value[string] { return &s.link }, parseName)

// checkLink rejects a link that no feedback uses.
func (b *builder) checkLink(raw *rawService, s *rawServer) {
	if s.link.set && raw.feedback.at == (position{}) {
		b.fail(s.link.at, s.link.path, "only `feedback` uses this, and the service has none: add `feedback`, or remove this line")
	}
}

func (b *builder) feedback(raw *rawService, service *model.Service) model.Feedback {
	own := &raw.feedback
	if own.at == (position{}) {
		return model.Feedback{}
	}
	fail := func(format string, args ...any) { b.fail(own.at, own.path, format, args...) }
	feedback := model.Feedback{
		Policy: own.policy.or(defaultFeedback.Policy), Gamma: own.gamma.or(defaultFeedback.Gamma), Minimum: own.minimum.or(defaultFeedback.Minimum),
		Settle: own.settle.or(defaultFeedback.Settle), Capacity: own.capacity.v.bits, Learn: own.capacity.v.learn,
	}
	if feedback.Policy == model.FeedbackOff {
		return model.Feedback{}
	}
	if !service.Policy.Scheduler.FollowsShares() {
		fail("%s ignores weights and measured shares: use the scheduler share or another one by weight, or remove this", service.Policy.Scheduler)
	}
	if service.Policy.SloppyTCP {
		fail("with `sloppy_tcp` all forwarders must choose the same server, and each measures its own shares: remove one")
	}
	if mode := service.Mode; feedback.Learn && (mode == model.DR || mode == model.IPIP) {
		fail("with mode %s, answers do not pass the forwarder, so the capacity of links cannot be learned: set it to a number", mode)
	}
	if feedback.Policy == model.FeedbackLatency && service.Health.Type != model.HealthHTTP {
		fail("the response time is measured by `http` health checks: use these, or `policy: capability`")
	}
	return feedback
}

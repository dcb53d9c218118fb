// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
	"time"

	"steelyard/internal/model"
)

func feedbackFile(service, feedback, server string) []byte {
	return []byte("version: 1\nlocal_addresses: [10.1.0.10]\nservices:\n  - name: web\n    vip: 10.0.0.80\n    port: 80\n    " + service +
		"\n    feedback: " + feedback + "\n    servers: [{ address: 10.1.0.21, port: 80" + server + " }]\n")
}

func TestFeedback(t *testing.T) {
	const share = "scheduler: share"
	for _, c := range []struct {
		service, feedback string
		want              model.Feedback
	}{
		{share, "{}", model.Feedback{Policy: model.FeedbackCapability, Gamma: 0.5, Minimum: 5, Settle: 30 * time.Second}},
		{"scheduler: rr", "{ policy: none }", model.Feedback{}},
		{share, "{ gamma: 0, minimum: 20%, settle: 10s, link_capacity: 600M }",
			model.Feedback{Policy: model.FeedbackCapability, Gamma: 0, Minimum: 20, Settle: 10 * time.Second, Capacity: 600_000_000}},
		{share, "{ link_capacity: learn }", model.Feedback{Policy: model.FeedbackCapability, Gamma: 0.5, Minimum: 5, Settle: 30 * time.Second, Learn: true}},
		{"health: { type: http }", "{ policy: latency }", model.Feedback{Policy: model.FeedbackLatency, Gamma: 0.5, Minimum: 5, Settle: 30 * time.Second}},
	} {
		config, err := Parse("steelyard.yaml", feedbackFile(c.service, c.feedback, ", link: left"))
		if err != nil {
			t.Errorf("%s: %v", c.feedback, err)
			continue
		}
		if got := config.Services[0]; got.Feedback != c.want || got.Servers[0].Link != "left" {
			t.Errorf("%s: %+v", c.feedback, got.Feedback)
		}
	}
	for _, c := range []struct{ service, feedback, want string }{
		{"scheduler: rr", "{}", "rr ignores weights"},
		{"scheduler: lc", "{}", "lc ignores weights"},
		{share, "{ policy: latency }", "measured by `http` health checks"},
		{"mode: dr\n    scheduler: maglev\n    sloppy_tcp: true", "{}", "all forwarders must choose the same server"},
		{share, "{ gamma: 1.5 }", "not a number from 0 to 1"},
		{share, "{ gamma: NaN }", "not a number from 0 to 1"},
		{share, "{ minimum: 0% }", "could never show that it has recovered"},
		{share, "{ settle: 1s }", "out of range"},
		{share, "{ link_capacity: fast }", "or `learn`"},
		{"mode: dr\n    scheduler: share", "{ link_capacity: learn }", "set it to a number"},
		{"mode: ipip\n    scheduler: share", "{ link_capacity: learn }", "set it to a number"},
		{share, "{ policy: fair }", "is unknown: use capability, latency or none"},
	} {
		_, err := Parse("steelyard.yaml", feedbackFile(c.service, c.feedback, ""))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.feedback, err)
		}
	}
}

func TestLinkWithoutFeedback(t *testing.T) {
	file := strings.Replace(string(feedbackFile("scheduler: share", "{}", ", link: left")), "    feedback: {}\n", "", 1)
	_, err := Parse("steelyard.yaml", []byte(file))
	if err == nil || !strings.Contains(err.Error(), "steelyard.yaml:8:") || !strings.Contains(err.Error(), "only `feedback` uses this") {
		t.Errorf("%v", err)
	}
}

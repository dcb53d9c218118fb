// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"steelyard/internal/model"
)

func exampleConfig(withdrawAfter time.Duration) *model.Config {
	key := func(vip string, port uint16) model.ServiceKey {
		return model.ServiceKey{Protocol: model.TCP, VIP: netip.MustParseAddr(vip), Port: port}
	}
	return &model.Config{
		LocalAddresses: []netip.Addr{netip.MustParseAddr("10.1.0.200"), netip.MustParseAddr("fd00:1::200")},
		PeerLocals:     []netip.Addr{netip.MustParseAddr("10.1.0.201")},
		Services:       []model.Service{{Key: key("10.0.0.80", 80)}, {Key: key("10.0.0.80", 443)}, {Key: key("fd00::80", 80)}},
		SNAT:           []model.SNAT{{Pool: []netip.Addr{netip.MustParseAddr("10.0.0.90")}}},
		Routes:         model.Routes{Announce: model.RouteKinds, WithdrawAfter: withdrawAfter},
	}
}

// text returns the prefixes, + after those of other nodes, each withdrawn one with its reason.
func text(states []State) string {
	var words []string
	for i := range states {
		word := states[i].Prefix.String()
		if states[i].Remote {
			word += "+"
		}
		if !states[i].Announced() {
			word += "(" + states[i].Reason + ")"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func TestDecisions(t *testing.T) {
	config := exampleConfig(0)
	lacking := func(indexes ...int) map[model.ServiceKey]bool {
		keys := map[model.ServiceKey]bool{}
		for _, i := range indexes {
			keys[config.Services[i].Key] = true
		}
		return keys
	}
	const none, rest = "(no server of its services is healthy)", " 10.1.0.200/32 fd00:1::200/128 10.1.0.201/32+ 10.0.0.90/32"
	for _, test := range []struct {
		assessment Assessment
		want       string
	}{
		{Assessment{}, "10.0.0.80/32 fd00::80/128" + rest},
		{Assessment{Lacking: lacking(0)}, "10.0.0.80/32 fd00::80/128" + rest}, // its other service serves
		{Assessment{Lacking: lacking(1)}, "10.0.0.80/32 fd00::80/128" + rest},
		{Assessment{Lacking: lacking(0, 1)}, "10.0.0.80/32" + none + " fd00::80/128" + rest},
		{Assessment{Lacking: lacking(2)}, "10.0.0.80/32 fd00::80/128" + none + rest},
		{Assessment{Fault: "x"}, "10.0.0.80/32(x) fd00::80/128(x) 10.1.0.200/32(x) fd00:1::200/128(x) 10.1.0.201/32+(x) 10.0.0.90/32(x)"},
	} {
		if got := text(decide(config, test.assessment)); got != test.want {
			t.Errorf("%+v: %s", test.assessment, got)
		}
	}
	config.Routes.Announce = []model.RouteKind{model.RoutePool, model.RouteVIP}
	if got := text(decide(config, Assessment{})); got != "10.0.0.90/32 10.0.0.80/32 fd00::80/128" {
		t.Errorf("some kinds: %s", got)
	}
}

// bench is a manager without a kernel.
type bench struct {
	*Manager
	config  *model.Config
	drained bool
	next    Assessment
}

func newBench(withdrawAfter time.Duration) *bench {
	b := &bench{config: exampleConfig(withdrawAfter)}
	b.Manager = New(Options{Config: func() *model.Config { return b.config }, Drained: func() bool { return b.drained },
		Assess: func(context.Context, time.Duration) Assessment { return b.next }, Log: slog.New(slog.DiscardHandler)})
	return b
}

// announces returns whether addresses are announced after another assessment; known: whether a decision was made.
func (b *bench) announces(t *testing.T) (announced, known bool) {
	assessment, known := b.assess(t.Context(), b.config.Routes.WithdrawAfter)
	return known && assessment.Fault == "", known
}

func TestARestartingForwarderKeepsItsRoutes(t *testing.T) {
	b := newBench(time.Hour)
	expect := func(what string, wantAnnounced, wantKnown bool) {
		t.Helper()
		if announced, known := b.announces(t); announced != wantAnnounced || known != wantKnown {
			t.Errorf("%s: announced %v, known %v", what, announced, known)
		}
	}
	silent := Assessment{Silent: true, Fault: "the forwarder does not answer"}
	b.next = silent
	expect("before the first answer an earlier agent's routes stay", false, false)
	b.next = Assessment{Pending: true}
	expect("before the agent knows the servers", false, false)
	b.next = Assessment{}
	expect("it serves", true, true)
	b.next = silent
	expect("it may be restarting", true, true)
	b.silent = time.Now().Add(-2 * time.Hour)
	expect("it does not return", false, true)
	b.silent = time.Time{}
	expect("the decision stays", false, true)
	b.next = Assessment{}
	expect("it is back", true, true)
	b.next = Assessment{Fault: "a port is down"}
	expect("faults of a forwarder that answers decide at once", false, true)
	b.next, b.drained = Assessment{}, true
	expect("it is drained", false, true)
}

func TestRoutesStayWhileTheConfigurationIsInvalid(t *testing.T) {
	b := newBench(time.Hour)
	config := b.config
	b.config = nil
	b.look(t.Context())
	if b.states != nil || b.pause() != lookEvery {
		t.Errorf("without a configuration: %v", b.states)
	}
	b.config = config
	b.look(t.Context())
	before := text(b.states)
	b.config = nil
	b.look(t.Context())
	if got := text(b.states); got != before || before == "" {
		t.Errorf("it became invalid: %s", got)
	}
	b.drained = true
	if b.look(t.Context()); len(b.states) != 0 {
		t.Errorf("drained: %v", b.states)
	}
}

func TestAForwarderThatIsGoneAtTheStartIsWithdrawn(t *testing.T) {
	b := newBench(0)
	b.next = Assessment{Silent: true, Fault: "gone"}
	if announced, known := b.announces(t); announced || !known {
		t.Errorf("announced %v, known %v", announced, known)
	}
}

func TestLogAndCounts(t *testing.T) {
	b := newBench(0)
	b.note(decide(b.config, Assessment{}), nil)
	since := b.Status().States[0].Since
	b.note(decide(b.config, Assessment{}), nil)
	if status := b.Status(); status.States[0].Since != since || status.Withdrawn != 0 {
		t.Errorf("%+v", status)
	}
	b.note(decide(b.config, Assessment{Fault: "x"}), nil)
	if status := b.Status(); status.States[0].Since == since || status.Withdrawn != 6 {
		t.Errorf("%+v", status)
	}
}

func TestForeignMessagesAreIgnored(t *testing.T) {
	for _, message := range [][]byte{nil, make([]byte, 11), make([]byte, 12), make([]byte, 40)} {
		if route, ok := parseRoute(message); ok {
			t.Errorf("%v: %v", message, route)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"time"

	"steelyard/internal/model"
)

// How new sessions are distributed.

type rawPersistence struct {
	at      position
	timeout value[uint32]
	prefix4 value[int]
	prefix6 value[int]
}

// Defaults of persistence.
const (
	defaultPrefix4 = 32
	defaultPrefix6 = 128
)

var persistenceFields = []field[rawPersistence]{
	scalar(fieldDoc{name: "timeout", kind: "duration of whole seconds, 1s to 9h", required: true,
		doc: "A prefix is forgotten so long after the last session that began."},
		func(p *rawPersistence) *value[uint32] { return &p.timeout }, parseTimeout),
	scalar(fieldDoc{name: "prefix4", kind: "number, 1 to 32", def: fmt.Sprint(defaultPrefix4),
		doc: "IPv4 clients whose first so many bits are equal go together."},
		func(p *rawPersistence) *value[int] { return &p.prefix4 }, parseNumber(1, 32)),
	scalar(fieldDoc{name: "prefix6", kind: "number, 1 to 128", def: fmt.Sprint(defaultPrefix6),
		doc: "The same for IPv6; 64 is what most clients share with their household."},
		func(p *rawPersistence) *value[int] { return &p.prefix6 }, parseNumber(1, 128)),
}

var persistenceObject = docsOf("persistence", "New sessions of one client prefix go to one server, whatever the "+
	"scheduler, as long as that server takes new sessions: it is up, not drained, of a weight above 0, and not full.",
	persistenceFields)

var (
	parseScheduler = parseWord(model.Schedulers...)
	schedulerKind  = "rr, wrr, lc, wlc, sed, sh, maglev or conhash"
	schedulerDoc   = "Who gets a new session: `rr` each in turn, `wrr` in turn by weight, smoothly interleaved; `lc` whoever " +
		"has the fewest sessions, `wlc` by weight, `sed` by weight and with the new one counted; by the client's hash `sh`, " +
		"`maglev` and `conhash`. docs/schedulers.md says which one when."
)

const (
	maxSlowStart = time.Hour
	maxSessions  = 1<<31 - 1
)

func parseSlowStart(text string) (uint32, error) {
	d, err := parseDuration(time.Second, maxSlowStart)(text)
	if err == nil && d%time.Second != 0 {
		return 0, fmt.Errorf("%s is not in whole seconds: use %s", text, d.Round(time.Second))
	}
	return uint32(d / time.Second), err
}

func parseMaxSessions(text string) (uint32, error) {
	n, err := parseNumber(1, maxSessions)(text)
	return uint32(n), err
}

func (b *builder) policy(raw *rawService, protocol model.Protocol) model.Policy {
	policy := model.Policy{
		Scheduler:   raw.scheduler.over(b.raw.defaults.scheduler).or(defaultScheduler),
		SlowStart:   raw.slowStart.v,
		OnePacket:   raw.onePacket.v,
		SloppyTCP:   raw.sloppyTCP.v,
		MaxSessions: raw.maxSessions.v,

		ClientAddress: raw.client.v,
		Resets:        b.resets(raw, protocol),
	}
	if policy.Scheduler.Hashes() {
		policy.HashOn = raw.hashOn.or(model.HashSource)
	} else if raw.hashOn.set {
		b.fail(raw.hashOn.at, raw.hashOn.path, "%s does not hash: use the scheduler sh, maglev or conhash, or remove this line",
			policy.Scheduler)
	}
	if policy.OnePacket && protocol != model.UDP {
		b.fail(raw.onePacket.at, raw.onePacket.path, "only datagrams can be scheduled one by one: use `protocol: udp`, or remove this line")
	}
	if policy.OnePacket && raw.mode.or(model.FNAT) != model.FNAT {
		b.fail(raw.onePacket.at, raw.onePacket.path, "only fnat can tell the answers to single datagrams apart: use `mode: fnat`, or remove this line")
	}
	if policy.ClientAddress != 0 && (protocol != model.TCP || raw.mode.or(model.FNAT) != model.FNAT) {
		b.fail(raw.client.at, raw.client.path, "it tells TCP servers under fnat who their client is: use `protocol: tcp` and `mode: fnat`, or remove this line")
	}
	if p := &raw.persistence; p.at != (position{}) {
		policy.Persistence = model.Persistence{
			Timeout: p.timeout.v,
			Prefix4: uint8(p.prefix4.or(defaultPrefix4)), Prefix6: uint8(p.prefix6.or(defaultPrefix6)),
		}
		if policy.OnePacket {
			b.fail(p.at, raw.path+".persistence", "it keeps a client's datagrams together, `one_packet` spreads them: remove one")
		}
	}
	if policy.SloppyTCP {
		b.sloppyTCP(raw, protocol, policy)
	}
	return policy
}

// sloppyTCP refuses settings that would let two forwarders choose different servers for one connection.
func (b *builder) sloppyTCP(raw *rawService, protocol model.Protocol, policy model.Policy) {
	fail := func(format string, args ...any) { b.fail(raw.sloppyTCP.at, raw.sloppyTCP.path, format, args...) }
	mode := raw.mode.or(model.FNAT)
	switch {
	case protocol != model.TCP:
		fail("only TCP packets can be without a session: use `protocol: tcp`, or remove this line")
	case mode != model.DR && mode != model.IPIP:
		fail("%s translates by what only the connection's own session knows: use `mode: dr` or `mode: ipip`, or remove this line", mode)
	case policy.Scheduler != model.Maglev && policy.Scheduler != model.ConHash:
		fail("%s does not choose the same server everywhere: use the scheduler maglev or conhash, or remove this line", policy.Scheduler)
	case policy.Persistence.Timeout != 0:
		fail("it finds the server by hash alone, `persistence` by what one forwarder remembers: remove one")
	case policy.SlowStart != 0:
		fail("it finds the server by hash alone, `slow_start` changes the hash by when one forwarder saw a server come up: remove one")
	}
	for _, server := range raw.servers {
		if server.maxSessions.v != 0 {
			b.fail(server.maxSessions.at, server.maxSessions.path,
				"sends a full server's sessions elsewhere, where `sloppy_tcp` does not look for them: remove one")
		}
	}
}

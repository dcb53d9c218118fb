// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"time"

	"steelyard/internal/model"
)

// The distribution of new sessions.

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
		doc: "The entry of a prefix expires this long after its last new session."},
		func(p *rawPersistence) *value[uint32] { return &p.timeout }, parseTimeout),
	scalar(fieldDoc{name: "prefix4", kind: "number, 1 to 32", def: fmt.Sprint(defaultPrefix4),
		doc: "The prefix length of IPv4 clients: those with the same prefix go to the same server."},
		func(p *rawPersistence) *value[int] { return &p.prefix4 }, parseNumber(1, 32)),
	scalar(fieldDoc{name: "prefix6", kind: "number, 1 to 128", def: fmt.Sprint(defaultPrefix6),
		doc: "The prefix length of IPv6 clients; one site usually has a /64."},
		func(p *rawPersistence) *value[int] { return &p.prefix6 }, parseNumber(1, 128)),
}

var persistenceObject = docsOf("persistence", "All new sessions of one client prefix go to the same server, with every "+
	"scheduler, while that server is up, is not drained, has a weight above 0 and is not full.",
	persistenceFields)

var (
	parseScheduler = parseWord(model.Schedulers...)
	schedulerKind  = "rr, wrr, lc, wlc, sed, sh, maglev, conhash, share or p2c"
	schedulerDoc   = "How the server of a new session is selected. `rr`: round robin; `wrr`: round robin by weight, smoothly interleaved; `lc`: the server with the " +
		"fewest sessions; `wlc`: the fewest sessions by weight; `sed`: as `wlc`, with the new session counted; `sh`, `maglev`, `conhash`: by a " +
		"hash of the client; `share`: at random, by weight or measured share; `p2c`: of two random ones by weight, the one with the smaller product of sessions and delay of answers to SYNs. docs/schedulers.md compares them."
)

const (
	maxSlowStart = time.Hour
	maxSessions  = 1<<31 - 1
)

func parseWholeSeconds(high time.Duration) func(string) (uint32, error) {
	parse := parseDuration(time.Second, high)
	return func(text string) (uint32, error) {
		d, err := parse(text)
		if err == nil && d%time.Second != 0 {
			return 0, fmt.Errorf("%s is not in whole seconds: use %s", text, d.Round(time.Second))
		}
		return uint32(d / time.Second), err
	}
}

func parseMaxSessions(text string) (uint32, error) {
	n, err := parseNumber(1, maxSessions)(text)
	return uint32(n), err
}

// The forwarder's limits of client_limits.
const (
	maxClientRate     = 10_000
	maxClientBurst    = 100_000
	maxClientSessions = 1_000_000
)

type rawClientLimits struct {
	newPerSecond, burst, sessions value[int]
}

var clientLimitsFields = []field[rawClientLimits]{
	scalar(fieldDoc{name: "new_per_second", kind: "number, 1 to 10000",
		doc: "New sessions per second of a client (an IPv4 address, or an IPv6 network of /64) on average. Packets that would begin more are dropped as " +
			"`client-rate`. All workers share the limit."},
		func(l *rawClientLimits) *value[int] { return &l.newPerSecond }, parseNumber(1, maxClientRate)),
	scalar(fieldDoc{name: "burst", kind: "number, 1 to 100000", def: "`new_per_second`",
		doc: "The number of sessions that a client may begin at once after a pause."},
		func(l *rawClientLimits) *value[int] { return &l.burst }, parseNumber(1, maxClientBurst)),
	scalar(fieldDoc{name: "sessions", kind: "number, 1 to 1000000",
		doc: "The maximum number of concurrent sessions of a client. A TCP connection counts from the end of its handshake, which shows the client's address, until both sides have closed it " +
			"(with `dr` and `ipip`, where answers do not pass the forwarder, until its client has). UDP counts once its client sends after an answer; two datagrams with a forged source, " +
			"one before and one after the answer, can still use up a session of the impersonated client, so for UDP the limit bounds honest clients only. " +
			"A packet that would begin a session above the limit is dropped as `client-sessions`; a connection whose handshake completes above the limit is reset. " +
			"Not for UDP with `dr`, `ipip` or `one_packet`, nor with `sloppy_tcp`. See docs/access.md."},
		func(l *rawClientLimits) *value[int] { return &l.sessions }, parseNumber(1, maxClientSessions)),
}

var clientLimitsObject = docsOf("client_limits", "Limits for each client of a service.", clientLimitsFields)

func (b *builder) clientLimits(service *rawService, protocol model.Protocol) model.ClientLimits {
	raw := &service.clientLimits
	limits := model.ClientLimits{NewPerSecond: uint32(raw.newPerSecond.v), Sessions: uint32(raw.sessions.v)}
	if limits.NewPerSecond != 0 {
		limits.Burst = uint32(raw.burst.or(raw.newPerSecond.v))
	} else if raw.burst.set {
		b.fail(raw.burst.at, raw.burst.path, "it needs new_per_second, which is missing: add that, or remove this line")
	}
	mode := service.mode.or(model.FNAT)
	if limits.Sessions != 0 && protocol == model.UDP && (service.onePacket.v || mode == model.DR || mode == model.IPIP) {
		b.fail(raw.sessions.at, raw.sessions.path, "a UDP session counts once its server has answered, which the forwarder cannot observe with dr and ipip, nor record "+
			"with one_packet: use new_per_second, or remove this line")
	}
	if limits.Sessions != 0 && service.sloppyTCP.v {
		b.fail(raw.sessions.at, raw.sessions.path, "with `sloppy_tcp` a segment without a handshake begins a session, so forged segments would use up a client's sessions: "+
			"use new_per_second, or remove this line or `sloppy_tcp`")
	}
	return limits
}

func (b *builder) policy(raw *rawService, protocol model.Protocol) model.Policy {
	policy := model.Policy{
		Scheduler:   raw.scheduler.over(b.raw.defaults.scheduler).or(defaultScheduler),
		SlowStart:   raw.slowStart.v,
		OnePacket:   raw.onePacket.v,
		SloppyTCP:   raw.sloppyTCP.v,
		MaxSessions: raw.maxSessions.v,

		ClientAddress: raw.client.v,
		ClientOptions: raw.options.v,
		Resets:        b.resets(raw, protocol),
		SynDefence:    b.synDefence(raw, protocol),
		Unavailable:   raw.when.over(b.raw.defaults.when).v,
		Sync:          raw.sync.over(b.raw.defaults.sync).v,
		Clients:       b.clientLimits(raw, protocol),
		Access:        raw.access.v,
		Mark:          model.Mark{Set: raw.dscp.set, DSCP: raw.dscp.v},
	}
	b.checkAccess(raw.access)
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
		b.fail(raw.onePacket.at, raw.onePacket.path, "only fnat can match answers to single datagrams: use `mode: fnat`, or remove this line")
	}
	if policy.ClientAddress != 0 && (protocol != model.TCP || raw.mode.or(model.FNAT) != model.FNAT) {
		b.fail(raw.client.at, raw.client.path, "only TCP services under fnat can pass on the client's address: use `protocol: tcp` and `mode: fnat`, or remove this line")
	}
	if policy.ClientOptions == model.KeepOptions && policy.ClientAddress == model.TOA {
		b.fail(raw.options.at, raw.options.path, "a client's own TOA option would contradict the forwarder's, which `client_address: toa` inserts: remove one of the two lines")
	}
	if p := &raw.persistence; p.at != (position{}) {
		policy.Persistence = model.Persistence{
			Timeout: p.timeout.v,
			Prefix4: uint8(p.prefix4.or(defaultPrefix4)), Prefix6: uint8(p.prefix6.or(defaultPrefix6)),
		}
		if policy.OnePacket {
			b.fail(p.at, raw.path+".persistence", "`persistence` sends all of a client's datagrams to one server, `one_packet` spreads them: remove one")
		}
	}
	if policy.SloppyTCP {
		b.sloppyTCP(raw, protocol, policy)
	}
	return policy
}

// synDefence returns a service's setting. The defaults apply to TCP services only.
func (b *builder) synDefence(raw *rawService, protocol model.Protocol) model.SynDefence {
	if protocol == model.TCP {
		return raw.synDefence.over(b.raw.defaults.synDefence).or(model.DefaultDefence(protocol, raw.mode.or(model.FNAT)))
	}
	if raw.synDefence.v != model.DefenceOff {
		b.fail(raw.synDefence.at, raw.synDefence.path, "only TCP connections begin with a SYN: use `protocol: tcp`, or remove this line")
	}
	return model.DefenceOff
}

// sloppyTCP rejects settings with which two forwarders could select different servers for one connection.
func (b *builder) sloppyTCP(raw *rawService, protocol model.Protocol, policy model.Policy) {
	fail := func(format string, args ...any) { b.fail(raw.sloppyTCP.at, raw.sloppyTCP.path, format, args...) }
	mode := raw.mode.or(model.FNAT)
	switch {
	case protocol != model.TCP:
		fail("only TCP services have this key: use `protocol: tcp`, or remove this line")
	case mode != model.DR && mode != model.IPIP:
		fail("%s needs the session to translate a connection's packets: use `mode: dr` or `mode: ipip`, or remove this line", mode)
	case policy.Scheduler != model.Maglev && policy.Scheduler != model.ConHash:
		fail("%s does not select the same server on all forwarders: use the scheduler maglev or conhash, or remove this line", policy.Scheduler)
	case policy.Persistence.Timeout != 0:
		fail("`sloppy_tcp` selects the server by hash only, `persistence` by the state of one forwarder: remove one")
	case policy.SlowStart != 0:
		fail("`sloppy_tcp` selects the server by hash only, and `slow_start` changes the hash when a server comes up at one forwarder: remove one")
	}
	for _, server := range raw.servers {
		if server.maxSessions.v != 0 {
			b.fail(server.maxSessions.at, server.maxSessions.path,
				"`max_sessions` sends a full server's sessions to other servers, where `sloppy_tcp` does not find them: remove one")
		}
	}
}

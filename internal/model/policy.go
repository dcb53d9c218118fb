// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"strings"
	"time"
)

// Scheduler chooses the server of a new session.
type Scheduler uint8

// The schedulers.
const (
	RR      Scheduler = 1  // each in turn
	WRR     Scheduler = 2  // … by weight
	LC      Scheduler = 3  // fewest sessions
	WLC     Scheduler = 4  // … by weight
	SED     Scheduler = 5  // … the new one counted
	SH      Scheduler = 6  // by the client's hash, exact shares
	Maglev  Scheduler = 7  // … few clients move when servers are added or removed
	ConHash Scheduler = 8  // … none but the server's own
	Share   Scheduler = 9  // drawn by chance, by weight
	P2C     Scheduler = 10 // of two random servers, the one with the smaller product of sessions and delay
)

// Schedulers lists all schedulers.
var Schedulers = []Scheduler{RR, WRR, LC, WLC, SED, SH, Maglev, ConHash, Share, P2C}

func (s Scheduler) String() string {
	words := [...]string{"", "rr", "wrr", "lc", "wlc", "sed", "sh", "maglev", "conhash", "share", "p2c"}
	if s == 0 || int(s) >= len(words) {
		return fmt.Sprintf("scheduler-%d", uint8(s))
	}
	return words[s]
}

// Hashes reports whether a hash of the client selects the server.
func (s Scheduler) Hashes() bool {
	return s == SH || s == Maglev || s == ConHash
}

// HashOn selects the part of the client's address that is hashed.
type HashOn uint8

// The hash inputs. 0 for schedulers that do not hash.
const (
	HashSource HashOn = 1 // the client's address
	HashTuple  HashOn = 2 // its address and port
)

func (h HashOn) String() string {
	switch h {
	case 0:
		return "none"
	case HashSource:
		return "source"
	case HashTuple:
		return "tuple"
	}
	return fmt.Sprintf("hash-%d", uint8(h))
}

// ClientAddress is how servers learn their clients' addresses.
type ClientAddress uint8

// The methods to report client addresses. 0: none.
const (
	TOA     ClientAddress = 1 // by a TCP option
	ProxyV1 ClientAddress = 2 // by the PROXY protocol, as text
	ProxyV2 ClientAddress = 3 // … in binary
)

// ClientAddresses lists all methods.
var ClientAddresses = []ClientAddress{0, TOA, ProxyV1, ProxyV2}

func (c ClientAddress) String() string {
	words := [...]string{"none", "toa", "proxy_v1", "proxy_v2"}
	if int(c) >= len(words) {
		return fmt.Sprintf("client-address-%d", uint8(c))
	}
	return words[c]
}

// ClientOptions is the action for clients' options that servers would mistake for the forwarder's
// report of the client's address.
type ClientOptions uint8

// What becomes of them.
const (
	RemoveOptions ClientOptions = 0
	KeepOptions   ClientOptions = 1
)

func (c ClientOptions) String() string {
	if c == KeepOptions {
		return "keep"
	}
	return "remove"
}

// SynDefence is when the forwarder answers SYNs itself, by cookies or challenges.
type SynDefence uint8

// When it answers SYNs.
const (
	DefenceOff    SynDefence = 0
	DefenceAlways SynDefence = 1
	DefenceAuto   SynDefence = 2 // while too many SYNs have clients that do not continue
)

// SynDefences lists all settings.
var SynDefences = []SynDefence{DefenceAuto, DefenceAlways, DefenceOff}

// DefaultDefence is the setting of a service that names none: auto where clients do not notice the
// answers.
func DefaultDefence(protocol Protocol, mode Mode) SynDefence {
	if protocol == TCP && (mode == FNAT || mode == NAT) {
		return DefenceAuto
	}
	return DefenceOff
}

func (d SynDefence) String() string {
	words := [...]string{"off", "always", "auto"}
	if int(d) >= len(words) {
		return fmt.Sprintf("syn-defence-%d", uint8(d))
	}
	return words[d]
}

// WhenUnavailable is the answer to clients while no server accepts their sessions.
type WhenUnavailable uint8

// The answers. 0 is the default.
const (
	UnavailableReset WhenUnavailable = 0 // TCP: a reset; UDP: ICMP port unreachable
	UnavailableDrop  WhenUnavailable = 1 // none
	UnavailableICMP  WhenUnavailable = 2 // ICMP port unreachable
)

// WhenUnavailables lists all answers.
var WhenUnavailables = []WhenUnavailable{UnavailableDrop, UnavailableReset, UnavailableICMP}

func (w WhenUnavailable) String() string {
	words := [...]string{"reset", "drop", "icmp"}
	if int(w) >= len(words) {
		return fmt.Sprintf("when-unavailable-%d", uint8(w))
	}
	return words[w]
}

// Sync is from when on peers keep the service's sessions.
type Sync struct {
	From      SyncFrom
	OlderThan uint32 // seconds, with SyncEstablished: the minimum age, too; 0: any
}

// SyncFrom is the event from which on peers keep a session.
type SyncFrom uint8

// 0 is the default.
const (
	SyncEstablished SyncFrom = 0 // TCP: once the handshake is complete; UDP: once the client has sent again
	SyncOff         SyncFrom = 1 // never
	SyncAll         SyncFrom = 2 // from their creation
	SyncStrict      SyncFrom = 3 // likewise; TCP servers get the SYN when a living peer has the session
)

// SyncsFrom lists all events.
var SyncsFrom = []SyncFrom{SyncOff, SyncEstablished, SyncAll, SyncStrict}

func (f SyncFrom) String() string {
	words := [...]string{"established", "off", "all", "strict"}
	if int(f) >= len(words) {
		return fmt.Sprintf("sync-%d", uint8(f))
	}
	return words[f]
}

func (s Sync) String() string {
	if s.OlderThan != 0 {
		return "older than " + seconds(s.OlderThan)
	}
	return s.From.String()
}

// Persistence sends the sessions of one client prefix to one server.
type Persistence struct {
	Timeout uint32 // seconds after the last session creation; 0: no persistence
	Prefix4 uint8
	Prefix6 uint8
}

func (p Persistence) String() string {
	if p.Timeout == 0 {
		return "none"
	}
	return fmt.Sprintf("%s for /%d and /%d", seconds(p.Timeout), p.Prefix4, p.Prefix6)
}

// ClientLimits bound each client's new and concurrent sessions.
type ClientLimits struct {
	NewPerSecond uint32 // 0: no limit
	Burst        uint32
	Sessions     uint32 // 0: no limit
}

func (l ClientLimits) String() string {
	parts := []string{}
	if l.NewPerSecond != 0 {
		parts = append(parts, fmt.Sprintf("%d new/s, burst %d", l.NewPerSecond, l.Burst))
	}
	if l.Sessions != 0 {
		parts = append(parts, fmt.Sprintf("%d at once", l.Sessions))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// Policy configures how a service distributes new sessions, reports client addresses and sends resets;
// comparable.
type Policy struct {
	Scheduler   Scheduler
	HashOn      HashOn
	Persistence Persistence
	SlowStart   uint32 // seconds; 0: none
	OnePacket   bool
	SloppyTCP   bool   // packets without a session create one
	MaxSessions uint32 // 0: no limit
	Clients     ClientLimits

	ClientAddress ClientAddress
	ClientOptions ClientOptions
	Resets        Resets
	SynDefence    SynDefence
	Unavailable   WhenUnavailable
	Sync          Sync
	Access        string // name of its access list; empty: none
	Mark          Mark
}

// Mark is a DSCP that packets get, or none.
type Mark struct {
	Set  bool
	DSCP DSCP
}

func (m Mark) String() string {
	if !m.Set {
		return ""
	}
	return m.DSCP.String()
}

// String describes how sessions are distributed.
func (p Policy) String() string {
	parts := []string{p.Scheduler.String()}
	if p.HashOn != 0 {
		parts[0] += " by " + p.HashOn.String()
	}
	if p.Persistence.Timeout != 0 {
		parts = append(parts, "persistence "+p.Persistence.String())
	}
	if p.SlowStart != 0 {
		parts = append(parts, "slow start "+seconds(p.SlowStart))
	}
	if p.OnePacket {
		parts = append(parts, "one packet")
	}
	if p.SloppyTCP {
		parts = append(parts, "sloppy TCP")
	}
	if p.MaxSessions != 0 {
		parts = append(parts, fmt.Sprintf("at most %d sessions", p.MaxSessions))
	}
	if p.Clients != (ClientLimits{}) {
		parts = append(parts, "sessions of a client "+p.Clients.String())
	}
	if p.ClientAddress != 0 {
		parts = append(parts, "client address by "+p.ClientAddress.String())
	}
	if p.ClientOptions != RemoveOptions {
		parts = append(parts, "client options kept")
	}
	if p.Mark.Set {
		parts = append(parts, "DSCP "+p.Mark.String())
	}
	if p.Access != "" {
		parts = append(parts, "access list "+p.Access)
	}
	return strings.Join(parts, ", ")
}

func seconds(n uint32) string {
	return (time.Duration(n) * time.Second).String()
}

// secondsText returns nothing for 0, which stands for none.
func secondsText(n uint32) string {
	if n == 0 {
		return ""
	}
	return seconds(n)
}

func describePolicy(note func(what string, from, to any), old, policy Policy) {
	note("scheduler", old.Scheduler, policy.Scheduler)
	note("hash_on", old.HashOn, policy.HashOn)
	note("persistence", old.Persistence, policy.Persistence)
	note("slow_start", orNone(secondsText(old.SlowStart)), orNone(secondsText(policy.SlowStart)))
	note("one_packet", old.OnePacket, policy.OnePacket)
	note("sloppy_tcp", old.SloppyTCP, policy.SloppyTCP)
	note("max_sessions", orNone(numberText(old.MaxSessions)), orNone(numberText(policy.MaxSessions)))
	note("client_limits", orNone(old.Clients.String()), orNone(policy.Clients.String()))
	note("client_address", old.ClientAddress, policy.ClientAddress)
	note("client_options", old.ClientOptions, policy.ClientOptions)
	note("dscp", orNone(old.Mark.String()), orNone(policy.Mark.String()))
	note("access", orNone(old.Access), orNone(policy.Access))
	note("resets", old.Resets, policy.Resets)
	note("syn_defence", old.SynDefence, policy.SynDefence)
	note("when_unavailable", old.Unavailable, policy.Unavailable)
	note("sync", old.Sync, policy.Sync)
}

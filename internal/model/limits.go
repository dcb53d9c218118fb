// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// LimitUnit is what a limit counts.
type LimitUnit uint8

// The units; the numbers are the forwarder's.
const (
	LimitBits     LimitUnit = 1
	LimitPackets  LimitUnit = 2
	LimitSessions LimitUnit = 3 // new ones
)

// LimitLayer selects the bytes of a packet that LimitBits counts.
type LimitLayer uint8

// The layers. 0 for limits of packets and sessions.
const (
	LimitL3    LimitLayer = 1 // the IP packet
	LimitL2    LimitLayer = 2 // and its Ethernet header
	LimitL2FCS LimitLayer = 3 // and the frame check sequence
	LimitL1    LimitLayer = 4 // and preamble and gap
)

// LimitLayers lists all layers.
var LimitLayers = []LimitLayer{LimitL3, LimitL2, LimitL2FCS, LimitL1}

func (l LimitLayer) String() string {
	return word("layer", l, "none", "l3", "l2", "l2+fcs", "l1")
}

// Overhead is the number of bytes that a layer adds to a large packet.
func (l LimitLayer) Overhead() uint64 {
	return map[LimitLayer]uint64{LimitL2: 14, LimitL2FCS: 18, LimitL1: 38}[l]
}

// LimitDirection selects the direction of packets that a limit counts.
type LimitDirection uint8

// The directions. 0 for limits of sessions.
const (
	LimitBoth      LimitDirection = 1
	LimitToServers LimitDirection = 2
	LimitToClients LimitDirection = 3
)

// LimitDirections lists all directions.
var LimitDirections = []LimitDirection{LimitBoth, LimitToServers, LimitToClients}

func (d LimitDirection) String() string {
	return word("direction", d, "none", "both", "to-servers", "to-clients")
}

// LimitAction is the action for packets above a limit.
type LimitAction uint8

// The actions.
const (
	LimitDrop LimitAction = 1
	LimitMark LimitAction = 2
)

// LimitEngine is how workers share a bucket.
type LimitEngine uint8

// The engines. 0: the forwarder chooses.
const (
	EngineAuto      LimitEngine = 0
	EngineCAS       LimitEngine = 1
	EngineLock      LimitEngine = 2
	EngineLightLock LimitEngine = 3
	EngineAtomic    LimitEngine = 4
)

// LimitEngines lists all engines.
var LimitEngines = []LimitEngine{EngineAuto, EngineCAS, EngineLock, EngineLightLock, EngineAtomic}

func (e LimitEngine) String() string {
	return word("engine", e, "auto", "cas", "lock", "light-lock", "atomic")
}

// word returns the name of a value that came from the forwarder.
func word[V ~uint8](what string, value V, words ...string) string {
	if int(value) >= len(words) {
		return fmt.Sprintf("%s-%d", what, value)
	}
	return words[value]
}

// DSCP is a class of service in packets.
type DSCP uint8

var dscpNames = map[string]DSCP{
	"cs0": 0, "cs1": 8, "cs2": 16, "cs3": 24, "cs4": 32, "cs5": 40, "cs6": 48, "cs7": 56, "ef": 46, "va": 44, "le": 1,
	"af11": 10, "af12": 12, "af13": 14, "af21": 18, "af22": 20, "af23": 22,
	"af31": 26, "af32": 28, "af33": 30, "af41": 34, "af42": 36, "af43": 38,
}

// DSCPByName returns the DSCP that has a name, such as af13 or ef.
func DSCPByName(name string) (DSCP, bool) {
	dscp, ok := dscpNames[name]
	return dscp, ok
}

// String returns the name, or the number if it has none.
func (d DSCP) String() string {
	for name, dscp := range dscpNames {
		if dscp == d {
			return name
		}
	}
	return fmt.Sprint(uint8(d))
}

// Defaults of limits by clients.
const (
	LimitPrefix4    = 32
	LimitPrefix6    = 64
	LimitMaxClients = 65536
)

// LimitSpec has a limit's rate, burst and options; comparable.
type LimitSpec struct {
	Unit       LimitUnit
	PerSecond  uint64
	Burst      uint64 // bytes with LimitBits, else packets or sessions
	Layer      LimitLayer
	Direction  LimitDirection
	Action     LimitAction
	Mark       DSCP // with LimitMark
	Engine     LimitEngine
	Batch      uint32 // with EngineLightLock; 0: the forwarder's default
	ByClient   bool   // each client has a bucket; without it the next ones are 0
	Prefix4    uint8
	Prefix6    uint8
	MaxClients uint32 // clients
}

// Limit is a limit as a forwarder has it. If it names no service, VIP or server, it concerns all services.
// Within has prefixes as MergePrefixes returns them; none: all clients. The lists are sorted.
type Limit struct {
	Name     string
	Tenant   string // to show; may be empty
	Spec     LimitSpec
	Within   []netip.Prefix
	Services []ServiceKey
	VIPs     []netip.Addr
	Servers  []ServerRef
}

func (l Limit) equal(other Limit) bool {
	return l.Name == other.Name && l.Tenant == other.Tenant && l.Spec == other.Spec && slices.Equal(l.Within, other.Within) &&
		slices.Equal(l.Services, other.Services) && slices.Equal(l.VIPs, other.VIPs) && slices.Equal(l.Servers, other.Servers)
}

// Sort brings a limit's lists into their order, and removes repetitions.
func (l *Limit) Sort() {
	l.Within = MergePrefixes(l.Within)
	slices.SortFunc(l.Services, ServiceKey.Compare)
	slices.SortFunc(l.VIPs, netip.Addr.Compare)
	slices.SortFunc(l.Servers, func(a, b ServerRef) int {
		return cmp.Or(a.Service.Compare(b.Service), a.Address.Compare(b.Address))
	})
	l.Services, l.VIPs, l.Servers = slices.Compact(l.Services), slices.Compact(l.VIPs), slices.Compact(l.Servers)
}

// Tenant is a named set of services and VIPs.
type Tenant struct {
	Name     string
	Services []string
	VIPs     []netip.Addr
}

// LimitTarget is the target of a limit, by names, as users write it. Empty: all services.
type LimitTarget struct {
	Tenant   string
	Services []string
	VIPs     []netip.Addr
	Server   NamedServer // its service's name is empty: none
}

// NamedServer is a server of a service that a name identifies.
type NamedServer struct {
	Service string
	Address netip.AddrPort // as in ServerRef
}

// ConfigLimit is a limit in the user's configuration.
type ConfigLimit struct {
	Name   string
	Of     LimitTarget
	Within []netip.Prefix // as in Limit
	Spec   LimitSpec
}

// byName returns the keys of services and the tenants, by their names.
func (c *Config) byName() (map[string]ServiceKey, map[string]*Tenant) {
	keys := make(map[string]ServiceKey, len(c.Services))
	for i := range c.Services {
		keys[c.Services[i].Name] = c.Services[i].Key
	}
	tenants := make(map[string]*Tenant, len(c.Tenants))
	for i := range c.Tenants {
		tenants[c.Tenants[i].Name] = &c.Tenants[i]
	}
	return keys, tenants
}

// ResolveLimits returns a configuration's limits with keys in place of names. Names that no service has
// are left out; a valid configuration has none.
func (c *Config) ResolveLimits() []Limit {
	if len(c.Limits) == 0 {
		return nil
	}
	keys, tenants := c.byName()
	limits := make([]Limit, 0, len(c.Limits))
	for _, one := range c.Limits {
		limit := Limit{Name: one.Name, Tenant: one.Of.Tenant, Spec: one.Spec, Within: slices.Clone(one.Within)}
		names, vips := one.Of.Services, one.Of.VIPs
		if tenant := tenants[one.Of.Tenant]; tenant != nil {
			names, vips = tenant.Services, tenant.VIPs
		}
		for _, name := range names {
			if key, ok := keys[name]; ok {
				limit.Services = append(limit.Services, key)
			}
		}
		limit.VIPs = slices.Clone(vips)
		if key, ok := keys[one.Of.Server.Service]; ok {
			limit.Servers = []ServerRef{{key, one.Of.Server.Address}}
		}
		limit.Sort()
		limits = append(limits, limit)
	}
	return limits
}

// diffLimits returns the limits to put before services, so that these are limited from their first packet,
// and those to delete at the end.
func diffLimits(from, to *Table) (puts, gone []Change) {
	for _, name := range sortedNames(to.Limits) {
		if old, ok := from.Limits[name]; !ok || !old.equal(to.Limits[name]) {
			puts = append(puts, Change{Kind: PutLimit, Limit: to.Limits[name]})
		}
	}
	for _, name := range sortedNames(from.Limits) {
		if _, ok := to.Limits[name]; !ok {
			gone = append(gone, Change{Kind: DeleteLimit, Limit: Limit{Name: name}})
		}
	}
	return puts, gone
}

// decimal writes a number exactly, with the largest decimal prefix that it reaches: 1.5M.
func decimal(n uint64) (number, prefix string) {
	for _, p := range []struct {
		digits int
		sign   string
	}{{9, "G"}, {6, "M"}, {3, "k"}} {
		text := fmt.Sprint(n)
		if len(text) <= p.digits {
			continue
		}
		whole, part := text[:len(text)-p.digits], strings.TrimRight(text[len(text)-p.digits:], "0")
		if part != "" {
			whole += "." + part
		}
		return whole, p.sign
	}
	return fmt.Sprint(n), ""
}

// Rate returns "1.5 Mbit/s", "100k packets/s" or "500 new sessions/s".
func (s LimitSpec) Rate() string {
	number, prefix := decimal(s.PerSecond)
	switch s.Unit {
	case LimitBits:
		return number + " " + prefix + "bit/s"
	case LimitPackets:
		return number + prefix + " packets/s"
	}
	return number + prefix + " new sessions/s"
}

// Amount formats a number in the unit of the burst: "2 MB", "64 packets" or "16 sessions".
func (s LimitSpec) Amount(n uint64) string {
	number, prefix := decimal(n)
	switch {
	case s.Unit == LimitBits && prefix == "":
		return number + " bytes"
	case s.Unit == LimitBits:
		return number + " " + prefix + "B"
	case s.Unit == LimitPackets:
		return number + prefix + " packets"
	}
	return number + prefix + " sessions"
}

// ActionText returns "drop" or "mark af13".
func (s LimitSpec) ActionText() string {
	switch s.Action {
	case LimitDrop:
		return "drop"
	case LimitMark:
		return "mark " + s.Mark.String()
	}
	return fmt.Sprintf("action-%d", uint8(s.Action))
}

// clientsText returns "/32 and /64", the networks that have a bucket each; empty: one bucket for all.
func (s LimitSpec) clientsText() string {
	if !s.ByClient {
		return ""
	}
	return fmt.Sprintf("/%d and /%d", s.Prefix4, s.Prefix6)
}

// String describes how much may pass.
func (s LimitSpec) String() string {
	text := s.Rate() + ", burst " + s.Amount(s.Burst)
	if s.ByClient {
		text += fmt.Sprintf(", each client of %s, at most %d", s.clientsText(), s.MaxClients)
	}
	if s.Layer > LimitL3 {
		text += ", counts " + s.Layer.String()
	}
	if s.Direction > LimitBoth {
		text += ", " + s.Direction.String()
	}
	text += ", " + s.ActionText()
	if s.Engine != EngineAuto {
		text += ", engine " + s.Engine.String()
	}
	if s.Batch != 0 {
		text += ", batch " + s.Amount(uint64(s.Batch))
	}
	return text
}

// describeLimit describes a change of a limit; `names` as in Describe.
func describeLimit(c Change, from *Table, names func(ServiceKey) string) Description {
	object := "limit " + c.Limit.Name
	if c.Kind == DeleteLimit {
		return Description{"remove", object, ""}
	}
	old, ok := from.Limits[c.Limit.Name]
	if !ok {
		return Description{"add", object, c.Limit.Target(names) + ": " + c.Limit.Spec.String()}
	}
	return Description{"change", object, strings.Join(old.describeTo(c.Limit, names), ", ")}
}

// describeTo describes a change to another state of the limit.
func (l Limit) describeTo(now Limit, names func(ServiceKey) string) []string {
	var parts []string
	note := func(what, from, to string) {
		if from != to {
			parts = append(parts, fmt.Sprintf("%s %s -> %s", what, from, to))
		}
	}
	old, spec := l.Spec, now.Spec
	note("rate", old.Rate(), spec.Rate())
	note("burst", old.Amount(old.Burst), spec.Amount(spec.Burst))
	note("tenant", orNone(l.Tenant), orNone(now.Tenant))
	text := func(key ServiceKey) string { return names(key) }
	note("services", listOf(l.Services, text), listOf(now.Services, text))
	note("vips", listOf(l.VIPs, netip.Addr.String), listOf(now.VIPs, netip.Addr.String))
	server := func(ref ServerRef) string { return ServerText(ref.Address) + "@" + names(ref.Service) }
	note("servers", listOf(l.Servers, server), listOf(now.Servers, server))
	note("clients", orNone(old.clientsText()), orNone(spec.clientsText()))
	if old.ByClient || spec.ByClient {
		note("maximum of clients", orNone(numberText(old.MaxClients)), orNone(numberText(spec.MaxClients)))
		note("within", listOf(l.Within, netip.Prefix.String), listOf(now.Within, netip.Prefix.String))
	}
	note("count", old.Layer.String(), spec.Layer.String())
	note("direction", old.Direction.String(), spec.Direction.String())
	note("action", old.ActionText(), spec.ActionText())
	note("engine", old.Engine.String(), spec.Engine.String())
	note("batch", orNone(numberText(old.Batch)), orNone(numberText(spec.Batch)))
	return parts
}

// maxListed is how many members of a list a description names.
const maxListed = 8

func listOf[T any](list []T, text func(T) string) string {
	if len(list) == 0 {
		return "none"
	}
	parts := make([]string, 0, maxListed)
	for _, one := range list[:min(len(list), maxListed)] {
		parts = append(parts, text(one))
	}
	if more := len(list) - len(parts); more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(parts, " "), more)
	}
	return strings.Join(parts, " ")
}

// Targets describes the target of a limit: "service web", "vip 10.0.0.81", "server 10.1.0.11:8080 of web".
// Empty: all services.
func (l Limit) Targets(names func(ServiceKey) string) []string {
	var targets []string
	for _, key := range l.Services {
		targets = append(targets, "service "+names(key))
	}
	for _, vip := range l.VIPs {
		targets = append(targets, "vip "+vip.String())
	}
	for _, server := range l.Servers {
		targets = append(targets, "server "+ServerText(server.Address)+" of "+names(server.Service))
	}
	return targets
}

// Target is Targets in few words: the tenant's name, if there is one.
func (l Limit) Target(names func(ServiceKey) string) string {
	if l.Tenant != "" {
		return "tenant " + l.Tenant
	}
	targets := l.Targets(names)
	switch {
	case len(targets) == 0:
		return "all services"
	case len(targets) > 1 && len(l.Services) == len(targets):
		return "services " + listOf(l.Services, names)
	}
	return listOf(targets, func(text string) string { return text })
}

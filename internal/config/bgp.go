// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"time"

	"steelyard/internal/model"

	"go.yaml.in/yaml/v4"
)

// The agent's own BGP sessions.

type rawBGP struct {
	at          position
	path        string
	as          value[uint32]
	routerID    value[netip.Addr]
	med         value[int]
	communities []value[model.Community]
	restartTime value[uint32]
	neighbors   []rawNeighbor
}

type rawNeighbor struct {
	address      value[netip.Addr]
	port         value[uint16]
	as           value[uint32]
	passwordFile value[string]
	holdTime     value[uint32]
	maxPrefixes  value[int]
	ttl          value[int]
	bfd          value[time.Duration]
}

const (
	bgpPort            = 179
	defaultMED         = 100
	defaultHoldTime    = 9 // seconds
	defaultMaxPrefixes = 1000
	maxBGPNeighbors    = 64
	maxRestartTime     = 4095 * time.Second // 12 bits (RFC 4724 3)
)

var neighborFields = []field[rawNeighbor]{
	scalar(fieldDoc{name: "address", kind: "address", required: true,
		doc: "The router's address. The session carries the prefixes of its family, with this host's own address of the session as next hop."},
		func(n *rawNeighbor) *value[netip.Addr] { return &n.address }, parseAddress),
	scalar(fieldDoc{name: "as", kind: "AS number", required: true, doc: "The router's AS number. The same as `as` of `bgp`: IBGP."},
		func(n *rawNeighbor) *value[uint32] { return &n.as }, parseAS),
	scalar(fieldDoc{name: "port", kind: "port", def: fmt.Sprint(bgpPort), doc: "The router's TCP port. The agent connects to it, and accepts no connections."},
		func(n *rawNeighbor) *value[uint16] { return &n.port }, parsePort),
	scalar(fieldDoc{name: "password_file", kind: "path", def: "",
		doc: "A file whose first line is the password of the session (TCP MD5, RFC 2385), readable by the agent. A change of the file is noticed and begins a new session."},
		func(n *rawNeighbor) *value[string] { return &n.passwordFile }, parsePasswordFile),
	scalar(fieldDoc{name: "hold_time", kind: "duration of whole seconds, 3s to 1h", def: fmt.Sprintf("%ds", defaultHoldTime),
		doc: "The session ends if nothing arrives for this time. Keepalives are sent three times as often."},
		func(n *rawNeighbor) *value[uint32] { return &n.holdTime }, parseHoldTime),
	scalar(fieldDoc{name: "max_prefixes", kind: "number, 1 to 1000000", def: fmt.Sprint(defaultMaxPrefixes),
		doc: "The session ends if the router announces more prefixes. The agent uses none of them."},
		func(n *rawNeighbor) *value[int] { return &n.maxPrefixes }, parseNumber(1, 1000000)),
	scalar(fieldDoc{name: "ttl", kind: "number, 1 to 255", def: "1", doc: "Above 1: the router is not on a network of this host (EBGP multihop)."},
		func(n *rawNeighbor) *value[int] { return &n.ttl }, parseNumber(1, 255)),
	scalar(fieldDoc{name: "bfd", kind: "duration, 100ms to 10s", def: "",
		doc: "Single-hop BFD (RFC 5881) with this interval of packets; the session ends when three are missing. Without it there is no BFD."},
		func(n *rawNeighbor) *value[time.Duration] { return &n.bfd }, parseDuration(100*time.Millisecond, 10*time.Second)),
}

var neighborObject = docsOf("neighbors", "The routers. Each address may occur once.", neighborFields)

var bgpFields = []field[rawBGP]{
	scalar(fieldDoc{name: "as", kind: "AS number", required: true, doc: "This host's AS number."},
		func(b *rawBGP) *value[uint32] { return &b.as }, parseAS),
	scalar(fieldDoc{name: "router_id", kind: "IPv4 address", required: true, doc: "An identifier that no other speaker has, such as an IPv4 address of this host."},
		func(b *rawBGP) *value[netip.Addr] { return &b.routerID }, parseRouterID),
	scalar(fieldDoc{name: "med", kind: fmt.Sprintf("number, 0 to %d", maxRouteMetric), def: fmt.Sprint(defaultMED),
		doc: "The MED of the routes. Routers prefer the lowest one of a neighbouring AS."},
		func(b *rawBGP) *value[int] { return &b.med }, parseNumber(0, maxRouteMetric)),
	{fieldDoc{name: "communities", kind: "list of communities", doc: "The communities of the routes, such as 65001:100 or no-export."},
		func(d *decoder, n *yaml.Node, path string, into *rawBGP) {
			readList(d, n, path, func(n *yaml.Node, path string) {
				into.communities = append(into.communities, readScalar(d, n, path, model.ParseCommunity))
			})
		}},
	scalar(fieldDoc{name: "restart_time", kind: fmt.Sprintf("duration of whole seconds, 1s to %ds", int(maxRestartTime.Seconds())), def: "",
		doc: "Graceful restart (RFC 4724): after the end of the agent, routers keep the routes for this time. Without it they remove them at once. `steelyard drain node` first, before this host stops."},
		func(b *rawBGP) *value[uint32] { return &b.restartTime }, parseWholeSeconds(maxRestartTime)),
	mappings(fieldDoc{name: "neighbors", required: true, object: neighborObject, doc: "The routers. At most 64."},
		func(b *rawBGP) *[]rawNeighbor { return &b.neighbors },
		func(position, string) rawNeighbor { return rawNeighbor{} }, neighborFields),
}

var bgpObject = docsOf("bgp", "BGP sessions of the agent, for hosts without a routing daemon. Two speakers on one host cannot both have a session with the same router.", bgpFields)

func parseAS(text string) (uint32, error) {
	number, err := strconv.ParseUint(text, 10, 32)
	if err != nil || number == 0 || number == 1<<32-1 {
		return 0, fmt.Errorf("%q is not an AS number: write one like 65001", text)
	}
	return uint32(number), checkDecimal(text)
}

func parseRouterID(text string) (netip.Addr, error) {
	id, err := netip.ParseAddr(text)
	if err != nil || !id.Is4() || id.IsUnspecified() {
		return id, fmt.Errorf("%q is not an IPv4 address: write one like 10.0.0.1", text)
	}
	return id, nil
}

func parsePasswordFile(text string) (string, error) {
	if !filepath.IsAbs(text) {
		return "", fmt.Errorf("%q is not an absolute path: write one like /etc/steelyard/bgp-password", text)
	}
	return text, nil
}

func parseHoldTime(text string) (uint32, error) {
	seconds, err := parseWholeSeconds(time.Hour)(text)
	if err == nil && seconds < 3 {
		err = fmt.Errorf("%s is out of range: use 3s to 1h", text)
	}
	return seconds, err
}

func (b *builder) bgp() model.BGP {
	raw := &b.raw.routes.bgp
	if raw.at == (position{}) {
		return model.BGP{}
	}
	bgp := model.BGP{AS: raw.as.v, RouterID: raw.routerID.v, MED: uint32(raw.med.or(defaultMED)),
		RestartTime: time.Duration(raw.restartTime.v) * time.Second}
	for _, community := range raw.communities {
		bgp.Communities = append(bgp.Communities, community.v)
	}
	seen := map[netip.Addr]position{}
	for i := range raw.neighbors {
		n := &raw.neighbors[i]
		if first, ok := seen[n.address.v]; ok && n.address.set {
			b.fail(n.address.at, n.address.path, "%s is a neighbor in line %d already: remove one", n.address.v, first.line)
		}
		if n.bfd.set && n.ttl.or(1) > 1 {
			b.fail(n.bfd.at, n.bfd.path, "BFD is for routers on a network of this host: remove `bfd` or `ttl`")
		}
		seen[n.address.v] = n.address.at
		bgp.Neighbors = append(bgp.Neighbors, model.BGPNeighbor{
			Address: n.address.v, Port: n.port.or(bgpPort), AS: n.as.v, PasswordFile: n.passwordFile.v,
			HoldTime: time.Duration(n.holdTime.or(defaultHoldTime)) * time.Second, MaxPrefixes: uint32(n.maxPrefixes.or(defaultMaxPrefixes)),
			TTL: uint8(n.ttl.or(1)), BFD: n.bfd.v,
		})
	}
	if len(bgp.Neighbors) == 0 || len(bgp.Neighbors) > maxBGPNeighbors {
		b.fail(raw.at, raw.path, "%d neighbors: use 1 to %d", len(bgp.Neighbors), maxBGPNeighbors)
	}
	return bgp
}

// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// RouteKind is the role of an announced address.
type RouteKind uint8

// The kinds of announced addresses.
const (
	RouteVIP   RouteKind = 1
	RouteLocal RouteKind = 2
	RoutePool  RouteKind = 3
)

// RouteKinds lists all kinds.
var RouteKinds = []RouteKind{RouteVIP, RouteLocal, RoutePool}

// String returns the word of the configuration file.
func (k RouteKind) String() string {
	words := [...]string{"", "vips", "local_addresses", "snat_pools"}
	if k == 0 || int(k) >= len(words) {
		return fmt.Sprintf("kind-%d", uint8(k))
	}
	return words[k]
}

// Routes configures the announcement of addresses to routers.
type Routes struct {
	Announce      []RouteKind   // empty: none
	WithdrawAfter time.Duration // how long a forwarder may not answer
	Kernel        KernelRoutes
	BGP           BGP
}

// KernelRoutes are routes in a table of this host, for its routing daemon.
type KernelRoutes struct {
	Table  uint32 // 0: none
	Metric uint32
}

// Enabled reports whether addresses are announced.
func (r *Routes) Enabled() bool { return len(r.Announce) > 0 }

// words returns nil if nothing is announced.
func (r *Routes) words() []setting {
	if !r.Enabled() {
		return nil
	}
	var kinds []string
	for _, kind := range r.Announce {
		kinds = append(kinds, kind.String())
	}
	return []setting{{"announce", strings.Join(kinds, " ")}, {"withdraw_after", cmp.Or(durationText(r.WithdrawAfter), "0s")}}
}

// words returns nil if there are no kernel routes.
func (k KernelRoutes) words() []setting {
	if k.Table == 0 {
		return nil
	}
	return []setting{{"table", numberText(k.Table)}, {"metric", numberText(k.Metric)}}
}

// Community is a BGP community (RFC 1997).
type Community uint32

// wellKnown are the communities with names.
var wellKnown = map[string]Community{"graceful-shutdown": 0xffff0000, "no-export": 0xffffff01, "no-advertise": 0xffffff02, "no-peer": 0xffffff04}

// ParseCommunity parses a name or AS:VALUE.
func ParseCommunity(text string) (Community, error) {
	if community, ok := wellKnown[text]; ok {
		return community, nil
	}
	high, low, ok := strings.Cut(text, ":")
	as, err := strconv.ParseUint(high, 10, 16)
	value, err2 := strconv.ParseUint(low, 10, 16)
	if !ok || err != nil || err2 != nil {
		return 0, fmt.Errorf("%q is not a community: write one like 65001:100, or %s", text, strings.Join(slices.Sorted(maps.Keys(wellKnown)), ", "))
	}
	return Community(as<<16 | value), nil
}

func (c Community) String() string {
	for name, community := range wellKnown {
		if c == community {
			return name
		}
	}
	return fmt.Sprintf("%d:%d", uint32(c)>>16, uint32(c)&0xffff)
}

// BGP configures the agent's own sessions.
type BGP struct {
	AS          uint32 // 0: none
	RouterID    netip.Addr
	MED         uint32
	Communities []Community
	RestartTime time.Duration // of graceful restart; 0: off
	Neighbors   []BGPNeighbor
}

// BGPNeighbor is a router.
type BGPNeighbor struct {
	Address      netip.Addr
	Port         uint16
	AS           uint32
	PasswordFile string // empty: no password
	HoldTime     time.Duration
	MaxPrefixes  uint32
	TTL          uint8         // above 1: routers between this host and the neighbour
	BFD          time.Duration // interval; 0: off
}

// SameSpeaker reports whether sessions continue under the other configuration.
func (b *BGP) SameSpeaker(other *BGP) bool {
	return b.AS == other.AS && b.RouterID == other.RouterID && b.RestartTime == other.RestartTime
}

// SameAttributes reports whether routes have the same attributes.
func (b *BGP) SameAttributes(other *BGP) bool {
	return b.MED == other.MED && slices.Equal(b.Communities, other.Communities)
}

// words returns nil if there is no BGP.
func (b *BGP) words() []setting {
	if b.AS == 0 {
		return nil
	}
	var communities []string
	for _, community := range b.Communities {
		communities = append(communities, community.String())
	}
	return []setting{{"as", numberText(b.AS)}, {"router_id", b.RouterID.String()}, {"med", numberText(b.MED)},
		{"communities", strings.Join(communities, " ")}, {"restart_time", durationText(b.RestartTime)}}
}

func (n *BGPNeighbor) words() []setting {
	return []setting{{"port", numberText(n.Port)}, {"as", numberText(n.AS)}, {"password_file", n.PasswordFile}, {"hold_time", n.HoldTime.String()},
		{"max_prefixes", numberText(n.MaxPrefixes)}, {"ttl", numberText(uint16(n.TTL))}, {"bfd", durationText(n.BFD)}}
}

// describeRoutes describes the differences in the announcement of addresses.
func describeRoutes(before, after *Routes) []Description {
	list := appendSetting(nil, "routes", before.words(), after.words())
	list = appendSetting(list, "kernel routes", before.Kernel.words(), after.Kernel.words())
	list = appendSetting(list, "BGP", before.BGP.words(), after.BGP.words())
	old := map[netip.Addr][]setting{}
	for i := range before.BGP.Neighbors {
		old[before.BGP.Neighbors[i].Address] = before.BGP.Neighbors[i].words()
	}
	for i := range after.BGP.Neighbors {
		address := after.BGP.Neighbors[i].Address
		list = appendSetting(list, "BGP neighbor "+address.String(), old[address], after.BGP.Neighbors[i].words())
		delete(old, address)
	}
	for _, address := range slices.SortedFunc(maps.Keys(old), netip.Addr.Compare) {
		list = appendSetting(list, "BGP neighbor "+address.String(), old[address], nil)
	}
	return list
}

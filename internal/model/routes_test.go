// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestCommunities(t *testing.T) {
	for _, text := range []string{"65001:100", "0:0", "65535:65535", "no-export", "no-advertise", "no-peer", "graceful-shutdown"} {
		if community, err := ParseCommunity(text); err != nil || community.String() != text {
			t.Errorf("%s: %s, %v", text, community, err)
		}
	}
	for _, text := range []string{"", "1", "1:", ":1", "65536:1", "1:65536", "1:2:3", "-1:1", "no_export"} {
		if community, err := ParseCommunity(text); err == nil {
			t.Errorf("%q: %s", text, community)
		}
	}
}

func TestChangesOfRoutesAreDescribed(t *testing.T) {
	neighbor := func(last byte, hold time.Duration) BGPNeighbor {
		return BGPNeighbor{Address: netip.AddrFrom4([4]byte{10, 0, 0, last}), Port: 179, AS: 65000, HoldTime: hold, MaxPrefixes: 9, TTL: 1}
	}
	before := &Routes{Announce: RouteKinds, Kernel: KernelRoutes{Table: 202, Metric: 100}, BGP: BGP{
		AS: 65001, RouterID: netip.MustParseAddr("10.0.0.1"), Neighbors: []BGPNeighbor{neighbor(2, time.Second), neighbor(3, time.Second)}}}
	after := &Routes{Announce: RouteKinds[:1], WithdrawAfter: time.Second, BGP: BGP{
		AS: 65001, RouterID: netip.MustParseAddr("10.0.0.1"), Communities: []Community{1}, Neighbors: []BGPNeighbor{neighbor(3, time.Minute), neighbor(4, time.Second)}}}
	got := ""
	for _, d := range describeRoutes(before, after) {
		got += strings.TrimSpace(d.Action+" "+d.Object+" "+d.Detail) + "\n"
	}
	const want = `change routes announce vips local_addresses snat_pools -> vips, withdraw_after 0s -> 1s
remove kernel routes
change BGP communities none -> 0:1
change BGP neighbor 10.0.0.3 hold_time 1s -> 1m0s
add BGP neighbor 10.0.0.4 port 179, as 65000, hold_time 1s, max_prefixes 9, ttl 1
remove BGP neighbor 10.0.0.2
`
	if got != want {
		t.Errorf("got:\n%s", got)
	}
	if list := describeRoutes(before, before); len(list) != 0 {
		t.Errorf("of the same: %v", list)
	}
}

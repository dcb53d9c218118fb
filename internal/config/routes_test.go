// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"steelyard/internal/model"
)

// bgp returns routes with these neighbors.
func bgp(neighbors string) string {
	return "{ bgp: { as: 1, router_id: 10.0.0.1, neighbors: [" + neighbors + "] } }"
}

func TestRoutes(t *testing.T) {
	head := "version: 1\nservices: []\n"
	for text, want := range map[string]model.Routes{
		"": {},
		"routes: { kernel: {} }": {Announce: model.RouteKinds, WithdrawAfter: 500 * time.Millisecond,
			Kernel: model.KernelRoutes{Table: 202, Metric: 100}},
		"routes: { announce: [snat_pools, vips], withdraw_after: 0s, kernel: { table: 7, metric: 20 } }": {
			Announce: []model.RouteKind{model.RoutePool, model.RouteVIP}, Kernel: model.KernelRoutes{Table: 7, Metric: 20}},
		"routes: { bgp: { as: 65001, router_id: 10.0.0.1, neighbors: [ { address: fd00::2, as: 65000 } ] } }": {
			Announce: model.RouteKinds, WithdrawAfter: 500 * time.Millisecond, BGP: model.BGP{
				AS: 65001, RouterID: netip.MustParseAddr("10.0.0.1"), MED: 100, Neighbors: []model.BGPNeighbor{{
					Address: netip.MustParseAddr("fd00::2"), Port: 179, AS: 65000, HoldTime: 9 * time.Second, MaxPrefixes: 1000, TTL: 1}}}},
		"routes: { bgp: { as: 4200000000, router_id: 10.0.0.1, med: 0, communities: [65001:100, no-export], restart_time: 60s, " +
			"neighbors: [ { address: 10.0.0.2, port: 1790, as: 65000, password_file: /p, hold_time: 3s, max_prefixes: 1, bfd: 300ms } ] } }": {
			Announce: model.RouteKinds, WithdrawAfter: 500 * time.Millisecond, BGP: model.BGP{
				AS: 4200000000, RouterID: netip.MustParseAddr("10.0.0.1"), Communities: []model.Community{65001<<16 | 100, 0xffffff01}, RestartTime: time.Minute,
				Neighbors: []model.BGPNeighbor{{Address: netip.MustParseAddr("10.0.0.2"), Port: 1790, AS: 65000, PasswordFile: "/p",
					HoldTime: 3 * time.Second, MaxPrefixes: 1, TTL: 1, BFD: 300 * time.Millisecond}}}},
	} {
		config, err := Parse("steelyard.yaml", []byte(head+text))
		if err != nil || !reflect.DeepEqual(config.Routes, want) {
			t.Errorf("%s: %+v, %v", text, config, err)
		}
	}
	for text, want := range map[string]string{
		"{}":                                     "no routes can be announced",
		"{ announce: [], kernel: {} }":           "nothing is announced",
		"{ announce: [vips, vips], kernel: {} }": "vips is in this list already",
		"{ announce: [vip], kernel: {} }":        "vips",
		"{ kernel: { table: 254 } }":             "use 1 to 252",
		"{ kernel: { metric: 0 } }":              "0 is out of range",
		"{ withdraw_after: 1m, kernel: {} }":     "10s",
		"{ kernel: {}, withdraw: 1s }":           "withdraw_after",
		bgp(""):                                  "0 neighbors: use 1 to 64",
		bgp("{ as: 65000 }"):                     "`address` is missing",
		bgp("{ address: 10.0.0.2 }"):             "`as` is missing",
		bgp("{ address: 10.0.0.2, as: 0 }"):      "is not an AS number",
		bgp("{ address: 10.0.0.2, as: 1 }, { address: 10.0.0.2, as: 2 }"):                "10.0.0.2 is a neighbor in line 3 already",
		bgp("{ address: 10.0.0.2, as: 1, password_file: secret }"):                       "not an absolute path",
		bgp("{ address: 10.0.0.2, as: 1, hold_time: 2s }"):                               "use 3s to 1h",
		bgp("{ address: 10.0.0.2, as: 1, ttl: 2, bfd: 1s }"):                             "remove `bfd` or `ttl`",
		"{ bgp: { as: 1, router_id: fd00::1, neighbors: [] } }":                          "is not an IPv4 address",
		"{ bgp: { as: 1, router_id: 10.0.0.1, communities: [65536:1], neighbors: [] } }": "is not a community",
	} {
		_, err := Parse("steelyard.yaml", []byte(head+"routes: "+text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

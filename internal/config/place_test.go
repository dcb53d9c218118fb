// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"strings"
	"testing"
)

const placedFile = `version: 1
local_addresses: [10.1.0.10]
peer_local_addresses: [10.1.0.11]
access_sets:
  - { name: named, prefixes: [192.0.2.0/24] }
  - { name: forgotten, prefixes: [192.0.2.0/24] }
access_lists:
  - &list
    name: edge
    rules:
      - { action: count }
      - { action: drop, from: [named, 0.0.0.0/0] }
      - { action: allow, from: [0.0.0.0/0, "::/0"] }
      - { action: drop, from: [198.51.100.0/24] }
      - { action: reset, protocol: tcp }
  - { name: spare, rules: [{ action: allow, protocol: udp }, { action: drop, ports: [1] }, { action: drop }] }
access: edge
services:
  - { name: web, vip: 10.0.0.80, port: 80, servers: [] }
snat:
  - name: out
    inside: [10.2.0.0/24]
    pool: [10.0.0.200, 10.0.0.201]
`

func TestWarningsHaveTheirPlace(t *testing.T) {
	config, err := Parse("web.yaml", []byte(placedFile))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"web.yaml:6:5: access_sets[1]: no rule names access set forgotten: name it in the `from` of a rule, or remove it",
		"web.yaml:14:9: access_lists[0].rules[3]: rule 4 of access list edge is never reached, because rule 3 decides for all clients: " +
			"move that one to the end, or remove the rules after it",
		"web.yaml:16:5: access_lists[1]: access list spare decides nothing: name it in a service's `access`, or in `access` for all services",
	}
	if got := Warnings("web.yaml", []byte(placedFile), config); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := Warnings("web.yaml", nil, config); len(got) != 3 || !strings.HasPrefix(got[0], "access_sets[1]: no rule") {
		t.Errorf("without the file: %q", got)
	}
}

func TestAddressesHaveTheirPlace(t *testing.T) {
	config, err := Parse("web.yaml", []byte(placedFile))
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{
		"10.0.0.80":  "web.yaml:19:23: services[0].vip: ",
		"10.1.0.10":  "web.yaml:2:19: local_addresses[0]: ",
		"10.1.0.11":  "web.yaml:3:24: peer_local_addresses[0]: ",
		"10.0.0.201": "web.yaml:23:24: snat[0].pool[1]: ",
		"10.9.9.9":   "",
	} {
		got := ""
		if path := config.PathOf(netip.MustParseAddr(address)); path != "" {
			got = Place("web.yaml", []byte(placedFile), path)
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", address, got, want)
		}
	}
	for _, path := range []string{"services[1].vip", "services[x]", "services[0].vip.more", "nothing", "local_addresses.x"} {
		if got := Place("web.yaml", []byte(placedFile), path); got != path+": " {
			t.Errorf("%s: got %q", path, got)
		}
	}
	aliased := "a: &x { b: [1, 2] }\nc: *x\n"
	if got := Place("f", []byte(aliased), "c.b[1]"); got != "f:1:16: c.b[1]: " {
		t.Errorf("got %q", got)
	}
}

// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"steelyard/internal/model"
)

const accessText = `version: 1
access_sets:
  - { name: bad, file: /etc/steelyard/../bad.txt }
  - { name: office, prefixes: ["2001:db8::/32", 192.0.2.7, 192.0.2.0/24, 192.0.2.0/25] }
access_lists:
  - name: edge
    rules:
      - { action: allow, from: [10.0.0.0/8, office, "fd00::1"] }
      - { name: datagrams, action: count, protocol: udp }
      - { action: reset, protocol: tcp, ports: [23, 6000-6063], log: 1000 }
  - { name: none, otherwise: drop, existing: end, rules: [] }
access: edge
services:
  - { name: a, vip: 10.0.0.80, port: 80, access: none, servers: [] }
`

func TestAccessLists(t *testing.T) {
	config, err := Parse("f", []byte(accessText))
	if err != nil {
		t.Fatal(err)
	}
	want := []model.AccessList{
		{Name: "edge", Otherwise: model.AccessAllow, Rules: []model.AccessRule{
			{Action: model.AccessAllow, From: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::1/128")},
				Sets: []string{"office"}},
			{Name: "datagrams", Action: model.AccessCount, Protocol: model.UDP},
			{Action: model.AccessReset, Protocol: model.TCP, LogEvery: 1000,
				Ports: []model.PortRange{{First: 23, Last: 23}, {First: 6000, Last: 6063}}},
		}},
		{Name: "none", Otherwise: model.AccessDrop, Existing: model.EndExisting},
	}
	sets := []model.AccessSet{{Name: "bad", File: "/etc/bad.txt"}, {Name: "office", Prefixes: []netip.Prefix{
		netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")}}}
	if !reflect.DeepEqual(config.AccessSets, sets) {
		t.Errorf("got %+v", config.AccessSets)
	}
	if !reflect.DeepEqual(config.AccessLists, want) || config.GlobalAccess != "edge" || config.Services[0].Policy.Access != "none" {
		t.Errorf("got %+v, %q, %q", config.AccessLists, config.GlobalAccess, config.Services[0].Policy.Access)
	}
}

func TestBadAccessLists(t *testing.T) {
	for _, test := range []struct{ old, now, want string }{
		{"access: edge", "access: egde", `no access list "egde"`},
		{"access: none", "access: unknown", `no access list "unknown"`},
		{"name: none", "name: edge", "names must be unique"},
		{"10.0.0.0/8", "10.0.0.1/8", "write 10.0.0.0/8"},
		{"10.0.0.0/8", "everybody", "there is no access set of this name"},
		{"10.0.0.0/8", "every.body/", "is not a prefix"},
		{"10.0.0.0/8", "every*", "neither a prefix"},
		{"name: office", "name: 10.0.0.1", "is an address"},
		{"name: office", "name: office, prefixes: []}\n  - { name: office", "names must be unique"},
		{"prefixes: [", "file: /etc/x, prefixes: [", "a set has either `prefixes` or a `file`"},
		{"name: office", "name: x }\n  - { name: office", "a set has either `prefixes` or a `file`"},
		{"name: office", "name: x, file: bad.txt }\n  - { name: office", "is not an absolute path"},
		{"192.0.2.7", "192.0.2.7/24", "write 192.0.2.0/24"},
		{"10.0.0.0/8", `"::ffff:10.0.0.0/104"`, "IPv4-mapped IPv6 prefix"},
		{"action: allow, ", "", "`action` is missing"},
		{"action: count", "action: log", "use allow, drop, reset or count"},
		{"otherwise: drop", "otherwise: count", "use allow, drop or reset"},
		{"existing: end", "existing: reset", "use keep or end"},
		{"ports: [23, ", "ports: [all, ", "leave `ports` out"},
		{"6000-6063", "6063-6000", "lower port first"},
		{"log: 1000", "log: 0", "out of range"},
		{"name: datagrams", "name: 2", `"2" cannot be a rule's name`},
		{"name: datagrams", "name: otherwise", "cannot be a rule's name"},
		{"{ action: allow", "{ name: datagrams, action: allow", "a rule in line 8 is named \"datagrams\" too"},
	} {
		text := strings.Replace(accessText, test.old, test.now, 1)
		if _, err := Parse("f", []byte(text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", test.now, err)
		}
	}
}

func TestAccessListsHaveLimits(t *testing.T) {
	rules := func(n int, rule string) []byte {
		return []byte("version: 1\nservices: []\naccess_lists:\n  - name: a\n    rules:\n" + strings.Repeat("      - "+rule+"\n", n))
	}
	for _, test := range []struct {
		maximum int
		rule    string
	}{{1024, "{ action: drop }"}, {15, "{ action: count }"}, {512, "{ action: drop, from: [10.0.0.1, 10.0.0.2], ports: [1, 2, 3, 4] }"}} {
		if _, err := Parse("f", rules(test.maximum, test.rule)); err != nil {
			t.Errorf("%d of %s: %v", test.maximum, test.rule, err)
		}
		if _, err := Parse("f", rules(test.maximum+1, test.rule)); err == nil || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("%d of %s: %v", test.maximum+1, test.rule, err)
		}
	}
}

// FuzzAccess: whatever the lists are, the file is read or refused, and good lists obey the limits.
func FuzzAccess(f *testing.F) {
	f.Add("edge", "drop", "10.0.0.0/8", "80-90", "tcp", "1000")
	f.Add("none", "count", "::/0", "1", "udp", "1")
	f.Fuzz(func(t *testing.T, name, action, from, ports, protocol, log string) {
		text := "version: 1\nservices: []\naccess_lists:\n  - name: " + name + "\n    rules:\n      - { action: " + action +
			", from: [" + from + "], ports: [" + ports + "], protocol: " + protocol + ", log: " + log + " }\n"
		config, err := Parse("f", []byte(text))
		if err != nil {
			return
		}
		for _, list := range config.AccessLists {
			for _, rule := range list.Rules {
				for _, prefix := range rule.From {
					if prefix != prefix.Masked() || prefix.Addr().Is4In6() {
						t.Errorf("%s", prefix)
					}
				}
				for _, ports := range rule.Ports {
					if ports.First == 0 || ports.Last < ports.First {
						t.Errorf("%s", ports)
					}
				}
			}
		}
	})
}

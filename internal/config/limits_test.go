// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"steelyard/internal/model"
)

const limitsText = `version: 1
local_addresses: [10.1.0.10]
services:
  - { name: web, vip: 10.0.0.80, port: 80, servers: [{ address: 10.1.0.11, port: 8080 }, { address: 10.1.0.12 }] }
  - { name: dns, vip: 10.0.0.81, port: 53, protocol: udp, servers: [{ address: 10.1.0.11, port: 53 }, { address: 10.1.0.11, port: 54 }] }
tenants:
  - { name: acme, services: [web], vips: [10.0.0.81] }
limits:
  - { name: acme-1g, tenant: acme, bits_per_second: 1G, burst: 2MB, count: l2+fcs, direction: to-clients }
  - { name: all, packets_per_second: 1.5k }
  - { name: sessions, services: [web, dns], new_sessions_per_second: 500, burst: 1k }
  - { name: noisy, service: web, bits_per_second: 8k, clients: { within: [10.0.0.0/8, 10.1.0.0/16, "2001:db8::/32"], prefix4: 24, max_clients: 10 } }
  - { name: each, vip: 10.0.0.80, packets_per_second: 10M, clients: {}, action: { mark: af13 } }
  - { name: one, server: { service: web, address: 10.1.0.11 }, bits_per_second: 100M, engine: light-lock, batch: 10kB, action: { mark: 7 } }
  - { name: two, server: { service: dns, address: 10.1.0.11, port: 54 }, bits_per_second: 1.000001M, action: drop }
`

func TestLimits(t *testing.T) {
	config, err := Parse("f", []byte(limitsText))
	if err != nil {
		t.Fatal(err)
	}
	if want := []model.Tenant{{Name: "acme", Services: []string{"web"}, VIPs: []netip.Addr{netip.MustParseAddr("10.0.0.81")}}}; !reflect.DeepEqual(config.Tenants, want) {
		t.Errorf("got %+v", config.Tenants)
	}
	prefixes := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}
	bits := model.LimitSpec{Unit: model.LimitBits, Layer: model.LimitL3, Direction: model.LimitBoth, Action: model.LimitDrop}
	packets := model.LimitSpec{Unit: model.LimitPackets, Direction: model.LimitBoth, Action: model.LimitDrop}
	with := func(spec model.LimitSpec, change func(*model.LimitSpec)) model.LimitSpec {
		change(&spec)
		return spec
	}
	want := []model.ConfigLimit{
		{Name: "acme-1g", Of: model.LimitTarget{Tenant: "acme"}, Spec: with(bits, func(s *model.LimitSpec) {
			s.PerSecond, s.Burst, s.Layer, s.Direction = 1e9, 2e6, model.LimitL2FCS, model.LimitToClients
		})},
		{Name: "all", Spec: with(packets, func(s *model.LimitSpec) { s.PerSecond, s.Burst = 1500, 375 })},
		{Name: "sessions", Of: model.LimitTarget{Services: []string{"web", "dns"}},
			Spec: model.LimitSpec{Unit: model.LimitSessions, PerSecond: 500, Burst: 1000, Action: model.LimitDrop}},
		{Name: "noisy", Of: model.LimitTarget{Services: []string{"web"}}, Within: prefixes, Spec: with(bits, func(s *model.LimitSpec) {
			s.PerSecond, s.Burst, s.ByClient, s.Prefix4, s.Prefix6, s.MaxClients = 8000, 32000, true, 24, 64, 10
		})},
		{Name: "each", Of: model.LimitTarget{VIPs: []netip.Addr{netip.MustParseAddr("10.0.0.80")}}, Spec: with(packets, func(s *model.LimitSpec) {
			s.PerSecond, s.Burst, s.ByClient, s.Prefix4, s.Prefix6, s.MaxClients = 1e7, 25e5, true, 32, 64, 65536
			s.Action, s.Mark = model.LimitMark, 14
		})},
		{Name: "one", Of: model.LimitTarget{Server: model.NamedServer{Service: "web", Address: netip.MustParseAddrPort("10.1.0.11:8080")}},
			Spec: with(bits, func(s *model.LimitSpec) {
				s.PerSecond, s.Burst, s.Engine, s.Batch, s.Action, s.Mark = 1e8, 3125000, model.EngineLightLock, 10000, model.LimitMark, 7
			})},
		{Name: "two", Of: model.LimitTarget{Server: model.NamedServer{Service: "dns", Address: netip.MustParseAddrPort("10.1.0.11:54")}},
			Spec: with(bits, func(s *model.LimitSpec) { s.PerSecond, s.Burst = 1000001, 32000 })},
	}
	for i := range want {
		if !reflect.DeepEqual(config.Limits[i], want[i]) {
			t.Errorf("got  %+v\nwant %+v", config.Limits[i], want[i])
		}
	}
	if len(config.Limits) != len(want) || len(config.Warnings()) > 0 {
		t.Errorf("%d limits; %v", len(config.Limits), config.Warnings())
	}
}

func TestBadLimits(t *testing.T) {
	for _, test := range []struct{ old, now, want string }{
		{"tenant: acme,", "tenant: acmee,", `f:9:30: limits[0].tenant: there is no tenant "acmee": did you mean acme?`},
		{"services: [web]", "services: [wbe]", `f:7:30: tenants[0].services[0]: there is no service "wbe": did you mean web?`},
		{"services: [web]", "services: [none]", "use a name that `services` has"},
		{"services: [web]", "services: [web, web]", "web is in this list already"},
		{"vips: [10.0.0.81]", "vips: [10.0.0.81, 10.0.0.81]", "10.0.0.81 is in this list already"},
		{"services: [web], vips: [10.0.0.81]", "vips: []", "f:7:5: tenants[0]: the tenant is empty"},
		{"limits:\n", "  - { name: acme, services: [dns] }\nlimits:\n", "a tenant in line 7 is named \"acme\" too"},
		{"name: all", "name: acme-1g", "a limit in line 9 is named \"acme-1g\" too"},
		{"tenant: acme,", "tenant: acme, vip: 10.0.0.80,", "f:9:41: limits[0].vip: a limit has only one of"},
		{"services: [web, dns]", "services: []", "no service is named"},
		{"services: [web, dns]", "services: [web, dsn]", `there is no service "dsn": did you mean dns?`},
		{"bits_per_second: 1G", "bits_per_second: 1Gbit", `f:9:53: limits[0].bits_per_second: "1Gbit" is not a rate: did you mean 1G?`},
		{"bits_per_second: 1G", "bits_per_second: 1g", `"1g" is not a rate: did you mean 1G?`},
		{"bits_per_second: 1G", "bits_per_second: 1e9", `"1e9" is not a rate: did you mean 1G?`},
		{"bits_per_second: 1G", "bits_per_second: 0.5", "0.5 is not a whole number per second"},
		{"bits_per_second: 1G", "bits_per_second: 1.0000000001G", "is not a whole number per second"},
		{"bits_per_second: 1G", "bits_per_second: 7999", "7999 is out of range: use 8k to 400G"},
		{"bits_per_second: 1G", "bits_per_second: 400.1G", "400.1G is out of range: use 8k to 400G"},
		{"bits_per_second: 1G", "bits_per_second: 99999999999999999999G", "is out of range: use 8k to 400G"},
		{"packets_per_second: 1.5k", "packets_per_second: 0", "0 is out of range: use 1 to 1G"},
		{"packets_per_second: 1.5k", "packets_per_second: -1", `"-1" is not a rate`},
		{"new_sessions_per_second: 500", "new_sessions_per_second: 11M", "use 1 to 10M"},
		{"packets_per_second: 1.5k", "packets_per_second: 1.5k, bits_per_second: 1M", "a limit has one rate: remove `bits_per_second`"},
		{"packets_per_second: 1.5k", "burst: 5", "f:10:5: limits[1]: the limit has no rate"},
		{"burst: 2MB", "burst: 2M", "a bits_per_second limit has bytes here: write 2MB"},
		{"burst: 2MB", "burst: 2MiB", `"2MiB" has a binary unit`},
		{"burst: 2MB", "burst: 2mB", `"2mB" is not an amount: did you mean 2MB?`},
		{"burst: 2MB", "burst: much", `"much" is not an amount`},
		{"burst: 2MB", "burst: 1.5", "1.5 is not a whole number"},
		{"burst: 2MB", "burst: 1517", "packets of 1500 bytes would never pass, because they count as 1518 with `l2+fcs`: use at least that"},
		{"burst: 2MB", "burst: 101GB", "101000000000 is out of range: use 1 to 100G"},
		{"burst: 2MB", "burst: 99999999999GB", "out of range: use at most 100GB"},
		{"burst: 1k", "burst: 1kB", "a new_sessions_per_second limit has sessions here, not bytes"},
		{"burst: 1k", "burst: 0", "0 is out of range: use 1 to 1G"},
		{"burst: 1k", "direction: both", "f:11:86: limits[2].direction: new_sessions_per_second has no direction: use `packets_per_second`"},
		{"burst: 1k", "count: l1", "new_sessions_per_second has no bytes to count"},
		{"burst: 1k", "action: { mark: ef }", "there is nothing to mark"},
		{"action: { mark: af13 }", "action: { mark: af14 }", `"af14" is not a DSCP`},
		{"action: { mark: af13 }", "action: { mark: 64 }", `"64" is not a DSCP`},
		{"action: { mark: af13 }", "action: mark", `"mark" is unknown: use drop, or {mark: af13}`},
		{"action: { mark: af13 }", "action: {}", "`mark` is missing"},
		{"count: l2+fcs", "count: l7", "use l3, l2, l2+fcs or l1"},
		{"engine: light-lock", "engine: cas", "only light-lock has batches"},
		{"batch: 10kB", "batch: 4MB", "the batch is larger than the burst, 3125000"},
		{"burst: 1k", "engine: atomic", "so `engine: atomic` is not possible"},
		{"engine: light-lock, batch: 10kB", "engine: atomic", "so `engine: atomic` is not possible"},
		{"clients: {}, ", "clients: {}, engine: lock, ", "so `engine: lock` is not possible"},
		{"prefix4: 24", "prefix4: 7", "7 is out of range: use 8 to 32"},
		{"prefix4: 24, ", "prefix4: 9, ", "and 10.1.0.0/16 is smaller: use `prefix4: 16`"},
		{"max_clients: 10", "max_clients: 2000000", "use 1 to 1048576"},
		{"within: [10.0.0.0/8", "within: [10.0.0.1/8", "write 10.0.0.0/8"},
		{"{ service: web, address: 10.1.0.11 }", "{ service: web, address: 10.1.0.13 }", "web has no such server"},
		{"{ service: web, address: 10.1.0.11 }", "{ service: web, address: 10.1.0.11, port: 80 }", "web has no such server"},
		{"{ service: web, address: 10.1.0.11 }", "{ service: wep, address: 10.1.0.11 }", "did you mean web?"},
		{"address: 10.1.0.11, port: 54 }, bits", "address: 10.1.0.11 }, bits", "dns has 10.1.0.11 with 2 ports: add the `port`"},
	} {
		text := strings.Replace(limitsText, test.old, test.now, 1)
		if text == limitsText {
			t.Errorf("%s is not in the text", test.old)
		}
		_, err := Parse("f", []byte(text))
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v\nwant %s", test.now, err, test.want)
		}
	}
}

func TestLimitsHaveLimits(t *testing.T) {
	frame := func(services int, rest string) []byte {
		text := "version: 1\nservices:\n"
		if services == 0 {
			text = "version: 1\nservices: []\n"
		}
		var names []string
		for i := range services {
			text += fmt.Sprintf("  - { name: s%d, vip: 10.0.%d.%d, port: 80, servers: [] }\n", i, i/250, 1+i%250)
			names = append(names, fmt.Sprintf("s%d", i))
		}
		return []byte(text + strings.Replace(rest, "NAMES", strings.Join(names, ", "), 1))
	}
	const tenant = "tenants:\n  - { name: t, services: [NAMES] }\nlimits:\n  - { name: l, tenant: t, bits_per_second: 1M }\n"
	const limit = "limits:\n  - { name: l, services: [NAMES], bits_per_second: 1M }\n"
	for _, rest := range []string{tenant, limit} {
		if _, err := Parse("f", frame(1024, rest)); err != nil {
			t.Error(err)
		}
		if _, err := Parse("f", frame(1025, rest)); err == nil || !strings.Contains(err.Error(), "at most 1024 are possible") {
			t.Error(err)
		}
	}
	for what, of := range map[string]string{"all services": "", "service s0": "service: s0, ", "VIP 10.0.0.9": "vip: 10.0.0.9, "} {
		limits := "tenants: [{ name: t, services: [s0], vips: [10.0.0.9] }]\nlimits:\n"
		for i := range 8 {
			limits += fmt.Sprintf("  - { name: l%d, %spackets_per_second: 5 }\n", i, of)
		}
		if _, err := Parse("f", frame(1, limits)); err != nil {
			t.Error(err)
		}
		if of != "" {
			of = "tenant: t, "
		}
		limits += "  - { name: more, " + of + "packets_per_second: 5 }\n"
		if _, err := Parse("f", frame(1, limits)); err == nil || !strings.Contains(err.Error(), "limits[8]: more than 8 limits apply to "+what) {
			t.Error(err)
		}
	}
	const within = "limits:\n  - { name: l, bits_per_second: 1M, clients: { within: [%s10.0.0.0/8] } }\n"
	for more, good := range map[int]bool{63: true, 64: false} {
		if _, err := Parse("f", frame(0, fmt.Sprintf(within, strings.Repeat("192.0.2.0/24, ", more)))); (err == nil) != good {
			t.Errorf("%d: %v", more, err)
		}
	}
}

// What all limits have together: what the forwarder has room for, and not one more.
func TestLimitsHaveTotals(t *testing.T) {
	var buckets, tenants, named strings.Builder
	for i := range 16 {
		fmt.Fprintf(&buckets, "  - { name: c%d, vip: 10.0.0.%d, packets_per_second: 5, clients: {} }\n", i, 1+i)
	}
	const targets = 1 << 10 // of a tenant; 32 tenants with 8 limits each fill the forwarder
	for i := range 32 {
		var vips []string
		for j := range targets {
			vips = append(vips, fmt.Sprintf("10.%d.%d.%d", 1+i, j/250, 1+j%250))
		}
		fmt.Fprintf(&tenants, "  - { name: t%d, vips: [%s] }\n", i, strings.Join(vips, ", "))
		for j := range 8 {
			fmt.Fprintf(&named, "  - { name: l%d-%d, tenant: t%d, packets_per_second: 5 }\n", i, j, i)
		}
	}
	last := "  - { name: l31-7, tenant: t31, packets_per_second: 5"
	prefixed := strings.Replace(named.String(), last, last+", clients: { within: [192.0.2.0/24], max_clients: 1 }", 1)
	of := func(rest string) string {
		return "  - { name: x, vip: 10.0.1.1, packets_per_second: 5" + rest + " }\n"
	}
	for _, test := range []struct{ tenants, limits, want string }{
		{"", buckets.String(), ""},
		{"", buckets.String() + of(""), ""},
		{"", buckets.String() + of(", clients: { max_clients: 1 }"),
			"f:20:78: limits[16].clients.max_clients: the limits by clients have 1048577 buckets up to this one, at most 1048576 are possible together"},
		{"", buckets.String() + of(", clients: {}"), "f:20:63: limits[16].clients: the limits by clients have 1114112 buckets"},
		{tenants.String(), named.String(), ""},
		{tenants.String(), named.String() + of(""),
			"f:293:5: limits[256]: the limits name 262145 services, VIPs, servers and prefixes of clients up to this one"},
		{tenants.String(), prefixed, "f:292:5: limits[255]: the limits name 262145"},
	} {
		text := "version: 1\nservices: []\n"
		if test.tenants != "" {
			text += "tenants:\n" + test.tenants
		}
		_, err := Parse("f", []byte(text+"limits:\n"+test.limits))
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.HasPrefix(err.Error(), test.want)) {
			t.Errorf("%.200v\nwant %s", err, test.want)
		}
	}
}

func TestWarningsOfLimits(t *testing.T) {
	for _, test := range []struct{ old, now, want string }{
		{"vip: 10.0.0.80, packets", "vip: 10.0.0.82, packets", "f:13:24: limits[4].vip: no service has the VIP 10.0.0.82: limit each concerns nothing there"},
		{"vips: [10.0.0.81]", "vips: [10.0.0.81, 10.0.0.82]", "f:7:54: tenants[0].vips[1]: no service has the VIP 10.0.0.82: tenant acme"},
		{"tenant: acme, ", "", "f:7:5: tenants[0]: nothing names tenant acme"},
		{"services: [web], vips: [10.0.0.81]", "services: [web]", ""},
	} {
		text := strings.Replace(limitsText, test.old, test.now, 1)
		if test.want == "" {
			text = strings.Replace(text, "port: 80, ", "port: 80, mode: dr, ", 1)
			text = strings.Replace(text, "port: 8080", "port: 80", 1)
			test.want = "f:9:95: limits[0].direction: servers of dr and ipip services answer clients directly, so limit acme-1g concerns no packet"
		}
		config, err := Parse("f", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", test.now, err)
			continue
		}
		if got := Warnings("f", []byte(text), config); len(got) != 1 || !strings.HasPrefix(got[0], test.want) {
			t.Errorf("%s: %v", test.now, got)
		}
	}
}

// Where a forged SYN takes from a client's bucket of new sessions.
func TestWarningsOfForgedClients(t *testing.T) {
	const begun = "new_sessions_per_second: 500, burst: 1k"
	const always = "{ name: web, syn_defence: always, "
	for _, test := range []struct{ web, of, rate, want string }{
		{"{ name: web, ", "services: [web, dns], ", begun + ", clients: {}", "web"},
		{"{ name: web, ", "", begun + ", clients: {}", "web"}, // all services
		{"{ name: web, ", "vip: 10.0.0.80, ", begun + ", clients: {}", "web"},
		{"{ name: web, ", "server: { service: web, address: 10.1.0.12 }, ", begun + ", clients: {}", "web"},
		{"{ name: web, syn_defence: \"off\", ", "service: web, ", begun + ", clients: {}", "web"},
		{always, "", begun + ", clients: {}", ""},
		{"{ name: web, ", "service: dns, ", begun + ", clients: {}", ""}, // over UDP there is no SYN defence
		{"{ name: web, ", "service: web, ", begun, ""},
		{"{ name: web, ", "service: web, ", "packets_per_second: 500, clients: {}", ""},
	} {
		text := strings.Replace(limitsText, "{ name: web, ", test.web, 1)
		text = strings.Replace(text, "services: [web, dns], "+begun, test.of+test.rate, 1)
		config, err := Parse("f", []byte(text))
		if err != nil {
			t.Errorf("%+v: %v", test, err)
			continue
		}
		got := Warnings("f", []byte(text), config)
		want := "so attackers can use up a client's rate of limit sessions: use `syn_defence: always` for " + test.want
		if test.want == "" && len(got) != 0 || test.want != "" &&
			(len(got) != 1 || !strings.HasPrefix(got[0], "f:11:") || !strings.Contains(got[0], "limits[2].clients: ") || !strings.HasSuffix(got[0], want)) {
			t.Errorf("%+v: %q", test, got)
		}
	}
}

// A file whose services change is read in parts; its limits name services that the parts lack.
func TestLimitsSurviveChangesOfServices(t *testing.T) {
	var parser Parser
	if _, err := parser.Parse("f", []byte(limitsText)); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ old, now, want string }{
		{"address: 10.1.0.12 }", "address: 10.1.0.12, weight: 7 }", ""},
		{"vip: 10.0.0.80, port: 80, servers", "vip: 10.0.0.83, port: 80, servers", ""},
		{"name: web, vip", "name: www, vip", `there is no service "web"`},
		{"address: 10.1.0.11, port: 8080 }", "address: 10.1.0.11, port: 8081 }", ""}, // the limit has no port: another server
		{"address: 10.1.0.11, port: 54 }]", "address: 10.1.0.11, port: 55 }]", "dns has no such server"},
	} {
		text := strings.Replace(limitsText, test.old, test.now, 1)
		got, err := parser.Parse("f", []byte(text))
		want, wantErr := Parse("f", []byte(text))
		if !reflect.DeepEqual(got, want) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Errorf("%s: %+v, %v; want %+v, %v", test.now, got, err, want, wantErr)
		}
		if (test.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", test.now, err)
		}
		if _, err := parser.Parse("f", []byte(limitsText)); err != nil {
			t.Error(err)
		}
	}
}

// FuzzLimits: whatever the limits are, the file is read or refused, and good ones obey the forwarder's rules.
func FuzzLimits(f *testing.F) {
	f.Add("acme-1g", "bits_per_second", "1G", "2MB", "l1", "to-clients", "af13", "10.0.0.0/8", "batch: 5kB, engine: light-lock")
	f.Add("x", "new_sessions_per_second", "5", "5", "l3", "both", "0", "::/0", "count: l3")
	f.Fuzz(func(t *testing.T, name, unit, rate, burst, count, way, mark, within, more string) {
		text := "version: 1\nservices: []\nlimits:\n  - { name: " + name + ", " + unit + ": " + rate + ", burst: " + burst + ", count: " + count +
			", direction: " + way + ", action: { mark: " + mark + " }, clients: { within: [" + within + "] }, " + more + " }\n"
		config, err := Parse("f", []byte(text))
		if err != nil {
			return
		}
		for _, limit := range config.Limits {
			s := limit.Spec
			limits := rateRanges[s.Unit]
			if s.Unit == 0 || s.PerSecond < limits.low || s.PerSecond > limits.high || s.Burst == 0 || s.Burst > maxBurstBytes || s.Mark > 63 ||
				s.Unit != model.LimitBits && s.Layer != 0 || s.Unit == model.LimitSessions && (s.Direction != 0 || s.Action != model.LimitDrop) {
				t.Errorf("%+v", limit)
			}
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"reflect"
	"testing"
)

func TestNumbersAreExact(t *testing.T) {
	bits, packets, sessions := LimitSpec{Unit: LimitBits}, LimitSpec{Unit: LimitPackets}, LimitSpec{Unit: LimitSessions}
	for _, test := range []struct {
		spec         LimitSpec
		n            uint64
		rate, amount string
	}{
		{bits, 8000, "8 kbit/s", "8 kB"}, {bits, 999, "999 bit/s", "999 bytes"}, {bits, 1_500_000, "1.5 Mbit/s", "1.5 MB"},
		{bits, 1_000_001, "1.000001 Mbit/s", "1.000001 MB"}, {bits, 400_000_000_000, "400 Gbit/s", "400 GB"},
		{packets, 100_000, "100k packets/s", "100k packets"}, {sessions, 500, "500 new sessions/s", "500 sessions"},
		{sessions, 1_234_567_891, "1.234567891G new sessions/s", "1.234567891G sessions"},
	} {
		test.spec.PerSecond = test.n
		if rate, amount := test.spec.Rate(), test.spec.Amount(test.n); rate != test.rate || amount != test.amount {
			t.Errorf("%d: %s, %s", test.n, rate, amount)
		}
	}
}

func TestDSCPsHaveNames(t *testing.T) {
	for dscp, name := range map[DSCP]string{0: "cs0", 14: "af13", 46: "ef", 7: "7", 63: "63"} {
		if dscp.String() != name {
			t.Errorf("%d: %s", dscp, dscp)
		}
	}
	if dscp, ok := DSCPByName("af43"); !ok || dscp != 38 {
		t.Error(dscp, ok)
	}
}

func limitedConfig() *Config {
	service := func(name, vip string, port uint16, server string) Service {
		return Service{Name: name, Key: key(vip, port), Servers: []Server{{Address: netip.MustParseAddrPort(server)}}}
	}
	bits := LimitSpec{Unit: LimitBits, PerSecond: 1e9, Burst: 6250000, Layer: LimitL3, Direction: LimitBoth, Action: LimitDrop}
	return &Config{
		Services: []Service{service("web", "10.0.0.80", 80, "10.1.0.11:8080"), service("api", "10.0.0.79", 80, "10.1.0.12:8080")},
		Tenants:  []Tenant{{Name: "acme", Services: []string{"web", "api"}, VIPs: []netip.Addr{netip.MustParseAddr("10.0.0.81")}}},
		Limits: []ConfigLimit{{Name: "acme-1g", Of: LimitTarget{Tenant: "acme"}, Spec: bits}, {Name: "all", Spec: bits},
			{Name: "one", Spec: bits, Of: LimitTarget{Server: NamedServer{"web", netip.MustParseAddrPort("10.1.0.11:8080")}}}},
	}
}

func limitTable(c *Config) *Table {
	table := NewTable()
	for i := range c.Services {
		table.Services[c.Services[i].Key] = &TableService{Spec: ServiceSpec{Name: c.Services[i].Name, Mode: FNAT}}
	}
	for _, limit := range c.ResolveLimits() {
		table.Limits[limit.Name] = limit
	}
	return table
}

func TestLimitsGetKeys(t *testing.T) {
	limits := limitTable(limitedConfig()).Limits
	acme := limits["acme-1g"]
	if !reflect.DeepEqual(acme.Services, []ServiceKey{key("10.0.0.79", 80), key("10.0.0.80", 80)}) || acme.Tenant != "acme" ||
		!reflect.DeepEqual(acme.VIPs, []netip.Addr{netip.MustParseAddr("10.0.0.81")}) || acme.Servers != nil {
		t.Errorf("%+v", acme)
	}
	if all := limits["all"]; all.Services != nil || all.VIPs != nil || all.Servers != nil {
		t.Errorf("%+v", all)
	}
	if one := limits["one"]; !reflect.DeepEqual(one.Servers, []ServerRef{{key("10.0.0.80", 80), netip.MustParseAddrPort("10.1.0.11:8080")}}) {
		t.Errorf("%+v", one)
	}
}

// Each change of a configuration is one change of the forwarder, and says what it was before.
func TestChangesOfLimits(t *testing.T) {
	names := func(k ServiceKey) string {
		return map[ServiceKey]string{key("10.0.0.80", 80): "web", key("10.0.0.79", 80): "api"}[k]
	}
	for _, test := range []struct {
		change func(*Config)
		want   string
	}{
		{func(*Config) {}, ""},
		{func(c *Config) { c.Limits[0].Spec.PerSecond = 2e9 }, "change limit acme-1g: rate 1 Gbit/s -> 2 Gbit/s\n"},
		{func(c *Config) { c.Limits = c.Limits[1:] }, "remove limit acme-1g: \n"},
		{func(c *Config) { c.Limits[1].Name = "every" },
			"add limit every: all services: 1 Gbit/s, burst 6.25 MB, drop\nremove limit all: \n"},
		{func(c *Config) { c.Tenants[0].Services = []string{"web"} }, "change limit acme-1g: services api web -> web\n"},
		{func(c *Config) { c.Tenants[0].VIPs = nil }, "change limit acme-1g: vips 10.0.0.81 -> none\n"},
		{func(c *Config) { c.Limits[0].Of = LimitTarget{Services: []string{"web"}} },
			"change limit acme-1g: tenant acme -> none, services api web -> web, vips 10.0.0.81 -> none\n"},
		{func(c *Config) {
			s := &c.Limits[2].Spec
			s.ByClient, s.Prefix4, s.Prefix6, s.MaxClients = true, 24, 64, 100
			c.Limits[2].Within = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
		}, "change limit one: clients none -> /24 and /64, maximum of clients none -> 100, within none -> 10.0.0.0/8\n"},
		{func(c *Config) {
			s := &c.Limits[2].Spec
			s.Layer, s.Direction, s.Action, s.Mark, s.Engine, s.Batch = LimitL1, LimitToServers, LimitMark, 46, EngineLightLock, 5000
		}, "change limit one: count l3 -> l1, direction both -> to-servers, action drop -> mark ef, engine auto -> light-lock, batch none -> 5000\n"},
		{func(c *Config) {
			c.Limits = append(c.Limits, ConfigLimit{Name: "new", Of: LimitTarget{Server: c.Limits[2].Of.Server}, Spec: LimitSpec{
				Unit: LimitPackets, PerSecond: 1500, Burst: 75, Direction: LimitToClients, Action: LimitMark, Mark: 14, Engine: EngineLightLock,
				Batch: 7, ByClient: true, Prefix4: 32, Prefix6: 64, MaxClients: 9}})
		}, "add limit new: server 10.1.0.11:8080 of web: 1.5k packets/s, burst 75 packets, each client of /32 and /64, at most 9, " +
			"to-clients, mark af13, engine light-lock, batch 7 packets\n"},
	} {
		from, config := limitTable(limitedConfig()), limitedConfig()
		test.change(config)
		to, got := limitTable(config), ""
		for _, change := range Diff(from, to) {
			d := Describe(change, from, names)
			got += d.Action + " " + d.Object + ": " + d.Detail + "\n"
			if err := from.Do(change); err != nil {
				t.Error(err)
			}
		}
		if got != test.want {
			t.Errorf("got:\n%swant:\n%s", got, test.want)
		}
		if !reflect.DeepEqual(from.Limits, to.Limits) {
			t.Errorf("%s: %+v", test.want, from.Limits)
		}
	}
}

// New services are limited from their first packet, and old ones to their last.
func TestLimitsComeFirstAndLeaveLast(t *testing.T) {
	changes := Diff(NewTable(), limitTable(limitedConfig()))
	if changes[0].Kind != PutLimit || changes[len(changes)-1].Kind != PutService {
		t.Errorf("%v", changes)
	}
	changes = Diff(limitTable(limitedConfig()), NewTable())
	if changes[0].Kind != DeleteService || changes[len(changes)-1].Kind != DeleteLimit {
		t.Errorf("%v", changes)
	}
}

// A service that moves takes its limits along, also where only the changed services are compared.
func TestLimitsFollowTheirServices(t *testing.T) {
	before, after := limitedConfig(), limitedConfig()
	after.Services[0].Key = key("10.0.0.90", 80)
	after.Limits[1].Spec.PerSecond = 5e8
	changed, ok := ChangedServices(before, after)
	if !ok || len(changed) != 2 {
		t.Fatalf("%v, %v", changed, ok)
	}
	actual, desired := limitTable(before), limitTable(after)
	for _, change := range Diff(actual.Part(changed), desired.Part(changed)) {
		if err := actual.Do(change); err != nil {
			t.Error(err)
		}
	}
	if !reflect.DeepEqual(actual.Limits, desired.Limits) || len(actual.Services) != 2 {
		t.Errorf("%+v", actual)
	}
}

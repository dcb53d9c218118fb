// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"testing"
)

// What a change of a port's shaping is described as: what differs, and no more.
func TestDescribeShaping(t *testing.T) {
	key := ServiceKey{Protocol: TCP, VIP: netip.MustParseAddr("10.0.0.80"), Port: 80}
	made := func() Shaping {
		return Shaping{Port: "eth0", Rate: 1e9, Burst: 250_000, Layer: LimitL1,
			Classes: []ShapingClass{{Name: "a", Weight: 1, Queue: 256, Maximum: 1e8}, {Name: "b", Priority: 7, Weight: 1, Queue: 256}},
			Tenants: []ShapingTenant{{Weight: 1, Services: []ShapingService{{Weight: 1}}}, {Name: "acme", Weight: 4, Services: []ShapingService{
				{Weight: 1}, {Name: "web", Weight: 1, Class: "a", Services: []ServiceKey{key}}}}}}
	}
	for _, test := range []struct {
		name   string
		change func(*Shaping)
		want   string
	}{
		{"rate and layer", func(s *Shaping) { s.Rate, s.Layer = 2e9, LimitL2 }, "rate 1 Gbit/s -> 2 Gbit/s, count l1 -> l2"},
		{"a class", func(s *Shaping) { s.Classes[0].Maximum, s.Classes[0].DSCP = 0, []DSCP{46} }, "class a: maximum 100 Mbit/s -> none, dscp none -> ef"},
		{"another class", func(s *Shaping) { s.Classes = append(s.Classes, ShapingClass{Name: "c", Weight: 1, Queue: 9}) },
			"class c added: priority 0, weight 1, queue 9"},
		{"no tenant", func(s *Shaping) { s.Tenants = s.Tenants[:1] }, "service web of acme removed; tenant acme removed"},
		{"a tenant", func(s *Shaping) {
			s.Tenants = append(s.Tenants, ShapingTenant{Name: "blue", Guaranteed: 1e6, Weight: 1, Services: []ShapingService{{Weight: 1}}})
		}, "tenant blue added: weight 1, guaranteed 1 Mbit/s"},
		{"a service", func(s *Shaping) { s.Tenants[1].Services[1].Class = "" }, "service web of acme: class a -> none"},
		{"the order", func(s *Shaping) { s.Classes[0], s.Classes[1] = s.Classes[1], s.Classes[0] }, "the order changes"},
	} {
		now := made()
		test.change(&now)
		from := &Table{Shaping: map[string]Shaping{"eth0": made()}}
		got := describeShaping(Change{Kind: PutShaping, Shaping: now}, from, ServiceKey.String)
		if want := (Description{"change", "shaping of port eth0", test.want}); got != want {
			t.Errorf("%s: got %+v", test.name, got)
		}
	}
	got := describeShaping(Change{Kind: PutShaping, Shaping: made()}, &Table{}, ServiceKey.String)
	if want := (Description{"add", "shaping of port eth0", "1 Gbit/s, burst 250 kB, counts l1, 2 classes, 1 tenant, 1 service"}); got != want {
		t.Errorf("got %+v", got)
	}
}

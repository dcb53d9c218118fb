// SPDX-License-Identifier: Apache-2.0

package model

import (
	"math/rand/v2"
	"net/netip"
	"testing"
)

func ports(vip string, first, last uint16) ServiceKey {
	k := key(vip, first)
	k.LastPort = last
	return k
}

func TestServicesOfManyPortsInWords(t *testing.T) {
	for _, test := range []struct {
		key  ServiceKey
		many bool
		want string
	}{
		{ports("10.0.0.80", 80, 0), false, "tcp 10.0.0.80:80"},
		{ports("10.0.0.80", 8000, 8099), true, "tcp 10.0.0.80:8000-8099"},
		{ports("fd00::80", 0, 0), true, "tcp [fd00::80]:*"},
	} {
		if got := test.key.String(); got != test.want || test.key.Many() != test.many {
			t.Errorf("got %q, %v, want %q, %v", got, test.key.Many(), test.want, test.many)
		}
	}
	for _, text := range []string{"10.1.0.21:80", "10.1.0.21:*", "[fd00::21]:80", "[fd00::21]:*"} {
		server, err := ParseServer(text)
		if err != nil || ServerText(server) != text {
			t.Errorf("%s became %s, %v", text, ServerText(server), err)
		}
	}
	if _, err := ParseServer("10.1.0.21"); err == nil {
		t.Error("a server without a port was taken")
	}
}

// Two ranges cross if each has ports that the other lacks, and both have common ports.
func TestCrossing(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	key := func() ServiceKey {
		first, last := uint16(1+random.IntN(12)), uint16(1+random.IntN(12))
		switch {
		case random.IntN(8) == 0:
			return ports("10.0.0.80", 0, 0)
		case last <= first:
			return ports("10.0.0.80", first, 0)
		}
		return ports("10.0.0.80", first, last)
	}
	holds := func(k ServiceKey, port uint16) bool {
		return k.Port == 0 || k.Port == port || k.LastPort != 0 && k.Port <= port && port <= k.LastPort
	}
	for range 10000 {
		a, b := key(), key()
		var both, onlyA, onlyB bool
		for port := range uint16(14) {
			inA, inB := holds(a, port), holds(b, port)
			both = both || inA && inB
			onlyA = onlyA || inA && !inB
			onlyB = onlyB || !inA && inB
		}
		if want := both && onlyA && onlyB; a.Crosses(b) != want || b.Crosses(a) != want {
			t.Fatalf("%s and %s: want %v", a, b, want)
		}
	}
	if all := ports("10.0.0.80", 0, 0); !all.SamePorts(ports("10.0.0.80", 1, 65535)) || all.SamePorts(ports("10.0.0.80", 2, 65535)) ||
		all.SamePorts(ports("10.0.0.81", 1, 65535)) {
		t.Error("all ports are those from 1 to 65535")
	}
	other := ports("10.0.0.80", 5, 9)
	other.Protocol = UDP
	if ports("10.0.0.80", 1, 6).Crosses(other) || ports("10.0.0.81", 1, 6).Crosses(ports("10.0.0.80", 5, 9)) {
		t.Error("another protocol's or VIP's ports are in the way")
	}
}

// A changed range is another service.
func TestChangedRangeReplacesTheService(t *testing.T) {
	from, to := NewTable(), NewTable()
	server := netip.MustParseAddrPort("10.1.0.21:0")
	for table, k := range map[*Table]ServiceKey{from: ports("10.0.0.80", 8000, 8099), to: ports("10.0.0.80", 8000, 8199)} {
		table.Services[k] = &TableService{Servers: map[netip.AddrPort]ServerSpec{server: {Weight: 1, State: Up}}}
	}
	want := []string{"remove service x (tcp 10.0.0.80:8000-8099)", "add service x (tcp 10.0.0.80:8000-8199)",
		"add server 10.1.0.21:* of x"}
	changes := Diff(from, to)
	if len(changes) != len(want) {
		t.Fatalf("got %v", changes)
	}
	for i, change := range changes {
		d := Describe(change, from, func(ServiceKey) string { return "x" })
		if d.Action+" "+d.Object != want[i] {
			t.Errorf("got %s %s, want %s", d.Action, d.Object, want[i])
		}
	}
}

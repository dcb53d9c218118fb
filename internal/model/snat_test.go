// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"slices"
	"testing"
)

func rule(name, inside string, pool ...string) SNAT {
	r := SNAT{Name: name, Inside: []netip.Prefix{netip.MustParsePrefix(inside)}, Timeouts: DefaultTimeouts}
	for _, address := range pool {
		r.Pool = append(r.Pool, netip.MustParseAddr(address))
	}
	return r
}

func tableOf(rules ...SNAT) *Table {
	table := NewTable()
	for _, r := range rules {
		table.SNAT[r.Name] = r
	}
	return table
}

func TestSNATChanges(t *testing.T) {
	one := rule("one", "10.1.0.0/24", "10.0.0.1", "10.0.0.2")
	turned := rule("one", "10.1.0.0/24", "10.0.0.2", "10.0.0.1")
	more := rule("one", "10.1.0.0/24", "10.0.0.1", "10.0.0.3")
	more.Timeouts[Echo] = 5
	local := tableOf(rule("one", "10.1.0.0/24", "10.0.0.2"))
	local.LocalAddresses[netip.MustParseAddr("10.0.0.1")] = LocalSpec{}
	for _, test := range []struct {
		name     string
		from, to *Table
		want     []string
	}{
		{"nothing", tableOf(one), tableOf(turned), nil},
		{"add", tableOf(), tableOf(one), []string{"add snat one: 10.1.0.0/24 from 10.0.0.1 10.0.0.2"}},
		{"remove", tableOf(one), tableOf(), []string{"remove snat one: its sessions end"}},
		{"change", tableOf(one), tableOf(more),
			[]string{"change snat one: pool -10.0.0.2, pool +10.0.0.3, timeout echo 60 -> 5"}},
		// an address that changes its role first leaves the old one, in both directions
		{"pool to local", tableOf(one), local, []string{"remove snat one: its sessions end",
			"add local address 10.0.0.1: ", "add snat one: 10.1.0.0/24 from 10.0.0.2"}},
		{"local to pool", local, tableOf(one), []string{"remove local address 10.0.0.1: its sessions end",
			"change snat one: pool +10.0.0.1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			reached := tableOf()
			for _, r := range test.from.SNAT {
				reached.SNAT[r.Name] = r
			}
			for _, change := range Diff(test.from, test.to) {
				d := Describe(change, reached, nil)
				got = append(got, d.Action+" "+d.Object+": "+d.Detail)
				if err := reached.Do(change); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
			for name, wanted := range test.to.SNAT {
				if !reached.SNAT[name].equal(wanted) || len(reached.SNAT) != len(test.to.SNAT) {
					t.Errorf("rules are %v", reached.SNAT)
				}
			}
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func key(vip string, port uint16) ServiceKey {
	return ServiceKey{Protocol: TCP, VIP: netip.MustParseAddr(vip), Port: port}
}

// build makes a table from lines "local ADDR", "peer ADDR" (a peer's local address), "service VIP PORT NAME",
// and "server ADDR:PORT WEIGHT STATE", which belongs to the service before it.
func build(t *testing.T, text string) *Table {
	t.Helper()
	table := NewTable()
	var service *TableService
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) == 0:
		case f[0] == "local", f[0] == "peer":
			table.LocalAddresses[netip.MustParseAddr(f[1])] = LocalSpec{OfPeer: f[0] == "peer"}
		case f[0] == "service":
			var port uint16
			fmt.Sscan(f[2], &port)
			service = &TableService{
				Spec:    ServiceSpec{Name: f[3], Mode: FNAT, Policy: Policy{Scheduler: WRR}, Timeouts: DefaultTimeouts},
				Servers: map[netip.AddrPort]ServerSpec{},
			}
			table.Services[key(f[1], port)] = service
		case f[0] == "server":
			spec := ServerSpec{State: map[string]State{"up": Up, "down": Down, "drain": Drain}[f[3]]}
			fmt.Sscan(f[2], &spec.Weight)
			service.Servers[netip.MustParseAddrPort(f[1])] = spec
		default:
			t.Fatalf("bad line %q", line)
		}
	}
	return table
}

const before = `
local 10.1.0.10
local 10.1.0.11
local 10.1.0.13
peer 10.1.0.14
service 10.0.0.80 80 web
server 10.1.0.21:8080 10 up
server 10.1.0.22:8080 5 up
server 10.1.0.23:8080 5 up
service 10.0.0.81 80 old
server 10.1.0.21:8080 1 up
`

const after = `
local 10.1.0.10
local 10.1.0.12
peer 10.1.0.13
local 10.1.0.14
peer 10.1.0.15
service 10.0.0.80 80 web
server 10.1.0.21:8080 10 up
server 10.1.0.22:8080 7 down
server 10.1.0.24:8080 1 up
service 10.0.0.82 80 new
server 10.1.0.21:8080 1 drain
service 10.1.0.11 80 moved
service 10.1.0.23 80 taken
`

func TestDiffIsSmallAndOrdered(t *testing.T) {
	from, to := build(t, before), build(t, after)
	var got []string
	for _, change := range Diff(from, to) {
		names := func(k ServiceKey) string {
			if s := to.Services[k]; s != nil {
				return s.Spec.Name
			}
			return from.Services[k].Spec.Name
		}
		d := Describe(change, from, names)
		got = append(got, strings.TrimSuffix(d.Action+" "+d.Object+": "+d.Detail, ": "))
		if err := from.Do(change); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"remove service old (tcp 10.0.0.81:80): its sessions end",
		"remove server 10.1.0.23:8080 of web: its sessions end", // its address becomes a VIP
		"add local address 10.1.0.12",
		"change local address 10.1.0.14: of a peer -> own",
		"add local address 10.1.0.15: of a peer",
		"remove local address 10.1.0.11: its sessions end", // becomes a VIP too
		"add service new (tcp 10.0.0.82:80): fnat, wrr",
		"add service moved (tcp 10.1.0.11:80): fnat, wrr",
		"add service taken (tcp 10.1.0.23:80): fnat, wrr",
		"change server 10.1.0.22:8080 of web: weight 5 -> 7, up -> down",
		"add server 10.1.0.24:8080 of web: weight 1, up",
		"add server 10.1.0.21:8080 of new: weight 1, drain",
		"change local address 10.1.0.13: own -> of a peer",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if left := Diff(from, to); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
}

func TestANewServiceNamesItsResets(t *testing.T) {
	for want, resets := range map[string]Resets{
		"fnat, wrr":                              DefaultResets,
		"fnat, wrr, resets down":                 {Down: true},
		"fnat, wrr, resets expired+down+unknown": {true, true, true},
	} {
		spec := ServiceSpec{Mode: FNAT, Policy: Policy{Scheduler: WRR, Resets: resets}}
		got := Describe(Change{Kind: PutService, Spec: spec}, NewTable(), func(ServiceKey) string { return "web" }).Detail
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestDiffOfASpecNamesWhatChanges(t *testing.T) {
	from, to := build(t, before), build(t, before)
	k := key("10.0.0.80", 80)
	to.Services[k].Spec.Policy = Policy{Scheduler: Maglev, HashOn: HashTuple, Persistence: Persistence{300, 24, 64},
		SlowStart: 30, OnePacket: true, SloppyTCP: true, MaxSessions: 1000, ClientAddress: ProxyV1, ClientOptions: KeepOptions, Resets: Resets{Down: true}, SynDefence: DefenceAlways, Unavailable: UnavailableICMP, Sync: Sync{From: SyncAll}, Mark: Mark{true, 46}}
	to.Services[k].Spec.Name = "site"
	to.Services[k].Spec.Timeouts[Established] = 60
	changes := Diff(from, to)
	if len(changes) != 1 {
		t.Fatalf("%v", changes)
	}
	got := Describe(changes[0], from, func(ServiceKey) string { return "site" })
	want := Description{"change", "service site (tcp 10.0.0.80:80)",
		"name web -> site, scheduler wrr -> maglev, hash_on none -> tuple, persistence none -> 5m0s for /24 and /64, " +
			"slow_start none -> 30s, one_packet false -> true, sloppy_tcp false -> true, max_sessions none -> 1000, client_address none -> proxy_v1, client_options remove -> keep, dscp none -> ef, resets none -> down, syn_defence off -> always, when_unavailable reset -> icmp, sync established -> all, " +
			"timeout established 900 -> 60"}
	if got != want {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestDiffOfAServerNamesWhatChanges(t *testing.T) {
	from, to := build(t, before), build(t, before)
	k, address := key("10.0.0.80", 80), netip.MustParseAddrPort("10.1.0.22:8080")
	to.Services[k].Servers[address] = ServerSpec{Weight: 5, State: Up, Backup: true, MaxSessions: 7}
	to.Services[k].Servers[netip.MustParseAddrPort("10.1.0.29:8080")] = ServerSpec{Weight: 1, State: Up, Backup: true, MaxSessions: 7}
	var got []string
	for _, change := range Diff(from, to) {
		got = append(got, Describe(change, from, func(ServiceKey) string { return "web" }).Detail)
	}
	want := []string{"backup false -> true, max_sessions none -> 7", "weight 1, up, backup, at most 7 sessions"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestAnotherModeCreatesAServiceAgain(t *testing.T) {
	from, to := build(t, before), build(t, before)
	k := key("10.0.0.80", 80)
	to.Services[k].Spec.Mode = DR
	var got []string
	for _, change := range Diff(from, to) {
		d := Describe(change, from, func(ServiceKey) string { return "web" })
		got = append(got, d.Action+" "+d.Object+": "+d.Detail)
	}
	want := []string{
		"remove service web (tcp 10.0.0.80:80): its sessions end",
		"add service web (tcp 10.0.0.80:80): dr, wrr",
		"add server 10.1.0.21:8080 of web: weight 10, up",
		"add server 10.1.0.22:8080 of web: weight 5, up",
		"add server 10.1.0.23:8080 of web: weight 5, up",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestPolicyInWords(t *testing.T) {
	for want, policy := range map[string]Policy{
		"wrr":              {Scheduler: WRR},
		"maglev by source": {Scheduler: Maglev, HashOn: HashSource},
		"rr, persistence 1m0s for /24 and /64, slow start 2s, one packet, at most 5 sessions": {Scheduler: RR,
			Persistence: Persistence{60, 24, 64}, SlowStart: 2, OnePacket: true, MaxSessions: 5},
	} {
		if got := policy.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := Scheduler(99).String(); got != "scheduler-99" {
		t.Errorf("got %q", got)
	}
}

func TestServersOfNoServiceAreRefused(t *testing.T) {
	for _, kind := range []ChangeKind{PutServer, DeleteServer} {
		if err := NewTable().Do(Change{Kind: kind, Service: key("10.0.0.80", 80)}); err == nil {
			t.Errorf("%s was done", kind)
		}
	}
}

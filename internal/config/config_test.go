// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"steelyard/deploy"
	"steelyard/internal/model"
)

var update = flag.Bool("update", false, "write the golden files again")

// Every file in testdata has errors; its golden file lists all of them.
func TestBadFilesReportAllErrors(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no test files: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			config, err := Parse(filepath.Base(file), data)
			if err == nil || config != nil {
				t.Fatalf("accepted: %v", config)
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			got := err.Error() + "\n"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got:\n%swant:\n%s", got, want)
			}
		})
	}
}

// Each invalid value is put into the same place of a good file.
func TestBadValues(t *testing.T) {
	const frame = "version: 1\nlocal_addresses: [10.1.0.10, fd00:1::10]\nservices:\n  - name: web\n    vip: 10.0.0.80\n" +
		"    port: 80\n    %s\n    servers:\n      - { address: 10.1.0.21, %s }\n"
	for _, test := range []struct{ service, server, line, want string }{
		{"mode: tun", "port: 1", "7:11", `services[0].mode: "tun" is unknown: use fnat, dr, nat or ipip`},
		{"mode: dr", "port: 81", "9:37",
			"services[0].servers[0].port: dr translates no ports, so the server must listen on the service's, 80: use that, or fnat"},
		{"mode: ipip", "port: 81", "9:37",
			"services[0].servers[0].port: ipip translates no ports, so the server must listen on the service's, 80: use that, or fnat"},
		{"scheduler: mh", "port: 1", "7:16",
			`services[0].scheduler: "mh" is unknown: use rr, wrr, lc, wlc, sed, sh, maglev, conhash, share or p2c`},
		{"hash_on: tuple", "port: 1", "7:14",
			"services[0].hash_on: wrr does not hash: use the scheduler sh, maglev or conhash, or remove this line"},
		{"persistence: {}", "port: 1", "7:18",
			"services[0].persistence: `timeout` is missing: add `timeout: …` (duration of whole seconds, 1s to 9h)"},
		{"persistence: { timeout: 1m, prefix4: 33 }", "port: 1", "7:42",
			"services[0].persistence.prefix4: 33 is out of range: use 1 to 32"},
		{"persistence: { timeout: 1m, prefix6: 0 }", "port: 1", "7:42",
			"services[0].persistence.prefix6: 0 is out of range: use 1 to 128"},
		{"slow_start: 2h", "port: 1", "7:17", "services[0].slow_start: 2h is out of range: use 1s to 1h"},
		{"slow_start: 1500ms", "port: 1", "7:17", "services[0].slow_start: 1500ms is not in whole seconds: use 2s"},
		{"max_sessions: 0", "port: 1", "7:19", "services[0].max_sessions: 0 is out of range: use 1 to 2147483647"},
		{"resets: { expired: 1 }", "port: 1", "7:24", `services[0].resets.expired: "1" is neither true nor false: write one of them`},
		{"mode: dr\n    scheduler: maglev\n    sloppy_tcp: true", "max_sessions: 5", "11:45",
			"services[0].servers[0].max_sessions: `max_sessions` sends a full server's sessions to other servers, where `sloppy_tcp` does not find them: remove one"},
		{"sloppy_tcp: true", "weight: 1", "7:17",
			"services[0].sloppy_tcp: fnat needs the session to translate a connection's packets: use `mode: dr` or `mode: ipip`, or remove this line"},
		{"mode: ipip\n    sloppy_tcp: true", "weight: 1", "8:17",
			"services[0].sloppy_tcp: wrr does not select the same server on all forwarders: use the scheduler maglev or conhash, or remove this line"},
		{"mode: dr\n    scheduler: sh\n    sloppy_tcp: true", "weight: 1", "9:17",
			"services[0].sloppy_tcp: sh does not select the same server on all forwarders: use the scheduler maglev or conhash, or remove this line"},
		{"mode: dr\n    protocol: udp\n    sloppy_tcp: true", "weight: 1", "9:17",
			"services[0].sloppy_tcp: only TCP services have this key: use `protocol: tcp`, or remove this line"},
		{"mode: dr\n    scheduler: conhash\n    sloppy_tcp: true\n    slow_start: 3s", "weight: 1", "9:17",
			"services[0].sloppy_tcp: `sloppy_tcp` selects the server by hash only, and `slow_start` changes the hash when a server comes up at one forwarder: remove one"},
		{"mode: dr\n    scheduler: conhash\n    sloppy_tcp: true\n    persistence: { timeout: 3s }", "weight: 1", "9:17",
			"services[0].sloppy_tcp: `sloppy_tcp` selects the server by hash only, `persistence` by the state of one forwarder: remove one"},
		{"mode: dr\n    scheduler: maglev\n    sloppy_tcp: true\n    client_limits: { sessions: 5 }", "weight: 1", "10:32",
			"services[0].client_limits.sessions: with `sloppy_tcp` a segment without a handshake begins a session, so forged segments would use up a client's sessions: " +
				"use new_per_second, or remove this line or `sloppy_tcp`"},
		{"resets: { idle: true }", "port: 1", "7:15", "services[0].resets.idle: unknown key: valid keys are expired, down, unknown"},
		{"resets: true", "port: 1", "7:13",
			"services[0].resets: \"true\" found, a mapping is needed: write `expired: …` and so on below it"},
		{"protocol: udp\n    resets: { down: true }", "port: 1", "8:13",
			"services[0].resets: only TCP has resets: use `protocol: tcp`, or remove this line"},
		{"one_packet: true", "port: 1", "7:17",
			"services[0].one_packet: only datagrams can be scheduled one by one: use `protocol: udp`, or remove this line"},
		{"protocol: udp\n    mode: dr\n    one_packet: true", "port: 80", "9:17",
			"services[0].one_packet: only fnat can match answers to single datagrams: use `mode: fnat`, or remove this line"},
		{"protocol: udp\n    one_packet: true\n    persistence: { timeout: 1m }", "port: 1", "9:18",
			"services[0].persistence: `persistence` sends all of a client's datagrams to one server, `one_packet` spreads them: remove one"},
		{"client_address: proxy", "port: 1", "7:21",
			`services[0].client_address: "proxy" is unknown: use none, toa, proxy_v1 or proxy_v2`},
		{"protocol: udp\n    syn_defence: always", "port: 1", "8:18",
			"services[0].syn_defence: only TCP connections begin with a SYN: use `protocol: tcp`, or remove this line"},
		{"when_unavailable: icmpv6", "port: 1", "7:23",
			`services[0].when_unavailable: "icmpv6" is unknown: use drop, reset or icmp`},
		{"syn_defence: on", "port: 1", "7:18",
			`services[0].syn_defence: "on" is unknown: use auto, always or off`},
		{"protocol: udp\n    client_address: toa", "port: 1", "8:21",
			"services[0].client_address: only TCP services under fnat can pass on the client's address: use `protocol: tcp` and `mode: fnat`, or remove this line"},
		{"client_address: toa\n    client_options: keep", "port: 1", "8:21",
			"services[0].client_options: a client's own TOA option would contradict the forwarder's, which `client_address: toa` inserts: remove one of the two lines"},
		{"client_options: drop", "port: 1", "7:21", `services[0].client_options: "drop" is unknown: use remove or keep`},
		{"mode: nat\n    client_address: proxy_v2", "port: 1", "8:21",
			"services[0].client_address: only TCP services under fnat can pass on the client's address: use `protocol: tcp` and `mode: fnat`, or remove this line"},
		{"mode: fnat", "max_sessions: 0", "9:45", "services[0].servers[0].max_sessions: 0 is out of range: use 1 to 2147483647"},
		{"mode: fnat", "backup: 1", "9:39", `services[0].servers[0].backup: "1" is neither true nor false: write one of them`},
		{"protocol: icmp", "port: 1", "7:15", `services[0].protocol: "icmp" is unknown: use tcp or udp`},
		{"timeouts: { established: 0s }", "port: 1", "7:30",
			"services[0].timeouts.established: 0s is out of range: use 1s to 9h"},
		{"timeouts: { udp: 1500ms }", "port: 1", "7:22", "services[0].timeouts.udp: 1500ms is not in whole seconds: use 2s"},
		{"timeouts: 5s", "port: 1", "7:15",
			"services[0].timeouts: \"5s\" found, a mapping is needed: write `syn_sent: …` and so on below it"},
		{"health: { timeout: 2m }", "port: 1", "7:24", "services[0].health.timeout: 2m is out of range: use 10ms to 1m"},
		{"health: { fall: 101 }", "port: 1", "7:21", "services[0].health.fall: 101 is out of range: use 1 to 100"},
		{"health: { jitter: 51% }", "port: 1", "7:23", "services[0].health.jitter: 51% is out of range: use 0% to 50%"},
		{"health: { type: http, expect: 300-200 }", "port: 1", "7:35",
			`services[0].health.expect: "300-200" is not a range of HTTP status codes: write 200 or 200-399`},
		{"health: { tiemout: 1s }", "port: 1", "7:15", "services[0].health.tiemout: unknown key: did you mean `timeout`?"},
		{"vip: 10.0.0.81", "port: 1", "7:5", "services[0].vip: duplicate key, first in line 5: remove one"},
		{"mode: fnat", "port: 65536", "9:37", "services[0].servers[0].port: 65536 is out of range: use 1 to 65535"},
		{"mode: fnat", "weight: 1.5", "9:39",
			`services[0].servers[0].weight: "1.5" is not a whole number: use 0 to 65535`},
		{"mode: fnat", "weight: ~", "9:39", "services[0].servers[0].weight: no value: add one, or remove the key"},
		{"mode: fnat", "drain: 1", "9:38", `services[0].servers[0].drain: "1" is neither true nor false: write one of them`},
		{"mode: fnat", "drain_deadline: 10m", "9:47",
			"services[0].servers[0].drain_deadline: only a drain has a deadline: add `drain: true`, or remove this"},
		{"mode: fnat", "drain: true, drain_deadline: 200ms", "9:60",
			"services[0].servers[0].drain_deadline: 200ms is out of range: use 1s to 168h"},
		{"mode: fnat", "zzzzz: 1", "9:31",
			"services[0].servers[0].zzzzz: unknown key: valid keys are address, port, weight, drain, drain_deadline, backup, max_sessions, load, link"},
	} {
		_, err := Parse("f", fmt.Appendf(nil, frame, test.service, test.server))
		want := "f:" + test.line + ": " + test.want
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// The file's default is for services of both protocols that name none.
func TestWhenUnavailable(t *testing.T) {
	const services = "services:\n" +
		"  - { name: a, vip: 10.0.0.80, port: 80, servers: [] }\n" +
		"  - { name: b, vip: 10.0.0.80, port: 81, protocol: udp, servers: [] }\n" +
		"  - { name: c, vip: 10.0.0.80, port: 82, mode: dr, when_unavailable: drop, servers: [] }\n" +
		"  - { name: d, vip: 10.0.0.80, port: 83, when_unavailable: reset, servers: [] }\n" +
		"  - { name: e, vip: 10.0.0.80, port: 84, protocol: udp, when_unavailable: icmp, servers: [] }\n"
	for defaults, want := range map[string]string{
		"":                                       "reset reset drop reset icmp",
		"defaults: { when_unavailable: drop }\n": "drop drop drop reset icmp",
		"defaults: { when_unavailable: reset }\n": "reset reset drop reset icmp",
		"defaults: { when_unavailable: icmp }\n":  "icmp icmp drop reset icmp",
	} {
		config, err := Parse("f", []byte("version: 1\nlocal_addresses: [10.1.0.10]\n"+defaults+services))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, service := range config.Services {
			got = append(got, service.Policy.Unavailable.String())
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%q: got %s, want %s", defaults, text, want)
		}
	}
}

// As when_unavailable.
func TestSync(t *testing.T) {
	const services = "services:\n" +
		"  - { name: a, vip: 10.0.0.80, port: 80, servers: [] }\n" +
		"  - { name: b, vip: 10.0.0.80, port: 81, protocol: udp, mode: nat, servers: [] }\n" +
		"  - { name: c, vip: 10.0.0.80, port: 82, mode: dr, sync: off, servers: [] }\n" +
		"  - { name: d, vip: 10.0.0.80, port: 83, sync: established, servers: [] }\n" +
		"  - { name: e, vip: 10.0.0.80, port: 84, protocol: udp, sync: all, servers: [] }\n" +
		"  - { name: f, vip: 10.0.0.80, port: 85, sync: { older_than: 1h }, servers: [] }\n"
	for defaults, want := range map[string]string{
		"":                                         "established, established, off, established, all, older than 1h0m0s",
		"defaults: { sync: off }\n":                "off, off, off, established, all, older than 1h0m0s",
		"defaults: { sync: established }\n":        "established, established, off, established, all, older than 1h0m0s",
		"defaults: { sync: all }\n":                "all, all, off, established, all, older than 1h0m0s",
		"defaults: { sync: strict }\n":             "strict, strict, off, established, all, older than 1h0m0s",
		"defaults: { sync: { older_than: 3s } }\n": "older than 3s, older than 3s, off, established, all, older than 1h0m0s",
	} {
		config, err := Parse("f", []byte("version: 1\nlocal_addresses: [10.1.0.10]\n"+defaults+services))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, service := range config.Services {
			got = append(got, service.Policy.Sync.String())
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%q: got %s, want %s", defaults, text, want)
		}
	}
	for text, want := range map[string]string{
		"sometimes":               `"sometimes" is unknown: use off, established, all or strict`,
		"[off]":                   "a list found",
		"{}":                      "`older_than` is missing",
		"{ older_than: 3 }":       `"3" is not a duration`,
		"{ older_than: 1500ms }":  "is not in whole seconds: use 2s",
		"{ older_than: 2h }":      "2h is out of range: use 1s to 1h",
		"{ older: 3s }":           "unknown key: valid keys are older_than",
		"{ older_than: 3s, a: b}": "unknown key",
	} {
		_, err := Parse("f", []byte("version: 1\nlocal_addresses: [10.1.0.10]\ndefaults: { sync: "+text+" }\nservices: []\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", text, err)
		}
	}
}

// The default depends on the mode; the file's own default is for all TCP services, and for them only.
func TestSynDefence(t *testing.T) {
	const services = "services:\n" +
		"  - { name: a, vip: 10.0.0.80, port: 80, servers: [] }\n" +
		"  - { name: b, vip: 10.0.0.80, port: 81, mode: nat, servers: [] }\n" +
		"  - { name: c, vip: 10.0.0.80, port: 82, mode: dr, servers: [] }\n" +
		"  - { name: d, vip: 10.0.0.80, port: 83, mode: ipip, servers: [] }\n" +
		"  - { name: e, vip: 10.0.0.80, port: 84, protocol: udp, servers: [] }\n" +
		"  - { name: f, vip: 10.0.0.80, port: 85, mode: dr, syn_defence: auto, servers: [] }\n" +
		"  - { name: g, vip: 10.0.0.80, port: 86, syn_defence: off, servers: [] }\n"
	for defaults, want := range map[string]string{
		"":                                    "auto auto off off off auto off",
		"defaults: { syn_defence: always }\n": "always always always always off auto off",
		"defaults: { syn_defence: auto }\n":   "auto auto auto auto off auto off",
		"defaults: { syn_defence: off }\n":    "off off off off off auto off",
	} {
		config, err := Parse("f", []byte("version: 1\nlocal_addresses: [10.1.0.10]\n"+defaults+services))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, service := range config.Services {
			got = append(got, service.Policy.SynDefence.String())
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%q: got %s, want %s", defaults, text, want)
		}
	}
}

func TestPolicy(t *testing.T) {
	const text = "version: 1\nlocal_addresses: [10.1.0.10]\ndefaults: { scheduler: conhash, resets: { down: true } }\nservices:\n" +
		"  - { name: a, vip: 10.0.0.80, port: 80, servers: [] }\n" +
		"  - { name: b, vip: 10.0.0.80, port: 81, scheduler: maglev, hash_on: tuple, persistence: { timeout: 5m }, servers: [] }\n" +
		"  - { name: c, vip: 10.0.0.80, port: 53, protocol: udp, scheduler: sed, one_packet: true, dscp: cs0, slow_start: 1m, max_sessions: 7, client_limits: { new_per_second: 3 },\n" +
		"      servers: [{ address: 10.1.0.21, backup: true, max_sessions: 9 }] }\n" +
		"  - { name: d, vip: 10.0.0.80, port: 82, scheduler: lc, persistence: { timeout: 9h, prefix4: 24, prefix6: 56 },\n" +
		"      resets: { expired: true, down: false, unknown: true }, servers: [] }\n" +
		"  - { name: e, vip: 10.0.0.80, port: 83, client_address: proxy_v2, health: { type: http }, servers: [] }\n" +
		"  - { name: f, vip: 10.0.0.80, port: 84, client_address: toa, health: { type: http }, servers: [] }\n" +
		"  - { name: g, vip: 10.0.0.80, port: 85, client_address: none, syn_defence: always, client_limits: { new_per_second: 10000, burst: 100000, sessions: 1000000 }, servers: [] }\n" +
		"  - { name: h, vip: 10.0.0.80, port: 86, mode: dr, sloppy_tcp: true, syn_defence: always, client_limits: { new_per_second: 7 }, servers: [] }\n" +
		"  - { name: i, vip: 10.0.0.80, port: 87, resets: { expired: false, down: false }, servers: [] }\n"
	config, err := Parse("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []model.Policy{
		{Scheduler: model.ConHash, HashOn: model.HashSource, Resets: model.Resets{Expired: true, Down: true}, SynDefence: model.DefenceAuto},
		{Scheduler: model.Maglev, HashOn: model.HashTuple, Persistence: model.Persistence{Timeout: 300, Prefix4: 32, Prefix6: 128},
			Resets: model.Resets{Expired: true, Down: true}, SynDefence: model.DefenceAuto},
		{Scheduler: model.SED, Mark: model.Mark{Set: true}, OnePacket: true, SlowStart: 60, MaxSessions: 7, Clients: model.ClientLimits{NewPerSecond: 3, Burst: 3}},
		{Scheduler: model.LC, Persistence: model.Persistence{Timeout: 32400, Prefix4: 24, Prefix6: 56},
			Resets: model.Resets{Expired: true, Unknown: true}, SynDefence: model.DefenceAuto},
		{Scheduler: model.ConHash, HashOn: model.HashSource, ClientAddress: model.ProxyV2, Resets: model.Resets{Expired: true, Down: true}, SynDefence: model.DefenceAuto},
		{Scheduler: model.ConHash, HashOn: model.HashSource, ClientAddress: model.TOA, Resets: model.Resets{Expired: true, Down: true}, SynDefence: model.DefenceAuto},
		{Scheduler: model.ConHash, HashOn: model.HashSource, Resets: model.Resets{Expired: true, Down: true}, SynDefence: model.DefenceAlways,
			Clients: model.ClientLimits{NewPerSecond: 10000, Burst: 100000, Sessions: 1000000}},
		{Scheduler: model.ConHash, HashOn: model.HashSource, SloppyTCP: true, Resets: model.Resets{Down: true}, SynDefence: model.DefenceAlways,
			Clients: model.ClientLimits{NewPerSecond: 7, Burst: 7}},
		{Scheduler: model.ConHash, HashOn: model.HashSource, SynDefence: model.DefenceAuto},
	} {
		if got := config.Services[i].Policy; got != want {
			t.Errorf("service %d: got %+v, want %+v", i, got, want)
		}
	}
	if e, f := config.Services[4].Health.Proxy, config.Services[5].Health.Proxy; e != model.ProxyV2 || f != 0 {
		t.Errorf("checks begin with %s and %s", e, f)
	}
	if server := config.Services[2].Servers[0]; !server.Backup || server.MaxSessions != 9 {
		t.Errorf("got %+v", server)
	}
}

func TestLocalAddressesHaveALimit(t *testing.T) {
	write := func(n int) []byte {
		text := "version: 1\nservices: []\nlocal_addresses:\n"
		for i := range n {
			text += fmt.Sprintf("  - 10.1.%d.%d\n", i/200, i%200+1)
		}
		return []byte(text)
	}
	if _, err := Parse("f", write(255)); err != nil {
		t.Error(err)
	}
	_, err := Parse("f", write(257))
	want := "f:259:5: local_addresses[255]: 257 local addresses, at most 255 are possible: remove some"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	of := func(text string) error {
		_, err := Parse("f", []byte(text))
		return err
	}
	peers := "peer_local_addresses: [10.2.0.1, fd00:2::1]\n"
	if err := of(string(write(253)) + peers); err != nil {
		t.Error(err)
	}
	want = "f:258:34: peer_local_addresses[1]: 256 local addresses, at most 255 are possible: remove some"
	if err := of(string(write(254)) + peers); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestExample(t *testing.T) {
	config, err := Parse("steelyard.yaml", []byte(deploy.Example))
	if err != nil {
		t.Fatal(err)
	}
	timeouts := model.DefaultTimeouts
	timeouts[model.Established] = 15 * 60
	health := model.Health{Type: model.HealthTCP, Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3, Jitter: 10, Linger: time.Second}
	httpHealth, dnsHealth := health, health
	httpHealth.Type, httpHealth.Path, httpHealth.Expect = model.HealthHTTP, "/healthz", model.StatusRange{First: 200, Last: 399}
	dnsHealth.Port = 53
	at := netip.MustParseAddrPort
	vip, vip6 := netip.MustParseAddr("10.0.0.80"), netip.MustParseAddr("fd00::80")
	want := &model.Config{
		LocalAddresses: []netip.Addr{netip.MustParseAddr("10.1.0.10"), netip.MustParseAddr("fd00:1::10")},
		Services: []model.Service{
			{
				Name: "web", Key: model.ServiceKey{Protocol: model.TCP, VIP: vip, Port: 80}, Mode: model.FNAT,
				Policy: model.Policy{Scheduler: model.WRR, Resets: model.DefaultResets, SynDefence: model.DefenceAuto}, Timeouts: timeouts, Health: httpHealth,
				Servers: []model.Server{{Address: at("10.1.0.21:8080"), Weight: 10}, {Address: at("10.1.0.22:8080"), Weight: 5}},
			},
			{
				Name: "dns", Key: model.ServiceKey{Protocol: model.UDP, VIP: vip, Port: 53}, Mode: model.FNAT,
				Policy: model.Policy{Scheduler: model.WRR}, Timeouts: model.DefaultTimeouts, Health: dnsHealth,
				Servers: []model.Server{{Address: at("10.1.0.31:53"), Weight: 1}, {Address: at("10.1.0.32:53"), Weight: 1, Drain: true}},
			},
			{
				Name: "web6", Key: model.ServiceKey{Protocol: model.TCP, VIP: vip6, Port: 80}, Mode: model.FNAT,
				Policy: model.Policy{Scheduler: model.WRR, Resets: model.DefaultResets, SynDefence: model.DefenceAuto}, Timeouts: model.DefaultTimeouts, Health: health,
				Servers: []model.Server{{Address: at("[fd00:1::21]:8080"), Weight: 1}},
			},
		},
		Metrics: model.Metrics{Listen: "127.0.0.1:9270"},
	}
	if !reflect.DeepEqual(config, want) {
		t.Errorf("got  %+v\nwant %+v", config, want)
	}
}

func TestUDPIsNotCheckedUnlessAsked(t *testing.T) {
	config, err := Parse("f", []byte("version: 1\ndefaults: { health: { type: http } }\nservices:\n"+
		"  - { name: dns, vip: 10.0.0.53, port: 53, protocol: udp, servers: [] }\n"+
		"  - { name: web, vip: 10.0.0.53, port: 80, servers: [] }\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := config.Services[0].Health; got != (model.Health{Type: model.HealthNone}) {
		t.Errorf("UDP: %+v", got)
	}
	if got := config.Services[1].Health.Type; got != model.HealthHTTP {
		t.Errorf("TCP: %v", got)
	}
}

func TestAMissingLocalAddressIsOneErrorAService(t *testing.T) {
	_, err := Parse("f", []byte("version: 1\nservices:\n"+
		"  - { name: a, vip: 10.0.0.80, port: 80, servers: [{address: 10.1.0.21}, {address: 10.1.0.22}, {address: \"fd00::21\"}] }\n"+
		"  - { name: b, vip: 10.0.0.81, port: 80, servers: [{address: 10.1.0.21}, {address: 10.1.0.22}] }\n"))
	var mistakes Errors
	if !errors.As(err, &mistakes) || len(mistakes) != 3 || strings.Contains(err.Error(), "10.1.0.22") {
		t.Errorf("%d errors: %s", len(mistakes), err)
	}
}

// Whatever is wrong, an error quotes no query: it may be a token.
func TestErrorsHaveNoQuery(t *testing.T) {
	const service = "version: 1\nlocal_addresses: [10.1.0.10]\nservices:\n  - name: a\n    vip: 10.0.0.80\n    port: 80\n" +
		"    servers: [{ address: 10.1.0.21 }]\n"
	for _, health := range []string{
		"{ type: http, path: \"/a b?token=s3cr3t\" }", "{ type: http, path: a?token=s3cr3t }", "{ type: http, path:/a?token=s3cr3t: x }",
		"/a?token=s3cr3t", "{ type: http?token=s3cr3t }", "{ type: http, host: a/?token=s3cr3t }", "{ \"/a?token=s3cr3t\": 1 }",
		"{ interval: [\"/a?token=s3cr3t\"] }", "{ type: http, path: \"a?token=\\\"s3cr3t\" }",
	} {
		_, err := Parse("f", []byte(service+"    health: "+health+"\n"))
		if err == nil || strings.Contains(err.Error(), "s3cr3t") || !strings.Contains(err.Error(), "health") {
			t.Errorf("%s: %v", health, err)
		}
	}
}

func TestAliasesAreFollowedButNotMultiplied(t *testing.T) {
	config, err := Parse("f", []byte("version: 1\nlocal_addresses: [10.1.0.10]\nservices:\n"+
		"  - { name: a, vip: 10.0.0.80, port: 80, servers: &both [{address: 10.1.0.21}, {address: 10.1.0.22}] }\n"+
		"  - { name: b, vip: 10.0.0.81, port: 80, servers: *both }\n"))
	if err != nil || len(config.Services[1].Servers) != 2 {
		t.Errorf("%v, %v", config, err)
	}
	item := "{address: 10.1.0.21}"
	bomb := "version: 1\nlocal_addresses: [10.1.0.10]\nservices:\n  - { name: a, vip: 10.0.0.80, port: 80, servers: &many [" +
		strings.Repeat(item+",", 1200) + item + "] }\n" +
		strings.Repeat("  - { vip: 10.0.0.80, port: 80, servers: *many }\n", 1200)
	_, err = Parse("f", []byte(bomb))
	var mistakes Errors
	if !errors.As(err, &mistakes) || len(mistakes) > 1 || !strings.Contains(err.Error(), "do not multiply them by aliases") {
		t.Errorf("%d errors, as %.100s", len(mistakes), err)
	}
}

// FuzzParse: every file gets an answer, and accepted files keep their promises.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.yaml")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(deploy.Example))
	f.Fuzz(func(t *testing.T, data []byte) {
		config, err := Parse("f", data)
		if err != nil {
			var mistakes Errors
			if !errors.As(err, &mistakes) || len(mistakes) == 0 || config != nil {
				t.Fatalf("%v with %v", err, config)
			}
			for _, mistake := range mistakes {
				if mistake.Line < 1 || mistake.Column < 1 {
					t.Fatalf("no position: %s", mistake)
				}
			}
			return
		}
		names, keys := map[string]bool{}, map[model.ServiceKey]bool{}
		for _, service := range config.Services {
			key := service.Key
			if names[service.Name] || keys[key] || !key.VIP.IsValid() ||
				(key.LastPort != 0 && key.LastPort <= key.Port) {
				t.Fatalf("bad service %+v", service)
			}
			names[service.Name], keys[key] = true, true
			crosses := service.Mode == model.FNAT || service.Mode == model.IPIP
			many := key.Port == 0 || key.LastPort != 0
			for _, server := range service.Servers {
				same := server.Address.Addr().Is4() == key.VIP.Is4()
				if !(same || crosses) || (server.Address.Port() == 0 && !many) {
					t.Fatalf("bad server %+v of %+v", server, service)
				}
			}
		}
	})
}

// Every complete file in the documentation is a good one.
func TestExamplesInDocsAreValid(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
			example, _, _ := strings.Cut(block, "```")
			if !strings.Contains(example, "version:") {
				continue
			}
			examples++
			parse := func() error { _, err := Parse(file, []byte(example)); return err }
			if strings.Contains(example, "\ngroup:") {
				parse = func() error { _, err := ParseGroup(file, []byte(example)); return err }
			}
			if err := parse(); err != nil {
				t.Errorf("%s:\n%s%v", file, example, err)
			}
		}
	}
	if examples == 0 {
		t.Error("no examples found")
	}
}

func TestReferenceIsUpToDate(t *testing.T) {
	for file, text := range map[string]string{"configuration.md": Reference(), "man/steelyard.yaml.5": Manual()} {
		got, err := os.ReadFile("../../docs/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != text {
			t.Errorf("docs/%s differs from the schema: run `steelyard docs %s >docs/%[1]s`", file, strings.TrimSuffix(filepath.Base(file), ".md"))
		}
	}
}

// Two sections of one name would make links lead to the wrong one.
func TestSectionsOfTheReferenceHaveTheirOwnNames(t *testing.T) {
	titles := map[string]bool{}
	for _, object := range objects() {
		if titles[object.title] {
			t.Errorf("two sections are named %q: name the second one after the mapping that it is a part of", object.title)
		}
		titles[object.title] = true
	}
	_, shaping, _ := strings.Cut(Reference(), "\n## shaping\n")
	if want := "| `services` | [list of mappings](#services-of-shaping) |"; !strings.Contains(shaping, want) {
		t.Errorf("the section of shaping has no %s", want)
	}
	_, shaping, _ = strings.Cut(Manual(), "\n.SH SHAPING\n")
	if want := "See SERVICES OF SHAPING."; !strings.Contains(shaping, want) {
		t.Errorf("the manual's section of shaping has no %q", want)
	}
}

func TestNextHops(t *testing.T) {
	const rest = "\nversion: 1\nservices: []\n"
	config, err := Parse("f", []byte("next_hops: [10.0.0.1, fd00::1]"+rest))
	if err != nil || len(config.NextHops) != 2 {
		t.Fatal(config, err)
	}
	for text, want := range map[string]string{"[10.0.0.1, 10.0.0.2]": "the second one of its family, after line 1", "[127.0.0.1]": "loopback"} {
		if _, err := Parse("f", []byte("next_hops: "+text+rest)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

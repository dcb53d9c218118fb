// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"steelyard/internal/agent"
	"steelyard/internal/dpclient/dptest"
	fpb "steelyard/internal/gen/forwarderpb"
	"steelyard/internal/health"
	"steelyard/internal/model"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write the golden files again")

const configText = `version: 1
local_addresses: [10.1.0.10, fd00:1::10]
access_sets:
  - { name: office, prefixes: ["2001:db8:1::/48", 192.0.2.0/24, 192.0.2.7] }
access_lists:
  - name: edge
    rules:
      - { action: allow, from: [office, 198.18.0.0/15] }
      - { action: allow, from: [10.0.0.0/8, "fd00::/8"] }
      - { action: drop, from: [192.0.2.0/24, 198.51.100.7, 203.0.113.0/24, "2001:db8::/32"], log: 1000 }
      - { name: old-ports, action: reset, protocol: tcp, ports: [23, 6000-6063] }
  - name: inside
    otherwise: drop
    rules:
      - { action: allow, from: [10.0.0.0/8] }
access: edge
tenants:
  - { name: acme, services: [web, dns6], vips: [10.0.0.81] }
limits:
  - { name: acme-1g, tenant: acme, bits_per_second: 1G, count: l2+fcs }
  - { name: begun, service: web, new_sessions_per_second: 500 }
  - { name: everything, packets_per_second: 1.5M, direction: to-servers, engine: light-lock, batch: 2k }
  - { name: noisy, services: [web, media], bits_per_second: 8M, action: { mark: af13 }, clients: { within: [192.0.2.0/24, "2001:db8::/32"], max_clients: 1000 } }
  - { name: one, server: { service: web, address: 10.1.0.21 }, packets_per_second: 1k, clients: { prefix4: 24 } }
shaping:
  - port: eth0
    rate: 1G
    classes:
      - { name: voice, dscp: [ef, cs5], priority: 0, maximum: 100M, queue: 64 }
      - { name: bulk, weight: 2, early_drops: {} }
    tenants:
      - { tenant: acme, guaranteed: 300M, weight: 4 }
    services:
      - { service: web, guaranteed: 100M, maximum: 500M, class: voice }
  - { port: eth8, rate: 20M }
  - { port: eth9, rate: 10M }
services:
  - name: web
    vip: 10.0.0.80
    port: 80
    health: { type: none }
    max_sessions: 1000
    client_limits: { new_per_second: 20, burst: 40 }
    access: inside
    persistence: { timeout: 5m, prefix4: 24 }
    slow_start: 30s
    resets: { expired: true, unknown: true }
    syn_defence: always
    servers:
      - { address: 10.1.0.21, port: 8080, weight: 10, max_sessions: 600 }
      - { address: 10.1.0.22, port: 8080, weight: 5, drain: true, backup: true }
  - name: dns6
    vip: fd00::53
    port: 53
    protocol: udp
    scheduler: maglev
    hash_on: tuple
    one_packet: true
    timeouts: { udp: 1m }
    servers:
      - { address: "fd00:1::31" }
  - name: media
    vip: 10.0.0.81
    port: 8000-8099
    protocol: udp
    servers:
      - { address: 10.1.0.41 }
  - name: rest
    vip: 10.0.0.81
    port: all
    protocol: udp
    servers:
      - { address: 10.1.0.42, port: 7000 }
`

// lab is an agent with a fake forwarder.
type lab struct {
	*testing.T
	forwarder *dptest.Forwarder
	directory string
	config    string
	socket    string
}

func newLab(t *testing.T) *lab { return newLabWith(t, configText) }

// newLabWith returns an agent whose file has a text.
func newLabWith(t *testing.T, text string) *lab {
	t.Helper()
	f := dptest.New(t)
	l := &lab{T: t, forwarder: f, directory: t.TempDir(), socket: filepath.Join(filepath.Dir(f.Socket), "agent.sock")}
	l.config = filepath.Join(l.directory, "steelyard.yaml")
	if err := os.WriteFile(l.config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	fill(f)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- agent.Run(ctx, agent.Options{
			Config: l.config, Forwarder: f.Socket, Socket: l.socket, State: filepath.Join(l.directory, "state"),
			Log: slog.New(slog.DiscardHandler), Probe: health.Connect,
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	f.AwaitCommits(1)
	return l
}

func fill(f *dptest.Forwarder) {
	f.Status = &fpb.Status{
		Build: "fake", StartedUnixS: 1, Workers: 2, Sessions: 300, SessionsEmbryonic: 12, SessionCapacity: 1 << 20,
		SessionBytesMapped: 64 << 20, HugePages: true, RoutingRefused: "rule 100 is not supported: remove it",
		PortProblems: []string{"eth1: the interface was deleted"},
		EventDevice:  &fpb.EventDevice{Name: "event_dsw", Model: "atomic", Packets: 1000, Refused: 3, Waiting: 2},
		Pid:          4242, Upgrading: true, Adoption: &fpb.Adoption{
			Source: fpb.Adoption_SOURCE_CRASHED, AwayNs: 1234567890, DurationNs: 3456789,
			Results: []*fpb.Adoption_Result{{Name: "kept", Sessions: 290}, {Name: "torn"}, {Name: "expired", Sessions: 10}},
		},
		Phases: []*fpb.Phase{{Name: "tables", Help: "session tables", WallNs: 12e6, CpuNs: 11e6, Faults: 7},
			{Name: "workers", WallNs: 2e5, CpuNs: 1e5}, {Name: "wait", WallNs: 2e6},
			{Name: "bind", Help: "AF_XDP queues", WallNs: 27e6, CpuNs: 3e6, QueuedNs: 4e6}},
	}
	f.Traffic = func(_ *fpb.ServiceKey, server *fpb.Server) *fpb.Traffic {
		n := uint64(1)
		if server == nil {
			n = 2
		}
		return &fpb.Traffic{PacketsIn: 1000 * n, BytesIn: 64000 * n, PacketsOut: 900 * n, BytesOut: 900000 * n,
			SessionsCreated: 50 * n, SessionsActive: 5 * n}
	}
	v4, v6 := []byte{192, 0, 2, 7}, append([]byte{0xfd}, append(make([]byte, 14), 0x53)...)
	f.Sessions = []*fpb.Session{
		{Protocol: fpb.Protocol_PROTOCOL_TCP, Client: v4, ClientPort: 40000, Vip: []byte{10, 0, 0, 80}, Vport: 80,
			Local: []byte{10, 1, 0, 10}, LocalPort: 2048, Server: []byte{10, 1, 0, 21}, ServerPort: 8080,
			State: "established", IdleS: 3, AgeS: 60, Slot: 17, ExpiresS: 897},
		{Protocol: fpb.Protocol_PROTOCOL_UDP, Client: v6, ClientPort: 5353, Vip: v6, Vport: 53, Local: v6, LocalPort: 9,
			Server: v6, ServerPort: 53, State: "udp", IdleS: 1, AgeS: 1, Slot: 255, ExpiresS: 59},
	}
	f.Drops = []*fpb.Drop{
		{Name: "no-route", Help: "the kernel has no route", Packets: 1234},
		{Name: "land", Help: "source and destination are the same"},
		{Name: "table-full", Help: "raise --sessions", Packets: 1},
	}
	f.DroppedEarly = 123456
	began := uint64(time.Now().Add(-time.Hour).UnixMilli())
	web := &fpb.ServiceKey{Protocol: fpb.Protocol_PROTOCOL_TCP, Vip: []byte{10, 0, 0, 80}, Port: 80}
	f.Attacks = []*fpb.Attack{
		{Kind: "syn-flood", Help: "new TCP connections", Service: web, ServiceName: "web", BeganUnixMs: began, Packets: 92_000_000,
			Rate: 512_345, Peak: 600_000, Usual: 20, Done: []string{"100 got a session, 7 found no place"}},
		{Kind: "no-service", BeganUnixMs: began, EndedUnixMs: began + 600_000, Packets: 14_000, Rate: 3, Peak: 1_100_000, Done: []string{"dropped"}},
	}
	f.Unavailable = &fpb.UnavailableStats{Resets: 3, Icmp: 1}
	f.ServiceDrops = []*fpb.ServiceDrop{{Name: "no-session", Packets: 3}, {Name: "table-full", Packets: 12}, {Name: "ttl-expired", Packets: 1}}
	f.Ports = []*fpb.Port{{Name: "eth0", Backend: "xsk", Mac: []byte{2, 0, 0, 0, 0, 1}, Mtu: 1500, Up: true, Queues: 2,
		RxPackets: 1, RxBytes: 2, TxPackets: 3, TxBytes: 4, RxMissed: 5, TxFailed: 6, DirectorSteered: 7,
		DirectorPassed: 8, DirectorDropped: 9}, {Name: "eth1", Backend: "ethdev", Problem: "the interface was deleted"}}
	f.Workers = []*fpb.Worker{{Id: 0, Slots: 128, Sessions: 9, RxPackets: 10, TxPackets: 11, SteeredOut: 12, SteeredIn: 13, Remote: 14,
		BusyCycles: 250, IdleCycles: 750, Sleeps: 3}, {Id: 1, Slots: 128}}
	f.Peers = &fpb.PeerList{Node: 1, Address: "10.9.0.1:8849", Role: fpb.Role_ROLE_MASTER, Offered: 1200, Peers: []*fpb.Peer{
		{Node: 2, Name: "lb2", Address: "10.9.0.2:8849", State: fpb.PeerState_PEER_STATE_ALIVE, Role: fpb.Role_ROLE_BACKUP, SilentMs: 120, RttUs: 214,
			Slots: 256, Offered: 1200, Present: 1199, Waiting: 1, LagMs: 3, Copied: 40, Retransmitted: 2, Kept: 7, Verified: 256, Faults: 1}},
		Refusals: []*fpb.Drop{{Name: "unknown-server", Help: "its server is not configured here", Packets: 4}, {Name: "table-full"}},
		Drops:    []*fpb.Drop{{Name: "sync-forged", Help: "its authentication tag is wrong", Packets: 5}, {Name: "sync-replayed"}},
		Unsent:   1}
	f.Slots = []*fpb.Slot{{Slot: 0, Worker: 0, Sessions: 4, Capacity: 4096, Packets: 99}, {Slot: 1, Worker: 1, Capacity: 4096}}
}

// run executes a command line and replaces output that differs between runs.
func (l *lab) run(args ...string) (code int, out, errOut string) {
	l.Helper()
	var outBuffer, errBuffer bytes.Buffer
	code = Run(append(args, "--socket", l.socket), strings.NewReader(configText), &outBuffer, &errBuffer)
	clean := func(text string) string {
		text = strings.NewReplacer(l.config, "CONFIG", l.forwarder.Socket, "FORWARDER", l.socket, "AGENT", l.directory, "DIR").Replace(text)
		text = regexp.MustCompile(`[0-9hms.]+ ago`).ReplaceAllString(text, "TIME ago")
		text = regexp.MustCompile(`(_cycles": )\d+`).ReplaceAllString(text, "${1}1") // they grow
		return regexp.MustCompile(`(_unix_m?s": )\d{2,}`).ReplaceAllString(text, "${1}1")
	}
	return code, clean(outBuffer.String()), clean(errBuffer.String())
}

// The output of every reading command, as a table and as JSON, is in testdata.
func TestReadingCommandsMatchGoldenFiles(t *testing.T) {
	l := newLab(t)
	for _, command := range []string{
		"get services", "get servers", "get servers --service web", "get sessions", "get sessions --limit 1",
		"get sessions --client 192.0.2.7", "get sessions --service dns6", "get drops", "get drops --all", "get attacks", "get attacks --past", "get ports",
		"get workers", "get slots", "get access", "get access inside", "get sets", "get limits", "get limits --worst", "get shaping", "describe shaping eth0", "describe shaping eth8", "describe shaping eth9", "describe limit acme-1g", "describe limit begun", "describe limit everything",
		"describe limit noisy", "describe limit one --worst 1", "get status", "describe service web", "describe service dns6", "describe service media", "describe service rest",
		"describe server 10.1.0.22", "describe server [fd00:1::31]:53@dns6",
		"describe server 10.1.0.41:*", "diff",
	} {
		for _, output := range []string{"table", "json"} {
			name := regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(command, "-") + "." + output
			t.Run(name, func(t *testing.T) {
				code, out, errOut := l.run(append(strings.Fields(command), "-o", output)...)
				if code != 0 {
					t.Fatalf("exit code %d: %s", code, errOut)
				}
				if output == "json" && !json.Valid([]byte(out)) {
					t.Errorf("not JSON: %s", out)
				}
				expectGolden(t, name, out+errOut)
			})
		}
	}
}

func expectGolden(t *testing.T, name, got string) {
	t.Helper()
	golden := filepath.Join("testdata", name+".golden")
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
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestSynDefenceState(t *testing.T) {
	auto := model.Policy{SynDefence: model.DefenceAuto}
	for _, c := range []struct {
		view        serviceView
		state, text string
	}{
		{serviceView{Protocol: "udp", SynDefence: "off"}, "", ""},
		{serviceView{Protocol: "tcp", SynDefence: "off"}, "off", "off"},
		{serviceView{Protocol: "tcp", SynDefence: "auto", policy: auto}, "auto", "auto"},
		{serviceView{Protocol: "tcp", SynDefence: "auto", policy: auto, Defence: &defenceView{HalfOpen: 3}}, "auto",
			"auto\n3 sessions are half open"},
		{serviceView{Protocol: "tcp", SynDefence: "auto", policy: auto, Defence: &defenceView{On: true, SwitchedOn: 1, SinceMs: 1000,
			Why: "a flood", Answered: 50, Returned: 40, Wrong: 1, HalfOpen: 9}}, "auto (on)",
			"auto (on), switched on TIME ago: a flood\nswitched on 1 time so far\n" +
				"50 SYNs answered; 40 clients returned the answer, 1 a wrong one\n9 sessions are half open"},
		{serviceView{Protocol: "tcp", SynDefence: "auto", policy: auto, Defence: &defenceView{SwitchedOn: 2, SinceMs: 1000,
			Why: "calm", Answered: 1, Returned: 1, HalfOpen: 1}}, "auto",
			"auto, switched off TIME ago: calm\nswitched on 2 times so far\n" +
				"1 SYN answered; 1 client returned the answer, 0 a wrong one\n1 session is half open"},
	} {
		if got := c.view.defenceState().text; got != c.state {
			t.Errorf("got %q, want %q", got, c.state)
		}
		text := regexp.MustCompile(`\S+ ago`).ReplaceAllString(c.view.defenceText(&app{}), "TIME ago")
		if c.state != "" && text != c.text {
			t.Errorf("got %q, want %q", text, c.text)
		}
	}
}

func TestADrainedServerThatIsDown(t *testing.T) {
	for want, s := range map[string]serverView{
		"down, drained":           {State: "down", DrainedByFile: true},
		"down, drained, 10m left": {State: "down", DrainedByCommand: true, KilledMs: uint64(time.Now().Add(10 * time.Minute).UnixMilli())},
		"down":                    {State: "down", KilledByCommand: true},
		"drain":                   {State: "drain"},
	} {
		if got := s.stateText().text; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if s.isDrained() != strings.Contains(want, "drain") {
			t.Errorf("%+v: drained: %t", s, s.isDrained())
		}
	}
}

func TestDrainWaitsForTheLastSession(t *testing.T) {
	l := newLab(t)
	asked := 0
	l.forwarder.Traffic = func(*fpb.ServiceKey, *fpb.Server) *fpb.Traffic {
		asked++
		if asked < 10 {
			return &fpb.Traffic{SessionsActive: 1}
		}
		return &fpb.Traffic{}
	}
	code, out, errOut := l.run("drain", "10.1.0.21", "--wait")
	want := "10.1.0.21:8080@web: draining\n10.1.0.21:8080@web: drained\n"
	if code != 0 || out != want || asked < 10 {
		t.Errorf("%d after %d answers: %s%s", code, asked, out, errOut)
	}
}

func TestAWaitEndsWithItsDrain(t *testing.T) {
	l := newLab(t)
	asked := 0
	l.forwarder.Traffic = func(*fpb.ServiceKey, *fpb.Server) *fpb.Traffic {
		if asked++; asked == 5 {
			go l.run("drain", "10.1.0.21", "--undo")
		}
		return &fpb.Traffic{SessionsActive: 1}
	}
	code, _, errOut := l.run("drain", "10.1.0.21", "--wait")
	if code != 2 || !strings.Contains(errOut, "10.1.0.21:8080@web is no longer drained") {
		t.Errorf("exit code %d: %s", code, errOut)
	}
}

func TestAWaitSaysWhatItWaitsFor(t *testing.T) {
	var errOut strings.Builder
	a := &app{err: &errOut}
	views := []serviceView{{Servers: []serverView{
		{Address: "10.1.0.21", Port: 80, Service: "web", Traffic: &trafficView{SessionsActive: 1}},
		{Address: "10.1.0.22", Port: 80, Service: "web", Traffic: &trafficView{SessionsActive: 9}},
		{Address: "fd00::21", Port: 80, Service: "web"},
	}}}
	a.reportPending(views, map[string]bool{"10.1.0.21:80@web": true, "[fd00::21]:80@web": true})
	want := "steelyard: waiting for 10.1.0.21:80@web: 1 session left\n" +
		"steelyard: waiting for [fd00::21]:80@web: the forwarder does not report its sessions\n"
	if errOut.String() != want {
		t.Error(errOut.String())
	}
}

func TestAnUnusedAccessListIsReported(t *testing.T) {
	l := newLab(t)
	text := strings.Replace(configText, "access_lists:\n", "access_lists:\n  - { name: office, otherwise: drop, rules: [] }\n", 1)
	if err := os.WriteFile(l.config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", l.config}, {"diff", l.config}, {"diff"}, {"apply", l.config}, {"apply"}} {
		_, out, errOut := l.run(args...)
		if !regexp.MustCompile(`^steelyard: warning: CONFIG:6:5: access_lists\[0\]: access list office decides nothing: `).MatchString(errOut) {
			t.Errorf("%v: %s%s", args, out, errOut)
		}
	}
}

func TestWithoutAgentOrForwarder(t *testing.T) {
	l := newLab(t)
	l.forwarder.Stop()
	for {
		// The agent notices it by itself.
		if _, out, _ := l.run("get", "status"); strings.Contains(out, "not connected") {
			break
		}
	}
	for command, want := range map[string]string{
		"get ports":                    "steelyard: no forwarder listens on FORWARDER: start it with `systemctl start steelyard-forwarder`, or name its socket by --forwarder of `steelyard agent`, `upgrade` or `role`\n",
		"apply --timeout 1s":           "steelyard: the configuration is loaded, but the forwarder does not have it yet: ",
		"get slots --socket /nowhere/": "steelyard: no agent listens on /nowhere/: start it with `systemctl start steelyard-agent` (or `steelyard agent`), or name its socket with --socket\n",
	} {
		code, _, errOut := l.runBare(strings.Fields(command))
		if code != 2 || !strings.HasPrefix(errOut, want) {
			t.Errorf("%s: exit code %d: %s", command, code, errOut)
		}
	}
	code, out, errOut := l.run("get", "services")
	if code != 0 || !strings.Contains(errOut, "warning: no counters: ") || !strings.Contains(out, "dns6") {
		t.Errorf("exit code %d: %s%s", code, out, errOut)
	}
	code, out, _ = l.run("get", "status")
	if code != 0 || !strings.Contains(out, "not connected") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// runBare runs a command that names its own socket.
func (l *lab) runBare(args []string) (int, string, string) {
	for i, arg := range args {
		if arg == "--socket" {
			saved := l.socket
			l.socket = args[i+1]
			defer func() { l.socket = saved }()
			code, out, errOut := l.run(args[:i]...)
			return code, out, strings.ReplaceAll(errOut, "AGENT", args[i+1])
		}
	}
	return l.run(args...)
}

func TestRates(t *testing.T) {
	service := func(name string, n uint64) serviceView {
		return serviceView{Name: name, Traffic: &trafficView{PacketsIn: n, PacketsOut: 2 * n, BytesIn: 100 * n, BytesOut: 1000 * n,
			SessionsCreated: n / 10, SessionsActive: n / 100}}
	}
	before := []serviceView{service("web", 1000), service("restarted", 5000), {Name: "unknown"}}
	after := []serviceView{service("web", 5000), service("restarted", 1000), service("unknown", 7), service("new", 9)}
	var out bytes.Buffer
	a := &app{out: &out, output: "table"}
	if err := a.showRates(rates(before, after, 2)); err != nil {
		t.Fatal(err)
	}
	expectGolden(t, "rates", out.String())
}

func TestScaled(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 999.4: "999", 1000: "1.00k", 1534: "1.53k", 22100000: "22.1M", 4.56e11: "456G", 1e16: "10000T"} {
		if got := scaled(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}

func TestColorsOnlyOnATerminal(t *testing.T) {
	var out bytes.Buffer
	for color, want := range map[bool]string{false: "STATE  N\nup     1\n", true: "STATE  N\n\x1b[32mup\x1b[0m     1\n"} {
		out.Reset()
		tab := &table{columns: []column{left("STATE"), right("N")}}
		tab.add(paintState("up"), 1)
		(&app{out: &out, color: color}).print(tab)
		if out.String() != want {
			t.Errorf("color %v: %q", color, out.String())
		}
	}
}

func TestCleanupRunsTheForwarder(t *testing.T) {
	directory := t.TempDir()
	t.Setenv("PATH", directory)
	var out, errOut bytes.Buffer
	if code := Run([]string{"cleanup"}, nil, &out, &errOut); code != 2 || !strings.Contains(errOut.String(), "neither in this binary's directory, nor in ../sbin, nor in PATH") {
		t.Errorf("%d: %s", code, errOut.String())
	}
	script := "#!/bin/sh\necho \"removed by $1\"\n"
	if err := os.WriteFile(filepath.Join(directory, "steelyard-forwarder"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if code := Run([]string{"cleanup"}, nil, &out, &errOut); code != 0 || out.String() != "removed by --cleanup\n" {
		t.Errorf("%d: %s%s", code, out.String(), errOut.String())
	}
}

func TestTheForwarderIsFoundBesideTheCommand(t *testing.T) {
	prefix := t.TempDir()
	t.Setenv("PATH", t.TempDir())
	self := filepath.Join(prefix, "bin", "steelyard")
	for _, directory := range []string{"bin", "sbin"} {
		if err := os.Mkdir(filepath.Join(prefix, directory), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if path, err := findForwarderBeside(self); err == nil {
		t.Errorf("found %s", path)
	}
	for _, want := range []string{filepath.Join(prefix, "sbin", "steelyard-forwarder"), filepath.Join(prefix, "bin", "steelyard-forwarder")} {
		if err := os.WriteFile(want, nil, 0o755); err != nil {
			t.Fatal(err)
		}
		if path, err := findForwarderBeside(self); err != nil || path != want {
			t.Errorf("got %s, %v; want %s", path, err, want)
		}
	}
}

// An option without a value shows none: pflag reads words in backquotes as the name of a value.
func TestHelpShowsNoValueOfASwitch(t *testing.T) {
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if name, _ := pflag.UnquoteUsage(f); f.Value.Type() == "bool" && name != "" {
				t.Errorf("%s: --%s %s", c.CommandPath(), f.Name, name)
			}
		})
		for _, child := range c.Commands() {
			visit(child)
		}
	}
	visit((&app{}).root())
}

// What checks found stays together, whatever else is wrong with a server.
func TestChecksAndUnansweredSYNs(t *testing.T) {
	var out bytes.Buffer
	a := &app{out: &out}
	a.printServer(serverView{Address: "10.1.0.21", Health: &healthStateView{Target: "10.1.0.21:80", Checked: true, ChangedMs: 1}, UnansweredSYNs: 3})
	if !regexp.MustCompile(`(?m)^ +last change .*\nAnswers: `).MatchString(out.String()) {
		t.Error(out.String())
	}
}

func TestAMisspelledCommand(t *testing.T) {
	code, _, errOut := newLab(t).runBare([]string{"aply"})
	if code != 2 || !strings.Contains(errOut, "\n apply\n") {
		t.Errorf("exit code %d: %s", code, errOut)
	}
}

func TestManualIsUpToDate(t *testing.T) {
	got, err := os.ReadFile("../../docs/man/steelyard.1")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != commandManual() {
		t.Error("docs/man/steelyard.1 differs from the commands: run `steelyard docs steelyard.1 >docs/man/steelyard.1`")
	}
}

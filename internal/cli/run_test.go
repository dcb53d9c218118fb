// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRunRefusesWhatItCannotDo(t *testing.T) {
	for _, one := range []struct{ line, want string }{
		{"run", "write the program after --"},
		{"run --interface lo ls", "write the program after --"},
		{"run -- ls", "--interface is missing"},
		{"run --interface nosuch0 -- ls", "no such interface in this network namespace"},
		{"run --interface lo --address 192.0.2.1 -- ls", "neither lo has it, nor, as a VIP, another interface: ip address add 192.0.2.1 dev lo"},
		{"run --interface lo --address here -- ls", "not an IP address"},
		{"run --interface lo --workers 0 -- ls", "--workers 0: use 1 to 32"},
		{"run --interface lo --ring 1000 -- ls", "--ring 1000: use a power of 2 from 256 to 32768"},
		{"run --interface lo --memory 1 -- ls", "--memory 1: use 16 to 65536"},
		{"run --interface lo --port 70000 -- ls", "--port 70000: use 1 to 65535"},
		{"run --interface lo --local-ports 80 -- ls", "write a range such as 61000-65535"},
		{"run --interface lo --local-ports 5000-4000 -- ls", "write a range such as 61000-65535"},
		{"run --interface lo --workers 2 --local-ports 5000-5000 -- ls", "each of 2 workers needs one"},
		{"run --interface lo --log loud -- ls", "use one of error, warn, info, debug"},
		{"run --interface lo --fork some -- ls", "use one of auto, relay, keep"},
		{"run --interface lo --hook nosuchhook -- ls", "--hook nosuchhook: no such file"},
		{"run --interface lo --hook /dev/null,listen=here -- ls", "write ADDRESS:PORT"},
		{"run --interface lo --hook /dev/null,9=1 -- ls", "with I from 0 to 7"},
		{"run --interface lo -- nosuchprogram", "nosuchprogram: executable file not found"},
		{"run --interface lo -- /etc/passwd", "/etc/passwd: permission denied"},
	} {
		want := exitFailure
		for name, code := range map[string]int{"nosuchprogram": 127, "/etc/passwd": 126} { // as shells have it
			if strings.HasSuffix(one.line, " "+name) {
				want = code
			}
		}
		var out, errOut bytes.Buffer
		if code := Run(strings.Fields(one.line), nil, &out, &errOut); code != want || !strings.Contains(errOut.String(), one.want) {
			t.Errorf("%s: %d: %s", one.line, code, errOut.String())
		}
	}
}

func TestRunPassesOptionsToTheSupervisor(t *testing.T) {
	o := runOptions{Interface: "lo", Addresses: []string{"127.0.0.1"}, Ports: []uint{80, 443}, Workers: 2, LocalPorts: "2000-2999",
		MemoryMB: 32, Connections: 100, Ring: 512, Log: "info", Fork: "keep", TOA: true, Name: "web", Hooks: []string{"/dev/null", "/dev/null,name=api,listen=192.0.2.1:80,listen=:443,0=0x10"}}
	got, err := o.arguments()
	want := "--interface lo --workers 2 --local-ports 2000-2999 --memory 32 --connections 100 --ring 512 --log 2 --address 127.0.0.1 --toa --port 80 --port 443 --fork keep " +
		"--name web --hook null --hook-file /dev/null --hook-place #0 " +
		"--hook api --hook-file /dev/null --hook-place 192.0.2.1#80 --hook-place #443 --hook-param 0=16"
	if err != nil || strings.Join(got, " ") != want {
		t.Errorf("got %s, %v; want %s", strings.Join(got, " "), err, want)
	}
}

func TestLocalPortsAreNotLinuxs(t *testing.T) {
	for _, one := range []struct{ ours, linux, reserved, want string }{
		{"61000-65535", "32768\t60999\n", "\n", ""},
		{"61000-65535", "1024\t65535\n", "\n", "ports 61000-65535 to"},
		{"61000-65535", "32768\t61000\n", "\n", "ports 61000 to"},
		{"20000-20010", "32768\t60999\n", "\n", ""},
		{"61000-65535", "1024\t65535\n", "61000-65535\n", ""},
		{"61000-65535", "1024\t65535\n", "80,61000-63000,63001-65535\n", ""},
		{"61000-65535", "1024\t65535\n", "61000-65534\n", "ports 65535 to"},
		{"61000-65535", "1024\t65535\n", "61002-65535\n", "sysctl -w net.ipv4.ip_local_reserved_ports=61000-65535"},
		{"61000-65535", "nonsense\n", "\n", "ip_local_port_range: "},
		{"61000-65535", "1024 60000\n", "5-4\n", "ip_local_reserved_ports: "},
	} {
		directory := t.TempDir() + "/"
		for name, text := range map[string]string{"ip_local_port_range": one.linux, "ip_local_reserved_ports": one.reserved} {
			if err := os.WriteFile(directory+name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		err := (&runOptions{LocalPorts: one.ours}).checkLocalPortsOf(directory)
		if (err == nil) != (one.want == "") || (err != nil && !strings.Contains(err.Error(), one.want)) {
			t.Errorf("%+v: %v", one, err)
		}
	}
}

func TestSupervisorIsFoundBesideTheCommand(t *testing.T) {
	prefix := t.TempDir()
	self := filepath.Join(prefix, "bin", "steelyard")
	if _, _, err := findSupervisor(self); err == nil {
		t.Error("found a supervisor where there is none")
	}
	for _, directory := range []string{filepath.Join(prefix, "libexec", "steelyard"), filepath.Join(prefix, "bin")} {
		if err := os.MkdirAll(directory, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"steelyard-supervisor", "libsteelyard-preload.so"} {
			if err := os.WriteFile(filepath.Join(directory, name), nil, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		supervisor, library, err := findSupervisor(self)
		if err != nil || supervisor != filepath.Join(directory, "steelyard-supervisor") || library != filepath.Join(directory, "libsteelyard-preload.so") {
			t.Errorf("got %s, %s, %v; want those in %s", supervisor, library, err, directory)
		}
	}
}

func TestRunManualIsUpToDate(t *testing.T) {
	got, err := os.ReadFile("../../docs/man/steelyard-run.1")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != runManual() {
		t.Error("docs/man/steelyard-run.1 differs from the command: run `steelyard docs steelyard-run.1 >docs/man/steelyard-run.1`")
	}
}

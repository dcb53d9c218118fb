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
		{"run --interface nosuch0 -- ls", "there is none in this network namespace"},
		{"run --interface lo --address 192.0.2.1 -- ls", "neither lo has it, nor, as a VIP, another interface: ip address add 192.0.2.1 dev lo"},
		{"run --interface lo --address here -- ls", "this is no IP address"},
		{"run --interface lo --workers 0 -- ls", "--workers 0: it is between 1 and 32"},
		{"run --interface lo --memory 1 -- ls", "--memory 1: it is between 16 and 65536"},
		{"run --interface lo --port 70000 -- ls", "--port 70000: it is between 1 and 65535"},
		{"run --interface lo --local-ports 80 -- ls", "write a range such as 61000-65535"},
		{"run --interface lo --local-ports 5000-4000 -- ls", "write a range such as 61000-65535"},
		{"run --interface lo --workers 2 --local-ports 5000-5000 -- ls", "each of 2 workers needs one"},
		{"run --interface lo --log loud -- ls", "it is one of error, warn, info, debug"},
		{"run --interface lo -- nosuchprogram", "nosuchprogram: executable file not found"},
	} {
		var out, errOut bytes.Buffer
		if code := Run(strings.Fields(one.line), nil, &out, &errOut); code != exitFailure || !strings.Contains(errOut.String(), one.want) {
			t.Errorf("%s: %d: %s", one.line, code, errOut.String())
		}
	}
}

func TestRunTellsTheKeeper(t *testing.T) {
	o := runOptions{Interface: "lo", Addresses: []string{"127.0.0.1"}, Ports: []uint{80, 443}, Workers: 2, LocalPorts: "2000-2999",
		MemoryMB: 32, Connections: 100, Log: "info", TOA: true}
	got, err := o.arguments()
	want := "--interface lo --workers 2 --local-ports 2000-2999 --memory 32 --connections 100 --log 2 --address 127.0.0.1 --toa --port 80 --port 443"
	if err != nil || strings.Join(got, " ") != want {
		t.Errorf("got %s, %v; want %s", strings.Join(got, " "), err, want)
	}
}

func TestTheKeeperIsFoundBesideTheCommand(t *testing.T) {
	prefix := t.TempDir()
	self := filepath.Join(prefix, "bin", "steelyard")
	if _, _, err := findKeeper(self); err == nil {
		t.Error("found a keeper where there is none")
	}
	for _, directory := range []string{filepath.Join(prefix, "libexec", "steelyard"), filepath.Join(prefix, "bin")} {
		if err := os.MkdirAll(directory, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"steelyard-keeper", "libsteelyard-preload.so"} {
			if err := os.WriteFile(filepath.Join(directory, name), nil, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		keeper, library, err := findKeeper(self)
		if err != nil || keeper != filepath.Join(directory, "steelyard-keeper") || library != filepath.Join(directory, "libsteelyard-preload.so") {
			t.Errorf("got %s, %s, %v; want those in %s", keeper, library, err, directory)
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

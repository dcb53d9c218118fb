// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"steelyard/internal/agent"
	"steelyard/internal/dpclient/dptest"
)

// pictures are the `get` commands that show one thing; all others are lists.
var pictures = []string{"status", "placement"}

// controllers' lists are tried at a controller, all others at an agent.
var atController = []string{"forwarders", "groups", "events", "requests", "projects", "audit", "placement"}

// Every list is an array in JSON, also an empty one, and everything else an object.
func TestListsAreArrays(t *testing.T) {
	l, s := newLab(t), newSite(t)
	root := new(app).root()
	get, _, err := root.Find([]string{"get"})
	if err != nil {
		t.Fatal(err)
	}
	var commands [][]string
	for _, one := range get.Commands() {
		socket := l.socket
		if slices.Contains(atController, one.Name()) {
			socket = s.socket
		}
		command := []string{"get", one.Name(), "--socket", socket}
		if one.Name() == "peers" {
			command = append(command, "--forwarder", l.forwarder.Socket)
		}
		commands = append(commands, command)
	}
	commands = append(commands, []string{"context", "list"}, []string{"diff", "--socket", l.socket}, []string{"stats", "--socket", l.socket},
		[]string{"stack", "list"}, []string{"hook", "list"},
		[]string{"describe", "service", "web", "--socket", l.socket}, []string{"describe", "server", "10.1.0.21", "--socket", l.socket})
	if len(commands) < 20 {
		t.Errorf("only %d commands", len(commands))
	}
	for _, command := range commands {
		code, out, errOut := s.run(append(command, "-o", "json")...)
		want := byte('[')
		if command[0] == "get" && slices.Contains(pictures, command[1]) || command[0] == "describe" && command[1] == "service" {
			want = '{'
		}
		if code == exitFailure || !json.Valid([]byte(out)) || out[0] != want {
			t.Errorf("%s: exit code %d, %.60q, want %c: %s", strings.Join(command, " "), code, out, want, errOut)
		}
	}
}

// The lists of an agent without a configuration are empty arrays, not null.
func TestEmptyListsAreArrays(t *testing.T) {
	f := dptest.New(t)
	directory := t.TempDir()
	file := filepath.Join(directory, "steelyard.yaml")
	if err := os.WriteFile(file, []byte("version: 1\nservices: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(filepath.Dir(f.Socket), "agent.sock")
	s := &site{T: t}
	s.background(func(ctx context.Context) error {
		return agent.Run(ctx, agent.Options{Config: file, Forwarder: f.Socket, Socket: socket, State: filepath.Join(directory, "state"), Log: slog.New(slog.DiscardHandler)})
	}, func() {})
	s.until(func() bool { code, _, _ := s.run("get", "services", "--socket", socket); return code == 0 })
	for _, name := range []string{"services", "servers", "sessions", "drops", "attacks", "ports", "workers", "slots", "access", "sets", "limits", "shaping", "snat"} {
		s.until(func() bool { code, _, _ := s.run("get", name, "--socket", socket, "-o", "json"); return code == 0 })
		if _, out, errOut := s.run("get", name, "--socket", socket, "-o", "json"); out != "[]\n" {
			t.Errorf("get %s: %q %s", name, out, errOut)
		}
	}
	if _, out, errOut := s.run("get", "peers", "--forwarder", f.Socket, "-o", "json"); out != "[]\n" {
		t.Errorf("get peers: %q %s", out, errOut)
	}
}

// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"steelyard/internal/agent"
	"steelyard/internal/dpclient/dptest"
	agentpb "steelyard/internal/gen/agentpb"
	forwarderpb "steelyard/internal/gen/forwarderpb"

	"connectrpc.com/connect"
)

// own is the agent's own file before it joins: the service of file(), and seven others.
func own() string {
	return file(10) + strings.TrimPrefix(part(9, 7, 1), "version: 1\nservices:\n")
}

// serveOwn runs an agent with its own file until the forwarder has its services.
func (l *lab) serveOwn(f *dptest.Forwarder) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	config := filepath.Join(l.TempDir(), "own.yaml")
	if err := os.WriteFile(config, []byte(own()), 0o600); err != nil {
		l.Fatal(err)
	}
	go func() {
		done <- agent.Run(ctx, agent.Options{Forwarder: f.Socket, Config: config, Socket: filepath.Join(filepath.Dir(f.Socket), "own.sock"), State: l.TempDir(), Log: l.log("own")})
	}()
	f.AwaitState(vip, server, forwarderpb.ServerState_SERVER_STATE_UP)
	cancel()
	if err := <-done; err != nil {
		l.Fatal(err)
	}
}

// Before a forwarder has joined, the error explains how one joins.
func TestErrorWithoutAForwarderExplainsJoining(t *testing.T) {
	c := newLab(t, 1).controllers[0]
	if _, err := apply(t.Context(), c.admin, "", "", file(20)); err == nil || !strings.Contains(err.Error(), "no forwarder has joined") {
		t.Errorf("%v", err)
	}
}

// A forwarder that joins with services of its own keeps them until its first file includes them, or --prune removes them.
func TestFirstApplyKeepsServicesFromBeforeJoining(t *testing.T) {
	l := newLab(t, 1)
	l.before = l.serveOwn
	c := l.controllers[0]
	f := l.addForwarder("f1")
	commits := len(f.Commits())
	_, err := apply(t.Context(), c.admin, "f1", "", file(20))
	if err == nil || !strings.Contains(err.Error(), "service s0 (tcp 10.9.0.1:80)") || !strings.Contains(err.Error(), "and 2 more") ||
		!strings.Contains(err.Error(), "--prune") || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("%v", err)
	}
	if now := len(f.Commits()); now != commits {
		t.Errorf("the forwarder was changed: %v", f.Commits()[commits:])
	}
	if _, err := apply(t.Context(), c.admin, "f1", "", own()); err != nil { // adopted
		t.Fatal(err)
	}
	if _, err := apply(t.Context(), c.admin, "f1", "", file(20)); err != nil { // which are the controller's now
		t.Fatal(err)
	}
	if got := f.Server("10.9.0.1:80", server); got.GetWeight() != 0 || f.Server(vip, server).GetWeight() != 20 {
		t.Errorf("%v", got)
	}
}

// --prune applies to the order that it comes with, for one forwarder and for all.
func TestPruneRemovesServicesFromBeforeJoining(t *testing.T) {
	l := newLab(t, 1)
	l.before = l.serveOwn
	c := l.controllers[0]
	for _, name := range []string{"f1", "f2"} {
		f := l.addForwarder(name)
		request := connect.NewRequest(&agentpb.ApplyConfigRequest{Yaml: []byte(file(20)), File: "test.yaml", Prune: true})
		target := name
		if name == "f2" {
			target = "f1,f2"
		}
		on(target)(request)
		if _, err := apply(t.Context(), c.admin, name, "", file(15)); err == nil {
			t.Errorf("%s: it was not asked", name)
		}
		if _, err := c.admin.ApplyConfig(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		if got := f.Server("10.9.0.1:80", server); got.GetWeight() != 0 || f.Server(vip, server).GetWeight() != 20 {
			t.Errorf("%v", got)
		}
		f.options.Token = ""
		f.stop() // what it has now is the controller's: nothing is asked again
		l.until("the agent is seen to be away", func() bool { return l.owner(name) == "" })
		l.start(f)
		l.awaitOwner(name)
		if _, err := apply(t.Context(), c.admin, name, "", "version: 1\nservices: []\n"); err != nil {
			t.Error(err)
		}
	}
}

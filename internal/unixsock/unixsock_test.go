// SPDX-License-Identifier: Apache-2.0

package unixsock

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestReading(t *testing.T) {
	for socket, want := range map[string]string{
		"/run/steelyard/agent.sock": "/run/steelyard/agent-read.sock", "/tmp/agent": "/tmp/agent-read.sock",
	} {
		if got := Reading(socket); got != want {
			t.Errorf("%s: %s", socket, got)
		}
	}
}

func listenAs(t *testing.T, group string) (path, log string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "test.sock")
	var text bytes.Buffer
	listener, err := Listen(path, group, "the test's socket", slog.New(slog.NewTextHandler(&text, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return path, text.String()
}

func mode(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

func TestAGroupMayConnect(t *testing.T) {
	group := strconv.Itoa(os.Getegid())
	path, log := listenAs(t, group)
	if mode(t, path) != 0o660 || log != "" {
		t.Errorf("mode %o, log %q", mode(t, path), log)
	}
	if got := Members(path, "members of "); got != "members of "+Group(path) {
		t.Errorf("%q", got)
	}
}

// No group, as in a container, is a warning; no user gets additional rights.
func TestWithoutTheGroupTheSocketIsPrivate(t *testing.T) {
	path, log := listenAs(t, "no-such-group")
	if mode(t, path) != 0o600 || !strings.Contains(log, "level=WARN") {
		t.Errorf("mode %o, log %q", mode(t, path), log)
	}
	if got := Members(path, "members of "); got != "" {
		t.Errorf("%q", got)
	}
}

func TestSharesOfUsers(t *testing.T) {
	s := Shared(nil, 5, 3).(*shared)
	for range 3 {
		if !s.take(10) {
			t.Fatal("a share is refused")
		}
	}
	if s.take(10) {
		t.Error("a user has more than its share")
	}
	if !s.take(11) || !s.take(12) || s.take(13) {
		t.Error("the total is not 5")
	}
	s.release(10)
	if !s.take(13) || s.open[10] != 2 || s.all != 5 {
		t.Errorf("%+v", s.open)
	}
}

// Root and the own user are not counted, and connections work.
func TestOwnUserHasNoConnectionLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.sock")
	inner, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	listener := Shared(inner, 0, 0)
	defer listener.Close()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if accepted, err := listener.Accept(); err != nil {
		t.Fatal(err)
	} else {
		accepted.Close()
	}
}

// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// notifyLab runs keepalived's notify script with programs that note their arguments.
type notifyLab struct {
	*testing.T
	directory string
}

func newNotifyLab(t *testing.T, steelyard string) *notifyLab {
	l := &notifyLab{t, t.TempDir()}
	for name, text := range map[string]string{
		"steelyard": steelyard, "logger": `echo "$@" >>"$(dirname "$0")/log"`, "sleep": "exit 0",
	} {
		if err := os.WriteFile(filepath.Join(l.directory, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// notify runs the script, and returns its error.
func (l *notifyLab) notify(arguments ...string) error {
	command := exec.Command("../../deploy/keepalived/notify", append([]string{l.directory}, arguments...)...)
	command.Env = append(os.Environ(), "STEELYARD="+filepath.Join(l.directory, "steelyard"), "PATH="+l.directory+":"+os.Getenv("PATH"))
	return command.Run()
}

func (l *notifyLab) read(name string) string {
	l.Helper()
	text, err := os.ReadFile(filepath.Join(l.directory, name))
	if err != nil {
		l.Fatal(err)
	}
	return strings.ReplaceAll(string(text), l.directory, "DIR")
}

func TestNotifySetsTheRole(t *testing.T) {
	for state, role := range map[string]string{"MASTER": "master", "BACKUP": "backup", "FAULT": "backup --now", "STOP": "backup --now", "DELETED": "backup --now"} {
		l := newNotifyLab(t, `echo "$@" >"$(dirname "$0")/calls"; echo "Now $2."`)
		if err := l.notify("GROUP", "steelyard", state, "100"); err != nil {
			t.Fatal(err)
		}
		if got, want := l.read("calls"), "role "+role+" --forwarder DIR/forwarder.sock --context local --timeout 1s\n"; got != want {
			t.Errorf("%s: %s", state, got)
		}
		if got := l.read("log"); !strings.Contains(got, "GROUP steelyard is "+state+": Now "+strings.Fields(role)[0]+".") {
			t.Errorf("%s: %s", state, got)
		}
		if got := l.read("vrrp-role"); got != role+"\n" { // for forwarder.conf
			t.Errorf("%s: %s", state, got)
		}
	}
}

// A script that waits for the forwarder sets the newest role, not its own.
func TestNotifySetsTheNewestRole(t *testing.T) {
	l := newNotifyLab(t, `cd "$(dirname "$0")"; echo "$2" >>calls; test -e failed || { touch failed; echo backup >vrrp-role; exit 2; }`)
	if err := l.notify("GROUP", "steelyard", "MASTER", "100"); err != nil {
		t.Fatal(err)
	}
	if got := l.read("calls"); got != "master\nbackup\n" {
		t.Errorf("%q", got)
	}
}

// The addresses of a dead forwarder are released for the peer, but never to become the master.
func TestNotifyReleasesTheAddresses(t *testing.T) {
	l := newNotifyLab(t, `cd "$(dirname "$0")"; echo "$1" >>calls; test "$1" = release`)
	if err := l.notify("GROUP", "steelyard", "FAULT", "100"); err != nil {
		t.Fatal(err)
	}
	if got := l.read("calls"); got != "role\nrelease\n" {
		t.Errorf("%q", got)
	}
	if err := l.notify("GROUP", "steelyard", "MASTER", "100"); err == nil {
		t.Error("a master without a forwarder")
	}
	if got := l.read("calls"); strings.Count(got, "release") != 1 {
		t.Errorf("%q", got)
	}
}

func TestNotifyGivesUp(t *testing.T) {
	l := newNotifyLab(t, "echo no forwarder; exit 2")
	if err := l.notify("GROUP", "steelyard", "MASTER", "100"); err == nil {
		t.Error("no error")
	}
	if got := l.read("log"); !strings.Contains(got, "GROUP steelyard is MASTER, and the role is not set: no forwarder") {
		t.Errorf("%s", got)
	}
}

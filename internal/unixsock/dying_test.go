// SPDX-License-Identifier: Apache-2.0

package unixsock

import (
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestMain is also the process that TestADyingListener kills: it listens, passes its socket to a child, and waits.
func TestMain(m *testing.M) {
	if socket := os.Getenv("LISTEN_AND_WAIT"); socket != "" {
		listener, err := net.Listen("unix", socket)
		if err != nil {
			os.Exit(1)
		}
		file, err := listener.(*net.UnixListener).File()
		if err != nil {
			os.Exit(1)
		}
		successor := exec.Command("sleep", "0.5")
		successor.ExtraFiles = []*os.File{file}
		if successor.Start() != nil {
			os.Exit(1)
		}
		os.Stdout.WriteString("ready")
		os.Stdout.Close()
		select {}
	}
	os.Exit(m.Run())
}

// A killed process answers until its files are closed: here its socket is a child's for half a second. A start in that time waits.
func TestListenWaitsForAnEndingListener(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "a.sock")
	other := exec.Command(os.Args[0])
	other.Env = append(os.Environ(), "LISTEN_AND_WAIT="+socket)
	ready, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := ready.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if isDying(other.Process.Pid) {
		t.Error("it lives")
	}
	if _, err := Listen(socket, "root", "the socket", slog.New(slog.DiscardHandler)); err == nil {
		t.Fatal("the socket of a live process was taken")
	}
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	listener, err := Listen(socket, "root", "the socket", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	_ = other.Wait() // it was killed
}

func TestOwnProcessIsNotDying(t *testing.T) {
	if isDying(os.Getpid()) || isDying(0) || isDying(-1) {
		t.Error("this process lives, and 0 is none")
	}
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	for begun := time.Now(); !isDying(gone.Process.Pid); {
		if time.Since(begun) > 4*time.Minute {
			t.Fatal("a process that has ended lives")
		}
	}
}

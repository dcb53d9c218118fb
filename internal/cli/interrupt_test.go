// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	fpb "steelyard/internal/gen/forwarderpb"
)

// mute listens on a socket and never answers.
func mute(t *testing.T) (socket string, reached chan struct{}) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "a.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	reached = make(chan struct{}, 16)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			reached <- struct{}{}
		}
	}()
	return socket, reached
}

// goWords are words of Go's errors, which say nothing to a user.
func goWords(t *testing.T, what, text string) {
	t.Helper()
	for _, word := range []string{"context ", "canceled", "deadline exceeded", "i/o timeout", "signal: "} {
		if strings.Contains(text, word) {
			t.Errorf("%s: %q is in %q", what, word, text)
		}
	}
}

// interruptions are commands with what the user reads whose Ctrl-C ends them.
var interruptions = map[string]string{
	"get services": "interrupted\n", "get sessions": "interrupted\n", "get drops": "interrupted\n", "get status": "interrupted\n",
	"get attacks": "interrupted\n", "get forwarders": "interrupted\n", "get requests": "interrupted\n", "describe service web": "interrupted\n",
	"stats --watch 1s": "interrupted\n", "diff": "interrupted\n", "apply": "steelyard diff", "drain 10.1.0.21": "--undo", "drain 10.1.0.21 --wait": "--undo",
	"kill 10.1.0.21": "--undo", "nfv delete web": "get requests", "nfv route-set web --generation 1": "get requests",
	"project set shop": "get projects", "token create --user ada --role viewer": "create another one", "watch": "interrupted\n",
}

func TestInterruptedCommands(t *testing.T) {
	for command, want := range interruptions {
		socket, reached := mute(t)
		var out, errOut bytes.Buffer
		done := make(chan int, 1)
		go func() { done <- Run(append(strings.Fields(command), "--socket", socket), nil, &out, &errOut) }()
		select {
		case <-reached: // so Run has its handler
			if err := syscall.Kill(syscall.Getpid(), syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			if code := <-done; code != exitFailure || !strings.Contains(errOut.String(), want) || !strings.Contains(errOut.String(), "interrupted") {
				t.Errorf("%s: exit code %d, %q", command, code, errOut.String())
			}
		case <-done:
			t.Errorf("%s: ended before: %s", command, errOut.String())
		}
		goWords(t, command, errOut.String())
	}
}

func TestCommandsWithoutAnAnswer(t *testing.T) {
	for command := range interruptions {
		socket, _ := mute(t)
		if command == "watch" || strings.HasPrefix(command, "stats") {
			continue // without an end
		}
		var out, errOut bytes.Buffer
		code := Run(append(strings.Fields(command), "--socket", socket, "--timeout", "20ms"), nil, &out, &errOut)
		if code != exitFailure || !strings.Contains(errOut.String(), "no answer within 20ms") {
			t.Errorf("%s: exit code %d, %q", command, code, errOut.String())
		}
		goWords(t, command, errOut.String())
	}
}

// An interrupted wait says that the drain continues, and how to end it; and it continues.
func TestInterruptedWaitKeepsTheDrain(t *testing.T) {
	l := newLab(t)
	waiting := make(chan struct{}, 1)
	l.forwarder.Traffic = func(_ *fpb.ServiceKey, server *fpb.Server) *fpb.Traffic {
		if server.GetState() == fpb.ServerState_SERVER_STATE_DRAIN {
			select {
			case waiting <- struct{}{}:
			default:
			}
		}
		return &fpb.Traffic{SessionsActive: 1}
	}
	var out, errOut bytes.Buffer
	done := make(chan int, 1)
	go func() {
		done <- Run([]string{"--socket", l.socket, "drain", "10.1.0.21", "--wait"}, nil, &out, &errOut)
	}()
	<-waiting // it has asked for the sessions
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	code := <-done
	for _, want := range []string{"interrupted; the drain continues", "steelyard get servers", "steelyard drain 10.1.0.21 --undo"} {
		if code != exitFailure || !strings.Contains(errOut.String(), want) {
			t.Errorf("exit code %d, %q is not in %q", code, want, errOut.String())
		}
	}
	goWords(t, "drain --wait", errOut.String())
	if _, text, _ := l.run("get", "servers"); !strings.Contains(text, "drain") {
		t.Errorf("no server is drained:\n%s", text)
	}
}

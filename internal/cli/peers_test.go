// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"net"
	"strings"
	"testing"

	"steelyard/internal/dpclient"
	"steelyard/internal/dpclient/dptest"
	fpb "steelyard/internal/gen/forwarderpb"
)

// runAt runs a command line at a forwarder without an agent.
func runAt(f *dptest.Forwarder, line string) (code int, out, errOut string) {
	var outBuffer, errBuffer bytes.Buffer
	code = Run(append(strings.Fields(line), "--forwarder", f.Socket), nil, &outBuffer, &errBuffer)
	return code, outBuffer.String(), errBuffer.String()
}

// Each command names the options that are missing, or that the forwarder is too old.
func TestWithoutPeers(t *testing.T) {
	f := dptest.New(t)
	const options = "start it with --node, --sync, --peer, --sync-secret and --slot-key, see docs/high-availability.md"
	const old = "steelyard: this forwarder is of a version without peers: `steelyard upgrade` replaces it by the installed one\n"
	for _, c := range []struct{ line, out, errOut string }{
		{"get peers", "This forwarder has no peers: " + options + ".\n", ""},
		{"describe peer 2", "", "steelyard: this forwarder has no peers: " + options + "\n"},
		{"role", "", "steelyard: this forwarder has no peers, so it has no role and always serves: " + options + "\n"},
		{"role master", "", "steelyard: this forwarder has no peers, so it has no role and always serves: " + options + "\n"},
	} {
		f.Change(func() { f.BeforePeers = false })
		if code, out, errOut := runAt(f, c.line); (code == exitFailure) != (c.errOut != "") || out != c.out || errOut != c.errOut {
			t.Errorf("%s: exit code %d: %s%s", c.line, code, out, errOut)
		}
		f.Change(func() { f.BeforePeers = true })
		if code, out, errOut := runAt(f, c.line); code != exitFailure || out != "" || errOut != old {
			t.Errorf("%s: exit code %d: %s%s", c.line, code, out, errOut)
		}
	}
}

// handedOver answers one request as a forwarder that has handed its sessions over to its successor.
func handedOver(listener net.Listener) error {
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	request := &fpb.Request{}
	if err := dpclient.ReadFrame(conn, request); err != nil {
		return err
	}
	return dpclient.WriteFrame(conn, &fpb.Response{Version: request.GetVersion(), Id: request.GetId(),
		Error: &fpb.Error{Code: fpb.Code_CODE_INTERNAL, Text: "ask its successor"}})
}

// `role` waits for a forwarder that restarts or is upgraded. Meanwhile the forwarder may
//   - answer the request with an error, because it has handed over,
//   - close the connection,
//   - refuse connections.
func TestRoleWaitsForARestart(t *testing.T) {
	f := dptest.New(t)
	f.Peers = &fpb.PeerList{Node: 1, Role: fpb.Role_ROLE_BACKUP}
	f.Stop()
	listener, err := net.Listen("unix", f.Socket)
	if err != nil {
		t.Fatal(err)
	}
	restarted := make(chan error, 1)
	go func() {
		err := handedOver(listener) // the first attempt
		if err == nil {
			var conn net.Conn
			conn, err = listener.Accept() // the second one
			listener.Close()              // further ones are refused
			if err == nil {
				conn.Close()
			}
		}
		f.Start()
		restarted <- err
	}()
	code, out, errOut := runAt(f, "role master --timeout 1m")
	if err := <-restarted; err != nil {
		t.Fatal(err)
	}
	if code != exitOK || out != "Now master, before backup.\n" {
		t.Errorf("exit code %d: %s%s", code, out, errOut)
	}
	f.Stop()
	for line, want := range map[string]string{"role --timeout 1ms": "", "get peers": "", "describe peer 2": ""} {
		if code, out, errOut = runAt(f, line); code != exitFailure || out != want || !strings.HasPrefix(errOut, "steelyard: no forwarder listens on "+f.Socket) {
			t.Errorf("%s: exit code %d: %s%s", line, code, out, errOut)
		}
	}
}

// While a change waits, each command says until when.
func TestRoleThatWaits(t *testing.T) {
	f := dptest.New(t)
	f.Change(func() {
		f.RoleWaits = true
		f.Peers = &fpb.PeerList{Node: 2, Address: "10.9.0.2:8849", Role: fpb.Role_ROLE_BACKUP, Wanted: fpb.Role_ROLE_BACKUP, Peers: []*fpb.Peer{
			{Node: 1, Name: "lb1", Address: "10.9.0.1:8849", State: fpb.PeerState_PEER_STATE_ALIVE, Role: fpb.Role_ROLE_MASTER, UnverifiedHere: 12}}}
	})
	const until = "it becomes master when it has the sessions of node 1 (lb1): 12 of 256 slots are not verified yet"
	for _, c := range []struct{ line, out, errOut string }{
		{"role --check", "", "steelyard: sessions of node 1 (lb1) may be missing here: 12 of 256 slots are not verified yet\n"},
		{"role master", "Still backup: " + until + ".\n", ""},
		{"role", "backup\nThis node waits: " + until + ".\n", ""},
		{"role master -o json", "{\n  \"node\": 2,\n  \"role\": \"backup\",\n  \"before\": \"backup\",\n  \"waits\": \"" + until + "\"\n}\n", ""},
		{"role master --now", "Now master, before backup.\n", ""},
		{"role --check", "This node is master, and has all sessions.\n", ""},
	} {
		if code, out, errOut := runAt(f, c.line); (code == exitFailure) != (c.errOut != "") || out != c.out || errOut != c.errOut {
			t.Errorf("%s: exit code %d: %s%s", c.line, code, out, errOut)
		}
	}
}

// A context of a controller names another host's forwarder.
func TestRoleIsForThisHost(t *testing.T) {
	t.Setenv("STEELYARD_CONTEXTS", t.TempDir())
	f := dptest.New(t)
	f.Peers = &fpb.PeerList{Node: 1, Role: fpb.Role_ROLE_BACKUP}
	directory, err := contextDirectory()
	if err != nil {
		t.Fatal(err)
	}
	known := &contexts{Current: "prod", Contexts: map[string]*userContext{"prod": {Controllers: []string{"https://127.0.0.1:1"}}}}
	if err := known.write(directory); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"role", "role master", "get peers", "describe peer 2", "role --context prod"} {
		code, out, errOut := runAt(f, line)
		if code != exitFailure || out != "" || !strings.HasPrefix(errOut, "steelyard: the context prod is a controller's, and this command is for the forwarder of the host") {
			t.Errorf("%s: exit code %d: %s%s", line, code, out, errOut)
		}
		if code, _, errOut := runAt(f, line+" --context local"); code != exitOK && !strings.Contains(line, "--context") && line != "describe peer 2" {
			t.Errorf("%s at this host: exit code %d: %s", line, code, errOut)
		}
	}
}

// The state, share and problems of peers in different states.
func TestPeersOfAnECMPGroup(t *testing.T) {
	f := dptest.New(t)
	f.Peers = &fpb.PeerList{Node: 1, Address: "10.9.0.1:8849", Role: fpb.Role_ROLE_MASTER, Ecmp: true, Offered: 20, Peers: []*fpb.Peer{
		{Node: 2, Name: "lb2", Address: "10.9.0.2:8849", State: fpb.PeerState_PEER_STATE_ALIVE, Role: fpb.Role_ROLE_MASTER, RttUs: 200, Slots: 128,
			Offered: 20, Present: 20, Kept: 7, Verified: 256, RelayedOut: 11, RelayedIn: 1},
	}}
	for name, line := range map[string]string{"peers-ecmp.table": "get peers", "peer-ecmp.table": "describe peer 2"} {
		code, out, errOut := runAt(f, line)
		if code != exitOK {
			t.Errorf("%s: exit code %d: %s", line, code, errOut)
		}
		expectGolden(t, name, out)
	}
}

func TestPeersInTrouble(t *testing.T) {
	f := dptest.New(t)
	f.Peers = &fpb.PeerList{Node: 1, Address: "[fd00:9::1]:8849", Role: fpb.Role_ROLE_MASTER, Offered: 2000, Peers: []*fpb.Peer{
		{Node: 2, Name: "lb2", Address: "[fd00:9::2]:8849", State: fpb.PeerState_PEER_STATE_ALIVE, Role: fpb.Role_ROLE_MASTER, RttUs: 12_345, Slots: 256,
			Offered: 2000, Present: 1999, Refused: 1, LagMs: 1234, Copying: 2, Retransmitted: 1, Kept: 1, Verified: 255},
		{Node: 3, Name: "lb3", Address: "[fd00:9::3]:8849", State: fpb.PeerState_PEER_STATE_SILENT, SilentMs: 3210, Role: fpb.Role_ROLE_BACKUP},
		{Node: 4, Address: "[fd00:9::4]:8849", State: fpb.PeerState_PEER_STATE_UNKNOWN},
	}}
	for name, line := range map[string]string{"peers-in-trouble.table": "get peers", "peer-in-trouble.table": "describe peer lb2", "peer-silent.table": "describe peer 3",
		"peer-in-trouble.json": "describe peer 2 -o json"} {
		code, out, errOut := runAt(f, line)
		if code != exitOK {
			t.Errorf("%s: exit code %d: %s", line, code, errOut)
		}
		expectGolden(t, name, out)
	}
}

// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"testing"

	pb "steelyard/internal/gen/stackpb"
)

func stackLine(t *testing.T, directory string, words ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	code = Run(append([]string{"stack", "--stacks", directory}, words...), nil, &o, &e)
	return code, o.String(), e.String()
}

func TestStacksAreListed(t *testing.T) {
	directory := t.TempDir()
	fakeStack(t, directory, "nginx-4711", listing)
	for _, format := range []string{"table", "json"} {
		code, out, errOut := stackLine(t, directory, "list", "-o", format)
		if code != exitOK {
			t.Fatal(errOut)
		}
		expectGolden(t, "stack-list."+format, out)
		if strings.Contains(errOut, "it could not send 17 packets") != (format == "table") {
			t.Error(errOut)
		}
	}
	for name, words := range map[string][]string{"some": nil, "all": {"--all"}} {
		code, out, errOut := stackLine(t, directory, append([]string{"counters"}, words...)...)
		if code != exitOK {
			t.Fatal(errOut)
		}
		expectGolden(t, "stack-counters-"+name, out)
	}
}

func TestConnectionsAreListed(t *testing.T) {
	directory := t.TempDir()
	v6 := append([]byte{0xfd}, make([]byte, 15)...)
	var asked uint32
	fakeStack(t, directory, "nginx-4711", func(request *pb.Request) *pb.Response {
		asked = request.GetConnections().GetLimit()
		return &pb.Response{Body: &pb.Response_Connections{Connections: &pb.Connections{More: true, Silent: 1, Connections: []*pb.Connection{
			{Pid: 2, State: "established", Local: []byte{10, 0, 0, 1}, LocalPort: 80, Peer: []byte{10, 0, 0, 2}, PeerPort: 40000, Unread: 1, Unsent: 2,
				RttUs: 1500, Window: 14480, Retransmitted: 3, Sent: 1 << 40, Received: 5},
			{Pid: 2, State: "listen", Local: make([]byte, 4), LocalPort: 80, Unread: 4, Unsent: 511},
			{Pid: 1, State: "time-wait", Local: v6, LocalPort: 80, Peer: v6, PeerPort: 40001},
			{Pid: 1, State: "listen", LocalPort: 80, Unsent: 511},
		}}}}
	})
	for _, format := range []string{"table", "json"} {
		code, out, errOut := stackLine(t, directory, "connections", "--limit", "77", "-o", format)
		if code != exitOK || asked != 77 {
			t.Fatal(asked, errOut)
		}
		expectGolden(t, "stack-connections."+format, out)
		if strings.Contains(errOut, "nginx-4711: there are more") != (format == "table") || strings.Contains(errOut, "1 stack did not answer in time") != (format == "table") {
			t.Error(errOut)
		}
	}
}

func TestNoStackIsSaid(t *testing.T) {
	directory := t.TempDir()
	for _, command := range []string{"list", "counters", "connections"} {
		code, out, errOut := stackLine(t, directory, command)
		if (code == exitOK) != (command == "list") || out != "" || !strings.Contains(errOut, "no program on the user-space stack runs here: start one by `steelyard run`") {
			t.Errorf("%s: %d, %q, %s", command, code, out, errOut)
		}
	}
	if code, _, errOut := stackLine(t, directory, "connections", "--limit", "0"); code == exitOK || !strings.Contains(errOut, "between 1 and 100000") {
		t.Error(errOut)
	}
}

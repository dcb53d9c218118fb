// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

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
		return &pb.Response{Body: &pb.Response_Connections{Connections: &pb.Connections{More: true, Silent: []uint32{3}, Connections: []*pb.Connection{
			{Pid: 2, State: "established", Local: []byte{10, 0, 0, 1}, LocalPort: 80, Peer: []byte{10, 0, 0, 2}, PeerPort: 40000, Unread: 1, Unsent: 2,
				RttUs: 1500, Window: 14480, Retransmitted: 3, Sent: 1 << 40, Received: 5},
			{Pid: 2, State: "listen", Local: make([]byte, 4), LocalPort: 80, Unread: 4, Unsent: 511},
			{Pid: 1, State: "time-wait", Local: v6, LocalPort: 80, Peer: v6, PeerPort: 40001},
			{Pid: 1, State: "listen", LocalPort: 80, Unsent: 511},
			{Pid: 1, State: "listen", LocalPort: 81, OnlyV6: true},
		}}}}
	})
	for _, format := range []string{"table", "json"} {
		code, out, errOut := stackLine(t, directory, "connections", "--limit", "77", "-o", format)
		if code != exitOK || asked != 77 {
			t.Fatal(asked, errOut)
		}
		expectGolden(t, "stack-connections."+format, out)
		if !strings.Contains(errOut, "nginx-4711: there are more") || !strings.Contains(errOut, "connections are missing: 1 stack did not answer in time (process 3)") {
			t.Error(errOut)
		}
	}
}

func TestNoStackIsSaid(t *testing.T) {
	directory := t.TempDir()
	for _, command := range []string{"list", "counters", "connections"} {
		code, out, errOut := stackLine(t, directory, command)
		if (code == exitOK) != (command == "list") || out != "" || !strings.Contains(errOut, "no program uses the user-space stack here: start one by `steelyard run`") {
			t.Errorf("%s: %d, %q, %s", command, code, out, errOut)
		}
	}
	if code, _, errOut := stackLine(t, directory, "connections", "--limit", "0"); code == exitOK || !strings.Contains(errOut, "use 1 to 30000") {
		t.Error(errOut)
	}
}

// The answering process may be compromised.
func TestControlCharactersDoNotReachTheTerminal(t *testing.T) {
	directory := t.TempDir()
	fakeStack(t, directory, "nginx-1", func(request *pb.Request) *pb.Response {
		if request.GetConnections() != nil {
			return &pb.Response{Body: &pb.Response_Connections{Connections: &pb.Connections{Connections: []*pb.Connection{{State: "\x1b]0;x\a"}}}}}
		}
		return &pb.Response{Body: &pb.Response_Listing{Listing: &pb.Listing{Interfaces: "\x1b[2J\u009b", Numbers: []*pb.Number{{Name: "\x1b[1m", Help: "\r\n"}},
			Each: []*pb.Stack{{Counts: []uint64{1}}}, Hooks: []*pb.Hook{{Name: "\x1b[2J", Kind: "\b"}}}}}
	})
	for _, words := range [][]string{{"list"}, {"counters"}, {"connections"}} {
		code, out, errOut := stackLine(t, directory, words...)
		if code != exitOK || strings.ContainsAny(strings.ReplaceAll(out+errOut, "\n", ""), "\x1b\a\b\r\u009b") {
			t.Errorf("%v: %d, %q, %q", words, code, out, errOut)
		}
	}
	if _, out, _ := hookLine(t, directory, "list"); strings.ContainsAny(out, "\x1b\b") {
		t.Errorf("%q", out)
	}
}

// Two contexts of one process are distinguished.
func TestContextsHaveNumbers(t *testing.T) {
	directory := t.TempDir()
	fakeStack(t, directory, "echo-7", func(request *pb.Request) *pb.Response {
		if request.GetConnections() != nil {
			return &pb.Response{Body: &pb.Response_Connections{Connections: &pb.Connections{Connections: []*pb.Connection{
				{Pid: 7, Stack: 0, State: "listen", LocalPort: 1}, {Pid: 7, Stack: 1, State: "listen", LocalPort: 1}}}}}
		}
		return &pb.Response{Body: &pb.Response_Listing{Listing: &pb.Listing{Stacks: 2, Numbers: []*pb.Number{{Name: "accepted"}},
			Each: []*pb.Stack{{Number: 0, Pid: 7, Counts: []uint64{1}}, {Number: 1, Pid: 7, Counts: []uint64{2}}}}}}
	})
	for _, command := range []string{"counters", "connections"} {
		if _, out, _ := stackLine(t, directory, command); !strings.Contains(out, "7#0") || !strings.Contains(out, "7#1") {
			t.Error(out)
		}
	}
}

// The names are those of the stack's counters.
func TestDroppedCountsAreThere(t *testing.T) {
	header, err := os.ReadFile("../../dataplane/tcp/include/sy_stack.h")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append([]string{"unfinished_dropped", "connections", "listeners", "retransmitted", "accepted", "opened"}, droppedCounts...) {
		numbers, err := os.ReadFile("../../dataplane/tcp/include/sy_stack_numbers.h")
		if err != nil || !strings.Contains(string(header)+string(numbers), "X("+name+", ") {
			t.Errorf("there is no counter %s", name)
		}
	}
}

func TestStacksAreMetrics(t *testing.T) {
	directory := t.TempDir()
	fakeStack(t, directory, "nginx-4711", listing)
	fakeStack(t, directory, "odd-1", func(*pb.Request) *pb.Response {
		return &pb.Response{Body: &pb.Response_Listing{Listing: &pb.Listing{Program: "odd", Numbers: []*pb.Number{{Name: "a{b", Help: "\n"}, {Name: ""}},
			Each: []*pb.Stack{{Counts: []uint64{1, 2, 3}}}}}}
	})
	fakeStack(t, directory, "deaf-1", func(*pb.Request) *pb.Response { return &pb.Response{} })
	code, out, errOut := stackLine(t, directory, "metrics")
	if code != exitOK {
		t.Fatal(errOut)
	}
	expectGolden(t, "stack-metrics", out)
}

func TestStacksAreServed(t *testing.T) {
	directory := t.TempDir()
	fakeStack(t, directory, "nginx-4711", listing)
	out, in := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		a := &app{out: in, err: io.Discard, output: "table", timeout: 30 * time.Second}
		command := a.stackMetricsCommand(&stackOptions{directory: directory})
		command.SetArgs([]string{"--listen", "127.0.0.1:0"})
		ended <- command.ExecuteContext(ctx)
		in.Close()
	}()
	var url string
	if _, err := fmt.Fscanf(out, "serving %s\n", &url); err != nil {
		t.Fatal(err, <-ended)
	}
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	if err != nil || !strings.Contains(string(text), `steelyard_stack_accepted_total{number="5",stack="nginx-4711"} 50`) {
		t.Error(err, string(text))
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

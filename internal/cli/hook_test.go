// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"steelyard/internal/dpclient"
	pb "steelyard/internal/gen/stackpb"

	"google.golang.org/protobuf/proto"
)

// fakeStack answers each request with the next of its answers, and keeps what it was asked.
func fakeStack(t *testing.T, directory, name string, answer func(*pb.Request) *pb.Response) {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(directory, name+".sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			request := new(pb.Request)
			if dpclient.ReadFrame(conn, request) == nil {
				_ = dpclient.WriteFrame(conn, answer(request))
			}
			conn.Close()
		}
	}()
}

func listing(*pb.Request) *pb.Response {
	return &pb.Response{Body: &pb.Response_Listing{Listing: &pb.Listing{Program: "nginx", Pid: 4711, Interfaces: "eth0", Stacks: 2,
		Numbers: []*pb.Number{{Name: "connections", Help: "connections, in all states", Now: true}, {Name: "accepted", Help: "connections begun by a peer"},
			{Name: "bad_checksums", Help: "packets with a wrong checksum"}, {Name: "unfinished_dropped", Help: "packets whose checksum is unfinished"}, {Name: "paws", Help: "old segments"}},
		Each: []*pb.Stack{{Number: 3, Pid: 4712, Counts: []uint64{10, 100, 3, 2, 0}, Dropped: []uint64{0, 0, 0, 0, 0, 0, 100, 3}, Unsent: 10, Unreachable: 5},
			{Number: 5, Pid: 4713, Counts: []uint64{5, 50, 0, 0, 0}, Dropped: []uint64{0, 0, 0, 0, 0, 0, 20}, Unsent: 7}},
		Hooks: []*pb.Hook{
			{Name: "api", Number: 32, Kind: "packet", Compiled: true, Instructions: 22, Longest: 18, Loads: 3, Params: []uint64{1, 0, 0, 0, 0, 0, 0, 7},
				Calls: 1000, Levels: []uint64{600, 0, 0, 0, 390, 0, 0, 8}, Wrong: 2, Timed: 16, Cycles: 200, Places: []*pb.Place{{}}, Stacks: 2},
			{Name: "sizes", Number: 31, Kind: "segment", Instructions: 40, Longest: 40, Loads: 1, Params: make([]uint64, 8), Levels: make([]uint64, 8),
				Places: []*pb.Place{{Address: []byte{192, 0, 2, 10}, Port: 80}, {Port: 443, Idle: true}, {Address: append([]byte{0xfd}, make([]byte, 15)...), Port: 80}}, Stacks: 2},
			{Name: "own", Number: 1, Kind: "segment", Native: true, Params: make([]uint64, 8), Levels: make([]uint64, 8), Stacks: 1},
		}}}}
}

func hookLine(t *testing.T, directory string, words ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	code = Run(append([]string{"hook", "--stacks", directory}, words...), nil, &o, &e)
	return code, o.String(), e.String()
}

func TestHooksAreListed(t *testing.T) {
	directory := t.TempDir()
	fakeStack(t, directory, "nginx-4711", listing)
	fakeStack(t, directory, "redis-9", func(*pb.Request) *pb.Response {
		return &pb.Response{Body: &pb.Response_Listing{Listing: &pb.Listing{Program: "redis-server", Pid: 9, Stacks: 1}}}
	})
	for _, format := range []string{"table", "json"} {
		code, out, errOut := hookLine(t, directory, "list", "-o", format)
		if code != exitOK {
			t.Fatal(errOut)
		}
		expectGolden(t, "hook-list."+format, out)
		for _, told := range []string{"it dropped packets, because its backlog was full (level:packets): 6:120 7:3", "it could not send 17 packets: the transmit queue was full",
			"it had no route for 5 packets", "it dropped 2 packets with a partial checksum, left to offload by their sender: ethtool -K", "it dropped 1 packets with a wrong checksum: they were damaged"} {
			if strings.Contains(errOut, "nginx-4711: "+told) != (format == "table") {
				t.Errorf("%s: %s is missing in %s", format, told, errOut)
			}
		}
		if strings.Contains(errOut, "redis-9: it") {
			t.Error(errOut)
		}
	}
}

func TestHooksAreChanged(t *testing.T) {
	directory := t.TempDir()
	object := filepath.Join(directory, "mine.o")
	if err := os.WriteFile(object, []byte("an object"), 0o644); err != nil {
		t.Fatal(err)
	}
	var asked *pb.Request
	silent := uint32(0)
	fakeStack(t, directory, "nginx-1", func(request *pb.Request) *pb.Response {
		asked = request
		return &pb.Response{Body: &pb.Response_Changed{Changed: &pb.Changed{Stacks: 2, Silent: silent, Idle: []*pb.Place{{Port: 443, Idle: true}}}}}
	})
	for _, one := range []struct {
		words  []string
		want   *pb.Request
		says   string
		silent uint32
	}{
		{[]string{"load", "mine", object}, &pb.Request{Body: &pb.Request_Load{Load: &pb.Load{Name: "mine", Object: []byte("an object"),
			Places: []*pb.Place{{}}}}}, "nginx-1: mine loaded in 2 stacks\n", 0},
		{[]string{"load", "mine", object, "--listen", "192.0.2.1:80", "--listen", ":443", "--listen", "[fd00::1]:80", "--listen", "0.0.0.0:81",
			"--param", "0=0x10", "--param", `1="GET /"`}, &pb.Request{Body: &pb.Request_Load{Load: &pb.Load{Name: "mine",
			Object: []byte("an object"), Params: []*pb.Param{{Index: 0, Value: 16}, {Index: 1, Value: 0x474554202f000000}},
			Places: []*pb.Place{{Address: []byte{192, 0, 2, 1}, Port: 80}, {Port: 443},
				{Address: append([]byte{0xfd}, append(make([]byte, 14), 1)...), Port: 80}, {Port: 81}}}}}, "mine loaded in 2 stacks", 0},
		{[]string{"load", "mine", object, "--listen", "none"}, &pb.Request{Body: &pb.Request_Load{Load: &pb.Load{Name: "mine",
			Object: []byte("an object")}}}, "mine loaded in 2 stacks; 1 follow when", 1},
		{[]string{"swap", "mine", object, "--param", "7=18446744073709551615"}, &pb.Request{Body: &pb.Request_Load{Load: &pb.Load{Name: "mine",
			Swap: true, Object: []byte("an object"), Params: []*pb.Param{{Index: 7, Value: 1<<64 - 1}}}}}, "mine swapped in 2 stacks", 0},
		{[]string{"set", "mine", "3=4"}, &pb.Request{Body: &pb.Request_Set{Set: &pb.Set{Name: "mine",
			Params: []*pb.Param{{Index: 3, Value: 4}}}}}, "mine set in 2 stacks", 0},
		{[]string{"rm", "mine"}, &pb.Request{Body: &pb.Request_Remove{Remove: &pb.Remove{Name: "mine"}}}, "mine removed in 2 stacks", 0},
	} {
		silent = one.silent
		code, out, errOut := hookLine(t, directory, one.words...)
		one.want.Version = uint32(pb.Version_VERSION_CURRENT)
		if code != exitOK || !strings.Contains(out, one.says) || !strings.Contains(errOut, "no listener at :443 yet") || !proto.Equal(asked, one.want) {
			t.Errorf("%v: %d, %s%s: asked %v, want %v", one.words, code, out, errOut, asked, one.want)
		}
	}
}

func TestHooksAreRefused(t *testing.T) {
	empty, directory := t.TempDir(), t.TempDir()
	fakeStack(t, directory, "one", func(*pb.Request) *pb.Response {
		return &pb.Response{Body: &pb.Response_Error{Error: &pb.Error{Text: "instruction 2 reads too far"}}}
	})
	for _, one := range []struct {
		directory string
		words     []string
		want      string
	}{
		{empty, []string{"rm", "x"}, "no program uses the user-space stack here"},
		{directory, []string{"rm", "x"}, "instruction 2 reads too far"},
		{directory, []string{"load", "x", "/dev/null"}, "/dev/null: instruction 2 reads too far"},
		{directory, []string{"load", "x", "/nonexistent"}, "no such file"},
		{directory, []string{"load", "x", "nonexistent"}, "no such file"},
		{directory, []string{"load", "x", "/dev/null", "--listen", "here"}, "write ADDRESS:PORT, :PORT, default or none"},
		{directory, []string{"load", "x", "/dev/null", "--listen", "none", "--listen", ":80"}, "stands alone"},
		{directory, []string{"set", "x", "8=1"}, "with I from 0 to 7"},
		{directory, []string{"set", "x", "0=-1"}, "no number"},
		{directory, []string{"set", "x", `0="too many of them"`}, "one to eight characters"},
		{directory, []string{"--stack", "two", "rm", "x"}, "no stack two"},
	} {
		if code, _, errOut := hookLine(t, one.directory, one.words...); code != exitFailure || !strings.Contains(errOut, one.want) {
			t.Errorf("%v: %d: %s", one.words, code, errOut)
		}
	}
	fakeStack(t, directory, "two", listing)
	if _, _, errOut := hookLine(t, directory, "rm", "x"); !strings.Contains(errOut, "name one with --stack: one, two") {
		t.Error(errOut)
	}
}

// A killed process leaves its socket, which is no stack.
func TestStaleSocketIsNotListed(t *testing.T) {
	directory := t.TempDir()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(directory, "dead.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	listener.Close()
	code, out, errOut := hookLine(t, directory, "list", "-o", "json")
	if code != exitOK || strings.TrimSpace(out) != "[]" {
		t.Errorf("%d: %s%s", code, out, errOut)
	}
	if _, err := os.Stat(filepath.Join(directory, "dead.sock")); err != nil {
		t.Error(err)
	}
}

func TestAStackThatHangsUpIsNamed(t *testing.T) {
	directory := t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(directory, "rude.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.CopyN(io.Discard, conn, 4)
			conn.Close()
		}
	}()
	if _, _, errOut := hookLine(t, directory, "list", "--stack", "rude"); !strings.Contains(errOut, "stack rude closed the connection") {
		t.Error(errOut)
	}
}

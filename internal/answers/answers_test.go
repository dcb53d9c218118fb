// SPDX-License-Identifier: Apache-2.0

package answers

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	"steelyard/internal/dpclient"
	pb "steelyard/internal/gen/forwarderpb"
	"steelyard/internal/model"
)

// fake is a forwarder with one service.
type fake struct {
	mode                       pb.Mode
	protocol                   pb.Protocol
	vip, server                netip.Addr
	created, repeated, in, out uint64
	sessions                   []*pb.Session
	looked                     int
}

func (f *fake) EachService(_ context.Context, _ *model.ServiceKey, each func(*dpclient.ServiceStats) error) error {
	return each(&pb.ServiceStats{
		Service: &pb.Service{Name: "web", Mode: f.mode, Key: &pb.ServiceKey{Vip: f.vip.AsSlice(), Port: 80, Protocol: f.protocol}},
		Servers: []*pb.ServerStats{{Server: &pb.Server{Address: f.server.AsSlice(), Port: 8080},
			Traffic: &pb.Traffic{SessionsCreated: f.created, PacketsIn: f.in, PacketsOut: f.out}, Delay: &pb.DelayStats{SynRepeated: f.repeated}}},
	})
}

func (f *fake) Sessions(context.Context, dpclient.SessionFilter, int) ([]*dpclient.Session, bool, error) {
	f.looked++
	return f.sessions, false, nil
}

func (f *fake) Close() error { return nil }

// session adds one of a state and an age.
func (f *fake) session(state string, age uint32) {
	f.sessions = append(f.sessions, &pb.Session{Server: f.server.AsSlice(), ServerPort: 8080, State: state, AgeS: age})
}

type bench struct {
	*testing.T
	*fake
	watch *Watch
	now   time.Time
	log   strings.Builder
}

func newBench(t *testing.T, mode pb.Mode, family int) *bench {
	b := &bench{T: t, now: time.Now(), fake: &fake{mode: mode, protocol: pb.Protocol_PROTOCOL_TCP,
		vip: netip.MustParseAddr("10.0.0.80"), server: netip.MustParseAddr("10.1.0.21")}}
	if family == 6 {
		b.vip, b.server = netip.MustParseAddr("fd00::80"), netip.MustParseAddr("fd00:1::21")
	}
	b.watch = New(Options{Dial: func(context.Context) (Forwarder, error) { return b.fake, nil },
		Name: func(model.ServiceKey) string { return "web" }, Log: slog.New(slog.NewTextHandler(&b.log, nil))})
	b.turn(0)
	return b
}

func (b *bench) turn(after time.Duration) {
	b.now = b.now.Add(after)
	b.watch.turn(b.Context(), b.now)
}

func (b *bench) expect(when string, syns uint64) {
	b.Helper()
	silent := b.watch.Silent()
	var got uint64
	for n := range maps.Values(silent) {
		got = n
	}
	if got != syns || (syns > 0) != (len(silent) == 1) {
		b.Errorf("%s: %v, want %d", when, silent, syns)
	}
}

// Where answers pass by the forwarder, one packet of the server in the window is an answer.
func TestAnswersThatPass(t *testing.T) {
	for _, mode := range []pb.Mode{pb.Mode_MODE_FNAT, pb.Mode_MODE_NAT} {
		for _, family := range []int{4, 6} {
			b := newBench(t, mode, family)
			b.created, b.in = 2, 2
			b.turn(every)
			b.expect("two SYNs prove nothing", 0)
			b.created, b.in, b.repeated = 3, 9, 6
			b.turn(every)
			b.expect("with repeated ones", 9)
			b.turn(every)
			if n := strings.Count(b.log.String(), "server answers no SYN"); n != 1 {
				t.Errorf("logged %d times: %s", n, b.log.String())
			}
			b.turn(Window)
			b.expect("none in the window any more", 0)
			b.created = 10
			b.turn(every)
			b.expect("new ones", 7)
			b.out = 1
			b.turn(every)
			b.expect("an answer", 0)
			if !strings.Contains(b.log.String(), "not without answers any more") {
				t.Error(b.log.String())
			}
			b.created = 20
			b.turn(every)
			b.expect("an answer within the window", 0)
			b.created, b.out, b.in, b.repeated = 1, 0, 1, 0
			b.turn(every)
			b.expect("another forwarder", 0)
			b.created = 5
			b.turn(every)
			b.expect("and its SYNs", 4)
		}
	}
}

// Where answers pass by, sessions that never go on are the sign; they are looked at only when there are few packets.
func TestAnswersThatPassBy(t *testing.T) {
	for _, mode := range []pb.Mode{pb.Mode_MODE_DR, pb.Mode_MODE_IPIP} {
		b := newBench(t, mode, 4)
		b.created, b.in = 10, 100
		b.turn(every)
		if b.expect("connections with data", 0); b.looked != 0 {
			t.Error("sessions were listed")
		}
		b.turn(Window)
		b.created, b.in = 14, 114
		for range 4 {
			b.session("syn-sent", 3)
		}
		b.session("established", 600)
		b.turn(every)
		b.expect("half-open ones, beside an old one", 4)
		b.session("established", 2)
		b.turn(every)
		b.expect("one goes on", 0)
	}
}

func TestDatagramsAreNoSYNs(t *testing.T) {
	b := newBench(t, pb.Mode_MODE_FNAT, 4)
	b.protocol = pb.Protocol_PROTOCOL_UDP
	b.created, b.in = 100, 100
	b.turn(every)
	b.expect("unanswered datagrams", 0)
}

// SPDX-License-Identifier: Apache-2.0

package feedback

import (
	"context"
	"errors"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"steelyard/internal/dpclient"
	pb "steelyard/internal/gen/forwarderpb"
	"steelyard/internal/health"
	"steelyard/internal/load"
	"steelyard/internal/model"
	"steelyard/internal/share"
)

var begin = time.Unix(1_000_000, 0)

// lab is a loop with a forwarder that a test plays.
type lab struct {
	*testing.T
	loop   *Loop
	config *model.Config
	states map[model.ServerRef]model.ServerSpec
	loads  map[model.ServerRef]load.Reading
	checks map[model.ServerRef]health.State
	stats  map[netip.AddrPort]*pb.ServerStats
	valid  uint32
	sent   [][]dpclient.ServiceShares
	asked  int // EachService of one service
	err    error
	now    time.Time

	version uint64 // of states: another one each time, but for those that are still
	still   bool
	read    int // states of a service
}

func newLab(t *testing.T, servers int) *lab {
	l := &lab{T: t, now: begin, version: 1, states: map[model.ServerRef]model.ServerSpec{}, loads: map[model.ServerRef]load.Reading{},
		checks: map[model.ServerRef]health.State{}, stats: map[netip.AddrPort]*pb.ServerStats{}}
	service := model.Service{
		Name: "web", Key: model.ServiceKey{Protocol: model.TCP, VIP: netip.MustParseAddr("10.0.0.80"), Port: 80},
		Health:   model.Health{Type: model.HealthTCP},
		Feedback: model.Feedback{Policy: model.FeedbackCapability, Gamma: 0.5, Minimum: 5, Settle: 30 * time.Second},
	}
	for i := range servers {
		address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, 0, byte(1 + i)}), 8080)
		service.Servers = append(service.Servers, model.Server{Address: address, Weight: 10})
		l.states[model.ServerRef{Service: service.Key, Address: address}] = model.ServerSpec{State: model.Up}
		l.stats[address] = &pb.ServerStats{Server: &pb.Server{Address: address.Addr().AsSlice(), Port: uint32(address.Port())}, Traffic: &pb.Traffic{}, Delay: &pb.DelayStats{}}
	}
	l.config = &model.Config{Services: []model.Service{service}}
	l.loop = New(Options{
		Config: func() *model.Config { return l.config },
		States: l.statesOf, Version: l.versionNow,
		Load:  func(ref model.ServerRef) (load.Reading, bool) { r, ok := l.loads[ref]; return r, ok },
		Check: func(ref model.ServerRef) (health.State, bool) { s, ok := l.checks[ref]; return s, ok },
		Dial:  func(context.Context) (Forwarder, error) { return l, l.err },
	})
	return l
}

func (l *lab) versionNow() uint64 {
	if !l.still {
		l.version++
	}
	return l.version
}

func (l *lab) statesOf(service *model.Service, into []model.State) []model.State {
	l.read++
	for _, server := range service.Servers {
		into = append(into, l.states[model.ServerRef{Service: service.Key, Address: server.Address}].State)
	}
	return into
}

func (l *lab) EachService(_ context.Context, only *model.ServiceKey, f func(*dpclient.ServiceStats) error) error {
	if only != nil {
		l.asked++
	}
	for i := range l.config.Services {
		s := &l.config.Services[i]
		if only != nil && *only != s.Key {
			continue
		}
		stats := &pb.ServiceStats{Service: dpclient.SpecToWire(s.Key, model.ServiceSpec{Name: s.Name}), SharesValidS: l.valid}
		for _, server := range s.Servers {
			stats.Servers = append(stats.Servers, l.stats[server.Address])
		}
		if err := f(stats); err != nil {
			return err
		}
	}
	return l.err
}

func (l *lab) SetShares(_ context.Context, shares []dpclient.ServiceShares, for_ time.Duration) error {
	if l.err != nil {
		return l.err
	}
	if for_ < 30*time.Second {
		l.Errorf("valid for %v", for_)
	}
	l.sent = append(l.sent, shares)
	l.valid = 60
	return nil
}

func (l *lab) Close() error { return nil }

func (l *lab) ref(i int) model.ServerRef {
	return model.ServerRef{Service: l.config.Services[0].Key, Address: l.config.Services[0].Servers[i].Address}
}

func (l *lab) of(i int) *pb.ServerStats { return l.stats[l.config.Services[0].Servers[i].Address] }

// turns passes so many seconds, in each of which each server has so many handshakes of this delay.
func (l *lab) turns(seconds int, handshakes uint64, delays ...time.Duration) {
	for range seconds {
		l.now = l.now.Add(time.Second)
		for i, delay := range delays {
			s := l.of(i)
			s.Traffic.SessionsCreated += handshakes
			s.Delay.Samples += handshakes
			s.Delay.SumNs += handshakes * uint64(delay)
		}
		for ref, r := range l.loads {
			if r.Err == "" {
				r.At = l.now
				l.loads[ref] = r
			}
		}
		l.loop.turn(l.Context(), nil, l.now)
	}
}

func (l *lab) share(i int) share.Share {
	state, ok := l.loop.State(l.config.Services[0].Key)
	if !ok {
		l.Fatal("no feedback")
	}
	return state.Shares[l.ref(i)]
}

func TestDelayAndLoadMoveShares(t *testing.T) {
	l := newLab(t, 4)
	for i, cpu := range []float64{0.2, 0.2, 0.2, 0.6} {
		l.loads[l.ref(i)] = load.Reading{CPU: cpu, At: begin}
	}
	const ms = time.Millisecond
	l.turns(200, 10, 2*ms, 2*ms, 6*ms, 2*ms)
	near, far, busy := l.share(0), l.share(2), l.share(3)
	if !(near.Share > 0.28 && far.Share < 0.22 && busy.Share < 0.25 && near.State == share.Measured) {
		t.Errorf("%+v, %+v, %+v", near, far, busy)
	}
	if far.Phi >= 0 || busy.Eta >= 0 {
		t.Errorf("φ %v, η %v", far.Phi, busy.Eta)
	}
	last := l.sent[len(l.sent)-1][0]
	sum := 0.0
	for _, one := range last.Servers {
		sum += one.Share
	}
	if len(last.Servers) != 4 || math.Abs(sum-1) > 1e-9 || last.Servers[0].Address != l.ref(0).Address {
		t.Errorf("%+v", last)
	}
}

func TestOnlyWhatChangedIsSentAndRenewed(t *testing.T) {
	l := newLab(t, 2)
	l.turns(150, 10, time.Millisecond, time.Millisecond)
	if n := len(l.sent); n < 9 || n > 12 { // once, and every 15 s
		t.Errorf("%d requests in 150 s", n)
	}
	before := len(l.sent)
	l.valid = 0 // the forwarder has restarted
	l.turns(1, 10, time.Millisecond, time.Millisecond)
	if len(l.sent) != before+1 {
		t.Error("a forwarder without shares gets none")
	}
}

func TestLossOfSYNs(t *testing.T) {
	l := newLab(t, 2)
	l.turns(60, 50, time.Millisecond, time.Millisecond)
	l.of(1).Delay.SynRepeated++ // one of thousands
	l.turns(30, 50, time.Millisecond, time.Millisecond)
	if got := l.share(1).Share; math.Abs(got-0.5) > 0.01 {
		t.Errorf("one lost SYN moved the share to %v", got)
	}
	for range 60 {
		l.of(1).Delay.SynRepeated += 4 // 7 %
		l.turns(1, 50, time.Millisecond, time.Millisecond)
	}
	if got := l.share(1); got.State != share.SetAside || got.Share > 0.25 || !strings.Contains(got.Reason, "loss") {
		t.Errorf("%+v", got)
	}
}

// With many services, most states have not changed since the turn before.
func TestStatesAreReadOnceTheyChange(t *testing.T) {
	l := newLab(t, 2)
	l.still = true
	l.turns(20, 10, time.Millisecond, time.Millisecond)
	if l.read != 1 {
		t.Errorf("read %d times without a change", l.read)
	}
	l.states[l.ref(0)] = model.ServerSpec{State: model.Down}
	l.version++
	l.turns(1, 10, time.Millisecond, time.Millisecond)
	if got := l.share(0); l.read != 2 || got.State != share.Out {
		t.Errorf("read %d times, %+v", l.read, got)
	}
	config := *l.config // the same servers, as another configuration has them
	config.Services = []model.Service{l.config.Services[0]}
	l.config = &config
	l.turns(1, 10, time.Millisecond, time.Millisecond)
	if l.read != 3 {
		t.Errorf("read %d times after a new configuration", l.read)
	}
}

// Segments of sessions that go on say more of a link than SYNs do.
func TestLossOfSegments(t *testing.T) {
	l := newLab(t, 2)
	turns := func(n int, lost uint64) {
		for range n {
			for i := range 2 {
				l.of(i).Delay.Segments += 200
			}
			l.of(1).Delay.SegmentsLost += lost
			l.turns(1, 10, time.Millisecond, time.Millisecond)
		}
	}
	turns(60, 0)
	if got := l.share(1).Share; math.Abs(got-0.5) > 0.01 {
		t.Errorf("without loss: %v", got)
	}
	turns(120, 4) // 2 %
	some := l.share(1)
	if some.Share > 0.45 || some.Share < 0.3 || some.State == share.SetAside {
		t.Errorf("2 %%: %+v", some)
	}
	turns(120, 14) // 7 %
	if got := l.share(1); got.State != share.SetAside || got.Share >= some.Share || !strings.Contains(got.Reason, "loss") {
		t.Errorf("7 %%: %+v", got)
	}
	turns(300, 0)
	if got := l.share(1).Share; math.Abs(got-0.5) > 0.02 {
		t.Errorf("afterwards: %v", got)
	}
}

func TestLinksAreShared(t *testing.T) {
	l := newLab(t, 4)
	service := &l.config.Services[0]
	service.Feedback.Capacity = 100_000_000
	service.Servers[0].Link, service.Servers[1].Link = "left", "left"
	for range 60 {
		for i := range 4 {
			l.of(i).Traffic.BytesOut += 3_000_000 // 24 Mbit/s: 48 % of the link on the left
		}
		l.turns(1, 10, time.Millisecond, time.Millisecond, time.Millisecond, time.Millisecond)
	}
	if left, right := l.share(0), l.share(2); left.Phi >= right.Phi || left.Share >= right.Share {
		t.Errorf("%+v, %+v", left, right)
	}
}

// One server receives much, the other one sends much: each direction of their link is half used.
func TestDirectionsOfALink(t *testing.T) {
	l := newLab(t, 2)
	service := &l.config.Services[0]
	service.Feedback.Capacity = 100_000_000
	service.Servers[0].Link, service.Servers[1].Link = "left", "left"
	for range 60 {
		l.of(0).Traffic.BytesIn += 6_250_000 // 50 Mbit/s
		l.of(1).Traffic.BytesOut += 6_250_000
		l.turns(1, 10, time.Millisecond, time.Millisecond)
	}
	for i := range 2 {
		if got := l.share(i); got.State == share.SetAside || strings.Contains(got.Reason, "link") {
			t.Errorf("%+v", got)
		}
	}
}

func TestChecksStandInForTraffic(t *testing.T) {
	l := newLab(t, 2)
	for second := range 100 {
		for i, took := range []time.Duration{time.Millisecond, 3 * time.Millisecond} {
			l.checks[l.ref(i)] = health.State{LastPassed: true, LastCheck: begin.Add(time.Duration(second) * time.Second), LastDuration: took}
		}
		l.turns(1, 0)
	}
	if l.share(0).Share <= l.share(1).Share+0.05 {
		t.Errorf("%+v, %+v", l.share(0), l.share(1))
	}
	l.turns(100, 10, 3*time.Millisecond, time.Millisecond) // traffic knows better
	if l.share(0).Share >= l.share(1).Share-0.05 {
		t.Errorf("%+v, %+v", l.share(0), l.share(1))
	}
}

func TestStaleLoadIsSeen(t *testing.T) {
	l := newLab(t, 2)
	l.loads[l.ref(0)] = load.Reading{CPU: 0.1, At: begin}
	l.loads[l.ref(1)] = load.Reading{CPU: 0.8, At: begin}
	l.turns(120, 10, time.Millisecond, time.Millisecond)
	low := l.share(1).Share
	l.loads[l.ref(0)] = load.Reading{CPU: 0.1, At: l.now, Err: "no answer"}
	l.loads[l.ref(1)] = load.Reading{CPU: 0.8, At: l.now, Err: "no answer"}
	l.turns(30, 10, time.Millisecond, time.Millisecond)
	if got := l.share(1); got.State != share.Partly || !strings.Contains(got.Reason, "cpu 3") {
		t.Errorf("%+v", got)
	}
	l.turns(300, 10, time.Millisecond, time.Millisecond)
	if got := l.share(1); got.Share < low+0.1 || math.Abs(got.Share-0.5) > 0.02 {
		t.Errorf("from %v to %+v", low, got)
	}
	if w := l.loop.Warnings(); len(w) != 0 {
		t.Errorf("%q", w)
	}
	l.turns(100, 0) // no traffic, no checks, no load
	if w := l.loop.Warnings(); len(w) != 1 || !strings.Contains(w[0], "nothing is measured of its servers") {
		t.Errorf("%q", w)
	}
}

func TestDrainedAndBackups(t *testing.T) {
	l := newLab(t, 3)
	l.states[l.ref(0)] = model.ServerSpec{State: model.Drain}
	l.config.Services[0].Servers[2].Backup = true
	l.turns(5, 10, time.Millisecond, time.Millisecond, time.Millisecond)
	last := l.sent[len(l.sent)-1][0].Servers
	if len(last) != 2 || last[1].Address != l.ref(1).Address || last[1].Share != 1 {
		t.Errorf("%+v", last)
	}
	for i, want := range []string{"drained", "", "backup"} {
		if got := l.share(i); want != "" && (got.State != share.Out || got.Reason != want) {
			t.Errorf("%d: %+v", i, got)
		}
	}
}

// The forwarder assumes the mean for a server without a share, and counts shares that are not renewed as those of an agent
// that is gone.
func TestServersThatAreOutGetTheMinimumShare(t *testing.T) {
	l := newLab(t, 2)
	l.states[l.ref(0)] = model.ServerSpec{State: model.Down}
	l.turns(2, 10, time.Millisecond, time.Millisecond)
	last := l.sent[len(l.sent)-1][0].Servers
	if len(last) != 2 || math.Abs(last[0].Share-0.025) > 1e-9 || last[1].Share != 1 || l.share(0).Share != 0 {
		t.Errorf("%+v", last)
	}
	l.states[l.ref(1)] = model.ServerSpec{State: model.Down}
	l.turns(60, 0)
	if n := len(l.sent); n < 4 || len(l.sent[n-1][0].Servers) != 2 || l.share(1).Reason != "down" {
		t.Errorf("with no server up: %+v", l.sent)
	}
}

// SetShares alone fails once: what is measured has not changed since, and is sent again at once.
func TestRefusedSharesAreSentAgain(t *testing.T) {
	l := newLab(t, 2)
	l.turns(20, 10, time.Millisecond, time.Millisecond)
	refuse := refusing{l}
	l.states[l.ref(0)] = model.ServerSpec{State: model.Down}
	before := len(l.sent)
	l.now = l.now.Add(time.Second)
	if err := l.loop.Turn(t.Context(), refuse, l.now); err == nil {
		t.Fatal("nothing was sent")
	}
	l.turns(1, 0)
	if len(l.sent) != before+1 {
		t.Errorf("%d requests", len(l.sent)-before)
	}
}

type refusing struct{ *lab }

func (refusing) SetShares(context.Context, []dpclient.ServiceShares, time.Duration) error {
	return errors.New("busy")
}

func TestFeedbackEnds(t *testing.T) {
	l := newLab(t, 2)
	l.turns(5, 10, time.Millisecond, time.Millisecond)
	l.config = &model.Config{Services: append([]model.Service(nil), l.config.Services...)}
	l.config.Services[0].Feedback = model.Feedback{}
	before := len(l.sent)
	l.turns(2, 10, time.Millisecond, time.Millisecond)
	if len(l.sent) != before+1 || len(l.sent[before][0].Servers) != 0 {
		t.Errorf("shares are not taken back: %+v", l.sent[before:])
	}
	if _, ok := l.loop.State(l.config.Services[0].Key); ok {
		t.Error("it still has feedback")
	}
	asked := l.asked
	l.turns(2, 0)
	if l.asked != asked {
		t.Error("the forwarder is asked for nothing")
	}
}

func TestForwarderAway(t *testing.T) {
	l := newLab(t, 2)
	l.turns(5, 10, time.Millisecond, time.Millisecond)
	l.err = errors.New("no such socket")
	l.turns(3, 10, time.Millisecond, time.Millisecond)
	if w := l.loop.Warnings(); len(w) == 0 || !strings.Contains(w[0], "no such socket") {
		t.Errorf("%q", w)
	}
	l.err = nil
	for _, s := range l.stats { // another one, which counts from the beginning
		s.Traffic, s.Delay = &pb.Traffic{}, &pb.DelayStats{}
	}
	l.turns(3, 10, time.Millisecond, time.Millisecond)
	if w := l.loop.Warnings(); len(w) != 0 {
		t.Errorf("%q", w)
	}
	if l.share(0).State == share.Blind {
		t.Errorf("%+v", l.share(0))
	}
}

// The loop ignores Dial's result beside an error, even a nil pointer within an interface.
func TestDialResultBesideAnErrorIsIgnored(t *testing.T) {
	l := newLab(t, 2)
	l.loop.options.Dial = func(context.Context) (Forwarder, error) {
		var none *dpclient.Client
		return none, errors.New("no such socket")
	}
	for range 2 {
		if l.loop.turn(t.Context(), nil, l.now) != nil {
			t.Error("a forwarder that cannot be reached is kept")
		}
	}
	if w := l.loop.Warnings(); len(w) != 1 || !strings.Contains(w[0], "no such socket") {
		t.Errorf("%q", w)
	}
}

// Another agent, or other keys of feedback: the forwarder still has the shares that were learned.
func TestLearnedSharesAreKept(t *testing.T) {
	l := newLab(t, 2)
	l.loads[l.ref(0)] = load.Reading{CPU: 0.1, At: begin}
	l.loads[l.ref(1)] = load.Reading{CPU: 0.8, At: begin}
	l.turns(150, 10, time.Millisecond, time.Millisecond)
	learned := l.share(0).Share
	if learned < 0.6 {
		t.Fatalf("learned %v", learned)
	}
	for _, server := range dpclient.SharesToWire(l.sent[len(l.sent)-1][0]).GetServers() {
		l.stats[netip.AddrPortFrom(netip.AddrFrom4([4]byte(server.GetAddress())), uint16(server.GetPort()))].Share = server.GetShare()
	}
	l.loads = map[model.ServerRef]load.Reading{}
	l.loop = New(l.loop.options)
	l.turns(20, 0)
	if got := l.share(0); math.Abs(got.Share-learned) > 0.01 || got.State != share.Blind {
		t.Errorf("after a restart: %+v, learned %v", got, learned)
	}
	l.config = &model.Config{Services: append([]model.Service(nil), l.config.Services...)}
	l.config.Services[0].Feedback.Settle = time.Minute
	l.turns(1, 0)
	if got := l.share(0); math.Abs(got.Share-learned) > 0.01 {
		t.Errorf("after a change: %+v, learned %v", got, learned)
	}
	l.turns(400, 0)
	if got := l.share(0); math.Abs(got.Share-0.5) > 0.02 {
		t.Errorf("never measured again: %+v", got)
	}
	l.valid = 0 // these are old
	l.loop = New(l.loop.options)
	l.turns(1, 0)
	if got := l.share(0); got.Share != 0.5 {
		t.Errorf("shares that count no more: %+v", got)
	}
}

func TestManyServicesInOneRequest(t *testing.T) {
	l := newLab(t, 2)
	first := l.config.Services[0]
	for i := range 2 * few {
		more := first
		more.Name, more.Key.Port = "web"+string(rune('0'+i)), uint16(1000+i)
		l.config.Services = append(l.config.Services, more)
		for _, server := range more.Servers {
			l.states[model.ServerRef{Service: more.Key, Address: server.Address}] = model.ServerSpec{State: model.Up}
		}
	}
	l.turns(1, 10, time.Millisecond, time.Millisecond)
	if l.asked != 0 || len(l.sent) != 1 || len(l.sent[0]) != 2*few+1 {
		t.Errorf("asked %d times, sent %d requests", l.asked, len(l.sent))
	}
}

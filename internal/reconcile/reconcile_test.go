// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"steelyard/internal/dpclient"
	"steelyard/internal/dpclient/dptest"
	pb "steelyard/internal/gen/forwarderpb"
	"steelyard/internal/model"
	"steelyard/internal/reconcile"
	"steelyard/internal/store"
)

// noChecks lets tests set the results of checks.
type noChecks struct {
	mu     sync.Mutex
	epochs map[model.ServerRef]uint64
}

func (c *noChecks) Watch(targets []store.Target) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epochs = map[model.ServerRef]uint64{}
	for _, target := range targets {
		c.epochs[target.Ref] = target.Epoch
	}
}

type bench struct {
	*testing.T
	forwarder  *dptest.Forwarder
	store      *store.Store
	checks     *noChecks
	reconciler *reconcile.Reconciler
	log        lines
}

// lines is a log that can be read while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

func newBench(t *testing.T, poll time.Duration) *bench {
	t.Helper()
	checks := &noChecks{}
	s, err := store.Open(t.TempDir(), checks)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, forwarder: dptest.New(t), store: s, checks: checks}
	b.forwarder.Page = 3 // so tables arrive in pieces
	b.reconciler = reconcile.New(s, reconcile.Options{
		Dial: func(ctx context.Context) (reconcile.Forwarder, error) { return dpclient.Dial(ctx, b.forwarder.Socket) },
		Log:  slog.New(slog.NewTextHandler(&b.log, nil)), First: time.Millisecond, Longest: 10 * time.Millisecond,
		Poll: poll, Retry: 10 * time.Millisecond, AnswerTimeout: time.Minute,
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { b.reconciler.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return b
}

func (b *bench) use(config *model.Config) (generation uint64) {
	return b.store.SetConfig(config)
}

// find sets the check result of a server that the checks watch.
func (b *bench) find(ref model.ServerRef, up bool) {
	b.Helper()
	b.checks.mu.Lock()
	epoch := b.checks.epochs[ref]
	b.checks.mu.Unlock()
	if !b.store.SetUp(ref, epoch, up) {
		b.Errorf("%v is not checked", ref)
	}
}

// settle waits until the forwarder has everything that the store wants.
func (b *bench) settle() reconcile.Status {
	b.Helper()
	status, err := b.reconciler.Wait(b.Context(), b.store.Version())
	if err != nil {
		b.Fatal(err)
	}
	return status
}

func (b *bench) read() *model.Table {
	b.Helper()
	client, err := dpclient.Dial(b.Context(), b.forwarder.Socket)
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	table, _, err := client.ReadTable(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return table
}

// randomConfig draws addresses from a small pool, so their roles change now and then.
func randomConfig(r *rand.Rand) *model.Config {
	roles := map[netip.Addr]int{} // 1 VIP, 2 server, 3 local
	draw := func(six bool, role int) netip.Addr {
		for {
			n := byte(1 + r.IntN(30))
			address := netip.AddrFrom4([4]byte{10, 0, 0, n})
			if six {
				address = netip.AddrFrom16([16]byte{0: 0xfd, 15: n})
			}
			if roles[address] == 0 || roles[address] == role && role != 3 {
				roles[address] = role
				return address
			}
		}
	}
	config := &model.Config{}
	for i := range 2 + r.IntN(4) {
		config.LocalAddresses = append(config.LocalAddresses, draw(i%2 == 1, 3))
	}
	for i := range r.IntN(3) {
		config.PeerLocals = append(config.PeerLocals, draw(i%2 == 1, 3))
	}
	keys := map[model.ServiceKey]bool{}
	for i := range r.IntN(8) {
		six := r.IntN(2) == 0
		service := model.Service{
			Name:     fmt.Sprintf("s%d", i),
			Key:      model.ServiceKey{Protocol: []model.Protocol{model.TCP, model.UDP}[r.IntN(2)], VIP: draw(six, 1), Port: uint16(80 + r.IntN(2))},
			Mode:     model.FNAT,
			Policy:   randomPolicy(r),
			Timeouts: model.Timeouts{model.Established: uint32(60 + r.IntN(2))}.Or(model.DefaultTimeouts),
			Health:   model.Health{Type: model.HealthTCP, Rise: 1, Fall: 1, Interval: time.Second, Timeout: time.Second},
		}
		if service.Key.Protocol == model.TCP && service.Mode == model.FNAT {
			service.Policy.ClientAddress = model.ClientAddress(r.IntN(4))
			service.Policy.SynDefence = model.SynDefence(r.IntN(3))
			service.Policy.Mark = model.Mark{Set: r.IntN(2) == 0}
		}
		if keys[service.Key] {
			continue
		}
		keys[service.Key] = true
		servers := map[netip.AddrPort]bool{}
		for range r.IntN(6) {
			address := netip.AddrPortFrom(draw(six, 2), uint16(8080+r.IntN(2)))
			if !servers[address] {
				servers[address] = true
				service.Servers = append(service.Servers, model.Server{
					Address: address, Weight: uint16(r.IntN(3)), Drain: r.IntN(4) == 0,
					Backup: r.IntN(4) == 0, MaxSessions: uint32(r.IntN(3))})
			}
		}
		config.Services = append(config.Services, service)
	}
	return config
}

func randomPolicy(r *rand.Rand) model.Policy {
	policy := model.Policy{
		Scheduler: model.Schedulers[r.IntN(len(model.Schedulers))],
		SlowStart: uint32(r.IntN(2)), OnePacket: r.IntN(2) == 0, SloppyTCP: r.IntN(2) == 0, MaxSessions: uint32(r.IntN(2)),
		Resets: model.Resets{Expired: r.IntN(2) == 0, Down: r.IntN(2) == 0, Unknown: r.IntN(2) == 0},
	}
	if policy.Scheduler.Hashes() {
		policy.HashOn = model.HashOn(1 + r.IntN(2))
	}
	if r.IntN(2) == 0 {
		policy.Persistence = model.Persistence{Timeout: uint32(1 + r.IntN(2)), Prefix4: 24, Prefix6: uint8(64 + r.IntN(2))}
	}
	return policy
}

// From any configuration to any other, the forwarder ends with exactly the desired contents, in one
// transaction whose every step it accepts. The same configuration again sends nothing.
func TestAnyConfigurationIsReached(t *testing.T) {
	b := newBench(t, time.Hour)
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		config := randomConfig(r)
		before := len(b.forwarder.Commits())
		b.use(config)
		b.settle()
		if got, want := b.read(), b.store.Preview(config); !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: got %+v, want %+v", seed, got, want)
		}
		commits := len(b.forwarder.Commits())
		if commits > before+1 {
			t.Fatalf("seed %d: %d transactions for one configuration", seed, commits-before)
		}
		b.use(config)
		if status := b.settle(); status.Changes != 0 || len(b.forwarder.Commits()) != commits {
			t.Fatalf("seed %d: the same again made %d changes", seed, status.Changes)
		}
	}
}

func oneService() *model.Config {
	at := netip.MustParseAddrPort
	return &model.Config{
		LocalAddresses: []netip.Addr{netip.MustParseAddr("10.1.0.10")},
		Services: []model.Service{{
			Name: "web", Key: model.ServiceKey{Protocol: model.TCP, VIP: netip.MustParseAddr("10.0.0.80"), Port: 80},
			Mode: model.FNAT, Policy: model.Policy{Scheduler: model.WRR}, Timeouts: model.DefaultTimeouts,
			Health:  model.Health{Type: model.HealthTCP},
			Servers: []model.Server{{Address: at("10.1.0.21:80"), Weight: 1}, {Address: at("10.1.0.22:80"), Weight: 1}},
		}},
	}
}

func firstServer(config *model.Config) model.ServerRef {
	service := config.Services[0]
	return model.ServerRef{Service: service.Key, Address: service.Servers[0].Address}
}

func TestAFlipSendsOneChange(t *testing.T) {
	b := newBench(t, time.Hour)
	config := oneService()
	b.use(config)
	b.settle()
	b.find(firstServer(config), false)
	b.settle()
	commits := b.forwarder.Commits()
	last := commits[len(commits)-1]
	if len(commits) != 2 || len(last) != 1 || last[0].GetPutServer().GetServer().GetState() != pb.ServerState_SERVER_STATE_DOWN {
		t.Errorf("%v", commits)
	}
}

func TestARestartedForwarderIsSetRight(t *testing.T) {
	b := newBench(t, time.Hour)
	config := oneService()
	b.use(config)
	b.settle()
	for i, forget := range []bool{false, true} {
		before := len(b.forwarder.Commits())
		b.forwarder.Stop()
		if forget {
			b.forwarder.Forget()
		}
		b.find(firstServer(config), forget) // a change meanwhile
		b.forwarder.Start()
		b.forwarder.AwaitCommits(before + 1)
		b.settle()
		for b.log.count("in sync again") != i+1 { // logged after the status changes
			time.Sleep(time.Millisecond)
		}
		if got, want := b.read(), b.store.Preview(config); !reflect.DeepEqual(got, want) {
			t.Errorf("forget %v: got %+v, want %+v", forget, got, want)
		}
	}
}

func TestARefusalIsReportedAndRetried(t *testing.T) {
	b := newBench(t, time.Hour)
	b.forwarder.Refuse(&pb.Error{Code: pb.Code_CODE_EXHAUSTED, Text: "the table of services is full"})
	_, err := b.reconciler.WaitConfig(t.Context(), b.use(oneService()))
	want := "the forwarder refused: the table of services is full"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	b.forwarder.Refuse(nil)
	b.forwarder.AwaitCommits(1)
}

const refusedVIP = "10.0.0.99"

// refusable is oneService with a second server, and a service that the forwarder refuses.
func refusable() *model.Config {
	config := oneService()
	other := config.Services[0]
	other.Name, other.Key.VIP = "other", netip.MustParseAddr(refusedVIP)
	config.Services = append(config.Services, other)
	config.Services[0].Servers = config.Services[0].Servers[1:] // the check state of the first must not be lost
	return config
}

func TestFlipsGoThroughWhileAConfigurationIsRefused(t *testing.T) {
	b := newBench(t, time.Hour)
	config := oneService()
	b.use(config)
	b.settle()
	dials := b.forwarder.Dials()
	b.forwarder.Refuse(&pb.Error{Code: pb.Code_CODE_INVALID, Text: "an address of this host"}, refusedVIP)
	generation := b.use(refusable())
	if _, err := b.reconciler.WaitConfig(t.Context(), generation); err == nil {
		t.Fatal("not refused")
	}
	b.settle()
	for _, up := range []bool{false, true, false, true} {
		b.find(firstServer(config), up)
		b.settle()
		state := b.forwarder.Server("10.0.0.80:80", "10.1.0.21:80").GetState()
		if (state == pb.ServerState_SERVER_STATE_UP) != up {
			t.Errorf("the forwarder has it %s", state)
		}
	}
	if err := b.store.SetDrain([]model.ServerRef{firstServer(config)}, &store.Drain{}); err != nil {
		t.Fatal(err)
	}
	b.settle()
	if state := b.forwarder.Server("10.0.0.80:80", "10.1.0.21:80").GetState(); state != pb.ServerState_SERVER_STATE_DRAIN {
		t.Errorf("a drain did not get through: %s", state)
	}
	status, _ := b.reconciler.Status()
	if !status.Connected || status.Refused != generation || status.Err == nil || b.forwarder.Dials() != dials {
		t.Errorf("%+v after %d connections", status, b.forwarder.Dials()-dials)
	}
	b.forwarder.Refuse(nil) // remove the cause
	if _, err := b.reconciler.WaitConfig(t.Context(), generation); err != nil {
		for err != nil { // refused until the next retry
			_, changed := b.reconciler.Status()
			<-changed
			_, err = b.reconciler.WaitConfig(t.Context(), generation)
		}
	}
	b.settle()
	if b.forwarder.Server(refusedVIP+":80", "10.1.0.22:80") == nil {
		t.Error("the configuration is not there")
	}
}

// An agent that starts with a refused file maintains the states of the servers that the forwarder has.
func TestCheckResultsAreSentWhileTheFirstConfigurationIsRefused(t *testing.T) {
	b := newBench(t, time.Millisecond) // it may read the forwarder before it is filled below
	client, err := dpclient.Dial(t.Context(), b.forwarder.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Apply(t.Context(), model.Diff(model.NewTable(), b.store.Preview(oneService()))); err != nil {
		t.Fatal(err)
	}
	b.forwarder.Refuse(&pb.Error{Code: pb.Code_CODE_INVALID, Text: "an address of this host"}, refusedVIP)
	config := refusable()
	if _, err := b.reconciler.WaitConfig(t.Context(), b.use(config)); err == nil {
		t.Fatal("not refused")
	}
	b.find(firstServer(config), false)
	b.forwarder.AwaitState("10.0.0.80:80", "10.1.0.22:80", pb.ServerState_SERVER_STATE_DOWN)
	if b.forwarder.Server("10.0.0.80:80", "10.1.0.21:80") == nil {
		t.Error("a part of the refused configuration was done")
	}
}

func TestChangesByOthersAreUndone(t *testing.T) {
	b := newBench(t, time.Millisecond)
	config := oneService()
	b.use(config)
	b.settle()
	client, err := dpclient.Dial(t.Context(), b.forwarder.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Apply(t.Context(), []model.Change{{Kind: model.DeleteService, Service: config.Services[0].Key}}); err != nil {
		t.Fatal(err)
	}
	b.forwarder.AwaitState("10.0.0.80:80", "10.1.0.21:80", pb.ServerState_SERVER_STATE_UP)
}

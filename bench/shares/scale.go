// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"syscall"
	"time"

	"steelyard/internal/dpclient"
	"steelyard/internal/feedback"
	pb "steelyard/internal/gen/forwarderpb"
	"steelyard/internal/load"
	"steelyard/internal/model"

	"google.golang.org/protobuf/proto"
)

// fleet is one forwarder of many: its services' servers are drawn from all servers, each of which has a delay of its own from here.
type fleet struct {
	config *model.Config
	stats  []*pb.ServiceStats
	delay  map[netip.Addr]float64
	busy   map[netip.Addr]float64
	now    time.Time
	sent   map[model.ServiceKey]map[netip.AddrPort]float64

	set      uint64 // bytes that the forwarder was sent
	requests int
	loop     *feedback.Loop
}

func newFleet(services, servers, perService int, random *rand.Rand) *fleet {
	f := &fleet{config: &model.Config{}, delay: map[netip.Addr]float64{}, busy: map[netip.Addr]float64{},
		now: epoch, sent: map[model.ServiceKey]map[netip.AddrPort]float64{}}
	hosts := make([]netip.Addr, servers)
	for i := range hosts {
		hosts[i] = netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
		f.delay[hosts[i]], f.busy[hosts[i]] = 0.0005+0.002*random.Float64(), 0.2+0.3*random.Float64()
	}
	for i := range services {
		s := model.Service{Name: fmt.Sprint("s", i), Key: model.ServiceKey{Protocol: model.TCP, VIP: netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)}), Port: 80},
			Feedback: model.Feedback{Policy: model.FeedbackCapability, Gamma: 0.5, Minimum: 5, Settle: 30 * time.Second}}
		stats := &pb.ServiceStats{Service: dpclient.SpecToWire(s.Key, model.ServiceSpec{Name: s.Name, Timeouts: model.DefaultTimeouts})}
		first := random.IntN(servers)
		for k := range perService {
			address := netip.AddrPortFrom(hosts[(first+k*37)%servers], 8080)
			s.Servers = append(s.Servers, model.Server{Address: address, Weight: 1})
			stats.Servers = append(stats.Servers, &pb.ServerStats{Server: dpclient.ServerToWire(address, model.ServerSpec{State: model.Up, Weight: 1}),
				Traffic: &pb.Traffic{}, Delay: &pb.DelayStats{}})
		}
		f.config.Services = append(f.config.Services, s)
		f.stats = append(f.stats, stats)
	}
	f.loop = feedback.New(feedback.Options{
		Config: func() *model.Config { return f.config },
		States: allUp, Version: func() uint64 { return 1 },
		Load: func(ref model.ServerRef) (load.Reading, bool) {
			return load.Reading{CPU: f.busy[ref.Address.Addr()], At: f.now}, true
		},
	})
	return f
}

// pass lets a second's sessions begin: ten a server.
func (f *fleet) pass() {
	f.now = f.now.Add(time.Second)
	for i := range f.config.Services {
		for k, server := range f.config.Services[i].Servers {
			one := f.stats[i].Servers[k]
			one.Traffic.SessionsCreated += 10
			one.Delay.Samples += 10
			one.Delay.SumNs += uint64(10e9 * f.delay[server.Address.Addr()])
		}
	}
}

func (f *fleet) EachService(_ context.Context, _ *model.ServiceKey, each func(*dpclient.ServiceStats) error) error {
	for i, stats := range f.stats {
		stats.SharesValidS = 0
		if f.sent[f.config.Services[i].Key] != nil {
			stats.SharesValidS = 60
		}
		if err := each(stats); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) SetShares(_ context.Context, shares []dpclient.ServiceShares, _ time.Duration) error {
	f.requests++
	for _, one := range shares {
		f.set += uint64(proto.Size(dpclient.SharesToWire(one))) + 3
		now := make(map[netip.AddrPort]float64, len(one.Servers))
		for _, s := range one.Servers {
			now[s.Address] = s.Share
		}
		f.sent[one.Service] = now
	}
	return nil
}

func (f *fleet) Close() error { return nil }

// answered is how many bytes the forwarder's answers of one turn have.
func (f *fleet) answered() (bytes uint64) {
	for _, stats := range f.stats {
		bytes += uint64(proto.Size(stats)) + 3
	}
	return bytes
}

// whole is how many bytes the shares of all services have.
func (f *fleet) whole() (bytes uint64) {
	for key, servers := range f.sent {
		one := dpclient.ServiceShares{Service: key}
		for address, share := range servers {
			one.Servers = append(one.Servers, dpclient.ServerShare{Address: address, Share: share})
		}
		bytes += uint64(proto.Size(dpclient.SharesToWire(one))) + 3
	}
	return bytes
}

func processor() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// behind is the part of all shares that are off by more than a tenth.
func behind(now, end map[model.ServiceKey]map[netip.AddrPort]float64) float64 {
	off, all := 0, 0
	for key, servers := range end {
		for address, want := range servers {
			all++
			if got := now[key][address]; got < 0.9*want || got > 1.1*want {
				off++
			}
		}
	}
	return float64(off) / float64(max(1, all))
}

// scale runs one forwarder of the fleet through a step: links and processors of a tenth of all servers change.
func scale(forwarders, services, servers, perService, seconds int) error {
	random := rand.New(rand.NewPCG(1, 2))
	f := newFleet(services, servers, perService, random)
	turn := func() error { f.pass(); return f.loop.Turn(context.Background(), f, f.now) }
	if err := turn(); err != nil {
		return err
	}
	first := f.set
	for range 200 {
		if err := turn(); err != nil {
			return err
		}
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	steadySet, steadyCPU := f.set, processor()
	passing := time.Duration(0)
	for range 20 {
		before := processor()
		f.pass()
		passing += processor() - before
		if err := f.loop.Turn(context.Background(), f, f.now); err != nil {
			return err
		}
	}
	steadyCPU = (processor() - steadyCPU - passing) / 20
	steadySet = (f.set - steadySet) / 20
	i := 0
	for address := range f.delay {
		if i++; i%10 == 0 {
			f.delay[address] += 0.005
			f.busy[address] = 0.9
		}
	}
	step := f.now
	type snapshot struct {
		at   time.Duration
		sent map[model.ServiceKey]map[netip.AddrPort]float64
	}
	var history []snapshot
	stepSet, most := f.set, uint64(0)
	for range seconds {
		before := f.set
		if err := turn(); err != nil {
			return err
		}
		most = max(most, f.set-before)
		history = append(history, snapshot{f.now.Sub(step), maps.Clone(f.sent)})
	}
	converged := map[float64]time.Duration{} // by the part of all shares that may be off
	for _, one := range history {
		off := behind(one.sent, f.sent)
		for _, part := range []float64{0.1, 0.01} {
			if off > part {
				converged[part] = one.at + time.Second
			}
		}
	}
	fmt.Printf("One of %d forwarders: %d services of %d servers each, out of %d; a turn a second.\n", forwarders, services, perService, servers)
	fmt.Printf("  shares at the start                  %8.2f MB\n", float64(first)/1e6)
	fmt.Printf("  a turn, steady: processor            %8.1f ms\n", steadyCPU.Seconds()*1e3)
	fmt.Printf("  a turn, steady: counters read        %8.2f MB, from the same host\n", float64(f.answered())/1e6)
	fmt.Printf("  a turn, steady: shares set           %8.3f MB\n", float64(steadySet)/1e6)
	fmt.Printf("  after a step of a tenth of all servers: 90 %% of shares are within a tenth of their end after %s, 99 %% after %s\n", converged[0.1], converged[0.01])
	fmt.Printf("  … shares set in all, and in the worst second: %.2f MB, %.2f MB\n", float64(f.set-stepSet)/1e6, float64(most)/1e6)
	fmt.Printf("  memory of the loop and this model    %8.0f MB\n", float64(memory.HeapAlloc)/1e6)
	all := float64(forwarders)
	fmt.Printf("If one controller computed for all %d: %.1f cores, %.0f MB/s of counters, %.1f MB/s of shares. Each agent computes its own: %.2f cores.\n",
		forwarders, all*steadyCPU.Seconds(), all*float64(f.answered())/1e6, all*float64(steadySet)/1e6, steadyCPU.Seconds())
	return nil
}

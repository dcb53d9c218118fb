// SPDX-License-Identifier: Apache-2.0

package sampling

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"steelyard/internal/dpclient"
	"steelyard/internal/dpclient/dptest"
	pb "steelyard/internal/gen/forwarderpb"
	"steelyard/internal/model"

	decoder "github.com/netsampler/goflow2/v2/decoders/sflow"
	"github.com/prometheus/client_golang/prometheus"
)

// collector is a socket, and what has arrived there.
type collector struct {
	conn    *net.UDPConn
	address netip.AddrPort
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &collector{conn, conn.LocalAddr().(*net.UDPAddr).AddrPort()}
}

// samples returns those of the datagrams that come within a while, in their order, until enough have come.
func (c *collector) samples(t *testing.T, enough int) []any {
	t.Helper()
	var all []any
	deadline := time.Now().Add(4 * time.Minute)
	for len(all) < enough {
		_ = c.conn.SetReadDeadline(deadline)
		buffer := make([]byte, 65536)
		n, err := c.conn.Read(buffer)
		if err != nil {
			t.Fatalf("%d samples: %v", len(all), err)
		}
		packet := &decoder.Packet{}
		if err := decoder.DecodeMessageVersion(bytes.NewBuffer(buffer[:n]), packet); err != nil {
			t.Fatal(err)
		}
		if !net.IP(packet.AgentIP).Equal(net.IPv4(127, 0, 0, 1)) {
			t.Errorf("agent %v", packet.AgentIP)
		}
		all = append(all, packet.Samples...)
	}
	return all
}

// start runs a Sampler beside a forwarder until the test ends.
func start(t *testing.T, forwarder *dptest.Forwarder) *Sampler {
	t.Helper()
	s := New(Options{
		Dial: func(ctx context.Context) (Forwarder, error) { return dpclient.Dial(ctx, forwarder.Socket) },
		Log:  slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		s.Run(ctx)
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return s
}

func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(4 * time.Minute); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not in time: " + what)
		}
	}
}

func TestExport(t *testing.T) {
	forwarder, collector := dptest.New(t), newCollector(t)
	forwarder.Ports = []*pb.Port{{Name: "wan", IfIndex: 4, Up: true, RxPackets: 11}}
	s := start(t, forwarder)
	time.Sleep(3 * fetchPeriod)
	if n := len(forwarder.Fetches()); n > 0 {
		t.Errorf("%d requests for samples, without a collector", n)
	}
	s.Configure(model.SFlow{Collector: collector.address, Sampling: 1000, Drops: 100})
	waitFor(t, "a second request", func() bool { return len(forwarder.Fetches()) > 1 })
	if first := forwarder.Fetches()[0]; first.GetReceived() != 1000 || first.GetDropped() != 100 {
		t.Errorf("%v", first)
	}
	forwarder.AddSamples(&pb.Sample{Header: make([]byte, 128), Length: 1000, IfIndex: 4, OneIn: 1000},
		&pb.Sample{Header: make([]byte, 60), Length: 60, IfIndex: 4, OneIn: 100, Drop: "no-service"})
	var flows, discards, counters int
	for _, sample := range collector.samples(t, 3) {
		switch sample := sample.(type) {
		case decoder.ExpandedFlowSample:
			flows++
			if sample.SamplingRate != 1000 || sample.InputIfValue != 4 || sample.Drops != 7 {
				t.Errorf("%+v", sample)
			}
		case decoder.DropSample:
			discards++
			if sample.Drops != 99 || sample.Reason != 3 {
				t.Errorf("%+v", sample)
			}
		case decoder.CounterSample:
			counters++
		}
	}
	if flows != 1 || discards != 1 || counters != 1 {
		t.Errorf("%d flow, %d drop, %d counter samples", flows, discards, counters)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			sums[family.GetName()] += metric.GetCounter().GetValue()
		}
	}
	if sums["steelyard_samples_taken_total"] != 2 || sums["steelyard_samples_lost_total"] != 7 || sums["steelyard_samples_missed_total"] != 0 ||
		sums["steelyard_sflow_samples_total"] != 3 || sums["steelyard_sflow_datagrams_total"] < 1 || sums["steelyard_sflow_errors_total"] != 0 {
		t.Errorf("%v", sums)
	}
	s.Configure(model.SFlow{})
	// The one under way may take a while on a busy machine.
	waitFor(t, "the end of requests after the collector was removed", func() bool {
		before := len(forwarder.Fetches())
		time.Sleep(3 * fetchPeriod)
		return len(forwarder.Fetches()) == before
	})
}

// TestRestart: after the forwarder's restart, which begins its numbers anew, samples go on.
func TestRestart(t *testing.T) {
	forwarder, collector := dptest.New(t), newCollector(t)
	s := start(t, forwarder)
	s.Configure(model.SFlow{Collector: collector.address, Sampling: 10})
	waitFor(t, "a request", func() bool { return len(forwarder.Fetches()) > 1 })
	forwarder.AddSamples(&pb.Sample{Length: 60, OneIn: 10})
	collector.samples(t, 1)
	forwarder.Stop()
	forwarder.Start()
	before := len(forwarder.Fetches())
	waitFor(t, "requests on a new connection", func() bool { return len(forwarder.Fetches()) > before+1 })
	forwarder.AddSamples(&pb.Sample{Length: 61, OneIn: 10})
	collector.samples(t, 1)
}

func TestNoCollector(t *testing.T) {
	forwarder, collector := dptest.New(t), newCollector(t)
	collector.conn.Close()
	s := start(t, forwarder)
	s.Configure(model.SFlow{Collector: collector.address, Sampling: 10})
	waitFor(t, "a warning", func() bool {
		forwarder.AddSamples(&pb.Sample{Length: 60, OneIn: 10})
		return len(s.Warnings()) > 0
	})
	if warning := s.Warnings()[0]; !strings.Contains(warning, "no collector listens on "+collector.address.String()) {
		t.Error(warning)
	}
	s.Configure(model.SFlow{})
	waitFor(t, "the warning's end", func() bool { return len(s.Warnings()) == 0 })
}

// TestDue: of samples that were taken more often than wanted, so many are sent that they stand for all packets.
func TestDue(t *testing.T) {
	var owed, sent, stand uint32
	for range 1000 {
		if rate, send := due(&owed, 30, 100); send {
			sent++
			stand += rate
		}
	}
	if sent != 300 || stand != 30000 {
		t.Errorf("%d samples for %d packets", sent, stand)
	}
	if rate, send := due(&owed, 400, 100); rate != 400 || !send {
		t.Errorf("%d %v", rate, send)
	}
}

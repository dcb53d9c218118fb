// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"sync/atomic"
	"testing"

	"steelyard/internal/dpclient"
	"steelyard/internal/feedback"
	"steelyard/internal/freeport"
	pb "steelyard/internal/gen/agentpb"
	fpb "steelyard/internal/gen/forwarderpb"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
)

func TestSharesWithoutAForwarder(t *testing.T) {
	a := &Agent{options: Options{Forwarder: t.TempDir() + "/none"}}
	if forwarder, err := a.dialShares(t.Context()); err == nil || forwarder != nil {
		t.Errorf("%v, %v", forwarder, err)
	}
}

// What the forwarder measures becomes shares, which the forwarder gets, and which the API and metrics show beside the weight.
func TestSharesFollowMeasurements(t *testing.T) {
	address := freeport.Address(t)
	l := newLab(t, `version: 1
local_addresses: [10.1.0.200]
metrics: { listen: "`+address+`" }
services:
  - name: web
    vip: 10.0.0.80
    port: 80
    scheduler: share
    health: { type: none }
    feedback: { settle: 2s, link_capacity: 600M }
    servers:
      - { address: 10.1.0.21, port: 8080, weight: 10 }
      - { address: 10.1.0.22, port: 8080, weight: 10, link: far }
`)
	var asked atomic.Uint64
	l.forwarder.Traffic = func(_ *fpb.ServiceKey, server *fpb.Server) *fpb.Traffic {
		return &fpb.Traffic{SessionsCreated: 10 * asked.Load()}
	}
	l.forwarder.Delay = func(server *fpb.Server) *fpb.DelayStats {
		n := 10 * asked.Add(1)
		delay := uint64(1_000_000)
		if server.GetAddress()[3] == 22 {
			delay = 9_000_000
		}
		return &fpb.DelayStats{Samples: n, SumNs: n * delay, SmoothedNs: delay, Buckets: []uint64{0, 0, n}, SynRepeated: 3, Segments: 500, SegmentsLost: 4}
	}
	l.start()
	if _, err := l.apply(""); err != nil {
		t.Fatal(err)
	}
	l.forwarder.AwaitShares([]byte{10, 0, 0, 80}, func(s *fpb.ServiceShares) bool {
		return len(s.GetServers()) == 2 && dpclient.ShareFromWire(s.GetServers()[0].GetShare()) > 0.6
	})
	response, err := l.client.ListServices(t.Context(), connect.NewRequest(&pb.ListServicesRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	service := response.Msg.GetServices()[0]
	far := service.GetServers()[1]
	if far.GetServer().GetWeight() != 10 || far.GetShare().GetShare() > 0.4 || far.GetShare().GetPhi() >= 0 || far.GetShare().GetState() != "partly" ||
		far.GetDelay().GetSmoothedNs() != 9_000_000 {
		t.Errorf("%v", far)
	}
	if l := far.GetShare().GetLink(); l.GetName() != "far" || l.GetCapacity() != 600_000_000 || l.GetLearned() {
		t.Errorf("%v", l)
	}
	if f := service.GetFeedback(); f.GetPolicy() != "capability" || f.GetValidS() != 60 || f.GetComputedUnixMs() == 0 {
		t.Errorf("%v", f)
	}
	text := scrape(t, address)
	labels := `{server="10.1.0.22:8080",service="web"`
	for _, want := range []string{`steelyard_server_share` + labels + `} 0.`, `steelyard_server_share_basis` + labels + `} 1`,
		`steelyard_server_link_capacity_bits_per_second{basis="configured",server="10.1.0.22:8080",service="web"} 6e+08`, `steelyard_server_link_bits_per_second` + labels + `} 0`,
		`steelyard_server_syn_answer_smoothed_seconds` + labels + `} 0.009`, `steelyard_server_syn_answer_seconds_bucket` + labels + `,le="2e-06"} 0`,
		`steelyard_server_segments_watched_total` + labels + `} 500`, `steelyard_server_segments_lost_total` + labels + `} 4`,
		`steelyard_server_syn_repeated_total` + labels + `} 3`, `# TYPE steelyard_server_syn_answer_seconds histogram`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}

// A capacity that is to be learned is shown as such, also before it is.
func TestLearnedCapacityIsShown(t *testing.T) {
	address := freeport.Address(t)
	l := newLab(t, `version: 1
local_addresses: [10.1.0.200]
metrics: { listen: "`+address+`" }
services:
  - name: web
    vip: 10.0.0.80
    port: 80
    scheduler: share
    health: { type: none }
    feedback: { link_capacity: learn }
    servers: [{ address: 10.1.0.21, port: 8080 }]
`)
	l.start()
	if _, err := l.apply(""); err != nil {
		t.Fatal(err)
	}
	l.forwarder.AwaitShares([]byte{10, 0, 0, 80}, func(s *fpb.ServiceShares) bool { return len(s.GetServers()) == 1 })
	response, err := l.client.ListServices(t.Context(), connect.NewRequest(&pb.ListServicesRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	service := response.Msg.GetServices()[0]
	if link := service.GetServers()[0].GetShare().GetLink(); !service.GetFeedback().GetLearnsCapacity() || link.GetName() != "10.1.0.21" || !link.GetLearned() || link.GetCapacity() != 0 {
		t.Errorf("%v, %v", service.GetFeedback(), link)
	}
	text := scrape(t, address)
	if strings.Contains(text, "steelyard_server_link_capacity") || !strings.Contains(text, `steelyard_server_link_bits_per_second{server="10.1.0.21:8080",service="web"} 0`) {
		t.Error(text)
	}
}

// onlyLink collects what is known of one link.
type onlyLink feedback.Link

func (l onlyLink) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(l, ch) }

func (l onlyLink) Collect(ch chan<- prometheus.Metric) {
	collectLink(ch, feedback.Link(l), "web", "10.1.0.21:8080")
}

func TestLearnedCapacityMetric(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(onlyLink{Carries: 5, Capacity: 7, Learns: true})
	families, err := registry.Gather()
	if err != nil || len(families) != 2 {
		t.Fatalf("%v, %v", families, err)
	}
	if m := families[1].GetMetric()[0]; m.GetLabel()[0].GetValue() != "learned" || m.GetGauge().GetValue() != 7 {
		t.Error(m)
	}
}

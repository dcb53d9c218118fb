// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"steelyard/internal/freeport"
	pb "steelyard/internal/gen/agentpb"

	"connectrpc.com/connect"
)

// The load that a server says in the answers to its checks is seen in the API and in metrics; when it stops saying it, its age and the
// error are, and the server stays up.
func TestLoadOfServersIsRead(t *testing.T) {
	address := freeport.Address(t)
	l := newLab(t, `version: 1
local_addresses: [10.1.0.200]
metrics: { listen: "`+address+`" }
services:
  - name: web
    vip: 10.0.0.80
    port: 80
    health: { type: http, interval: 100ms }
    load: { type: health }
    servers:
      - { address: 10.1.0.21, port: 8080 }
      - { address: 10.1.0.22, port: 8080, load: { type: none } }
`)
	var mute atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !mute.Load() {
			w.Header().Set("endpoint-load-metrics", "TEXT cpu_utilization=0.75,rps_fractional=12.5")
		}
	}))
	defer server.Close()
	l.place("10.1.0.21:8080", server.Listener.Addr().String())
	l.place("10.1.0.22:8080", server.Listener.Addr().String())
	l.start()
	if _, err := l.apply(""); err != nil {
		t.Fatal(err)
	}
	find := func(is func(*pb.LoadState) bool) []*pb.ServerInfo {
		for {
			response, err := l.client.ListServices(t.Context(), connect.NewRequest(&pb.ListServicesRequest{}))
			if err != nil {
				t.Fatal(err)
			}
			if servers := response.Msg.GetServices()[0].GetServers(); is(servers[0].GetLoad()) {
				return servers
			}
		}
	}
	servers := find(func(s *pb.LoadState) bool { return s.GetReadUnixMs() != 0 })
	if s := servers[0].GetLoad(); s.GetLoad() != 0.75 || s.GetRps() != 12.5 || s.GetSource() != "health" || s.GetError() != "" {
		t.Errorf("%v", s)
	}
	if servers[1].GetLoad() != nil {
		t.Errorf("%v", servers[1].GetLoad())
	}
	text := scrape(t, address)
	if want := `steelyard_server_load{server="10.1.0.21:8080",service="web"} 0.75`; !strings.Contains(text, want) {
		t.Errorf("no %s in %s", want, text)
	}
	mute.Store(true)
	servers = find(func(s *pb.LoadState) bool { return s.GetFailures() > 0 })
	if s := servers[0]; s.GetLoad().GetLoad() != 0.75 || !strings.Contains(s.GetLoad().GetError(), "neither a header") || !s.GetHealth().GetUp() {
		t.Errorf("%v", s)
	}
}

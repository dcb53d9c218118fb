// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net"
	"net/http"
	"strings"
	"testing"

	forwarderpb "steelyard/internal/gen/forwarderpb"
)

const twoServices = `version: 1
local_addresses: [10.1.0.200]
defaults: { health: { type: none } }
services:
  - { name: web, vip: 10.0.0.80, port: 80, servers: [{ address: 10.1.0.21, port: 8080 }] }
  - { name: api, vip: 10.0.0.80, port: 81, servers: [{ address: 10.1.0.22, port: 8080 }] }
`

// metricsLab has two services, and says where their metrics are.
func metricsLab(t *testing.T, detail string) (*lab, string) {
	t.Helper()
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := port.Addr().String()
	port.Close()
	l := newLab(t, twoServices+"metrics: { listen: \""+address+"\", detail: "+detail+" }\n")
	l.start()
	if _, err := l.apply(""); err != nil {
		t.Fatal(err)
	}
	return l, address
}

func TestAScrapeHasWhatIsAskedFor(t *testing.T) {
	const web, api = `service="web"`, `service="api"`
	const server, service = "steelyard_server_receive_packets_total{", "steelyard_service_receive_packets_total{"
	const state, always = "steelyard_server_up{", "steelyard_forwarder_up 1"
	_, address := metricsLab(t, "services")
	for _, c := range []struct {
		words      string
		has, lacks []string
	}{
		{"", []string{service, web, api, always}, []string{server, state}},
		{"?detail=servers", []string{service, server, state, web, api, always}, nil},
		{"?detail=none", []string{always}, []string{service, server, state, web}},
		{"?service=web", []string{service, server, state, web, always}, []string{api}},
		{"?service=web&service=api", []string{service, server, web, api}, nil},
		{"?service=web&detail=services", []string{service, web}, []string{server, state, api}},
		{"?service=none-such", []string{always}, []string{service, server, state}},
	} {
		text := scrapeWith(t, address, c.words, nil)
		for _, want := range c.has {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %s in\n%s", c.words, want, text)
			}
		}
		for _, never := range c.lacks {
			if strings.Contains(text, never) {
				t.Errorf("%s: %s in\n%s", c.words, never, text)
			}
		}
	}
	response, err := http.Get("http://" + address + "/metrics?detail=much")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusBadRequest {
		t.Error(response.Status)
	}
}

// What a forwarder does not answer in the time that there is, is named.
func TestAScrapeThatIsNotCompleteSaysSo(t *testing.T) {
	l, address := metricsLab(t, "servers")
	answer := make(chan struct{})
	l.forwarder.Traffic = func(*forwarderpb.ServiceKey, *forwarderpb.Server) *forwarderpb.Traffic {
		<-answer
		return nil
	}
	text := scrapeWith(t, address, "", http.Header{"X-Prometheus-Scrape-Timeout-Seconds": {"0.05"}})
	close(answer)
	for _, want := range []string{`steelyard_scrape_complete{part="services"} 0`,
		"steelyard_scrape_seconds"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

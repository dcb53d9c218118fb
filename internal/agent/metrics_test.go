// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"steelyard/internal/freeport"
	forwarderpb "steelyard/internal/gen/forwarderpb"
	"steelyard/internal/version"
)

const twoServices = `version: 1
local_addresses: [10.1.0.200]
defaults: { health: { type: none } }
services:
  - { name: web, vip: 10.0.0.80, port: 80, servers: [{ address: 10.1.0.21, port: 8080 }] }
  - { name: api, vip: 10.0.0.80, port: 81, servers: [{ address: 10.1.0.22, port: 8080 }] }
tenants:
  - { name: acme, services: [web] }
limits:
  - { name: acme-1g, tenant: acme, bits_per_second: 1G }
  - { name: each, packets_per_second: 5, clients: {} }
`

// metricsLab has two services; it also returns the address of their metrics.
func metricsLab(t *testing.T, detail string) (*lab, string) {
	t.Helper()
	address := freeport.Address(t)
	l := newLab(t, twoServices+"metrics: { listen: \""+address+"\", detail: "+detail+" }\n")
	l.start()
	if _, err := l.apply(""); err != nil {
		t.Fatal(err)
	}
	return l, address
}

// Scrapers that keep their connections open do not use up the agent's descriptors, nor the slots of others.
func TestIdleConnectionsAreBounded(t *testing.T) {
	_, address := metricsLab(t, "none")
	var first net.Conn
	for i := range maxMetricsConnsFrom + 1 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if i > 0 {
			continue
		}
		first = conn
		_, _ = io.WriteString(first, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
		response, err := http.ReadResponse(bufio.NewReader(first), nil)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(response, err)
		}
	}
	_ = first.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := first.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest of many connections stays open: %v", err)
	}
	if text := scrapeWith(t, address, "", nil); !strings.Contains(text, "steelyard_forwarder_up") {
		t.Errorf("a scrape: %s", text)
	}
}

func TestAScrapeHasWhatIsAskedFor(t *testing.T) {
	const web, api = `service="web"`, `service="api"`
	const server, service = "steelyard_server_receive_packets_total{", "steelyard_service_receive_packets_total{"
	const state, always = "steelyard_server_up{", "steelyard_forwarder_up 1"
	const passed = `steelyard_limit_bytes_total{limit="acme-1g",result="passed",tenant="acme"} 15000000` + "\n"
	const above = `steelyard_limit_packets_total{limit="acme-1g",result="above",tenant="acme"} 3000` + "\n"
	const free, clients = `steelyard_limit_packets_total{limit="each",result="unlimited",tenant=""} 7`, `steelyard_limit_clients{limit="each"} 3`
	_, address := metricsLab(t, "services")
	for _, c := range []struct {
		words      string
		has, lacks []string
	}{
		{"", []string{service, web, api, always, passed, above, free, clients}, []string{server, state, `steelyard_limit_clients{limit="acme-1g"}`}},
		{"?detail=servers", []string{service, server, state, web, api, always}, nil},
		{"?detail=none", []string{always}, []string{service, server, state, web, passed}},
		{"?service=web", []string{service, server, state, web, always}, []string{api, passed}},
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

// Queries that use former names of metrics and labels get the same values until 1.0.
func TestFormerNamesOfMetricsAreServed(t *testing.T) {
	l, address := metricsLab(t, "services")
	l.forwarder.Status.SessionsEmbryonic = 6
	l.forwarder.Workers = []*forwarderpb.Worker{{Id: 0, SteeredOut: 7, SteeredIn: 8, Remote: 9}}
	l.forwarder.Ports = []*forwarderpb.Port{{Name: "eth0", DirectorSteered: 10}}
	text := scrape(t, address)
	for _, want := range []string{
		"steelyard_forwarder_embryonic_sessions 6\n", "steelyard_forwarder_unproven_sessions 6\n",
		`steelyard_worker_steered_out_packets_total{worker="0"} 7` + "\n", `steelyard_worker_handed_out_packets_total{worker="0"} 7` + "\n",
		`steelyard_worker_steered_in_packets_total{worker="0"} 8` + "\n", `steelyard_worker_handed_in_packets_total{worker="0"} 8` + "\n",
		`steelyard_worker_remote_packets_total{worker="0"} 9` + "\n", `steelyard_worker_foreign_packets_total{worker="0"} 9` + "\n",
		`steelyard_port_director_packets_total{port="eth0",result="steered",verdict="steered"} 10` + "\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
}

// A scrape names the parts that a forwarder does not answer in time.
func TestIncompleteScrapeIsMarked(t *testing.T) {
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

func TestMetrics(t *testing.T) {
	address := freeport.Address(t)
	port, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	l := newLab(t, unchecked+"metrics: { listen: \""+address+"\" }\naccess: edge\naccess_lists:\n  - name: edge\n    rules:\n"+
		"      - { action: drop, ports: [23] }\n      - { name: scanners, action: drop, from: [192.0.2.0/24] }\n")
	l.forwarder.Drops = []*forwarderpb.Drop{{Name: "no-route", Packets: 3}}
	l.forwarder.DroppedEarly = 41
	l.forwarder.Traffic = func(*forwarderpb.ServiceKey, *forwarderpb.Server) *forwarderpb.Traffic {
		return &forwarderpb.Traffic{PacketsIn: 11, BytesOut: 1 << 40}
	}
	l.forwarder.Status.Adoption = &forwarderpb.Adoption{AwayNs: 2e9, DurationNs: 25e7,
		Results: []*forwarderpb.Adoption_Result{{Name: "kept", Sessions: 5}, {Name: "torn"}}}
	l.forwarder.Status.EventDevice = &forwarderpb.EventDevice{Name: "event_sw", Model: "direct", Packets: 9, Refused: 4, Waiting: 2}
	l.start()
	if _, err := l.apply(""); err != nil {
		t.Fatal(err)
	}
	if warnings := l.status().GetWarnings(); len(warnings) != 1 || !strings.Contains(warnings[0], "address already in use") {
		t.Errorf("%v", warnings)
	}
	port.Close()
	if _, err := l.apply(""); err != nil { // retries
		t.Fatal(err)
	}
	for _, want := range []string{
		"steelyard_forwarder_up 1\n", "steelyard_config_last_reload_successful 1\n", "steelyard_forwarder_config_revision 1\n",
		`steelyard_server_up{server="10.1.0.21:8080",service="web"} 1` + "\n",
		`steelyard_server_weight{server="10.1.0.21:8080",service="web"} 10` + "\n",
		`steelyard_service_receive_packets_total{port="80",protocol="tcp",service="web",vip="10.0.0.80"} 11` + "\n",
		`steelyard_server_transmit_bytes_total{server="10.1.0.21:8080",service="web"} 1099511627776` + "\n",
		`steelyard_drops_packets_total{reason="no-route"} 3` + "\n",
		`steelyard_access_rule_matches_total{list="edge",rule="1"} `,
		`steelyard_access_rule_matches_total{list="edge",rule="scanners"} `,
		`steelyard_access_rule_matches_total{list="edge",rule="otherwise"} `,
		"steelyard_access_dropped_early_total 41\n",
		`steelyard_adopted_sessions{result="kept",verdict="kept"} 5` + "\n", `steelyard_adopted_sessions{result="torn",verdict="torn"} 0` + "\n",
		`steelyard_event_device_packets_total{device="event_sw",model="direct",result="taken"} 9` + "\n",
		`steelyard_event_device_packets_total{device="event_sw",model="direct",result="refused"} 4` + "\n",
		`steelyard_event_device_packets{device="event_sw",model="direct"} 2` + "\n",
		"steelyard_adoption_seconds 0.25\n", "steelyard_adoption_away_seconds 2\n",
		`steelyard_build_info{version="` + version.Build + `"} 1` + "\n", `steelyard_forwarder_build_info{version="`,
		`steelyard_scrape_complete{part="services"} 1` + "\n",
	} {
		if text := scrape(t, address); !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	l.forwarder.Stop()
	if text := scrape(t, address); !strings.Contains(text, "steelyard_forwarder_up 0\n") {
		t.Error("the forwarder is gone, and yet:", text)
	}
}

func scrape(t *testing.T, address string) string {
	t.Helper()
	return scrapeWith(t, address, "", nil)
}

func scrapeWith(t *testing.T, address, words string, header http.Header) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics"+words, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header = header
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v: %s", response.Status, err, text)
	}
	return string(text)
}

// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"steelyard/internal/freeport"
	pb "steelyard/internal/gen/agentpb"
	forwarderpb "steelyard/internal/gen/forwarderpb"

	"connectrpc.com/connect"
)

// The levels of health, and each reason for them; the probes' endpoint agrees.
func TestHealthLevels(t *testing.T) {
	address := freeport.Address(t)
	const checks = "interval: 100ms, timeout: 100ms"
	l := newLab(t, strings.Replace(twoServers, "interval: 500ms, timeout: 500ms", checks, 1)+"metrics: { listen: '"+address+"' }\n")
	web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer web.Close()
	l.place(one, web.Listener.Addr().String())
	l.place(two, web.Listener.Addr().String())
	l.forwarder.Ports = []*forwarderpb.Port{{Name: "eth0", Up: true}, {Name: "eth1", Up: true}}
	l.forwarder.Workers = []*forwarderpb.Worker{{Id: 0}, {Id: 1}}
	l.start()
	l.forwarder.AwaitState(vip, two, up)
	percent := func(n uint32) *uint32 { return &n }
	ask := func(request *pb.GetHealthRequest) *pb.GetHealthResponse {
		t.Helper()
		response, err := l.client.GetHealth(t.Context(), connect.NewRequest(request))
		if err != nil {
			t.Fatal(err)
		}
		return response.Msg
	}
	expect := func(when string, request *pb.GetHealthRequest, want string, reasons ...string) {
		t.Helper()
		h := ask(request)
		text := levelWord(h.GetLevel())
		for _, reason := range h.GetReasons() {
			text += "\n" + levelWord(reason.GetLevel()) + ": " + reason.GetText()
		}
		if levelWord(h.GetLevel()) != want || len(h.GetReasons()) != len(reasons) {
			t.Errorf("%s: %s", when, text)
		}
		for _, reason := range reasons {
			if !strings.Contains(text, reason) {
				t.Errorf("%s: %q is not in: %s", when, reason, text)
			}
		}
	}
	probe := func(path string) (int, string) {
		t.Helper()
		response, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(text)
	}
	all := &pb.GetHealthRequest{}
	expect("at first", all, "ok")
	if h := ask(all); !h.GetForwarder() || h.GetWorkersAnswering() != 2 || h.GetPortsUp() != 2 || h.GetServices() != 1 || h.GetServersHealthy() != 2 {
		t.Errorf("%v", h)
	}
	if code, text := probe("/readyz?min_servers=100"); code != 200 || text != "ok\n" {
		t.Errorf("%d %s", code, text)
	}

	unserved := freeport.Address(t)
	l.place(two, unserved)
	l.forwarder.AwaitState(vip, two, down)
	expect("one of two, by default", all, "ok")
	expect("one of two, all wanted", &pb.GetHealthRequest{MinServersPercent: percent(100)}, "failing", "0 of 1 services", "service web: 1 of 2 servers healthy, below 100 %")
	expect("one of two, services do not matter", &pb.GetHealthRequest{MinServersPercent: percent(100), MinServicesPercent: percent(0)}, "degraded", "service web")
	for path, want := range map[string]int{"/readyz": 200, "/readyz?min_servers=100": 503, "/readyz?min_servers=100&min_services=0": 200,
		"/readyz?min_servers=100&min_services=0&fail_at=degraded": 503, "/readyz?min_servers=101": 400, "/readyz?fail_at=x": 400, "/readyz?x=1": 400, "/healthz": 200} {
		if code, text := probe(path); code != want {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	if _, err := l.client.SetDrain(t.Context(), connect.NewRequest(&pb.SetDrainRequest{Server: two, Drain: true})); err != nil {
		t.Fatal(err)
	}
	expect("drained by order", &pb.GetHealthRequest{MinServersPercent: percent(100)}, "ok")
	l.place(one, unserved)
	l.forwarder.AwaitState(vip, one, down)
	expect("no server", &pb.GetHealthRequest{MinServersPercent: percent(1)}, "failing", "0 of 1 services", "0 of 1 servers healthy")
	l.place(one, web.Listener.Addr().String())
	l.forwarder.AwaitState(vip, one, up)

	l.forwarder.Change(func() {
		l.forwarder.Ports[1].Up, l.forwarder.Ports[1].Problem = false, "the interface was deleted"
		l.forwarder.Ports[0].Problem = "few queues"
		l.forwarder.Stuck = true
		l.forwarder.Status.RoutingRefused = "a rule"
	})
	expect("forwarder in trouble", all, "failing", "port eth1 is down: the interface was deleted", "degraded: port eth0: few queues", "worker 0", "worker 1", "routing is refused: a rule")
	l.forwarder.Change(func() {
		l.forwarder.Ports[1].Up, l.forwarder.Ports[0].Problem, l.forwarder.Ports[1].Problem = true, "", ""
		l.forwarder.Stuck, l.forwarder.Status.RoutingRefused = false, ""
	})
	expect("after that", all, "ok")
	if level := l.status().GetHealth().GetLevel(); levelWord(level) != "ok" {
		t.Errorf("get status: %s", level)
	}
	l.write("version: 1\nnonsense: 1\n")
	if _, err := l.client.ApplyConfig(t.Context(), connect.NewRequest(&pb.ApplyConfigRequest{})); err == nil {
		t.Error("nonsense is applied")
	}
	expect("a bad file", all, "degraded", "the configuration file is refused")
	l.forwarder.Stop()
	expect("no forwarder", all, "failing", "the forwarder is not connected", "the configuration file is refused")
	if code, text := probe("/readyz"); code != 503 || !strings.HasPrefix(text, "failing\nfailing: the forwarder is not connected") {
		t.Errorf("%d %s", code, text)
	}
}

// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	pb "steelyard/internal/gen/agentpb"
	forwarderpb "steelyard/internal/gen/forwarderpb"

	"connectrpc.com/connect"
)

const killed = forwarderpb.ServerState_SERVER_STATE_KILL

func direct(text string) string {
	text = strings.Replace(text, "port: 80\n", "port: 80\n    mode: dr\n", 1)
	return strings.ReplaceAll(text, "port: 8080", "port: 80")
}

// A server of a DR service is checked on the VIP; an answer on its own address is not enough.
func TestDirectServersAreCheckedOnTheVIP(t *testing.T) {
	l := newLab(t, direct(twoServers))
	web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer web.Close()
	const first, second = "10.1.0.21:80", "10.1.0.22:80"
	l.place("10.1.0.21 on 10.0.0.80:80", web.Listener.Addr().String())
	l.place(second, web.Listener.Addr().String())
	l.start()
	l.forwarder.AwaitState(vip, second, down)
	if state := l.forwarder.Server(vip, first).GetState(); state != up {
		t.Errorf("the one that has the VIP is %s", state)
	}
	one, two := l.forwarder.Server(vip, first).GetCheckMark(), l.forwarder.Server(vip, second).GetCheckMark()
	if one>>24 != 0x53 || two>>24 != 0x53 || one == two {
		t.Errorf("marks %#x and %#x", one, two)
	}
	l.place("10.1.0.22 on 10.0.0.80:80", web.Listener.Addr().String())
	l.forwarder.AwaitState(vip, second, up)
	l.expectUnchangedByRestart()
}

// If marks do not work, checks use the servers' own addresses, and the status says so.
func TestServersAreCheckedDirectlyIfMarksAreUnsupported(t *testing.T) {
	l := newLab(t, direct(twoServers))
	l.forwarder.Status.MarksActive, l.forwarder.Status.MarksRefused = false, "no clsact here"
	web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer web.Close()
	l.place("10.1.0.21:80", web.Listener.Addr().String())
	l.start()
	l.forwarder.AwaitState(vip, "10.1.0.22:80", down)
	if state := l.forwarder.Server(vip, "10.1.0.21:80").GetState(); state != up {
		t.Errorf("the one that answers is %s", state)
	}
	if warnings := strings.Join(l.status().GetWarnings(), "\n"); !strings.Contains(warnings, "not on the VIP: no clsact here") {
		t.Errorf("warnings: %s", warnings)
	}
	response, err := l.client.ListServices(t.Context(), connect.NewRequest(&pb.ListServicesRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	health := response.Msg.GetServices()[0].GetServers()[0].GetHealth()
	if health.GetTarget() != "10.1.0.21:80" || health.GetFallback() != "no clsact here" {
		t.Errorf("%v", health)
	}
}

func TestDeadlinesAndKills(t *testing.T) {
	l := newLab(t, unchecked)
	l.start()
	l.forwarder.AwaitState(vip, one, up)
	set := func(request *pb.SetDrainRequest) (*pb.SetDrainResponse, error) {
		request.Server = one
		response, err := l.client.SetDrain(t.Context(), connect.NewRequest(request))
		if err != nil {
			return nil, err
		}
		return response.Msg, nil
	}
	for want, bad := range map[string]*pb.SetDrainRequest{
		"use at most 168h":       {Drain: true, DeadlineMs: 8 * 24 * 3600 * 1000},
		"neither deadline":       {DeadlineMs: 1000},
		"nor kill":               {Kill: true},
		"a kill has no deadline": {Drain: true, Kill: true, DeadlineMs: 1000},
	} {
		if _, err := set(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if _, err := set(&pb.SetDrainRequest{Drain: true, DeadlineMs: 1}); err != nil {
		t.Fatal(err)
	}
	l.forwarder.AwaitState(vip, one, killed)
	server := func() *pb.ServerInfo {
		response, err := l.client.ListServices(t.Context(), connect.NewRequest(&pb.ListServicesRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		return response.Msg.GetServices()[0].GetServers()[0]
	}
	if s := server(); !s.GetDrainedByCommand() || s.GetKilledByCommand() || s.GetKilledUnixMs() > uint64(time.Now().UnixMilli()) || s.GetKilledUnixMs() == 0 {
		t.Errorf("%v", s)
	}
	if status := l.status(); status.GetServersKilled() != 1 || status.GetServersDrained() != 0 {
		t.Errorf("%v", status)
	}
	if _, err := set(&pb.SetDrainRequest{}); err != nil || l.forwarder.Server(vip, one).GetState() != up {
		t.Errorf("after undo: %v, %v", err, l.forwarder.Server(vip, one))
	}
	if _, err := set(&pb.SetDrainRequest{Drain: true, Kill: true}); err != nil || l.forwarder.Server(vip, one).GetState() != killed {
		t.Errorf("after kill: %v, %v", err, l.forwarder.Server(vip, one))
	}
	if again, err := set(&pb.SetDrainRequest{Drain: true, Kill: true}); err != nil || len(again.GetUnchanged()) != 1 {
		t.Errorf("killed twice: %v, %v", again, err)
	}
	l.stop()
	l.start()
	if _, err := l.apply(""); err != nil || l.forwarder.Server(vip, one).GetState() != killed || !server().GetKilledByCommand() {
		t.Errorf("the agent's restart revived it: %v", err)
	}
}

func (l *lab) drain(server string, drain bool) error {
	l.Helper()
	_, err := l.client.SetDrain(l.Context(), connect.NewRequest(&pb.SetDrainRequest{Server: server, Drain: drain}))
	return err
}

func TestDrainsSurviveTheAgent(t *testing.T) {
	l := newLab(t, strings.Replace(unchecked, "weight: 10 }", "weight: 10 }\n      - { address: 10.1.0.22, port: 8080, drain: true }", 1))
	l.start()
	l.forwarder.AwaitCommits(1)
	if err := l.drain("10.1.0.21", true); err != nil {
		t.Fatal(err)
	}
	if state := l.forwarder.Server(vip, one).GetState(); state != drained {
		t.Errorf("drain returned before the forwarder had it: %s", state)
	}
	l.stop()
	commits := len(l.forwarder.Commits())
	l.start()
	if _, err := l.apply(""); err != nil {
		t.Fatal(err)
	}
	if now := len(l.forwarder.Commits()); now != commits {
		t.Error("the agent's restart changed the forwarder")
	}
	if err := l.drain(one, false); err != nil {
		t.Fatal(err)
	}
	if state := l.forwarder.Server(vip, one).GetState(); state != up {
		t.Errorf("after undo: %s", state)
	}
	for server, want := range map[string]string{
		two: "is drained by", "10.1.0.99": "no service has the server", "web": "is not a server",
	} {
		if err := l.drain(server, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", server, err)
		}
	}
}

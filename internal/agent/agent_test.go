// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"steelyard/internal/dpclient/dptest"
	"steelyard/internal/freeport"
	pb "steelyard/internal/gen/agentpb"
	"steelyard/internal/gen/agentpb/agentpbconnect"
	forwarderpb "steelyard/internal/gen/forwarderpb"
	"steelyard/internal/health"

	"connectrpc.com/connect"
)

// eventLog is a log whose lines can be awaited.
type eventLog struct {
	mu   sync.Mutex
	cond *sync.Cond
	text string
}

func newEventLog() *eventLog {
	l := &eventLog{}
	l.cond = sync.NewCond(&l.mu)
	return l
}

func (l *eventLog) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text += string(data)
	l.cond.Broadcast()
	return len(data), nil
}

// await waits until a text was logged a number of times.
func (l *eventLog) await(text string, times int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for strings.Count(l.text, text) < times {
		l.cond.Wait()
	}
}

// lab is an agent with a fake forwarder and real servers on 127.0.0.1.
type lab struct {
	*testing.T
	forwarder *dptest.Forwarder
	options   Options
	log       *eventLog
	reload    chan struct{}
	client    agentpbconnect.AgentServiceClient
	stop      func()
	starts    int

	mu      sync.Mutex
	servers map[string]string // "10.1.0.21:8080" → its real address
}

func newLab(t *testing.T, config string) *lab {
	t.Helper()
	f := dptest.New(t)
	l := &lab{T: t, forwarder: f, log: newEventLog(), reload: make(chan struct{}), servers: map[string]string{}}
	l.options = Options{
		Config: filepath.Join(t.TempDir(), "steelyard.yaml"), Forwarder: f.Socket,
		Socket: filepath.Join(filepath.Dir(f.Socket), "agent.sock"), State: t.TempDir(),
		Log: slog.New(slog.NewTextHandler(l.log, nil)), Probe: l.dial, Reload: l.reload, Watch: true,
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", l.options.Socket)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	l.client = agentpbconnect.NewAgentServiceClient(&http.Client{Transport: transport}, "http://agent")
	l.write(config)
	return l
}

// dial connects health checks to the servers' real addresses.
func (l *lab) dial(ctx context.Context, to health.Endpoint) (net.Conn, error) {
	address := to.Address.String()
	if to.Mark != 0 {
		address = fmt.Sprintf("%s on %s", to.Server, address)
	}
	l.mu.Lock()
	real, ok := l.servers[address]
	l.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("connection to %s refused", address)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", real)
}

func (l *lab) place(address, real string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.servers[address] = real
}

// write replaces the file as an editor does.
func (l *lab) write(config string) {
	l.Helper()
	temporary := l.options.Config + "~"
	if err := os.WriteFile(temporary, []byte(config), 0o644); err != nil {
		l.Fatal(err)
	}
	if err := os.Rename(temporary, l.options.Config); err != nil {
		l.Fatal(err)
	}
}

func (l *lab) start() {
	l.Helper()
	l.starts++
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, l.options) }()
	l.log.await("agent is ready", l.starts)
	l.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			l.Error(err)
		}
	})
	l.Cleanup(l.stop)
}

// expectUnchangedByRestart restarts the agent, which must send the forwarder nothing.
func (l *lab) expectUnchangedByRestart() {
	l.Helper()
	commits := len(l.forwarder.Commits())
	l.stop()
	l.start()
	if _, err := l.apply(""); err != nil {
		l.Fatal(err)
	}
	if now := len(l.forwarder.Commits()); now != commits {
		l.Errorf("the agent's restart changed the forwarder: %v", l.forwarder.Commits()[commits:])
	}
}

func (l *lab) status() *pb.GetStatusResponse {
	l.Helper()
	response, err := l.client.GetStatus(l.Context(), connect.NewRequest(&pb.GetStatusRequest{}))
	if err != nil {
		l.Fatal(err)
	}
	return response.Msg
}

func (l *lab) apply(yaml string) (*pb.ApplyConfigResponse, error) {
	l.Helper()
	response, err := l.client.ApplyConfig(l.Context(), connect.NewRequest(
		&pb.ApplyConfigRequest{Yaml: []byte(yaml), File: "new.yaml"}))
	if err != nil {
		return nil, err
	}
	return response.Msg, nil
}

const (
	vip        = "10.0.0.80:80"
	one, two   = "10.1.0.21:8080", "10.1.0.22:8080"
	up         = forwarderpb.ServerState_SERVER_STATE_UP
	down       = forwarderpb.ServerState_SERVER_STATE_DOWN
	drained    = forwarderpb.ServerState_SERVER_STATE_DRAIN
	twoServers = `
version: 1
local_addresses: [10.1.0.10]
defaults: { health: { type: http, path: /healthz, interval: 500ms, timeout: 500ms, rise: 2, fall: 2 } }
services:
  - name: web
    vip: 10.0.0.80
    port: 80
    servers:
      - { address: 10.1.0.21, port: 8080, weight: 10 }
      - { address: 10.1.0.22, port: 8080, weight: 5 }
`
	unchecked = `
version: 1
local_addresses: [10.1.0.10]
services:
  - name: web
    vip: 10.0.0.80
    port: 80
    health: { type: none }
    servers:
      - { address: 10.1.0.21, port: 8080, weight: 10 }
`
)

func TestHealthFollowsTheServers(t *testing.T) {
	l := newLab(t, twoServers)
	var ill atomic.Bool
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if ill.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer web.Close()
	l.place(one, web.Listener.Addr().String())
	l.start()
	l.forwarder.AwaitState(vip, one, up)
	l.forwarder.AwaitState(vip, two, down) // no server listens
	ill.Store(true)
	l.forwarder.AwaitState(vip, one, down)
	ill.Store(false)
	l.forwarder.AwaitState(vip, one, up)
	l.place(two, web.Listener.Addr().String())
	l.forwarder.AwaitState(vip, two, up)
	for _, commit := range l.forwarder.Commits()[1:] {
		for _, change := range commit {
			if change.GetPutServer() == nil {
				t.Errorf("a flip sent %v", change)
			}
		}
	}
}

func TestTCPChecks(t *testing.T) {
	l := newLab(t, strings.Replace(twoServers, "type: http, path: /healthz", "type: tcp", 1))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	l.place(one, listener.Addr().String())
	l.start()
	l.forwarder.AwaitState(vip, two, down)
	if state := l.forwarder.Server(vip, one).GetState(); state != up {
		t.Errorf("the server that listens is %s", state)
	}
	listener.Close()
	l.forwarder.AwaitState(vip, one, down)
}

func TestDeathsOfForwarderAndAgent(t *testing.T) {
	l := newLab(t, twoServers)
	l.start()
	l.forwarder.AwaitState(vip, one, down)
	l.forwarder.AwaitState(vip, two, down)

	l.forwarder.Stop()
	l.forwarder.Forget()
	l.forwarder.Start()
	l.forwarder.AwaitState(vip, one, down)
	l.forwarder.AwaitState(vip, two, down)

	l.expectUnchangedByRestart()
}

func TestReloads(t *testing.T) {
	l := newLab(t, unchecked)
	l.start()
	l.forwarder.AwaitCommits(1)

	l.write(strings.Replace(unchecked, "weight: 10", "weight: 7", 1)) // the agent notices the change by itself
	l.forwarder.AwaitCommits(2)
	if weight := l.forwarder.Server(vip, one).GetWeight(); weight != 7 {
		t.Errorf("weight %d", weight)
	}

	l.write(strings.Replace(unchecked, "weight: 10", "weight: heavy", 1))
	l.log.await("configuration refused", 1)
	status := l.status()
	want := l.options.Config + `:10:51: services[0].servers[0].weight: "heavy" is not a whole number: use 0 to 65535`
	if status.GetConfig().GetError() != want || status.GetForwarder().GetAppliedGeneration() != status.GetConfig().GetGeneration() {
		t.Errorf("%v", status)
	}
	if weight := l.forwarder.Server(vip, one).GetWeight(); weight != 7 {
		t.Errorf("a bad file changed the weight to %d", weight)
	}
	l.reload <- struct{}{} // as SIGHUP does: logged again
	l.log.await("configuration refused", 2)

	revision := status.GetForwarder().GetRevision()
	l.write(strings.Replace(unchecked, "weight: 10", "weight: 7 ", 1))
	l.log.await("configuration loaded", 3)
	applied, err := l.apply("")
	if err != nil || applied.GetChanges() != 0 || applied.GetRevision() != revision {
		t.Errorf("the same again: %v, %v; revision was %d", applied, err, revision)
	}
}

// A file that is saved changes nothing until it is applied, unless the agent watches it; the status says so.
func TestSavedFileIsLoadedByApplyOnly(t *testing.T) {
	quiet, watching := newLab(t, unchecked), newLab(t, unchecked)
	quiet.options.Watch = false
	for _, l := range []*lab{quiet, watching} {
		l.start()
		l.forwarder.AwaitCommits(1)
	}
	changed := func() bool {
		return strings.Contains(strings.Join(quiet.status().GetWarnings(), " "), "has changed since it was loaded")
	}
	if changed() {
		t.Error("a file that was loaded has changed")
	}
	next := strings.Replace(unchecked, "weight: 10", "weight: 7", 1)
	quiet.write(next)
	watching.write(next)
	watching.forwarder.AwaitCommits(2) // saved after the other one, so that would be loaded, too
	if weight := quiet.forwarder.Server(vip, one).GetWeight(); weight != 10 || !changed() {
		t.Errorf("weight %d, changed: %t", weight, changed())
	}
	quiet.reload <- struct{}{} // SIGHUP
	quiet.forwarder.AwaitCommits(2)
	if weight := quiet.forwarder.Server(vip, one).GetWeight(); weight != 7 || changed() {
		t.Errorf("weight %d, changed: %t", weight, changed())
	}
	quiet.write(unchecked)
	if _, err := quiet.apply(""); err != nil || changed() {
		t.Errorf("%v, changed: %t", err, changed())
	}
	if err := os.Remove(quiet.options.Config); err != nil || !changed() {
		t.Errorf("%v, changed: %t", err, changed())
	}
}

func TestApplyInstallsGoodFilesOnly(t *testing.T) {
	l := newLab(t, unchecked)
	if err := os.Chmod(l.options.Config, 0o640); err != nil {
		t.Fatal(err)
	}
	l.start()
	l.forwarder.AwaitCommits(1)
	_, err := l.apply(strings.Replace(unchecked, "port: 80", "port: 0", 1))
	if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "new.yaml:7:11: services[0].port") {
		t.Errorf("%v", err)
	}
	content, err := os.ReadFile(l.options.Config)
	if err != nil || string(content) != unchecked {
		t.Errorf("a bad file was installed: %v", err)
	}
	next := strings.Replace(unchecked, "weight: 10", "weight: 3", 1)
	applied, err := l.apply(next)
	if err != nil || applied.GetChanges() != 1 {
		t.Fatalf("%v, %v", applied, err)
	}
	if weight := l.forwarder.Server(vip, one).GetWeight(); weight != 3 {
		t.Errorf("apply returned before the forwarder had it: weight %d", weight)
	}
	content, err = os.ReadFile(l.options.Config)
	info, statErr := os.Stat(l.options.Config)
	if err != nil || statErr != nil || string(content) != next || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v, %v", err, statErr, info.Mode())
	}
}

func TestApplySaysWhyTheForwarderDoesNotHaveIt(t *testing.T) {
	l := newLab(t, unchecked)
	l.start()
	l.forwarder.AwaitCommits(1)
	l.forwarder.Refuse(&forwarderpb.Error{Code: forwarderpb.Code_CODE_EXHAUSTED, Text: "the table is full"})
	_, err := l.apply(strings.Replace(unchecked, "port: 80", "port: 81", 1))
	want := "invalid_argument: the forwarder refuses new.yaml: the table is full; nothing was changed"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	content, err := os.ReadFile(l.options.Config)
	if err != nil || string(content) != unchecked {
		t.Errorf("the old file was not put back: %v\n%s", err, content)
	}
	if _, err := l.apply(""); err != nil {
		t.Errorf("the old configuration does not run: %v", err)
	}
	if got := l.status().GetForwarder(); !got.GetConnected() || got.GetError() != "" {
		t.Errorf("status: %v", got)
	}
}

func TestEveryErrorOfTheFirstFileIsALine(t *testing.T) {
	l := newLab(t, strings.NewReplacer("port: 80\n", "port: none\n", "weight: 10", "weight: heavy").Replace(unchecked))
	l.start()
	l.log.await("no configuration from this file; the forwarder keeps its own", 1)
	l.log.await(`msg="configuration error"`, 2)
}

func TestAFileThatTheForwarderRefuses(t *testing.T) {
	address := freeport.Address(t)
	l := newLab(t, unchecked+"metrics: { listen: \""+address+"\" }\n")
	l.forwarder.Refuse(&forwarderpb.Error{Code: forwarderpb.Code_CODE_INVALID, Text: "an address of this host"}, "10.0.0.81")
	l.start()
	l.forwarder.AwaitCommits(1)
	l.write(strings.Replace(unchecked, "10.0.0.80", "10.0.0.81", 1) + "metrics: { listen: \"" + address + "\" }\n")
	l.log.await("the forwarder refuses the configuration", 1)
	_, err := l.apply("")
	if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "an address of this host; it keeps its configuration") {
		t.Errorf("%v", err)
	}
	status := l.status()
	if f := status.GetForwarder(); !f.GetConnected() || f.GetError() != "an address of this host" {
		t.Errorf("%v", f)
	}
	text := scrape(t, address)
	for _, want := range []string{"steelyard_forwarder_up 1\n", "steelyard_config_last_reload_successful 0\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	if err := l.drain(one, true); err != nil {
		t.Fatal(err)
	}
	l.forwarder.AwaitState(vip, one, drained)
	l.log.await(`msg="server is drained" server=10.1.0.21:8080 service=web`, 1)
}

func TestAgentWaitsForItsForwarderAndFile(t *testing.T) {
	l := newLab(t, unchecked)
	if err := os.Remove(l.options.Config); err != nil {
		t.Fatal(err)
	}
	l.forwarder.Stop()
	l.start()
	status := l.status()
	if status.GetForwarder().GetConnected() || !strings.Contains(status.GetConfig().GetError(), "does not exist") {
		t.Errorf("%v", status)
	}
	l.forwarder.Start()
	l.write(unchecked)
	l.forwarder.AwaitState(vip, one, up)
}

func TestServersCountAsUpOnceTheyAreChecked(t *testing.T) {
	l := newLab(t, twoServers)
	l.forwarder.Stop()
	l.start()
	if status := l.status(); status.GetServersUnchecked() != 2 || status.GetServersUp() != 0 {
		t.Errorf("%v", status)
	}
	l.forwarder.Start()
	l.forwarder.AwaitState(vip, one, down)
	l.forwarder.AwaitState(vip, two, down)
	if status := l.status(); status.GetServersUnchecked() != 0 {
		t.Errorf("%v", status)
	}
}

func TestASecondAgentIsRefused(t *testing.T) {
	l := newLab(t, unchecked)
	l.start()
	options := l.options
	options.State = t.TempDir()
	if err := Run(t.Context(), options); err == nil || !strings.Contains(err.Error(), "an agent is running already") {
		t.Errorf("%v", err)
	}
	if l.status().GetBuild() == "" {
		t.Error("the first agent has gone")
	}
}

func TestASocketLeftBehindIsTakenOver(t *testing.T) {
	l := newLab(t, unchecked)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: l.options.Socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	listener.Close()
	l.start()
	l.forwarder.AwaitCommits(1)
}

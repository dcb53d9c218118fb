// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"steelyard/internal/agent"
	"steelyard/internal/cluster"
	"steelyard/internal/dpclient/dptest"
	agentpb "steelyard/internal/gen/agentpb"
	"steelyard/internal/gen/agentpb/agentpbconnect"
	pb "steelyard/internal/gen/controllerpb"
	"steelyard/internal/gen/controllerpb/controllerpbconnect"
	"steelyard/internal/gen/nfvpb/nfvpbconnect"
	joining "steelyard/internal/member"
	"steelyard/internal/pki"

	"connectrpc.com/connect"
)

// lab has an etcd, controllers, and agents with fake forwarders, all in this process and over real connections.
type lab struct {
	*testing.T
	store       *cluster.Store
	directory   string // with a short path, for sockets
	controllers []*runningController
	agents      map[string]*runningAgent
	tune        func(*Options)          // a test's changes of controllers' options; nil: none
	before      func(*dptest.Forwarder) // likewise for a forwarder, before its agent starts
}

type runningController struct {
	url    string
	socket string
	stop   func()
	kill   func() // as if its process was killed: it releases nothing, not even its lease
	admin  user
}

type runningAgent struct {
	*dptest.Forwarder
	options agent.Options
	stop    func()
}

// user is a client of one controller.
type user struct {
	controllerpbconnect.ControllerServiceClient
	agentpbconnect.AgentServiceClient
	nfvpbconnect.NfvServiceClient
}

// quiet keeps the log of a passing test short.
type quiet struct{ t *testing.T }

func (q quiet) Write(data []byte) (int, error) {
	if testing.Verbose() {
		os.Stderr.Write(data)
	}
	return len(data), nil
}

// commit writes to the store, and returns the revision.
func (l *lab) commit(txn *cluster.Txn) int64 {
	l.Helper()
	revision, err := l.store.Commit(l.Context(), txn)
	if err != nil {
		l.Fatal(err)
	}
	return revision
}

func (l *lab) log(who string) *slog.Logger {
	return slog.New(slog.NewTextHandler(quiet{l.T}, nil)).With("lab", who)
}

// short makes a directory with a short path, for sockets.
func short(t *testing.T) string {
	t.Helper()
	directory, err := os.MkdirTemp("", "syl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(directory) })
	return directory
}

func newLab(t *testing.T, controllers int) *lab {
	t.Helper()
	l := &lab{T: t, directory: short(t), agents: map[string]*runningAgent{}}
	var err error
	if l.store, err = cluster.Open(t.Context(), cluster.Options{Directory: filepath.Join(l.directory, "s"), Large: LargeKeys}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.store.Close)
	for range controllers {
		l.addController()
	}
	return l
}

func (l *lab) addController() *runningController { return l.addControllerAt(l.store.Endpoints()[0], 0) }

func (l *lab) addControllerAt(endpoint string, skew time.Duration) *runningController {
	l.Helper()
	return l.addControllerOn(cluster.Options{Endpoints: []string{endpoint}, Large: LargeKeys}, skew)
}

// addControllerOn starts a controller that reaches etcd by the given options, and whose clock is off by skew.
func (l *lab) addControllerOn(options cluster.Options, skew time.Duration) *runningController {
	l.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l.Fatal(err)
	}
	// A store of its own, as another process would have.
	store, err := cluster.Open(l.Context(), options)
	if err != nil {
		l.Fatal(err)
	}
	c := &runningController{url: "https://" + listener.Addr().String(), socket: filepath.Join(l.directory, fmt.Sprintf("c%d.sock", len(l.controllers)))}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		options := Options{Store: store, Listen: listener, URL: c.url, Socket: c.socket, Log: l.log(c.url),
			Now: func() time.Time { return time.Now().Add(skew) }}
		if l.tune != nil {
			l.tune(&options)
		}
		done <- Run(ctx, options)
	}()
	end := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			l.Error(err)
		}
		store.Close()
	})
	c.stop = end
	c.kill = func() {
		store.Close() // first: nothing reaches etcd any more
		end()
	}
	l.Cleanup(c.stop)
	c.admin = userOn(l.T, "http://controller", &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", c.socket)
	}}, nil)
	l.until("the controller answers", func() bool {
		_, err := c.admin.ListProjects(l.Context(), connect.NewRequest(&pb.ListProjectsRequest{}))
		return err == nil
	})
	l.controllers = append(l.controllers, c)
	return c
}

// userOn returns a client with headers on all its requests.
func userOn(t *testing.T, url string, transport *http.Transport, headers map[string]string) user {
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: withHeaders{transport, headers}}
	return user{controllerpbconnect.NewControllerServiceClient(client, url), agentpbconnect.NewAgentServiceClient(client, url), nfvpbconnect.NewNfvServiceClient(client, url)}
}

type withHeaders struct {
	next    http.RoundTripper
	headers map[string]string
}

func (h withHeaders) RoundTrip(r *http.Request) (*http.Response, error) {
	for key, value := range h.headers {
		r.Header.Set(key, value)
	}
	return h.next.RoundTrip(r)
}

// join creates a user by a token, as a client of a controller.
func (l *lab) join(c *runningController, token *pb.CreateTokenRequest, headers map[string]string) user {
	l.Helper()
	identity, _, err := joining.Join(l.Context(), "", []string{c.url}, l.token(c, token), pki.User)
	if err != nil {
		l.Fatal(err)
	}
	return userOn(l.T, c.url, &http.Transport{TLSClientConfig: identity.Client()}, headers)
}

func (l *lab) token(c *runningController, request *pb.CreateTokenRequest) string {
	l.Helper()
	response, err := c.admin.CreateToken(l.Context(), connect.NewRequest(request))
	if err != nil {
		l.Fatal(err)
	}
	return response.Msg.GetToken()
}

// addForwarder starts a fake forwarder with an agent that joins.
func (l *lab) addForwarder(name string) *runningAgent {
	l.Helper()
	f := dptest.New(l.T)
	if l.before != nil {
		l.before(f)
	}
	var urls []string
	for _, c := range l.controllers {
		urls = append(urls, c.url)
	}
	a := &runningAgent{Forwarder: f, options: agent.Options{
		Forwarder: f.Socket, Socket: filepath.Join(filepath.Dir(f.Socket), "agent.sock"), State: l.TempDir(), Log: l.log(name),
		Controllers: urls, Token: l.token(l.controllers[0], &pb.CreateTokenRequest{Name: name, Role: pb.Role_ROLE_FORWARDER}),
	}}
	l.agents[name] = a
	l.start(a)
	l.awaitOwner(name)
	return a
}

func (l *lab) start(a *runningAgent) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- agent.Run(ctx, a.options) }()
	a.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			l.Error(err)
		}
	})
	l.Cleanup(a.stop)
}

// owner returns the URL of the controller that owns a forwarder.
func (l *lab) owner(name string) string {
	record, _, err := read[owner](l.Context(), l.store, keyOwners+name)
	if err != nil {
		l.Fatal(err)
	}
	return record.URL
}

func (l *lab) awaitOwner(name string) {
	l.Helper()
	l.until(name+" has a controller", func() bool { return l.owner(name) != "" })
}

// until polls for a condition that nothing signals.
func (l *lab) until(what string, is func() bool) {
	l.Helper()
	const limit = 4 * time.Minute // far beyond any stall of a busy machine
	for begun := time.Now(); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > limit {
			l.Fatalf("not within %s: %s", limit, what)
		}
	}
}

func on(forwarder string) func(connect.AnyRequest) {
	return func(r connect.AnyRequest) { r.Header().Set(ForwarderHeader, forwarder) }
}

// apply applies a file as a user, for a forwarder and a project.
func apply(ctx context.Context, u user, forwarder, project, yaml string) (*agentpb.ApplyConfigResponse, error) {
	request := connect.NewRequest(&agentpb.ApplyConfigRequest{Yaml: []byte(yaml), File: "test.yaml"})
	on(forwarder)(request)
	request.Header().Set(ProjectHeader, project)
	response, err := u.ApplyConfig(ctx, request)
	if err != nil {
		return nil, err
	}
	return response.Msg, nil
}

// file returns a good file whose server has a weight.
func file(weight int) string {
	return fmt.Sprintf(`version: 1
local_addresses: [10.1.0.10]
services:
  - name: web
    vip: 10.0.0.80
    port: 80
    health: { type: none }
    servers:
      - { address: 10.1.0.21, port: 8080, weight: %d }
`, weight)
}

// part returns a project's file with the given numbers of services and servers.
func part(net byte, services, servers int) string {
	text := "version: 1\nservices:\n"
	if services == 0 {
		return "version: 1\nservices: []\n"
	}
	for i := range services {
		text += fmt.Sprintf("  - name: s%d\n    vip: 10.%d.0.%d\n    port: 80\n    health: { type: none }\n    servers:\n", i, net, i+1)
		for j := range servers {
			text += fmt.Sprintf("      - { address: 10.1.0.%d, port: 8080 }\n", 21+j)
		}
	}
	return text
}

const (
	vip    = "10.0.0.80:80"
	server = "10.1.0.21:8080"
)

// packed compresses a file as the store does.
func packed(text string) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write([]byte(text)) // writing to a buffer cannot fail
	_ = w.Close()
	return out.Bytes()
}

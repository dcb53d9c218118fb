// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"steelyard/internal/agent"
	"steelyard/internal/cluster"
	"steelyard/internal/dpclient/dptest"
	"steelyard/internal/freeport"
	agentpb "steelyard/internal/gen/agentpb"
	pb "steelyard/internal/gen/controllerpb"
	forwarderpb "steelyard/internal/gen/forwarderpb"

	"connectrpc.com/connect"
)

var (
	chaosLength = flag.Duration("chaos", 12*time.Second, "how long faults are injected")
	chaosSeed   = flag.Uint64("chaos-seed", 16, "which faults")
)

// chaos has three controllers, whose own etcds form a cluster, and agents of fake forwarders. All random faults come from one seed.
type chaos struct {
	*lab
	random  *rand.Rand // of the fault injector
	members []*chaosMember
	log     []string
}

// chaosMember is a controller with its etcd. The other etcds reach it through a gate; agents connect to the controller directly.
type chaosMember struct {
	options cluster.Options
	peers   *gate
	address string // for agents
	skew    atomic.Int64

	mu      sync.Mutex
	running *runningController // nil: it is dead
	store   *cluster.Store
}

// writer changes one project of one forwarder, and tracks the outcome of each change.
type writer struct {
	forwarder, project string
	text               func(weight int) string
	vip                string
	tried, confirmed   int
	count              int
}

func newChaos(t *testing.T) *chaos {
	t.Helper()
	directory := short(t)
	key, err := cluster.NewMembersKey()
	if err != nil {
		t.Fatal(err)
	}
	c := &chaos{lab: &lab{T: t, directory: directory, agents: map[string]*runningAgent{}}, random: rand.New(rand.NewPCG(*chaosSeed, 42))}
	urls := map[string]string{}
	for i := range 3 {
		name := fmt.Sprintf("c%d", i)
		listen := freeport.Address(t)
		m := &chaosMember{peers: newGate(t, "tcp://"+listen), address: freeport.Address(t)}
		urls[name] = "https://" + m.peers.listener.Addr().String()
		m.options = cluster.Options{Directory: filepath.Join(directory, name), Large: LargeKeys,
			Members: &cluster.Members{Name: name, URLs: urls, Listen: listen, Key: key}}
		c.members = append(c.members, m)
	}
	var starting sync.WaitGroup
	for _, m := range c.members {
		starting.Go(func() { c.revive(m) })
	}
	starting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return c
}

// revive starts a member's etcd and controller.
func (c *chaos) revive(m *chaosMember) {
	store, err := cluster.Open(context.Background(), m.options)
	if err != nil {
		c.Error(err)
		return
	}
	listener, err := net.Listen("tcp", m.address)
	if err != nil {
		c.Error(err)
		return
	}
	one := &runningController{url: "https://" + m.address, socket: m.options.Directory + ".sock"}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Options{Store: store, Listen: listener, URL: one.url, Socket: one.socket, Log: c.lab.log(one.url),
			Now: func() time.Time { return time.Now().Add(time.Duration(m.skew.Load())) }})
	}()
	one.stop = sync.OnceFunc(func() {
		store.Close() // first: a killed process does not revoke its lease
		cancel()
		<-done // an error, if it was killed while it started
	})
	c.Cleanup(one.stop)
	one.admin = userOn(c.T, "http://controller", &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", one.socket)
	}}, nil)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running, m.store = one, store
}

func (m *chaosMember) alive() *runningController {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running
}

func (m *chaosMember) kill() {
	m.mu.Lock()
	one := m.running
	m.running = nil
	m.mu.Unlock()
	if one != nil {
		one.stop()
	}
}

// anyone returns the user of a live controller, or nil.
func (c *chaos) anyone(random *rand.Rand) *user {
	for _, i := range random.Perm(len(c.members)) {
		if one := c.members[i].alive(); one != nil {
			return &one.admin
		}
	}
	return nil
}

// order calls controllers until one succeeds.
func (c *chaos) order(what string, f func(ctx context.Context, u user) error) {
	c.Helper()
	random := rand.New(rand.NewPCG(1, 1))
	var err error
	for begun := time.Now(); time.Since(begun) < 4*time.Minute; time.Sleep(20 * time.Millisecond) {
		if u := c.anyone(random); u != nil {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			err = f(ctx, *u)
			cancel()
			if err == nil {
				return
			}
		}
	}
	c.Fatalf("%s: %v", what, err)
}

// enlist starts an agent on a fresh host, for a forwarder that may be running.
func (c *chaos) enlist(name string, f *dptest.Forwarder) {
	c.Helper()
	var token string
	c.order("a token", func(ctx context.Context, u user) error {
		response, err := u.CreateToken(ctx, connect.NewRequest(&pb.CreateTokenRequest{Name: name, Role: pb.Role_ROLE_FORWARDER}))
		if err == nil {
			token = response.Msg.GetToken()
		}
		return err
	})
	var urls []string
	for _, m := range c.members {
		urls = append(urls, "https://"+m.address)
	}
	options := agent.Options{Forwarder: f.Socket, Socket: filepath.Join(filepath.Dir(f.Socket), "agent.sock"), State: c.TempDir(),
		Log: c.lab.log(name), Controllers: urls, Token: token}
	c.run(name, &runningAgent{Forwarder: f, options: options})
}

// run keeps an agent running, as systemd does: joining fails while no controller accepts it.
func (c *chaos) run(name string, a *runningAgent) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if err := agent.Run(ctx, a.options); err != nil {
				pause(ctx, 50*time.Millisecond)
			}
		}
	}()
	a.stop = sync.OnceFunc(func() { cancel(); <-ended })
	c.Cleanup(a.stop)
	c.agents[name] = a
}

// fault starts or ends one fault.
func (c *chaos) fault() {
	m := c.members[c.random.IntN(len(c.members))]
	names := []string{"f1", "f2"}
	name := names[c.random.IntN(len(names))]
	say := func(what string) { c.log = append(c.log, what) }
	switch c.random.IntN(8) {
	case 0, 1:
		say("kill " + m.options.Members.Name)
		m.kill()
		if c.random.IntN(3) > 0 {
			pause(c.Context(), time.Duration(c.random.IntN(3000))*time.Millisecond)
		}
		c.revive(m)
	case 2, 3:
		say("cut off " + m.options.Members.Name)
		m.peers.set(true)
		pause(c.Context(), time.Duration(500+c.random.IntN(4000))*time.Millisecond)
		m.peers.set(false)
	case 4:
		say("another clock for " + m.options.Members.Name)
		m.skew.Store(int64(time.Duration(c.random.IntN(400)-200) * time.Hour))
	case 5:
		say("start again the agent of " + name)
		old := c.agents[name]
		old.stop()
		c.run(name, &runningAgent{Forwarder: old.Forwarder, options: old.options})
	case 6:
		say("replace the host of " + name)
		old := c.agents[name]
		old.stop()
		c.enlist(name, old.Forwarder)
	case 7:
		if u := c.anyone(c.random); u != nil {
			ctx, cancel := context.WithTimeout(c.Context(), 4*time.Second)
			defer cancel()
			_, err := u.ReplaceAuthority(ctx, connect.NewRequest(&pb.ReplaceAuthorityRequest{}))
			say(fmt.Sprintf("replace the authority (%v)", err))
		}
	}
}

// write applies one more change, by a random controller.
func (c *chaos) write(ctx context.Context, w *writer, random *rand.Rand, f *dptest.Forwarder) {
	u := c.anyone(random)
	if u == nil {
		pause(ctx, 20*time.Millisecond)
		return
	}
	w.tried++
	asking, cancel := context.WithTimeout(ctx, 4*time.Second)
	defer cancel()
	response, err := apply(asking, *u, w.forwarder, w.project, w.text(w.tried))
	if err == nil && response.GetRevision() > 0 && len(response.GetWarnings()) == 0 {
		w.confirmed = w.tried
		w.count++
		if got := f.Server(w.vip, server).GetWeight(); int(got) < w.tried {
			c.Errorf("%s of %s: %d is confirmed, and the forwarder has %d", w.project, w.forwarder, w.tried, got)
		}
	}
}

// drain sends a random order for the server of the forwarder's own service to a random controller. Its outcome is unknown.
func (c *chaos) drain(ctx context.Context, forwarder string, random *rand.Rand) {
	if u := c.anyone(random); u != nil {
		asking, cancel := context.WithTimeout(ctx, 4*time.Second)
		defer cancel()
		_, _ = order(asking, *u, forwarder, server+"@web", random.IntN(2) == 0)
	}
}

// settleDrains sends last orders, waits until they are in force, and checks that they stay.
func (c *chaos) settleDrains(forwarders map[string]*dptest.Forwarder) {
	c.Helper()
	wanted := map[string]bool{"f1": true, "f2": false}
	states := map[bool]forwarderpb.ServerState{true: stateDrain, false: stateUp}
	for name, drains := range wanted {
		c.order("an order to drain after the faults", func(ctx context.Context, u user) error {
			response, err := order(ctx, u, name, server+"@web", drains)
			if err == nil && len(response.GetWarnings()) > 0 {
				err = fmt.Errorf("not in force: %v", response.GetWarnings())
			}
			return err
		})
	}
	for name, f := range forwarders {
		if got := f.Server(vip, server).GetState(); got != states[wanted[name]] {
			c.Errorf("%s: %s, and it was ordered last that it is drained: %v", name, got, wanted[name])
		}
		c.agents[name].stop()
		c.enlist(name, f) // another host has the same
		c.until("the new host of "+name+" is in line", func() bool {
			list, err := c.own(c.agents[name]).ListServices(c.Context(), connect.NewRequest(&agentpb.ListServicesRequest{Name: "web"}))
			return err == nil && len(list.Msg.GetServices()) == 1 && list.Msg.GetServices()[0].GetServers()[0].GetDrainedByCommand() == wanted[name]
		})
		if got := f.Server(vip, server).GetState(); got != states[wanted[name]] {
			c.Errorf("%s on another host: %s", name, got)
		}
	}
}

// Controllers with their etcds are killed and cut off, clocks change, agents restart and hosts are replaced, while changes continue. No confirmed
// change is lost or reverted, no service ever leaves a forwarder, and in the end the last orders are in force.
func TestChaos(t *testing.T) {
	t.Parallel() // faults need real time
	c := newChaos(t)
	forwarders := map[string]*dptest.Forwarder{}
	c.order("a project", func(ctx context.Context, u user) error {
		_, err := u.SetProject(ctx, connect.NewRequest(&pb.SetProjectRequest{Project: &pb.Project{Name: "shop", MaxServices: 10}}))
		return err
	})
	var writers []*writer
	for i, name := range []string{"f1", "f2"} {
		forwarders[name] = dptest.New(t)
		c.enlist(name, forwarders[name])
		writers = append(writers,
			&writer{forwarder: name, project: defaultProject, text: file, vip: vip},
			&writer{forwarder: name, project: "shop", vip: fmt.Sprintf("10.%d.0.1:80", i+2), text: func(weight int) string {
				return strings.ReplaceAll(part(byte(i+2), 1, 1), "port: 8080 }", fmt.Sprintf("port: 8080, weight: %d }", weight))
			}})
	}
	for _, w := range writers {
		w.tried = 1
		c.order("the first change", func(ctx context.Context, u user) error {
			_, err := apply(ctx, u, w.forwarder, w.project, w.text(1))
			return err
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	for i, w := range writers {
		random := rand.New(rand.NewPCG(*chaosSeed, uint64(i)))
		writing.Go(func() {
			for ctx.Err() == nil && w.tried < 65000 { // the largest weight
				c.write(ctx, w, random, forwarders[w.forwarder])
				pause(ctx, *chaosLength/2000)
			}
		})
	}
	for i, name := range []string{"f1", "f2"} {
		random := rand.New(rand.NewPCG(*chaosSeed, uint64(100+i)))
		writing.Go(func() {
			for ctx.Err() == nil {
				c.drain(ctx, name, random)
				pause(ctx, *chaosLength/500)
			}
		})
	}
	for begun := time.Now(); time.Since(begun) < *chaosLength; pause(t.Context(), time.Duration(c.random.IntN(500))*time.Millisecond) {
		c.fault()
	}
	cancel()
	writing.Wait()
	for _, w := range writers { // in a short run, on a slow machine, none may have been confirmed in time
		if *chaosLength >= time.Minute && w.count == 0 {
			t.Errorf("%s of %s: none of %d changes was confirmed while there were faults", w.project, w.forwarder, w.tried-1)
		}
	}
	t.Logf("seed %d: %s", *chaosSeed, strings.Join(c.log, "; "))
	c.settle(writers, forwarders)
	c.settleDrains(forwarders)
	for name, f := range forwarders {
		neverBack(t, name, f)
	}
}

// settle waits until forwarders have what is desired, and compares that with what was ordered.
func (c *chaos) settle(writers []*writer, forwarders map[string]*dptest.Forwarder) {
	c.Helper()
	for _, w := range writers {
		c.order("a change after the faults", func(ctx context.Context, u user) error {
			w.tried++
			response, err := apply(ctx, u, w.forwarder, w.project, w.text(w.tried))
			if err == nil && (response.GetRevision() == 0 || len(response.GetWarnings()) > 0) {
				err = fmt.Errorf("not confirmed: %v", response)
			}
			if err == nil {
				w.confirmed = w.tried
				w.count++
			}
			return err
		})
	}
	random := rand.New(rand.NewPCG(1, 1))
	c.until("all agree", func() bool {
		ctx, cancel := context.WithTimeout(c.Context(), 5*time.Second)
		defer cancel()
		list, err := c.anyone(random).ListForwarders(ctx, connect.NewRequest(&pb.ListForwardersRequest{}))
		if err != nil {
			return false
		}
		for _, f := range list.Msg.GetForwarders() {
			if !f.GetInForwarder() || f.GetAppliedRevision() != f.GetDesiredRevision() || f.GetController() == "" {
				return false
			}
		}
		return len(list.Msg.GetForwarders()) == len(forwarders)
	})
	c.until("no authority is being replaced", func() bool {
		ctx, cancel := context.WithTimeout(c.Context(), 5*time.Second)
		defer cancel()
		list, err := c.anyone(random).ListAuthorities(ctx, connect.NewRequest(&pb.ListAuthoritiesRequest{}))
		return err == nil && len(list.Msg.GetAuthorities()) == 1
	})
	for _, w := range writers {
		got := int(forwarders[w.forwarder].Server(w.vip, server).GetWeight())
		c.Logf("%s of %s: %d tried, %d confirmed, the last is %d; in force is %d", w.project, w.forwarder, w.tried, w.count, w.confirmed, got)
		if got < w.confirmed || got > w.tried {
			c.Errorf("%s of %s: in force is %d; %d was confirmed last (%d in all), %d tried last", w.project, w.forwarder, got, w.confirmed, w.count, w.tried)
		}
	}
}

// neverBack checks the changes that a forwarder received: weights only grow, and nothing is removed.
func neverBack(t *testing.T, name string, f *dptest.Forwarder) {
	t.Helper()
	last := map[string]uint32{}
	for _, commit := range f.Commits() {
		for _, change := range commit {
			if change.GetDeleteService() != nil || change.GetDeleteServer() != nil {
				t.Errorf("%s: %v", name, change)
			}
			put := change.GetPutServer()
			if put == nil {
				continue
			}
			key := fmt.Sprint(put.GetService())
			if weight := put.GetServer().GetWeight(); weight < last[key] {
				t.Errorf("%s went back from %d to %d", name, last[key], weight)
			} else {
				last[key] = weight
			}
		}
	}
}

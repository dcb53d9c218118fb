// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	agentpb "steelyard/internal/gen/agentpb"
	"steelyard/internal/gen/agentpb/agentpbconnect"
	pb "steelyard/internal/gen/controllerpb"
	"steelyard/internal/gen/controllerpb/controllerpbconnect"
	forwarderpb "steelyard/internal/gen/forwarderpb"
	"steelyard/internal/gen/nfvpb"
	joining "steelyard/internal/member"
	"steelyard/internal/pki"

	"connectrpc.com/connect"
)

const (
	secondServer = "10.1.0.22:8080"
	stateUp      = forwarderpb.ServerState_SERVER_STATE_UP
	stateDrain   = forwarderpb.ServerState_SERVER_STATE_DRAIN
	stateKill    = forwarderpb.ServerState_SERVER_STATE_KILL
)

var twoServers = file(10) + "      - { address: 10.1.0.22, port: 8080 }\n"

// gatedLab returns controllers that agents reach through gates.
func gatedLab(t *testing.T, controllers int) (*lab, []*gate) {
	t.Helper()
	l := newLab(t, 0)
	made := make(chan *gate, 1)
	l.tune = func(o *Options) {
		g := newGate(t, "tcp://"+o.Listen.Addr().String())
		o.URL = "https://" + g.listener.Addr().String()
		made <- g
	}
	var gates []*gate
	for range controllers {
		c := l.addController()
		gates = append(gates, <-made)
		c.url = "https://" + gates[len(gates)-1].listener.Addr().String()
	}
	return l, gates
}

// cut disconnects all agents from the controllers.
func (l *lab) cut(gates []*gate, forwarder string) {
	l.Helper()
	for _, g := range gates {
		g.set(true)
	}
	l.until("no controller owns "+forwarder, func() bool { return l.owner(forwarder) == "" })
}

func (l *lab) heal(gates []*gate, forwarder string) {
	l.Helper()
	for _, g := range gates {
		g.set(false)
	}
	l.awaitOwner(forwarder)
}

// own returns a client of an agent's own socket.
func (l *lab) own(f *runningAgent) user {
	return userOn(l.T, "http://agent", &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", f.options.Socket)
	}}, nil)
}

// order sends an order to drain, or to end a drain.
func order(ctx context.Context, u user, forwarder, server string, drains bool) (*agentpb.SetDrainResponse, error) {
	server, service, _ := strings.Cut(server, "@")
	request := connect.NewRequest(&agentpb.SetDrainRequest{Server: server, Service: service, Drain: drains})
	on(forwarder)(request)
	response, err := u.SetDrain(ctx, request)
	if err != nil {
		return nil, err
	}
	return response.Msg, nil
}

// mustOrder sends an order. Returns true if the forwarder has it already.
func (l *lab) mustOrder(u user, forwarder, server string, drains bool) bool {
	l.Helper()
	response, err := order(l.Context(), u, forwarder, server, drains)
	if err != nil {
		l.Fatal(err)
	}
	return len(response.GetWarnings()) == 0
}

func (l *lab) awaitServer(f *runningAgent, vip, server string, state forwarderpb.ServerState) {
	l.Helper()
	l.until(fmt.Sprintf("%s is in state %s", server, state), func() bool { return f.Server(vip, server).GetState() == state })
}

// replace replaces an agent and its forwarder by a host with an empty disk, while the forwarder has no controller. Returns the number of commits
// before.
func (l *lab) replace(f *runningAgent, forwarder string) int {
	l.Helper()
	f.stop()
	f.Stop()
	f.Forget()
	commits := len(f.Commits())
	f.Start()
	f.options.State = l.TempDir()
	f.options.Token = l.token(l.controllers[0], &pb.CreateTokenRequest{Name: forwarder, Role: pb.Role_ROLE_FORWARDER})
	l.start(f)
	return commits
}

// wasUp reports whether a forwarder had a server up in a commit after the first `commits`.
func wasUp(f *runningAgent, commits int, host byte) bool {
	for _, commit := range f.Commits()[commits:] {
		for _, change := range commit {
			if put := change.GetPutServer(); put != nil && put.GetServer().GetAddress()[3] == host && put.GetServer().GetState() == stateUp {
				return true
			}
		}
	}
	return false
}

func (l *lab) stored(begin string) []string {
	l.Helper()
	names, err := l.store.Names(l.Context(), begin)
	if err != nil {
		l.Fatal(err)
	}
	return names
}

func (l *lab) audited(what, detail string) bool {
	l.Helper()
	audit, err := l.controllers[0].admin.ListAudit(l.Context(), connect.NewRequest(&pb.ListAuditRequest{Limit: 1000}))
	if err != nil {
		l.Fatal(err)
	}
	return slices.ContainsFunc(audit.Msg.GetRecords(), func(r *pb.AuditRecord) bool { return r.GetWhat() == what && strings.Contains(r.GetDetail(), detail) })
}

// After the replacement of a host, orders from a controller and from its own socket are in force before a server gets new sessions.
func TestReplacedHostKeepsItsDrains(t *testing.T) {
	l := newLab(t, 2)
	f := l.addForwarder("f1")
	admin := l.controllers[0].admin
	if _, err := apply(t.Context(), admin, "f1", "", twoServers+"      - { address: 10.1.0.23, port: 8080 }\n"); err != nil {
		t.Fatal(err)
	}
	if !l.mustOrder(admin, "f1", server, true) || f.Server(vip, server).GetState() != stateDrain {
		t.Errorf("by a controller: %v", f.Server(vip, server))
	}
	l.mustOrder(l.own(f), "", secondServer, true)
	l.until("the store has the own one", func() bool { return len(l.stored(keyDrains+"f1/")) == 2 })
	if !l.audited("drain", "tcp/10.0.0.80:80/10.1.0.22:8080, at its own socket") {
		t.Error("the own one is not recorded")
	}
	commits := l.replace(f, "f1")
	l.awaitServer(f, vip, server, stateDrain)
	l.awaitServer(f, vip, secondServer, stateDrain)
	if wasUp(f, commits, 21) || wasUp(f, commits, 22) || !wasUp(f, commits, 23) {
		t.Errorf("%v", f.Commits()[commits:])
	}
	l.mustOrder(l.controllers[1].admin, "f1", "10.1.0.22", false)
	l.awaitServer(f, vip, secondServer, stateUp)
	l.replace(f, "f1")
	l.awaitServer(f, vip, server, stateDrain)
	if got := f.Server(vip, secondServer).GetState(); got != stateUp {
		t.Errorf("its drain has ended: %s", got)
	}
}

// A request's service moves to another forwarder: the orders for its servers arrive before the service.
func TestDrainsMoveWithTheirRequest(t *testing.T) {
	l := workflowLab(t, 1, "f1", "f2")
	admin := l.controllers[0].admin
	l.request(balancing("web", 80))
	from := l.awaitState("web", nfvpb.State_STATE_ROUTING, nil).GetForwarder()
	l.confirm("web", 1)
	l.awaitState("web", nfvpb.State_STATE_ROUTED, nil)
	to := map[string]string{"f1": "f2", "f2": "f1"}[from]
	const web = "10.9.0.80:80"
	l.mustOrder(admin, from, "10.1.0.21@nfv.web", true)
	l.mustOrder(l.own(l.agents[from]), "", "10.1.0.22:8080@nfv.web", true)
	l.until("the store has both", func() bool { return len(l.stored(keyMoving+"10.9.0.80/")) == 2 })
	commits := len(l.agents[to].Commits())
	l.agents[from].stop()
	l.awaitState("web", nfvpb.State_STATE_ROUTING, func(s *nfvpb.Status) bool { return s.GetRoute().GetGeneration() == 2 && s.GetForwarder() == to })
	for _, server := range []string{server, secondServer} {
		if got := l.agents[to].Server(web, server).GetState(); got != stateDrain {
			t.Errorf("%s: %s", server, got)
		}
	}
	if wasUp(l.agents[to], commits, 21) || wasUp(l.agents[to], commits, 22) {
		t.Errorf("%v", l.agents[to].Commits()[commits:])
	}
	// A drain that ends there also ends for the host that was disconnected.
	l.mustOrder(admin, to, "10.1.0.21@nfv.web", false)
	l.awaitServer(l.agents[to], web, server, stateUp)
	old := l.agents[from]
	old.options.Token = ""
	l.start(old)
	l.awaitServer(old, web, server, stateUp)
	if got := old.Server(web, secondServer).GetState(); got != stateDrain {
		t.Errorf("the other one: %s", got)
	}
	l.confirm("web", 2)
	l.awaitState("web", nfvpb.State_STATE_ROUTED, nil)
	l.remove("web")
	l.confirm("web", l.awaitState("web", nfvpb.State_STATE_WITHDRAWING, nil).GetRoute().GetGeneration())
	l.awaitState("web", nfvpb.State_STATE_REMOVED, nil)
	l.until("its orders end with it", func() bool { return len(l.stored(keyMoving)) == 0 })
}

// Orders given while agent and controllers are disconnected: the store's orders win; the agent's own ones apply where the store has none.
func TestStoredOrdersWinOverThoseOfADisconnectedAgent(t *testing.T) {
	for _, test := range []struct {
		name                    string
		before, own, controller []bool
		want                    forwarderpb.ServerState
	}{
		{"an own drain", nil, []bool{true}, nil, stateDrain},
		{"an own end", []bool{true}, []bool{false}, nil, stateUp},
		{"a controller's drain", nil, nil, []bool{true}, stateDrain},
		{"a controller's end", []bool{true}, nil, []bool{false}, stateUp},
		{"a controller's end of an own drain", nil, []bool{true}, []bool{false}, stateUp},
		{"a controller's drain after an own end", []bool{true}, []bool{false}, []bool{true}, stateDrain},
		{"a controller's end, and an own one that ends nothing", []bool{true}, []bool{true, false}, []bool{true, false}, stateUp},
		{"own ones only", []bool{true, false}, []bool{true, false, true}, nil, stateDrain},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l, gates := gatedLab(t, 1)
			f := l.addForwarder("f1")
			admin := l.controllers[0].admin
			if _, err := apply(t.Context(), admin, "f1", "", file(10)); err != nil {
				t.Fatal(err)
			}
			state := stateUp
			for _, drains := range test.before {
				l.mustOrder(admin, "f1", server, drains)
				state = map[bool]forwarderpb.ServerState{true: stateDrain, false: stateUp}[drains]
			}
			l.cut(gates, "f1")
			for _, drains := range test.own {
				l.mustOrder(l.own(f), "", server, drains)
				state = map[bool]forwarderpb.ServerState{true: stateDrain, false: stateUp}[drains]
			}
			for _, drains := range test.controller {
				if l.mustOrder(admin, "f1", server, drains) {
					t.Error("no agent is connected, and no warning says so")
				}
			}
			if got := f.Server(vip, server).GetState(); got != state {
				t.Errorf("while it is away: %s, want %s", got, state)
			}
			commits := len(f.Commits())
			l.heal(gates, "f1")
			l.awaitServer(f, vip, server, test.want)
			l.until("own orders are judged", func() bool { return len(test.own) == 0 || len(l.stored(keyJudged)) == 1 })
			l.until("the agent has received all", func() bool { return l.mustOrder(admin, "f1", server, test.want == stateDrain) })
			if got, maximum := len(f.Commits())-commits, map[bool]int{true: 0, false: 1}[state == test.want]; got != maximum {
				t.Errorf("%d changes on the way: %v", got, f.Commits()[commits:])
			}
			if void := l.audited("drain", "void") || l.audited("end drain", "void"); void != (len(test.own) > 0 && len(test.controller) > 0) {
				t.Errorf("void own orders are recorded: %v", void)
			}
		})
	}
}

// Unneeded records are removed: ends that the agent has received, orders for removed servers, and all orders of a removed forwarder.
func TestUnneededDrainRecordsAreRemoved(t *testing.T) {
	l := newLab(t, 1)
	f := l.addForwarder("f1")
	admin := l.controllers[0].admin
	if _, err := apply(t.Context(), admin, "f1", "", twoServers); err != nil {
		t.Fatal(err)
	}
	none := func() bool { return len(l.stored(keyDrains)) == 0 }
	l.mustOrder(admin, "f1", server, true)
	l.mustOrder(admin, "f1", server, false)
	l.until("the end is forgotten", none)
	l.mustOrder(admin, "f1", server, false) // nothing to end
	l.until("the end is forgotten", none)
	l.mustOrder(l.own(f), "", server, false)
	l.until("the own end is forgotten", func() bool { return len(l.stored(keyJudged)) == 1 && none() })
	l.mustOrder(admin, "f1", "10.1.0.22", true)
	if _, err := apply(t.Context(), admin, "f1", "", file(10)); err != nil {
		t.Fatal(err)
	}
	l.until("its server has left", none)
	if _, err := apply(t.Context(), admin, "f1", "", twoServers); err != nil {
		t.Fatal(err)
	}
	if got := f.Server(vip, secondServer).GetState(); got != stateUp {
		t.Errorf("it has come back: %s", got)
	}
	l.mustOrder(admin, "f1", server, true)
	f.Refuse(&forwarderpb.Error{Code: forwarderpb.Code_CODE_INVALID, Text: "10.0.0.81 is an address of this host"})
	if _, err := apply(t.Context(), admin, "f1", "", strings.ReplaceAll(file(10), "10.1.0.21", "10.1.0.29")); err == nil {
		t.Error("not refused")
	}
	f.Refuse(nil)
	if len(l.stored(keyDrains)) != 1 {
		t.Error("a change that was refused has ended a drain")
	}
	if _, err := admin.RemoveMember(t.Context(), connect.NewRequest(&pb.RemoveMemberRequest{Name: "f1"})); err != nil {
		t.Fatal(err)
	}
	if left := append(l.stored(keyDrains), l.stored(keyJudged)...); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// A server of more services than fit into one transaction.
func TestDrainOfAServerWithManyServicesCompletes(t *testing.T) {
	l := newLab(t, 1)
	f := l.addForwarder("f1")
	admin := l.controllers[0].admin
	if _, err := admin.SetProject(t.Context(), connect.NewRequest(&pb.SetProjectRequest{Project: &pb.Project{Name: "shop"}})); err != nil {
		t.Fatal(err)
	}
	const services = 2*maxDrains + 3
	if _, err := apply(t.Context(), admin, "f1", "", base); err != nil {
		t.Fatal(err)
	}
	if _, err := apply(t.Context(), admin, "f1", "shop", part(2, services, 1)); err != nil {
		t.Fatal(err)
	}
	all := func(state forwarderpb.ServerState) bool {
		for i := range services {
			if f.Server(fmt.Sprintf("10.2.0.%d:80", i+1), server).GetState() != state {
				return false
			}
		}
		return true
	}
	response, err := order(t.Context(), admin, "f1", "10.1.0.21", true)
	if err != nil || len(response.GetServers()) != services || len(response.GetUnchanged()) != 0 || len(response.GetWarnings()) != 0 || !all(stateDrain) {
		t.Errorf("%v, %v", response, err)
	}
	if again, err := order(t.Context(), admin, "f1", "10.1.0.21", true); err != nil || len(again.GetUnchanged()) != services {
		t.Errorf("again: %v, %v", again, err)
	}
	l.mustOrder(l.own(f), "", "10.1.0.21", false)
	l.until("all have ended", func() bool { return len(l.stored(keyDrains)) == 0 && all(stateUp) })
}

// A controller accepts and refuses the same orders as an agent.
func TestControllerChecksOrdersAsAgentsDo(t *testing.T) {
	l := newLab(t, 1)
	f := l.addForwarder("f1")
	admin := l.controllers[0].admin
	set := func(request *agentpb.SetDrainRequest) error {
		wrapped := connect.NewRequest(request)
		on("f1")(wrapped)
		_, err := admin.SetDrain(t.Context(), wrapped)
		return err
	}
	if err := set(&agentpb.SetDrainRequest{Server: "10.1.0.21", Drain: true}); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "apply one first") {
		t.Errorf("without a configuration: %v", err)
	}
	if _, err := apply(t.Context(), admin, "f1", "", twoServers+"      - { address: 10.1.0.23, port: 8080, drain: true }\n"); err != nil {
		t.Fatal(err)
	}
	for want, bad := range map[string]*agentpb.SetDrainRequest{
		"a kill has no deadline": {Server: "10.1.0.21", Drain: true, Kill: true, DeadlineMs: 1000},
		"is not a server":        {Server: "web", Drain: true},
		"no service has":         {Server: "10.1.0.99", Drain: true},
		"is drained by":          {Server: "10.1.0.23"},
	} {
		if err := set(bad); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if err := set(&agentpb.SetDrainRequest{Server: "10.1.0.21", Drain: true, DeadlineMs: 1}); err != nil {
		t.Fatal(err)
	}
	l.awaitServer(f, vip, server, stateKill)
	if err := set(&agentpb.SetDrainRequest{Server: "10.1.0.22", Drain: true, Kill: true}); err != nil {
		t.Fatal(err)
	}
	l.awaitServer(f, vip, secondServer, stateKill)
	if !l.audited("kill", "10.1.0.22") {
		t.Error("not recorded")
	}
}

// olderAgent does not implement orders from the store.
type olderAgent struct {
	agentpbconnect.UnimplementedAgentServiceHandler
	controllerpbconnect.UnimplementedMemberServiceHandler
	mu     sync.Mutex
	orders []*agentpb.SetDrainRequest
}

func (o *olderAgent) SetDesired(_ context.Context, request *connect.Request[pb.SetDesiredRequest]) (*connect.Response[pb.SetDesiredResponse], error) {
	return connect.NewResponse(&pb.SetDesiredResponse{Outcome: pb.SetDesiredResponse_OUTCOME_APPLIED, Revision: request.Msg.GetRevision(), ForwarderRevision: 1}), nil
}

func (o *olderAgent) SetDrain(_ context.Context, request *connect.Request[agentpb.SetDrainRequest]) (*connect.Response[agentpb.SetDrainResponse], error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.orders = append(o.orders, request.Msg)
	return connect.NewResponse(&agentpb.SetDrainResponse{Servers: []string{"10.1.0.21:8080@web"}}), nil
}

// enlist joins another implementation of an agent as a forwarder.
func (l *lab) enlist(name string, agent agentpbconnect.AgentServiceHandler, member controllerpbconnect.MemberServiceHandler) {
	l.Helper()
	c := l.controllers[0]
	identity, _, err := joining.Join(l.Context(), "", []string{c.url}, l.token(c, &pb.CreateTokenRequest{Name: name, Role: pb.Role_ROLE_FORWARDER}), pki.Forwarder)
	if err != nil {
		l.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(agentpbconnect.NewAgentServiceHandler(agent))
	mux.Handle(controllerpbconnect.NewMemberServiceHandler(member))
	one := &joining.Member{Identity: identity, Handler: mux, Log: l.log(name), Controllers: []string{c.url}}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { one.Run(ctx) })
	l.Cleanup(func() {
		cancel()
		running.Wait()
	})
	l.awaitOwner(name)
}

func TestAnOlderAgentIsToldAsBefore(t *testing.T) {
	l := newLab(t, 2)
	o := &olderAgent{}
	l.enlist("f1", o, o)
	for _, c := range l.controllers { // each has seen then that the agent is older
		if _, err := apply(t.Context(), c.admin, "f1", "", file(10)); err != nil {
			t.Fatal(err)
		}
		if !l.mustOrder(c.admin, "f1", server, true) {
			t.Error("not as before")
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.orders) != 2 || len(l.stored(keyDrains)) != 0 || !l.audited("drain", server) {
		t.Errorf("%v, %v", o.orders, l.stored(keyDrains))
	}
}

// rogueAgent reports orders for arbitrary servers.
type rogueAgent struct {
	olderAgent
	own []*pb.DrainOrder
}

func (r *rogueAgent) SetDrains(_ context.Context, request *connect.Request[pb.SetDrainsRequest]) (*connect.Response[pb.SetDrainsResponse], error) {
	return connect.NewResponse(&pb.SetDrainsResponse{Agent: "rogue", Last: uint64(len(r.own)), Own: r.own[min(int(request.Msg.GetJudged()), len(r.own)):]}), nil
}

func (r *rogueAgent) AwaitDrains(ctx context.Context, _ *connect.Request[pb.AwaitDrainsRequest]) (*connect.Response[pb.AwaitDrainsResponse], error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// An agent cannot change orders for services of requests at other forwarders, and unknown orders do no harm.
func TestAgentCannotDrainServersOfOtherForwarders(t *testing.T) {
	l := workflowLab(t, 1, "f1")
	l.request(balancing("web", 80))
	l.awaitState("web", nfvpb.State_STATE_ROUTING, nil)
	r := &rogueAgent{own: []*pb.DrainOrder{
		{Server: "tcp/10.9.0.80:80/10.1.0.21:8080", Drain: true, Revision: 1 << 60, Number: 1},
		{Server: "sctp/10.9.0.80:80/../../ca", Drain: true, Revision: 1 << 60, Number: 2},
		{Server: "tcp/10.0.0.80:80/10.1.0.21:8080", Drain: true, Number: 3},
	}}
	l.enlist("f2", r, r)
	l.until("all are judged", func() bool {
		until, _, err := read[judgement](t.Context(), l.store, keyJudged+"f2")
		return err == nil && until == judgement{"rogue", 3}
	})
	if len(l.stored(keyMoving)) != 0 || !l.audited("drain", "does not have this service") || !l.audited("drain", "not understood") {
		t.Errorf("%v", l.stored(keyMoving))
	}
	if own := l.stored(keyDrains); !slices.Equal(own, []string{keyDrains + "f2/tcp/10.0.0.80:80/10.1.0.21:8080"}) {
		t.Errorf("%v", own)
	}
}

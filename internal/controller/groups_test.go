// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"steelyard/internal/agent"
	pb "steelyard/internal/gen/controllerpb"
	forwarderpb "steelyard/internal/gen/forwarderpb"
	nfvpb "steelyard/internal/gen/nfvpb"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/prototext"
)

const ecmpFile = `version: 1
group: edge
mode: ecmp
nodes:
  - { forwarder: f1, node: 1, sync: 10.9.0.1, next_hops: [10.9.0.1], local_addresses: [10.1.1.10] }
  - { forwarder: f2, node: 2, sync: "10.9.0.2:9000", next_hops: [10.9.0.2], local_addresses: [10.1.2.10] }
`

const pairFile = `version: 1
group: edge
mode: pair
next_hops: [10.0.0.5]
local_addresses: [10.1.0.200]
nodes:
  - { forwarder: f1, node: 1, sync: 10.9.0.1 }
  - { forwarder: f2, node: 2, sync: 10.9.0.2 }
`

const thirdNode = "  - { forwarder: f3, node: 3, sync: 10.9.0.3, local_addresses: [10.1.3.10] }\n"

// shared is a file of services for all nodes: the group has their local addresses.
func shared() string { return strings.Replace(file(20), "local_addresses: [10.1.0.10]\n", "", 1) }

func setGroup(l *lab, u user, yaml string) (*pb.SetGroupResponse, error) {
	response, err := u.SetGroup(l.Context(), connect.NewRequest(&pb.SetGroupRequest{File: "edge.yaml", Yaml: []byte(yaml)}))
	if err != nil {
		return nil, err
	}
	return response.Msg, nil
}

func (l *lab) mustSetGroup(yaml string) *pb.SetGroupResponse {
	l.Helper()
	response, err := setGroup(l, l.controllers[0].admin, yaml)
	if err != nil {
		l.Fatal(err)
	}
	return response
}

// group returns the only group.
func (l *lab) group() *pb.Group {
	l.Helper()
	response, err := l.controllers[0].admin.ListGroups(l.Context(), connect.NewRequest(&pb.ListGroupsRequest{}))
	if err != nil {
		l.Fatal(err)
	}
	if len(response.Msg.GetGroups()) != 1 {
		l.Fatalf("%v", response.Msg)
	}
	return response.Msg.GetGroups()[0]
}

func (l *lab) states() string {
	var words []string
	for _, node := range l.group().GetNodes() {
		words = append(words, node.GetState())
	}
	return strings.Join(words, " ")
}

func (l *lab) awaitStates(want string) {
	l.Helper()
	l.until("the nodes are "+want, func() bool { return l.states() == want })
}

// pairOfForwarders starts f1 and f2.
func pairOfForwarders(t *testing.T, controllers int) (*lab, *runningAgent, *runningAgent) {
	l := newLab(t, controllers)
	return l, l.addForwarder("f1"), l.addForwarder("f2")
}

func TestGroupReachesItsNodes(t *testing.T) {
	l, f1, f2 := pairOfForwarders(t, 2)
	c := l.controllers[0]
	if response := l.mustSetGroup(ecmpFile); !response.GetChanged() || response.GetName() != "edge" {
		t.Errorf("%v", response)
	}
	l.awaitStates("serves serves")
	one, two := f1.Group(), f2.Group()
	if one.GetNode() != 1 || two.GetNode() != 2 || !one.GetEcmp() || one.GetSlotKey() == "" || one.GetSlotKey() != two.GetSlotKey() ||
		string(one.GetSecrets()[0].GetSecret()) != string(two.GetSecrets()[0].GetSecret()) || one.GetPeers()[0].GetPort() != 9000 || two.GetPort() != 9000 {
		t.Errorf("%v, %v", one, two)
	}
	if response := l.mustSetGroup(ecmpFile); response.GetChanged() {
		t.Error("the same group has changed")
	}

	// One file for all nodes, with the local addresses of each.
	if _, err := apply(t.Context(), c.admin, "group/edge", "", shared()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"f1": `local_addresses: ["10.1.1.10"]` + "\n" + `peer_local_addresses: ["10.1.2.10"]` + "\n" + `next_hops: ["10.9.0.1"]`,
		"f2": `local_addresses: ["10.1.2.10"]` + "\n" + `peer_local_addresses: ["10.1.1.10"]` + "\n" + `next_hops: ["10.9.0.2"]`,
	} {
		data, err := os.ReadFile(filepath.Join(l.agents[name].options.State, agent.DesiredFile))
		if err != nil || !strings.Contains(string(data), want) {
			t.Errorf("%s: %v:\n%s", name, err, data)
		}
	}

	// Addresses that move change the files of all nodes in one step.
	l.mustSetGroup(strings.Replace(ecmpFile, "10.1.2.10", "10.1.3.10", 1))
	l.until("f1 has the new address", func() bool {
		data, _ := os.ReadFile(filepath.Join(f1.options.State, agent.DesiredFile))
		return strings.Contains(string(data), `peer_local_addresses: ["10.1.3.10"]`)
	})
	if f1.Group().GetVersion() != one.GetVersion() {
		t.Error("a local address alone has made the forwarder apply its group anew")
	}

	// An agent without controllers keeps its group.
	f2.stop()
	l.awaitStates("serves alone")
	if got := l.group().GetProblem(); got != "f2 is alone: no controller has its agent" {
		t.Error(got)
	}
	l.start(f2)
	l.awaitStates("serves serves")

	// A group that ends leaves each forwarder its own addresses.
	if _, err := c.admin.RemoveGroup(t.Context(), connect.NewRequest(&pb.RemoveGroupRequest{Name: "edge"})); err != nil {
		t.Fatal(err)
	}
	l.until("both have left", func() bool { return f1.Group() == nil && f2.Group() == nil })
	l.until("f2 has its own file", func() bool {
		data, _ := os.ReadFile(filepath.Join(f2.options.State, agent.DesiredFile))
		return strings.Contains(string(data), `local_addresses: ["10.1.3.10"]`) && !strings.Contains(string(data), "peer_local")
	})
	if _, err := apply(t.Context(), c.admin, "f2", "", file(30)); err != nil {
		t.Error(err)
	}
}

func TestSecretsOfGroupsAreNotShown(t *testing.T) {
	l, f1, _ := pairOfForwarders(t, 1)
	c := l.controllers[0]
	l.mustSetGroup(pairFile)
	l.until("f1 is a node", func() bool { return f1.Group() != nil })
	shown := prototext.Format(l.group())
	records, err := c.admin.ListAudit(t.Context(), connect.NewRequest(&pb.ListAuditRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	shown += prototext.Format(records.Msg)
	for _, secret := range []string{f1.Group().GetSlotKey(), string(f1.Group().GetSecrets()[0].GetSecret())} {
		if secret == "" || strings.Contains(shown, secret) {
			t.Errorf("%q in %s", secret, shown)
		}
	}
	info, err := os.Stat(filepath.Join(f1.options.State, agent.NodeFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestRefusedGroups(t *testing.T) {
	l, _, _ := pairOfForwarders(t, 1)
	c := l.controllers[0]
	viewer := l.join(c, &pb.CreateTokenRequest{Name: "eve", Role: pb.Role_ROLE_VIEWER}, nil)
	if _, err := setGroup(l, viewer, pairFile); err == nil || !strings.Contains(err.Error(), "only an admin") {
		t.Error(err)
	}
	refused := func(yaml, want string) {
		t.Helper()
		if _, err := setGroup(l, c.admin, yaml); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	refused(strings.Replace(pairFile, "f2", "f3", 1), `edge.yaml:8:18: nodes[1].forwarder: there is no forwarder "f3"`)
	if _, err := apply(t.Context(), c.admin, "f1", "", file(20)); err != nil {
		t.Fatal(err)
	}
	refused(pairFile, "local_addresses: the group edge has this key for its nodes: remove it here")
	if _, err := apply(t.Context(), c.admin, "f1", "", shared()); err == nil {
		t.Fatal("without local addresses")
	}
	if _, err := apply(t.Context(), c.admin, "f1", "", "version: 1\nservices: []\n"); err != nil {
		t.Fatal(err)
	}
	l.mustSetGroup(pairFile)
	refused(strings.Replace(pairFile, "edge", "other", 1), "edge.yaml:7:18: nodes[0].forwarder: f1 is a node of the group edge: a forwarder is in one group")
	for _, to := range []string{"f1", "f1,f3"} {
		if _, err := apply(t.Context(), c.admin, to, "", shared()); err == nil || !strings.Contains(err.Error(), "use --group edge instead of --forwarder") {
			t.Error(err)
		}
	}
	if _, err := apply(t.Context(), c.admin, "group/none", "", shared()); err == nil || !strings.Contains(err.Error(), `there is no group "none"`) {
		t.Error(err)
	}
	if _, err := apply(t.Context(), c.admin, "f1,f2", "", file(20)); err == nil || !strings.Contains(err.Error(), "test.yaml:2:18: local_addresses: the group edge has this key") {
		t.Error(err)
	}
	if _, err := c.admin.RemoveMember(t.Context(), connect.NewRequest(&pb.RemoveMemberRequest{Name: "f1"})); err == nil || !strings.Contains(err.Error(), "node of the group edge") {
		t.Error(err)
	}
}

// A forwarder that cannot be a node is shown with the reason, and does not stop the others.
func TestNodeThatRefuses(t *testing.T) {
	l := newLab(t, 1)
	l.addForwarder("f1")
	f2 := l.addForwarder("f2")
	f2.RefuseGroup = "10.9.0.2: it must be an address of this host"
	l.mustSetGroup(ecmpFile)
	l.awaitStates("serves behind")
	l.until("the reason is known", func() bool { return strings.Contains(l.group().GetProblem(), "it must be an address of this host") })
}

// A file that one node refuses is rolled back there, with the group's addresses.
func TestFileThatANodeRefuses(t *testing.T) {
	l, f1, f2 := pairOfForwarders(t, 1)
	c := l.controllers[0]
	l.mustSetGroup(pairFile)
	if _, err := apply(t.Context(), c.admin, "group/edge", "", shared()); err != nil {
		t.Fatal(err)
	}
	f2.Refuse(&forwarderpb.Error{Code: forwarderpb.Code_CODE_INVALID, Text: "no"})
	_, err := apply(t.Context(), c.admin, "group/edge", "", strings.Replace(shared(), "weight: 20", "weight: 30", 1))
	if err == nil || !strings.Contains(err.Error(), "f2 refuses this: ") || !strings.Contains(err.Error(), "(1 of 2 forwarders have it)") {
		t.Error(err)
	}
	f2.Refuse(nil)
	l.until("f2 has its former file", func() bool {
		data, _ := os.ReadFile(filepath.Join(f2.options.State, agent.DesiredFile))
		return strings.Contains(string(data), "weight: 20") && strings.Contains(string(data), "10.1.0.200")
	})
	if _, err := apply(t.Context(), c.admin, "group/edge", "", shared()); err != nil || f1.Server(vip, server).GetWeight() != 20 {
		t.Error(err)
	}
}

func TestSecretRotates(t *testing.T) {
	l := newLab(t, 0)
	l.tune = func(o *Options) { o.SecretLife, o.WorkflowTick = time.Millisecond, 10*time.Millisecond }
	l.addController()
	f1, f2 := l.addForwarder("f1"), l.addForwarder("f2")
	admin := l.controllers[0].admin
	l.mustSetGroup(ecmpFile)
	l.awaitStates("serves serves")
	first := string(f1.Group().GetSecrets()[0].GetSecret())
	f2.stop() // it would be cut off
	l.awaitStates("serves alone")
	response, err := admin.RotateGroup(t.Context(), connect.NewRequest(&pb.RotateGroupRequest{Name: "edge"}))
	if err != nil || response.Msg.GetSecret() != 2 {
		t.Fatal(response, err)
	}
	l.until("f1 accepts both", func() bool { return len(f1.Group().GetSecrets()) == 2 })
	if _, err := admin.RotateGroup(t.Context(), connect.NewRequest(&pb.RotateGroupRequest{Name: "edge"})); err == nil || !strings.Contains(err.Error(), "being replaced already") {
		t.Error(err)
	}
	l.until("it waits for f2", func() bool { return l.group().GetRotation() == "step 1 of 3: waits for f2" })
	l.start(f2)
	for _, f := range []*runningAgent{f1, f2} {
		l.until("the new secret alone is left", func() bool { return len(f.Group().GetSecrets()) == 1 && f.Group().GetSecrets()[0].GetId() == 2 })
		if string(f.Group().GetSecrets()[0].GetSecret()) == first {
			t.Error("the secret is the former one")
		}
	}
	l.until("the replacement has ended", func() bool { return l.group().GetRotation() == "" && slices.Equal(l.group().GetSecrets(), []uint32{2}) })
}

// happened returns what happened by itself, the oldest first.
func (l *lab) happened() []string {
	l.Helper()
	response, err := l.controllers[0].admin.ListAudit(l.Context(), connect.NewRequest(&pb.ListAuditRequest{Events: true}))
	if err != nil {
		l.Fatal(err)
	}
	var list []string
	for _, record := range response.Msg.GetRecords() {
		list = append(list, fmt.Sprintf("%s %s %s: %s", record.GetWho(), record.GetWhat(), record.GetForwarder(), record.GetDetail()))
	}
	slices.Reverse(list)
	return list
}

func (l *lab) awaitEvents(want ...string) {
	l.Helper()
	l.until("events: "+strings.Join(want, "; "), func() bool { return slices.Equal(l.happened(), want) })
}

func TestTakeoverOfAPairIsRecorded(t *testing.T) {
	l, f1, f2 := pairOfForwarders(t, 1)
	l.mustSetGroup(pairFile)
	l.awaitStates("backup backup")
	if got := l.group().GetProblem(); !strings.Contains(got, "no node serves") {
		t.Error(got)
	}
	f1.SetPeers(func(list *forwarderpb.PeerList) { list.Role = forwarderpb.Role_ROLE_MASTER })
	l.awaitStates("master backup")
	first := "agent/f1 takeover f2: group edge: node 1 (f1) serves instead of node 2 (f2), which is backup"
	l.awaitEvents(first)
	f2.SetPeers(func(list *forwarderpb.PeerList) {
		list.Role, list.Peers[0].State = forwarderpb.Role_ROLE_MASTER, forwarderpb.PeerState_PEER_STATE_SILENT
	})
	l.awaitEvents(first, "agent/f2 takeover f1: group edge: node 2 (f2) serves instead of node 1 (f1), which is silent")
	l.awaitStates("silent master")
}

func TestTakeoverInAnEcmpGroupIsRecordedOnce(t *testing.T) {
	l := newLab(t, 2)
	for _, name := range []string{"f1", "f2", "f3"} {
		l.addForwarder(name)
	}
	l.mustSetGroup(ecmpFile + thirdNode)
	l.awaitStates("serves serves serves")
	watching, err := l.controllers[1].admin.Watch(t.Context(), connect.NewRequest(&pb.WatchRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Close()
	peer := func(name string, kept uint64, state forwarderpb.PeerState) {
		l.agents[name].SetPeers(func(list *forwarderpb.PeerList) {
			for _, peer := range list.Peers {
				if peer.Node == 1 {
					peer.State, peer.Kept = state, kept
				}
			}
		})
	}
	l.agents["f2"].SetPeers(func(list *forwarderpb.PeerList) { // the report of another change shows that the agent has read these, too
		list.Peers[0].Kept, list.Peers[1].State = 42, forwarderpb.PeerState_PEER_STATE_OTHER_VERSION
	})
	l.until("f2 has read its peers", func() bool { return l.group().GetNodes()[1].GetPeers()[1].GetState() == "other-version" })
	peer("f2", 7, forwarderpb.PeerState_PEER_STATE_SILENT)
	taken := "agent/f2 takeover f1: group edge: node 1 (f1) is silent; node 2 (f2) serves the sessions that it kept of it, 42, and the others likewise"
	l.awaitEvents(taken)
	peer("f3", 42, forwarderpb.PeerState_PEER_STATE_SILENT)
	l.awaitStates("silent serves serves")
	l.until("f3 has reported it", func() bool { return l.group().GetNodes()[2].GetPeers()[0].GetState() == "silent" })
	l.awaitEvents(taken)
	peer("f2", 42, forwarderpb.PeerState_PEER_STATE_ALIVE)
	back := "agent/f2 return f1: group edge: node 1 (f1) is back"
	l.awaitEvents(taken, back)
	var seen []string
	for len(seen) < 2 && watching.Receive() {
		if what := watching.Msg().GetWhat(); what == "takeover" || what == "return" {
			seen = append(seen, what+" "+watching.Msg().GetForwarder())
		}
	}
	if !slices.Equal(seen, []string{"takeover f1", "return f1"}) {
		t.Errorf("%v, %v", seen, watching.Err())
	}
}

// peerOf changes what a forwarder says of its peer with a number.
func (l *lab) peerOf(name string, node uint32, state forwarderpb.PeerState) {
	l.agents[name].SetPeers(func(list *forwarderpb.PeerList) {
		for _, peer := range list.Peers {
			if peer.Node == node {
				peer.State = state
			}
		}
	})
}

func hops(want string) func(*nfvpb.Status) bool {
	return func(s *nfvpb.Status) bool { return strings.Join(s.GetRoute().GetNextHops(), " ") == want }
}

// A request is placed at a group as at one forwarder. Its route leads to all nodes that serve.
func TestRequestOfAGroup(t *testing.T) {
	l := newLab(t, 0)
	l.tune = quick
	l.addController()
	l.addController()
	f1, f2 := l.addForwarder("f1"), l.addForwarder("f2")
	l.mustSetGroup(ecmpFile)
	l.awaitStates("serves serves")
	l.request(balancing("web", 80))
	s := l.awaitState("web", nfvpb.State_STATE_ROUTING, hops("10.9.0.1 10.9.0.2"))
	if s.GetForwarder() != "group/edge" || !serves(f1, 80) || !serves(f2, 80) {
		t.Errorf("%v", s)
	}
	l.confirm("web", s.GetRoute().GetGeneration())
	l.awaitState("web", nfvpb.State_STATE_ROUTED, nil)

	// A node dies: the route leads to the other one, and again to both when it is back.
	l.peerOf("f2", 1, forwarderpb.PeerState_PEER_STATE_SILENT)
	s = l.awaitState("web", nfvpb.State_STATE_ROUTING, hops("10.9.0.2"))
	if s.GetForwarder() != "group/edge" || s.GetLeaving() != "" {
		t.Errorf("%v", s)
	}
	l.confirm("web", s.GetRoute().GetGeneration())
	l.awaitState("web", nfvpb.State_STATE_ROUTED, nil)
	l.peerOf("f2", 1, forwarderpb.PeerState_PEER_STATE_ALIVE)
	s = l.awaitState("web", nfvpb.State_STATE_ROUTING, hops("10.9.0.1 10.9.0.2"))
	l.confirm("web", s.GetRoute().GetGeneration())
	l.awaitState("web", nfvpb.State_STATE_ROUTED, nil)

	// A second request, while an agent is away: only the node that has it gets its packets.
	f1.stop()
	l.awaitStates("alone serves")
	l.request(balancing("shop", 81))
	s = l.awaitState("shop", nfvpb.State_STATE_ROUTING, hops("10.9.0.2"))
	l.confirm("shop", s.GetRoute().GetGeneration())
	l.start(f1)
	s = l.awaitState("shop", nfvpb.State_STATE_ROUTING, hops("10.9.0.1 10.9.0.2"))
	if !serves(f1, 81) {
		t.Error("the route leads to a node that does not have the service")
	}
	l.confirm("shop", s.GetRoute().GetGeneration())
	l.awaitState("shop", nfvpb.State_STATE_ROUTED, nil)

	// A new node has a file of its own: the route leads there when it has the requests' services, too.
	f3 := l.addForwarder("f3")
	if _, err := apply(t.Context(), l.controllers[0].admin, "f3", "", "version: 1\nservices: []\n"); err != nil {
		t.Fatal(err)
	}
	l.mustSetGroup(ecmpFile + thirdNode)
	for _, id := range []string{"web", "shop"} {
		s = l.awaitState(id, nfvpb.State_STATE_ROUTING, hops("10.9.0.1 10.9.0.2 10.9.0.3"))
		if !serves(f3, 80) || !serves(f3, 81) {
			t.Error("the route leads to a node that does not have the service")
		}
		l.confirm(id, s.GetRoute().GetGeneration())
		l.awaitState(id, nfvpb.State_STATE_ROUTED, nil)
	}

	for _, id := range []string{"web", "shop"} {
		l.remove(id)
		s = l.awaitState(id, nfvpb.State_STATE_WITHDRAWING, nil)
		l.confirm(id, s.GetRoute().GetGeneration())
		l.awaitState(id, nfvpb.State_STATE_REMOVED, nil)
	}
	l.until("no node has the services", func() bool {
		return !serves(f1, 80) && !serves(f2, 80) && !serves(f1, 81) && !serves(f2, 81) && !serves(f3, 80)
	})
}

// In a pair VRRP moves the next hop. A node that refuses a service keeps it from the whole group.
func TestRequestOfAPair(t *testing.T) {
	l := newLab(t, 0)
	l.tune = quick
	l.addController()
	f1, f2 := l.addForwarder("f1"), l.addForwarder("f2")
	l.mustSetGroup(pairFile)
	l.awaitStates("backup backup")
	l.request(balancing("web", 80))
	s := l.awaitState("web", nfvpb.State_STATE_ROUTING, hops("10.0.0.5"))
	l.confirm("web", s.GetRoute().GetGeneration())
	l.awaitState("web", nfvpb.State_STATE_ROUTED, nil)
	l.peerOf("f2", 1, forwarderpb.PeerState_PEER_STATE_SILENT)
	l.awaitStates("silent backup")
	if s := l.awaitState("web", nfvpb.State_STATE_ROUTED, nil); s.GetRoute().GetGeneration() != 1 {
		t.Errorf("%v", s)
	}
	l.peerOf("f2", 1, forwarderpb.PeerState_PEER_STATE_ALIVE)
	l.awaitStates("backup backup")
	f2.Refuse(&forwarderpb.Error{Code: forwarderpb.Code_CODE_INVALID, Text: "no"})
	l.request(balancing("shop", 81))
	l.awaitState("shop", nfvpb.State_STATE_NEEDS_FORWARDER, func(s *nfvpb.Status) bool { return strings.Contains(s.GetWhy(), "group/edge") })
	l.until("f1 does not have it either", func() bool { return !serves(f1, 81) && serves(f1, 80) && serves(f2, 80) })
}

// A node that serves requests leaves when their routes no longer lead to it.
func TestNodeThatServesRequestsStays(t *testing.T) {
	l := newLab(t, 0)
	l.tune = quick
	l.addController()
	f1, _, _ := l.addForwarder("f1"), l.addForwarder("f2"), l.addForwarder("f3")
	third := strings.Replace(thirdNode, "sync: 10.9.0.3,", "sync: 10.9.0.3, next_hops: [10.9.0.3],", 1)
	l.mustSetGroup(ecmpFile + third)
	l.awaitStates("serves serves serves")
	l.request(balancing("web", 80))
	s := l.awaitState("web", nfvpb.State_STATE_ROUTING, hops("10.9.0.1 10.9.0.2 10.9.0.3"))
	l.confirm("web", s.GetRoute().GetGeneration())
	l.awaitState("web", nfvpb.State_STATE_ROUTED, nil)
	admin := l.controllers[0].admin
	const want = "serves requests of the group edge (web): stop its forwarder first"
	without := ecmpFile[:strings.Index(ecmpFile, "  - { forwarder: f2")] + third
	if _, err := setGroup(l, admin, without); err == nil || !strings.Contains(err.Error(), "f2 "+want) {
		t.Error(err)
	}
	if _, err := admin.RemoveGroup(t.Context(), connect.NewRequest(&pb.RemoveGroupRequest{Name: "edge"})); err == nil || !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
	l.peerOf("f1", 2, forwarderpb.PeerState_PEER_STATE_SILENT)
	s = l.awaitState("web", nfvpb.State_STATE_ROUTING, hops("10.9.0.1 10.9.0.3"))
	l.confirm("web", s.GetRoute().GetGeneration())
	l.awaitState("web", nfvpb.State_STATE_ROUTED, nil)
	if _, err := setGroup(l, admin, without); err != nil {
		t.Error(err)
	}
	if !serves(f1, 80) {
		t.Error("the other node has lost the service, too")
	}
}

// Nodes of an ECMP group would choose the same ports of one pool.
func TestPoolsOfAnECMPGroupAreRefused(t *testing.T) {
	l, _, _ := pairOfForwarders(t, 1)
	c := l.controllers[0]
	const text = "version: 1\nservices: []\nsnat:\n  - name: out\n    inside: [10.1.0.0/24]\n    pool: [192.0.2.200]\n"
	const want = "snat: rule out: the nodes of the ECMP group edge would choose the same ports of its pool"
	l.mustSetGroup(ecmpFile)
	if _, err := apply(t.Context(), c.admin, "group/edge", "", text); err == nil || !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
	l.mustSetGroup(pairFile)
	if _, err := apply(t.Context(), c.admin, "group/edge", "", text); err != nil {
		t.Error(err)
	}
	if _, err := setGroup(l, c.admin, ecmpFile); err == nil || !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
}

// Two nodes that do not hear each other both serve: their link for synchronisation has failed, and services stay where they are.
func TestNodesThatDoNotHearEachOtherServe(t *testing.T) {
	l, _, _ := pairOfForwarders(t, 1)
	l.mustSetGroup(pairFile)
	l.awaitStates("backup backup")
	l.peerOf("f1", 2, forwarderpb.PeerState_PEER_STATE_SILENT)
	l.awaitStates("backup silent")
	l.peerOf("f2", 1, forwarderpb.PeerState_PEER_STATE_SILENT)
	l.awaitStates("backup backup")
	if why := l.group().GetProblem(); !strings.HasPrefix(why, "f1 and f2 do not hear each other") {
		t.Errorf("%q", why)
	}
	p, _, err := (&Server{store: l.store}).loadPicture(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := p.living("group/edge"); len(got) != 2 {
		t.Errorf("%v serve", got)
	}
	l.peerOf("f1", 2, forwarderpb.PeerState_PEER_STATE_ALIVE)
	l.awaitStates("silent backup")
}

// While nodes apply another revision of the group, they serve: routes and placement do not change.
func TestNodesServeWhileTheyApplyAGroup(t *testing.T) {
	l, f1, f2 := pairOfForwarders(t, 1)
	l.mustSetGroup(ecmpFile)
	l.awaitStates("serves serves")
	for _, f := range []*runningAgent{f1, f2} {
		f.SetPeers(func(*forwarderpb.PeerList) { f.RefuseGroup = "an upgrade is under way" })
	}
	l.mustSetGroup(strings.Replace(ecmpFile, "10.9.0.2:9000", "10.9.0.2:9001", 1))
	l.awaitStates("behind behind")
	l.until("the reports are there", func() bool {
		p, _, err := (&Server{store: l.store}).loadPicture(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := p.living("group/edge"); len(got) != 2 {
			t.Fatalf("%v serve", got)
		}
		return !p.nodes["f1"].InForce && !p.nodes["f2"].InForce
	})
}

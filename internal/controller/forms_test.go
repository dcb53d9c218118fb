// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	agentpb "steelyard/internal/gen/agentpb"
	"steelyard/internal/gen/agentpb/agentpbconnect"
	pb "steelyard/internal/gen/controllerpb"
	"steelyard/internal/gen/controllerpb/controllerpbconnect"
	"steelyard/internal/gen/nfvpb"
	"steelyard/internal/gen/nfvpb/nfvpbconnect"
	joining "steelyard/internal/member"
	"steelyard/internal/pki"

	"connectrpc.com/connect"
)

// One port serves all protocols of the API: unary requests, a stream, and errors.
func TestOnePortServesAllProtocols(t *testing.T) {
	l := workflowLab(t, 1, "f1")
	c := l.controllers[0]
	identity, _, err := joining.Join(t.Context(), "", []string{c.url}, l.token(c, &pb.CreateTokenRequest{Name: "ada", Role: pb.Role_ROLE_ADMIN}), pki.User)
	if err != nil {
		t.Fatal(err)
	}
	l.request(balancing("web", 80))
	l.awaitState("web", nfvpb.State_STATE_ROUTING, nil)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	transport := &http.Transport{TLSClientConfig: identity.Client(), Protocols: protocols}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	for name, options := range map[string][]connect.ClientOption{
		"connect": nil, "connect with JSON": {connect.WithProtoJSON()}, "gRPC": {connect.WithGRPC()}, "gRPC with JSON": {connect.WithGRPC(), connect.WithProtoJSON()},
		"gRPC-web": {connect.WithGRPCWeb()},
	} {
		list, err := controllerpbconnect.NewControllerServiceClient(client, c.url, options...).ListForwarders(t.Context(), connect.NewRequest(&pb.ListForwardersRequest{}))
		if err != nil || len(list.Msg.GetForwarders()) != 1 || list.Msg.GetForwarders()[0].GetName() != "f1" {
			t.Errorf("%s: %v, %v", name, list, err)
		}
		agentInForm(t, name, agentpbconnect.NewAgentServiceClient(client, c.url, options...))
		nfv := nfvpbconnect.NewNfvServiceClient(client, c.url, options...)
		stream, err := nfv.WatchBalancings(t.Context(), connect.NewRequest(&nfvpb.WatchBalancingsRequest{}))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !stream.Receive() || stream.Msg().GetStatus().GetWanted().GetId() != "web" {
			t.Errorf("%s: %v, %v", name, stream.Msg(), stream.Err())
		}
		stream.Close()
		if _, err := nfv.GetBalancing(t.Context(), connect.NewRequest(&nfvpb.GetBalancingRequest{Id: "none"})); connect.CodeOf(err) != connect.CodeNotFound ||
			!strings.Contains(err.Error(), "there is no request") {
			t.Errorf("%s: %v", name, err)
		}
	}
	response, err := client.Post(c.url+controllerpbconnect.ControllerServiceListForwardersProcedure, "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(text), `"name":"f1"`) {
		t.Errorf("%s: %s, %v", response.Status, text, err)
	}
}

// agentInForm calls methods that a controller forwards to the agent, with and without side effects.
func agentInForm(t *testing.T, name string, agent agentpbconnect.AgentServiceClient) {
	t.Helper()
	list := connect.NewRequest(&agentpb.ListServicesRequest{Name: "nfv.web"})
	on("f1")(list)
	if got, err := agent.ListServices(t.Context(), list); err != nil || len(got.Msg.GetServices()) != 1 || len(got.Msg.GetServices()[0].GetServers()) != 2 {
		t.Errorf("%s: %v, %v", name, got, err)
	}
	diff := connect.NewRequest(&agentpb.DiffConfigRequest{Yaml: []byte(strings.Replace(base, "10.1.0.200", "10.1.0.201", 1)), File: "new.yaml"})
	on("f1")(diff)
	if got, err := agent.DiffConfig(t.Context(), diff); err != nil || len(got.Msg.GetChanges()) != 2 { // one address comes, one goes: the project's services are not in the way
		t.Errorf("%s: %v, %v", name, got, err)
	}
	for _, drains := range []bool{true, false} {
		drain := connect.NewRequest(&agentpb.SetDrainRequest{Server: "10.1.0.21", Service: "nfv.web", Drain: drains})
		on("f1")(drain)
		if got, err := agent.SetDrain(t.Context(), drain); err != nil || len(got.Msg.GetServers()) != 1 || len(got.Msg.GetUnchanged()) != 0 {
			t.Errorf("%s: %v: %v, %v", name, drains, got, err)
		}
	}
	bad := connect.NewRequest(&agentpb.DiffConfigRequest{Yaml: []byte("version: 1\nservices: [{ name: x }]\n"), File: "bad.yaml"})
	on("f1")(bad)
	if _, err := agent.DiffConfig(t.Context(), bad); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "bad.yaml:2") {
		t.Errorf("%s: %v", name, err)
	}
}

// An incomplete or compressed message is refused, and not forwarded.
func TestIncompleteFramesAreRefused(t *testing.T) {
	c, ok := codecOf("application/grpc+proto; charset=utf-8")
	if !ok {
		t.Fatal("no codec")
	}
	good, err := c.marshal(&agentpb.SetDrainRequest{Server: "10.1.0.21"})
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string][]byte{"good": good, "empty": nil, "short": good[:3], "cut": good[:len(good)-1], "two": append(slices.Clone(good), good...),
		"compressed": append([]byte{1}, good[1:]...)} {
		m := &agentpb.SetDrainRequest{}
		if err := c.unmarshal(body, m); (err == nil) != (name == "good") || err == nil && m.GetServer() != "10.1.0.21" {
			t.Errorf("%s: %v, %v", name, m, err)
		}
	}
	if _, ok := codecOf("text/plain"); ok {
		t.Error("text/plain")
	}
}

// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"io"
	"net/http"
	"strings"
	"testing"

	pb "steelyard/internal/gen/controllerpb"
	"steelyard/internal/gen/controllerpb/controllerpbconnect"
	"steelyard/internal/gen/nfvpb"
	"steelyard/internal/gen/nfvpb/nfvpbconnect"
	joining "steelyard/internal/member"
	"steelyard/internal/pki"

	"connectrpc.com/connect"
)

// The API answers in all its forms on one port: single requests, a stream, and errors.
func TestFormsOfTheAPI(t *testing.T) {
	l := workflowLab(t, 1, "f1")
	c := l.controllers[0]
	identity, _, err := joining.Join(t.Context(), "", []string{c.url}, l.token(c, &pb.CreateTokenRequest{Name: "ada", Role: pb.Role_ROLE_ADMIN}), pki.User)
	if err != nil {
		t.Fatal(err)
	}
	l.request(balancing("web", 80))
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

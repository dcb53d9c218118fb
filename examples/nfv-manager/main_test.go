// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	pb "steelyard/internal/gen/nfvpb"
	"steelyard/internal/gen/nfvpb/nfvpbconnect"

	"connectrpc.com/connect"
)

// controller sends what a test says, and notes which routes are confirmed.
type controller struct {
	nfvpbconnect.UnimplementedNfvServiceHandler
	events    []*pb.Status
	confirmed chan *pb.ConfirmRouteRequest
	refuse    error
}

func (c *controller) WatchBalancings(ctx context.Context, _ *connect.Request[pb.WatchBalancingsRequest], stream *connect.ServerStream[pb.WatchBalancingsResponse]) error {
	for _, e := range c.events {
		if err := stream.Send(&pb.WatchBalancingsResponse{Status: e}); err != nil {
			return err
		}
	}
	return nil
}

func (c *controller) ConfirmRoute(_ context.Context, r *connect.Request[pb.ConfirmRouteRequest]) (*connect.Response[pb.ConfirmRouteResponse], error) {
	if c.refuse != nil {
		return nil, c.refuse
	}
	c.confirmed <- r.Msg
	return connect.NewResponse(&pb.ConfirmRouteResponse{}), nil
}

func event(id string, state pb.State, route *pb.Route) *pb.Status {
	return &pb.Status{Wanted: &pb.Balancing{Id: id}, State: state, Route: route}
}

func TestManager(t *testing.T) {
	c := &controller{confirmed: make(chan *pb.ConfirmRouteRequest, 10), events: []*pb.Status{
		event("a", pb.State_STATE_NEEDS_FORWARDER, nil),
		event("b", pb.State_STATE_NEEDS_FORWARDER, nil),
		event("a", pb.State_STATE_ROUTING, &pb.Route{Generation: 3, Destination: "10.9.0.80/32", NextHop: "10.1.0.200", Forwarder: "f1"}),
		event("d", pb.State_STATE_ROUTING, &pb.Route{Generation: 1, Destination: "10.9.0.83/32", NextHop: "10.9.0.1", NextHops: []string{"10.9.0.1", "10.9.0.2"}, Forwarder: "group/edge"}),
		event("b", pb.State_STATE_SERVING, &pb.Route{Generation: 1, Destination: "10.9.0.81/32", Confirmed: true}),
		event("c", pb.State_STATE_WITHDRAWING, &pb.Route{Generation: 2, Destination: "10.9.0.82/32", Forwarder: "f2", Withdraw: true}),
	}}
	mux := http.NewServeMux()
	mux.Handle(nfvpbconnect.NewNfvServiceHandler(c))
	server := httptest.NewServer(mux)
	defer server.Close()
	var routes []string
	created := 0
	m := &manager{client: nfvpbconnect.NewNfvServiceClient(server.Client(), server.URL), patience: time.Hour,
		route:  func(arguments ...string) error { routes = append(routes, strings.Join(arguments, " ")); return nil },
		create: func() error { created++; return nil }}
	if err := m.follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"set 10.9.0.80/32 10.1.0.200 f1", "set 10.9.0.83/32 10.9.0.1,10.9.0.2 group/edge", "remove 10.9.0.82/32  f2"}; !slices.Equal(routes, want) {
		t.Errorf("%q", routes)
	}
	if created != 1 {
		t.Errorf("%d forwarders for two needs at once", created)
	}
	for _, want := range []uint64{3, 1, 2} {
		if got := <-c.confirmed; got.GetGeneration() != want {
			t.Errorf("%v", got)
		}
	}
	// A route that cannot be set is not confirmed; one that was replaced meanwhile is no error.
	m.route = func(...string) error { return errors.New("no") }
	if err := m.follow(t.Context()); err == nil || len(c.confirmed) > 0 {
		t.Errorf("%v", err)
	}
	m.route = func(...string) error { return nil }
	c.refuse = connect.NewError(connect.CodeFailedPrecondition, errors.New("newer"))
	if err := m.follow(t.Context()); err != nil {
		t.Error(err)
	}
}

// SPDX-License-Identifier: Apache-2.0

// nfv-manager stands in for a management system of network functions, beside a controller of Steelyard. It sets the routes that the
// controller hands out, and creates a forwarder when one is needed. Both are done by programs that it is told:
//
//	nfv-manager --socket c.sock --route ./route.sh --create ./create.sh
//
//	route.sh set 10.9.0.80/32 10.1.0.200 f1       (the next hop may be empty: neighbours reach the VIP itself)
//	route.sh remove 10.9.0.80/32 10.1.0.200 f1
//	(at a group of forwarders several next hops, separated by commas)
//	create.sh                                     (starts a forwarder, joins its agent, applies its own file)
//
// It keeps nothing: when it dies, it begins with all requests as they are. So both programs must bear repetition.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	pb "steelyard/internal/gen/nfvpb"
	"steelyard/internal/gen/nfvpb/nfvpbconnect"

	"connectrpc.com/connect"
)

func main() {
	socket := flag.String("socket", "/run/steelyard/controller/controller.sock", "the controller's socket")
	route := flag.String("route", "", "program that sets and removes routes")
	create := flag.String("create", "", "program that creates a forwarder; none: none is created")
	patience := flag.Duration("patience", 2*time.Minute, "how long a new forwarder may take until another one is created")
	flag.Parse()
	if *route == "" {
		slog.Error("which program sets routes? Give --route")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", *socket)
	}}
	run := func(program string, arguments ...string) error {
		command := exec.CommandContext(ctx, program, arguments...)
		command.Stdout, command.Stderr = os.Stderr, os.Stderr
		return command.Run()
	}
	m := &manager{client: nfvpbconnect.NewNfvServiceClient(&http.Client{Transport: transport}, "http://controller"), patience: *patience,
		route: func(arguments ...string) error { return run(*route, arguments...) }}
	if *create != "" {
		m.create = func() error { return run(*create) }
	}
	m.work(ctx)
}

type manager struct {
	client   nfvpbconnect.NfvServiceClient
	route    func(arguments ...string) error
	create   func() error // nil: none
	patience time.Duration
	created  time.Time // when the last forwarder was
}

// work follows the controller's events until ctx ends. When a stream ends, as its controller died, it begins anew.
func (m *manager) work(ctx context.Context) {
	slog.Info("manager is ready")
	for ctx.Err() == nil {
		if err := m.follow(ctx); err != nil && ctx.Err() == nil {
			slog.Warn("the controller's events have ended; they begin anew", "error", err)
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (m *manager) follow(ctx context.Context) error {
	stream, err := m.client.WatchBalancings(ctx, connect.NewRequest(&pb.WatchBalancingsRequest{}))
	if err != nil {
		return err
	}
	defer stream.Close()
	for stream.Receive() {
		if stream.Msg().GetForgotten() {
			continue
		}
		if err := m.act(ctx, stream.Msg().GetStatus()); err != nil {
			return err
		}
	}
	return stream.Err()
}

// act does what a request's state asks of a management system.
func (m *manager) act(ctx context.Context, s *pb.Status) error {
	id, route := s.GetWanted().GetId(), s.GetRoute()
	if s.GetState() == pb.State_STATE_NEEDS_FORWARDER {
		slog.Info("a forwarder is needed", "request", id, "why", s.GetWhy())
		m.provide()
	}
	if route == nil || route.GetConfirmed() {
		return nil
	}
	verb := "set"
	if route.GetWithdraw() {
		verb = "remove"
	}
	via := cmp.Or(strings.Join(route.GetNextHops(), ","), route.GetNextHop()) // several at a group of forwarders
	slog.Info("route", "request", id, "what", verb, "destination", route.GetDestination(), "via", via, "generation", route.GetGeneration())
	if err := m.route(verb, route.GetDestination(), via, route.GetForwarder()); err != nil {
		slog.Error("the route is not set", "request", id, "error", err)
		return err // begun anew: the controller still waits for it
	}
	_, err := m.client.ConfirmRoute(ctx, connect.NewRequest(&pb.ConfirmRouteRequest{Id: id, Generation: route.GetGeneration()}))
	var known *connect.Error
	if errors.As(err, &known) && (known.Code() == connect.CodeFailedPrecondition || known.Code() == connect.CodeNotFound) {
		return nil // a newer route is on its way
	}
	return err
}

// provide creates a forwarder, unless one was created a short while ago and may still be coming.
func (m *manager) provide() {
	if m.create == nil || !m.created.IsZero() && time.Since(m.created) < m.patience {
		return
	}
	m.created = time.Now()
	if err := m.create(); err != nil {
		slog.Error("no forwarder was created", "error", err)
		m.created = time.Time{}
	}
}

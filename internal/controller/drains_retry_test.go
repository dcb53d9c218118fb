// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"steelyard/internal/cluster"
	pb "steelyard/internal/gen/controllerpb"
	"steelyard/internal/gen/controllerpb/controllerpbconnect"

	"connectrpc.com/connect"
)

// orderedMember has one own order, and calls told when it has reported it.
type orderedMember struct {
	controllerpbconnect.MemberServiceClient
	told func()
}

func (o *orderedMember) SetDrains(context.Context, *connect.Request[pb.SetDrainsRequest]) (*connect.Response[pb.SetDrainsResponse], error) {
	o.told()
	return connect.NewResponse(&pb.SetDrainsResponse{Agent: "a", Last: 1, Own: []*pb.DrainOrder{{
		Server: "tcp/10.0.0.80:80/10.1.0.21:8080", Drain: true, Agent: "a", Number: 1,
	}}}), nil
}

func (o *orderedMember) AwaitDrains(ctx context.Context, _ *connect.Request[pb.AwaitDrainsRequest]) (*connect.Response[pb.AwaitDrainsResponse], error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// If etcd fails just when an agent reports its own orders, the controller fetches them again, although nothing else has changed.
func TestOwnOrdersAreStoredAfterAFailure(t *testing.T) {
	l := newLab(t, 0)
	fence, err := l.store.Commit(t.Context(), new(cluster.Txn).Put(keyOwners+"f1", encode(owner{ID: "c", URL: "url"}), 0))
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{store: l.store, log: slog.New(slog.DiscardHandler), mirror: cluster.Snapshot{Revision: fence}, sessions: map[string]*session{}}
	s.changed, s.now = sync.NewCond(&s.mu), time.Now
	fails, cut := context.WithCancel(t.Context())
	member := &orderedMember{told: cut}
	one := &session{forwarder: "f1", fence: fence, member: member, drains: drainSession{wake: make(chan struct{}, 1)}}
	if err := s.pushDrains(fails, one); err == nil {
		t.Fatal("the store was reached")
	}
	member.told = func() {}
	if err := s.pushDrains(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	if got := l.stored(keyDrains); len(got) != 1 {
		t.Errorf("%v", got)
	}
}

// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"steelyard/internal/cluster"
	pb "steelyard/internal/gen/controllerpb"
	joining "steelyard/internal/member"
	"steelyard/internal/pki"

	"connectrpc.com/connect"
)

func watchAs(t *testing.T, u user, after int64) *connect.ServerStreamForClient[pb.WatchResponse] {
	t.Helper()
	stream, err := u.Watch(t.Context(), connect.NewRequest(&pb.WatchRequest{AfterRevision: after}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stream.Close() })
	return stream
}

// A removed member receives no further events, and an earlier token cannot join under its name.
func TestRemovalEndsWatchesAndTokens(t *testing.T) {
	l := newLab(t, 1)
	c := l.controllers[0]
	viewer := l.join(c, &pb.CreateTokenRequest{Name: "vic", Role: pb.Role_ROLE_VIEWER}, nil)
	stream := watchAs(t, viewer, 0)
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	early := l.token(c, &pb.CreateTokenRequest{Name: "vic", Role: pb.Role_ROLE_ADMIN})
	other := l.token(c, &pb.CreateTokenRequest{Name: "eve", Role: pb.Role_ROLE_VIEWER})
	if _, err := c.admin.RemoveMember(t.Context(), connect.NewRequest(&pb.RemoveMemberRequest{Name: "vic"})); err != nil {
		t.Fatal(err)
	}
	for stream.Receive() { // what was sent before
	}
	if connect.CodeOf(stream.Err()) != connect.CodeUnauthenticated {
		t.Errorf("a removed member's watch: %v", stream.Err())
	}
	if _, _, err := joining.Join(t.Context(), "", []string{c.url}, early, pki.User); err == nil {
		t.Error("a token from before the removal is good")
	}
	if _, _, err := joining.Join(t.Context(), "", []string{c.url}, other, pki.User); err != nil {
		t.Errorf("another one's token: %v", err)
	}
}

// One member's watches do not use up those of others.
func TestWatchesOfAMemberAreBounded(t *testing.T) {
	l := newLab(t, 1)
	c := l.controllers[0]
	greedy := l.join(c, &pb.CreateTokenRequest{Name: "greedy", Role: pb.Role_ROLE_VIEWER}, nil)
	for i := range maxWatchesOf {
		if stream := watchAs(t, greedy, 0); !stream.Receive() {
			t.Fatalf("watch %d: %v", i, stream.Err())
		}
	}
	if stream := watchAs(t, greedy, 0); stream.Receive() || connect.CodeOf(stream.Err()) != connect.CodeResourceExhausted {
		t.Errorf("one more: %v", stream.Err())
	}
	other := l.join(c, &pb.CreateTokenRequest{Name: "vic", Role: pb.Role_ROLE_VIEWER}, nil)
	for _, u := range []user{other, c.admin} {
		if stream := watchAs(t, u, 0); !stream.Receive() {
			t.Errorf("another caller: %v", stream.Err())
		}
	}
}

// A forwarder with more projects than fit into one transaction of etcd can be removed, even after an interrupted removal.
func TestForwarderWithManyProjectsIsRemoved(t *testing.T) {
	l := newLab(t, 1)
	c := l.controllers[0]
	const projects = 90
	for _, name := range []string{"f1", "f10"} { // their keys have a common prefix
		if _, err := l.store.Commit(t.Context(), new(cluster.Txn).Put(keyMembers+name, encode(member{Role: pb.Role_ROLE_FORWARDER, Key: "k"}), 0).
			Put(keyDesired+name, packed("version: 1\n"), 0)); err != nil {
			t.Fatal(err)
		}
		for i := range projects {
			project := project{Usage: map[string]usage{"f1": {2, 3}, "f10": {4, 5}}}
			txn := new(cluster.Txn).Put(fmt.Sprintf("%sp%d", keyProjects, i), encode(project), 0)
			for _, begin := range []string{keyConfigs, keyPrevious, keyRefusals} {
				txn.Put(fmt.Sprintf("%s%s/p%d", begin, name, i), packed("services: []\n"), 0)
			}
			l.commit(txn)
		}
	}
	if _, err := c.admin.RemoveMember(t.Context(), connect.NewRequest(&pb.RemoveMemberRequest{Name: "f1"})); err != nil {
		t.Fatal(err)
	}
	left, err := l.store.Names(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, key := range left {
		for _, name := range []string{"f1", "f10"} {
			if slices.Contains(strings.Split(key, "/"), name) {
				count[name]++
			}
		}
	}
	if count["f1"] != 0 || count["f10"] != 3*projects+2 {
		t.Errorf("keys that are left: %v", count)
	}
	list, err := c.admin.ListProjects(t.Context(), connect.NewRequest(&pb.ListProjectsRequest{}))
	if err != nil || list.Msg.GetProjects()[1].GetServices() != 4 {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := c.admin.RemoveMember(t.Context(), connect.NewRequest(&pb.RemoveMemberRequest{Name: "f1"})); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("again: %v", err)
	}
}

// The watch of a caller that does not read ends; the controller must not buffer its events.
func TestSlowWatchEnds(t *testing.T) {
	l := newLab(t, 1)
	c := l.controllers[0]
	stream := watchAs(t, c.admin, 0)
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	// More than buffers of sockets hold, while the caller does not read.
	long := strings.Repeat("x", 60<<10)
	for i := range 2 * watchBehind {
		now := status{Applied: int64(i + 1), Error: long}
		l.commit(new(cluster.Txn).Put(keyStatus+"f1", encode(now), 0))
	}
	events := 0
	for stream.Receive() {
		events++
	}
	if connect.CodeOf(stream.Err()) != connect.CodeOutOfRange || !strings.Contains(stream.Err().Error(), "slowly") {
		t.Errorf("after %d events: %v", events, stream.Err())
	}
}

func TestWatchesAreBounded(t *testing.T) {
	s := &Server{watchers: map[*watcher]bool{}}
	var leaves []func()
	for i := range maxWatches {
		leave, err := s.enterWatch(&watcher{})
		if err != nil {
			t.Fatalf("watch %d: %v", i, err)
		}
		leaves = append(leaves, leave)
	}
	if _, err := s.enterWatch(&watcher{}); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("%v", err)
	}
	leaves[0]()
	if _, err := s.enterWatch(&watcher{}); err != nil {
		t.Error(err)
	}
}

// Events before the compacted history cannot be watched: the error says to list again.
func TestWatchFromCompactedHistoryFails(t *testing.T) {
	l := newLab(t, 1)
	c := l.controllers[0]
	for range 8 {
		l.commit(new(cluster.Txn).Put("x", nil, 0))
		if err := l.store.Tidy(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	stream := watchAs(t, c.admin, 1)
	for stream.Receive() {
	}
	if connect.CodeOf(stream.Err()) != connect.CodeOutOfRange {
		t.Errorf("%v", stream.Err())
	}
}

// A caller that is removed while its watch starts receives that error, not the store's.
func TestRemovalEndsAStartingWatch(t *testing.T) {
	l := newLab(t, 0)
	revision, err := l.store.Commit(t.Context(), new(cluster.Txn).Put(keyMembers+"eve", encode(member{Role: pb.Role_ROLE_VIEWER}), 0))
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{store: l.store, now: time.Now, ctx: t.Context(), watchers: map[*watcher]bool{}}
	caller := principal{Name: pki.Name{Kind: pki.User, Name: "eve"}, member: member{Role: pb.Role_ROLE_VIEWER}, revision: revision}
	err = follow[pb.WatchResponse](context.WithValue(t.Context(), callerKey{}, caller), s, "", func(ctx context.Context) (int64, error) {
		s.mu.Lock()
		s.endWatches("eve", revision) // a late event of its join
		s.mu.Unlock()
		if err := ctx.Err(); err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		s.endWatches("eve", revision+1)
		s.mu.Unlock()
		_, _, err := s.store.List(ctx, keyMembers)
		return 0, unavailable(err)
	}, nil, nil)
	if !errors.Is(err, errRemoved) {
		t.Error(err)
	}
}

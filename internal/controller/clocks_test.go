// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	controllerpb "steelyard/internal/gen/controllerpb"
	joining "steelyard/internal/member"
	"steelyard/internal/pki"

	"connectrpc.com/connect"
)

const day = 24 * time.Hour

// at adds a controller whose clock is wrong by so much.
func (l *lab) at(skew time.Duration) *runningController {
	l.Helper()
	return l.addControllerAt(l.store.Endpoints()[0], skew)
}

// A controller whose clock is months behind would issue a certificate that has ended for all others: the token is left for one of these.
func TestNobodyJoinsByAClockThatIsBehind(t *testing.T) {
	l := newLab(t, 0)
	right := l.at(0)
	behind := l.at(-40 * day)
	token := l.token(right, &controllerpb.CreateTokenRequest{Name: "f1", Role: controllerpb.Role_ROLE_FORWARDER})
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := pki.Request(key)
	if err != nil {
		t.Fatal(err)
	}
	join := func(c *runningController) error { // whose certificate a joiner with a right clock would refuse at once, had it not been issued before
		_, err := c.admin.Join(t.Context(), connect.NewRequest(&controllerpb.JoinRequest{Token: token, Request: request, ClockUnixS: uint64(time.Now().Unix())}))
		return err
	}
	if err := join(behind); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("%v", err)
	}
	if err := join(right); err != nil {
		t.Error(err)
	}
}

// An agent whose clock is three weeks ahead has its certificate renewed, as it looks old, and is served: it does not renew it again and again.
func TestAgentWithAClockAhead(t *testing.T) {
	l := newLab(t, 1)
	c := l.controllers[0]
	path := filepath.Join(t.TempDir(), joining.IdentityFile)
	if _, _, err := joining.Join(t.Context(), path, []string{c.url}, l.token(c, &controllerpb.CreateTokenRequest{Name: "f1", Role: controllerpb.Role_ROLE_FORWARDER}), pki.Forwarder); err != nil {
		t.Fatal(err)
	}
	before, err := pki.Load(path, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	identity, err := pki.Load(path, func() time.Time { return time.Now().Add(21 * day) })
	if err != nil {
		t.Fatal(err)
	}
	l.until("a second is over", func() bool { return time.Now().After(before.Expires().Add(-pki.Lifetime + 2*time.Second)) }) // certificates count in seconds
	m := &joining.Member{Identity: identity, Handler: http.NotFoundHandler(), Log: l.log("f1"), Controllers: []string{c.url}, LookEvery: time.Millisecond}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { m.Run(ctx) })
	l.until("it is renewed", func() bool { return identity.Expires().After(before.Expires()) })
	l.awaitOwner("f1")
	fence := func() int64 {
		_, entry, err := read[owner](t.Context(), l.store, keyOwners+"f1")
		if err != nil {
			t.Fatal(err)
		}
		return entry.Revision
	}
	has, first := identity.Expires(), fence()
	time.Sleep(100 * time.Millisecond) // many looks
	if !identity.Expires().Equal(has) || fence() != first {
		t.Error("it was renewed again")
	}
}

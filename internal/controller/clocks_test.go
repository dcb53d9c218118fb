// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"steelyard/internal/cluster"
	controllerpb "steelyard/internal/gen/controllerpb"
	nfvpb "steelyard/internal/gen/nfvpb"
	joining "steelyard/internal/member"
	"steelyard/internal/nfv"
	"steelyard/internal/pki"

	"connectrpc.com/connect"
)

const day = 24 * time.Hour

// at adds a controller whose clock is off by skew.
func (l *lab) at(skew time.Duration) *runningController {
	l.Helper()
	return l.addControllerAt(l.store.Endpoints()[0], skew)
}

// A token is valid as long as its lease lasts: no shorter where a clock is ahead, nor if its creator's clock was behind.
func TestTokenValidityIgnoresClocks(t *testing.T) {
	l := newLab(t, 0)
	late, right, ahead := l.at(-5*day), l.at(0), l.at(5*day)
	for i, c := range []struct{ makes, takes *runningController }{{late, right}, {right, ahead}, {late, ahead}, {ahead, late}} {
		token := l.token(c.makes, &controllerpb.CreateTokenRequest{Name: fmt.Sprintf("f%d", i), Role: controllerpb.Role_ROLE_FORWARDER})
		path := filepath.Join(t.TempDir(), joining.IdentityFile)
		if _, _, err := joining.Join(t.Context(), path, []string{c.takes.url}, token, pki.Forwarder); err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	short := l.token(late, &controllerpb.CreateTokenRequest{Name: "f9", Role: controllerpb.Role_ROLE_FORWARDER, ValidS: 1})
	l.until("its lease has ended", func() bool {
		left, _, err := l.store.List(t.Context(), keyTokens)
		return err == nil && len(left) == 0
	})
	if _, _, err := joining.Join(t.Context(), "", []string{late.url}, short, pki.Forwarder); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("a token that has ended: %v", err)
	}
}

// A controller whose clock is months behind would issue a certificate that has expired for all others. It refuses, and the token stays valid.
func TestControllerWithAClockBehindRefusesToJoin(t *testing.T) {
	l := newLab(t, 0)
	right := l.at(0)
	behind := l.at(-40 * day)
	token := l.token(right, &controllerpb.CreateTokenRequest{Name: "f1", Role: controllerpb.Role_ROLE_FORWARDER})
	_, request := keyWithRequest(t)
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

// A replacement of the authority waits for an absent member until its certificate has expired; a controller whose clock is months ahead does not
// count it as expired.
func TestAuthorityReplacementIgnoresAClockAhead(t *testing.T) {
	l := newLab(t, 1)
	l.addForwarder("f1").stop()
	ahead := l.at(100 * day)
	if err := l.replaceAuthority(false); err != nil {
		t.Fatal(err)
	}
	states := []controllerpb.Authority_State{signs, next}
	l.awaitAuthorities(states, "f1") // both controllers know the next one
	response, err := ahead.admin.ListAuthorities(t.Context(), connect.NewRequest(&controllerpb.ListAuthoritiesRequest{}))
	if err != nil || !slices.Equal(response.Msg.GetWaitingFor(), []string{"f1"}) {
		t.Fatalf("it waits for %v, %v", response.Msg.GetWaitingFor(), err)
	}
	l.commit(new(cluster.Txn).Delete(keyWait)) // as its lease does
	// Now both its clock and the lease say so; the next step has a lease of its own.
	l.awaitAuthorities([]controllerpb.Authority_State{signs, former}, "f1")
}

// Audit records are in the order of the actions, whichever controller's clock dates them.
func TestAuditIsInOrder(t *testing.T) {
	l := newLab(t, 0)
	controllers := []*runningController{l.at(40 * day), l.at(-40 * day), l.at(0)}
	var want []string
	for i := range 6 {
		name := fmt.Sprintf("p%d", i)
		want = slices.Insert(want, 0, name)
		_, err := controllers[i%3].admin.SetProject(t.Context(), connect.NewRequest(&controllerpb.SetProjectRequest{Project: &controllerpb.Project{Name: name}}))
		if err != nil {
			t.Fatal(err)
		}
	}
	audit, err := controllers[0].admin.ListAudit(t.Context(), connect.NewRequest(&controllerpb.ListAuditRequest{Limit: 6}))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, one := range audit.Msg.GetRecords() {
		got = append(got, one.GetProject())
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// The age of a load counts from when the mirror received it, not from the difference of two clocks.
func TestLoadAgeIgnoresClocks(t *testing.T) {
	l := newLab(t, 0)
	controllers := []*runningController{l.at(-40 * day), l.at(40 * day)}
	txn := new(cluster.Txn).Put(keyMembers+"f1", encode(member{Role: controllerpb.Role_ROLE_FORWARDER}), 0).Put(keyLoads+"f1", encode(measured{Busy: 0.5}), 0)
	l.commit(txn)
	for _, c := range controllers {
		got, err := c.admin.GetPlacement(t.Context(), connect.NewRequest(&nfvpb.GetPlacementRequest{}))
		if err != nil || len(got.Msg.GetForwarders()) != 1 {
			t.Fatalf("%v, %v", got, err)
		}
		if age := time.Duration(got.Msg.GetForwarders()[0].GetAgeMs()) * time.Millisecond; age > time.Hour {
			t.Errorf("%s: %s old", c.url, age)
		}
	}
}

// For a leader, a record that another controller has dated in the future counts from when the leader read it.
func TestRecordsDatedInTheFutureCountFromNow(t *testing.T) {
	now := time.Now()
	record, err := nfv.NewRecord(balancing("web", 80), now.Add(day))
	if err != nil {
		t.Fatal(err)
	}
	record.Placed, record.Forwarder = now.Add(day).UnixMilli(), "f1"
	p := &picture{requests: map[string]*request{}}
	p.note(cluster.Event{Entry: cluster.Entry{Key: keyRequests + "web", Value: encode(record), Revision: 1}}, now.Add(-time.Minute))
	if list := p.services(now, now); len(list) != 1 || !list[0].Since.Equal(now.Add(-time.Minute)) {
		t.Errorf("%+v", list)
	}
	record.Refused = map[string]nfv.Refusal{"f2": {Why: "no", At: now.Add(day).UnixMilli()}, "f3": {Why: "no", At: now.UnixMilli()}}
	if got := record.Refusals(now.Add(time.Second)); len(got) != 1 || got["f3"] == "" {
		t.Errorf("%v", got)
	}
}

// The certificate of an agent whose clock is three weeks ahead looks old. It is renewed once, not again and again.
func TestAgentWithAClockAheadRenewsOnce(t *testing.T) {
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

// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	"steelyard/internal/cluster"
)

// The agent's list is newer than one from a backup of etcd, although etcd then continues with higher revisions: a list is as old as its last change.
// Each change makes it newer, even the removal of an order.
func TestDrainListRevisionFollowsItsLastChange(t *testing.T) {
	l := newLab(t, 0)
	s := &Server{store: l.store}
	one := &session{forwarder: "f1", joined: l.commit(new(cluster.Txn).Put(keyMembers+"f1", []byte("{}"), 0))}
	one.fence = l.commit(new(cluster.Txn).Put(keyOwners+"f1", []byte("{}"), 0))
	age := func() int64 {
		t.Helper()
		l.commit(new(cluster.Txn).Put("other", nil, 0)) // as much as there may be
		var err error
		if s.mirror, err = l.store.Snapshot(t.Context(), mirrored...); err != nil {
			t.Fatal(err)
		}
		revision, _, _, known := s.drainsFor(one)
		if !known {
			t.Fatal("the mirror is not older")
		}
		return revision
	}
	expect := func(when string, want int64) {
		t.Helper()
		if got := age(); got != want {
			t.Errorf("%s: %d, want %d", when, got, want)
		}
	}
	expect("without orders", one.joined)
	order := encode(drainRecord{Drain: true})
	expect("of its own", l.commit(new(cluster.Txn).Put(keyDrains+"f1/"+server, order, 0)))
	expect("of a request", l.commit(new(cluster.Txn).Put(keyMoving+"10.0.0.80/"+server, order, 0)))
	expect("judged", l.commit(new(cluster.Txn).Put(keyJudged+"f1", encode(judgement{"a", 1}), 0)))
	before := age()
	if err := s.forgetDrains(t.Context(), one, s.mirror.List(keyDrains+"f1/"), func(cluster.Entry) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if got := age(); got <= before || len(s.mirror.List(keyDrains)) != 0 {
		t.Errorf("forgotten: %d, before %d", got, before)
	}
	ends := new(cluster.Txn)
	forgetMoving(ends, "10.0.0.80", nil)
	expect("the request has ended", l.commit(ends))
}

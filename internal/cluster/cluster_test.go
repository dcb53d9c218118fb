// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/features"
)

// open starts an embedded etcd in a short path: that of a Unix socket has 107 bytes at most.
func open(t *testing.T) (*Store, string) {
	t.Helper()
	directory, err := os.MkdirTemp("", "syc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(directory) })
	store, err := Open(t.Context(), Options{Directory: directory})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store, directory
}

func put(t *testing.T, s *Store, txn *Txn) int64 {
	t.Helper()
	revision, err := s.Commit(t.Context(), txn)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

func TestTransactions(t *testing.T) {
	s, _ := open(t)
	absent, err := s.Get(t.Context(), "a")
	if err != nil || absent.Revision != 0 {
		t.Fatalf("%+v, %v", absent, err)
	}
	first := put(t, s, new(Txn).Unchanged(absent).Put("a", []byte("1"), 0))
	if _, err := s.Commit(t.Context(), new(Txn).Unchanged(absent).Put("a", []byte("2"), 0)); !errors.Is(err, ErrConflict) {
		t.Errorf("a second one made it too: %v", err)
	}
	read, err := s.Get(t.Context(), "a")
	if err != nil || string(read.Value) != "1" || read.Revision != first {
		t.Errorf("%+v, %v", read, err)
	}
	put(t, s, new(Txn).At("a", first).Put("b/2", []byte("y"), 0).Delete("a"))
	put(t, s, new(Txn).Put("b/1", []byte("x"), 0))
	entries, _, err := s.List(t.Context(), "b/")
	if err != nil || len(entries) != 2 || entries[0].Key != "b/1" {
		t.Errorf("%+v, %v", entries, err)
	}
	last, err := s.Last(t.Context(), "b/", 1)
	if err != nil || len(last) != 1 || last[0].Key != "b/1" {
		t.Errorf("%+v, %v", last, err)
	}
}

// Leases are the clock of all members: an hour of a lease is not an hour anew for each leader.
func TestLeasesContinueAfterARestart(t *testing.T) {
	s, _ := open(t)
	if on := s.embedded.Server.FeatureEnabled; !on(features.LeaseCheckpoint) || !on(features.LeaseCheckpointPersist) {
		t.Error("leases begin anew")
	}
}

func TestKeepalivesAreForAnExternalEtcd(t *testing.T) {
	if c := (Options{Directory: "d"}).client([]string{"unix:///d/client.sock"}); c.DialKeepAliveTime != 0 {
		t.Errorf("%+v", c)
	}
	external := []string{"https://e1:2379"}
	if c := (Options{Endpoints: external}).client(external); c.DialKeepAliveTime == 0 || c.DialKeepAliveTimeout == 0 {
		t.Errorf("%+v", c)
	}
}

// Many writers of one counter: none of their increments may be lost.
func TestNoLostUpdate(t *testing.T) {
	s, _ := open(t)
	put(t, s, new(Txn).Put("n", []byte{0}, 0))
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			for done := 0; done < 10; {
				e, err := s.Get(t.Context(), "n")
				if err != nil {
					t.Error(err)
					return
				}
				_, err = s.Commit(t.Context(), new(Txn).Unchanged(e).Put("n", []byte{e.Value[0] + 1}, 0))
				switch {
				case err == nil:
					done++
				case !errors.Is(err, ErrConflict):
					t.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
	if e, _ := s.Get(t.Context(), "n"); e.Value[0] != 40 {
		t.Errorf("%d of 40 increments", e.Value[0])
	}
}

func TestLeasesAndWatch(t *testing.T) {
	s, _ := open(t)
	lease, err := s.Grant(t.Context(), 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	at := put(t, s, new(Txn).Put("owner", []byte("me"), lease))
	ctx, stop := context.WithCancel(t.Context())
	lost, err := s.Keep(ctx, lease, 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	watching, cancel := context.WithCancel(t.Context())
	gone := make(chan Event, 10)
	ended := make(chan error)
	go func() { ended <- s.Watch(watching, "owner", at, func(e Event) { gone <- e }) }()
	stop() // stops renewing it
	<-lost
	if event := <-gone; !event.Deleted || event.Key != "owner" {
		t.Errorf("%+v", event)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestStateSurvives(t *testing.T) {
	s, directory := open(t)
	revision := put(t, s, new(Txn).Put("a", []byte("1"), 0))
	s.Close()
	again, err := Open(t.Context(), Options{Directory: directory})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if e, err := again.Get(t.Context(), "a"); err != nil || e.Revision != revision {
		t.Errorf("%+v, %v", e, err)
	}
	// A second process on the same cluster, as an external one.
	other, err := Open(t.Context(), Options{Endpoints: again.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if e, err := other.Get(t.Context(), "a"); err != nil || string(e.Value) != "1" {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestConditionsOnOthersKeys(t *testing.T) {
	s, _ := open(t)
	commit := func(txn *Txn) error { _, err := s.Commit(t.Context(), txn.Put("done", nil, 0)); return err }
	at := put(t, s, new(Txn).Put("a/1", []byte("x"), 0))
	for name, c := range map[string]struct {
		txn  *Txn
		want error
	}{
		"it is there":       {new(Txn).Exists("a/1"), nil},
		"it is not":         {new(Txn).Exists("a/2"), ErrConflict},
		"nothing since":     {new(Txn).NoneSince("a/", at), nil},
		"something since":   {new(Txn).NoneSince("a/", at-1), ErrConflict},
		"nothing there":     {new(Txn).NoneSince("b/", 1), nil},
		"another beginning": {new(Txn).NoneSince("a/2", 1), nil},
	} {
		if err := commit(c.txn); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"net/netip"
	"testing"
	"time"

	pb "steelyard/internal/gen/forwarderpb"
	"steelyard/internal/model"
)

// addresses packs n IPv4 addresses from 10.first.0.0 on.
func addresses(first byte, n int) *model.SetData {
	var prefixes []netip.Prefix
	for i := range n {
		prefixes = append(prefixes, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, first + byte(i>>16), byte(i >> 8), byte(i)}), 32))
	}
	return model.NewSetData(prefixes)
}

func setConfig() *model.Config {
	return &model.Config{AccessSets: []model.AccessSet{{Name: "bad", File: "/bad.txt"}}}
}

// Data goes in pieces, before the transaction that names it, and only if the forwarder lacks it.
func TestSetsFromFiles(t *testing.T) {
	b := newBench(t, time.Hour)
	first, second := addresses(0, 500_000), addresses(1, 10)
	b.store.SetFiles(map[string]*model.SetData{"/bad.txt": first})
	b.use(setConfig())
	b.settle()
	b.forwarder.AwaitSet("bad", first.Bytes)
	if _, pieces := b.forwarder.Set("bad"); pieces != 3 {
		t.Errorf("%d bytes in %d pieces", len(first.Bytes), pieces)
	}
	b.store.SetFiles(map[string]*model.SetData{"/bad.txt": second})
	b.forwarder.AwaitSet("bad", second.Bytes)
	b.store.SetFiles(map[string]*model.SetData{"/bad.txt": first})
	b.forwarder.AwaitSet("bad", first.Bytes)
	if _, pieces := b.forwarder.Set("bad"); pieces != 4 {
		t.Errorf("%d pieces in all", pieces)
	}
	version := b.store.Version()
	b.store.SetFiles(map[string]*model.SetData{"/bad.txt": addresses(0, 500_000)})
	if b.store.Version() != version {
		t.Error("the same contents are a change")
	}
}

// A file that this agent has not read leaves the forwarder's set as it is; a new set is empty.
func TestUnreadSetFileChangesNothing(t *testing.T) {
	b := newBench(t, time.Hour)
	data := addresses(0, 3)
	b.store.SetFiles(map[string]*model.SetData{"/bad.txt": data})
	b.use(setConfig())
	b.settle()
	b.store.SetFiles(nil)
	config := setConfig()
	config.AccessSets = append(config.AccessSets, model.AccessSet{Name: "new", File: "/none.txt"})
	b.use(config)
	b.settle()
	b.forwarder.AwaitSet("bad", data.Bytes)
	if set, ok := b.read().AccessSets["new"]; !ok || set.Data != nil || len(set.Prefixes) != 0 {
		t.Errorf("the new set: %+v", set)
	}
	if commits := b.forwarder.Commits(); len(commits) != 2 || len(commits[1]) != 1 {
		t.Errorf("commits: %v", commits)
	}
}

// A forwarder that lost the data of its sets gets it again.
func TestLostSetsAreSentAgain(t *testing.T) {
	b := newBench(t, time.Millisecond)
	data := addresses(0, 3)
	b.store.SetFiles(map[string]*model.SetData{"/bad.txt": data})
	b.use(setConfig())
	b.settle()
	b.forwarder.LoseSets()
	b.forwarder.AwaitSet("bad", data.Bytes)
}

// Data that is refused is like a refused transaction.
func TestRefusedSets(t *testing.T) {
	b := newBench(t, time.Hour)
	wrong := addresses(0, 3)
	wrong.Digest[0]++
	b.store.SetFiles(map[string]*model.SetData{"/bad.txt": wrong})
	generation := b.use(setConfig())
	if status, err := b.reconciler.WaitConfig(t.Context(), generation); err == nil || status.Refused != generation {
		t.Errorf("%+v, %v", status, err)
	}
	data := addresses(0, 4)
	b.store.SetFiles(map[string]*model.SetData{"/bad.txt": data})
	b.forwarder.AwaitSet("bad", data.Bytes)
	for _, commit := range b.forwarder.Commits() {
		for _, change := range commit {
			if _, ok := change.GetKind().(*pb.Change_PutAccessSet); !ok {
				t.Errorf("%v", change)
			}
		}
	}
}

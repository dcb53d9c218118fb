// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"steelyard/internal/agent"
	"steelyard/internal/cluster"
	pb "steelyard/internal/gen/controllerpb"
	forwarderpb "steelyard/internal/gen/forwarderpb"

	"connectrpc.com/connect"
)

var refuses = &forwarderpb.Error{Code: forwarderpb.Code_CODE_INVALID, Text: "10.0.0.80 is an address of this host"}

// settled returns a condition: the desired configuration is in force, and so many changes were rolled back.
func (l *lab) settled(name string, rolledBack int) func() bool {
	return func() bool {
		got := l.list(l.controllers[0].admin)[name]
		return got.GetInForwarder() && got.GetError() == "" && got.GetAppliedRevision() == got.GetDesiredRevision() && len(got.GetTakenBack()) == rolledBack
	}
}

// snapshot is the initial content of a mirror.
func (l *lab) snapshot() cluster.Snapshot {
	l.Helper()
	now, err := l.store.Snapshot(l.Context(), mirrored...)
	if err != nil {
		l.Fatal(err)
	}
	return now
}

// An agent that was disconnected refuses the saved change: whichever controller serves it rolls the change back, even if no caller waits.
func TestRefusalOfADisconnectedAgentIsRolledBack(t *testing.T) {
	l := newLab(t, 2)
	c := l.controllers[0]
	f := l.addForwarder("f1")
	if _, err := c.admin.SetProject(t.Context(), connect.NewRequest(&pb.SetProjectRequest{Project: &pb.Project{Name: "shop"}})); err != nil {
		t.Fatal(err)
	}
	for _, one := range []struct{ project, text string }{{defaultProject, file(10)}, {"shop", part(2, 1, 1)}} { // the local addresses first
		if _, err := apply(t.Context(), c.admin, "f1", one.project, one.text); err != nil {
			t.Fatal(err)
		}
	}
	f.options.Token = ""
	f.stop()
	l.until("the agent is seen to be away", func() bool { return l.owner("f1") == "" })
	for name, text := range map[string]string{"default": file(20), "shop": part(3, 2, 1)} {
		if response, err := apply(t.Context(), c.admin, "f1", name, text); err != nil || !strings.Contains(strings.Join(response.GetWarnings(), " "), "rolls the change back") {
			t.Fatalf("%v, %v", response, err)
		}
	}
	f.Refuse(refuses)
	l.start(f)
	l.until("both are rolled back", l.settled("f1", 2))
	f.Refuse(nil)
	if got := f.Server(vip, server).GetWeight(); got != 10 {
		t.Errorf("weight %d", got)
	}
	projects, err := c.admin.ListProjects(t.Context(), connect.NewRequest(&pb.ListProjectsRequest{}))
	if err != nil || projects.Msg.GetProjects()[1].GetServices() != 1 {
		t.Errorf("%v, %v", projects, err)
	}
	if _, err := apply(t.Context(), c.admin, "f1", "shop", part(3, 1, 1)); err != nil {
		t.Error(err)
	}
	l.until("the project's next change is in force", l.settled("f1", 1))
}

// A change that the agent accepted while its forwarder was down is rolled back when the forwarder starts and refuses it.
func TestRefusalOfARestartedForwarderIsRolledBack(t *testing.T) {
	t.Parallel() // an agent waits long for its forwarder
	l := newLab(t, 1)
	c := l.controllers[0]
	f := l.addForwarder("f1")
	if _, err := apply(t.Context(), c.admin, "f1", "", file(10)); err != nil {
		t.Fatal(err)
	}
	f.Stop()
	if _, err := apply(t.Context(), c.admin, "f1", "", file(20)); err == nil {
		l.until("the agent has it", func() bool { return l.list(c.admin)["f1"].GetAppliedRevision() > 0 })
	}
	f.Refuse(refuses)
	f.Start()
	l.until("it is rolled back", func() bool { return len(l.list(c.admin)["f1"].GetTakenBack()) == 1 })
	f.Refuse(nil)
	l.until("the old one is in force", l.settled("f1", 1))
	if got := f.Server(vip, server).GetWeight(); got != 10 {
		t.Errorf("weight %d", got)
	}
}

// A project changes twice; the forwarder confirms the first change and refuses the second. The rollback restores the first.
func TestRollbackRestoresTheConfirmedChange(t *testing.T) {
	l := newLab(t, 0)
	s := &Server{store: l.store, now: time.Now, id: "c"}
	s.changed = sync.NewCond(&s.mu)
	fence := l.commit(new(cluster.Txn).Put(keyMembers+"f1", encode(member{}), 0).Put(keyProjects+defaultProject, encode(project{}), 0).
		Put(keyOwners+"f1", encode(owner{}), 0))
	change := func(weight int) int64 {
		t.Helper()
		p, err := s.prepare(t.Context(), s.newWork(defaultProject), "f1", defaultProject, "test", []byte(file(weight)))
		if err != nil {
			t.Fatal(err)
		}
		return l.commit(p.txn())
	}
	now := func() string {
		t.Helper()
		e, err := l.store.Get(t.Context(), keyDesired+"f1")
		if err != nil {
			t.Fatal(err)
		}
		text, err := l.store.Load(t.Context(), e.Value)
		if err != nil {
			t.Fatal(err)
		}
		return string(text.Text)
	}
	one := &session{forwarder: "f1", fence: fence}
	first, second := change(1), change(2)
	if err := s.confirm(t.Context(), "f1", first); err != nil {
		t.Fatal(err)
	}
	l.commit(new(cluster.Txn).Put(keyStatus+"f1", encode(status{Applied: first, Confirmed: first, InForwarder: true}), 0))
	if err := s.rollBack(t.Context(), &session{forwarder: "f1", fence: fence - 1}, second, "no"); connect.CodeOf(err) != connect.CodeAborted || now() != file(2) {
		t.Errorf("a controller that has lost the forwarder: %v", err)
	}
	if err := s.rollBack(t.Context(), one, second, "no"); err != nil || now() != file(1) {
		t.Fatalf("%v, %s", err, now())
	}
	s.catchUp(l.snapshot())
	for revision, want := range map[int64]bool{first: false, second: true, second + 1: false} {
		if got := s.outcomeOf("f1", defaultProject, revision); (got != nil && got.rolledBack) != want {
			t.Errorf("of revision %d (the first is %d, the second %d): %+v", revision, first, second, got)
		}
	}
	third := change(3)
	// The next change is unconfirmed, too: it is rolled back together with the change that replaced it.
	last := change(4)
	if err := s.rollBack(t.Context(), one, last, "no"); err != nil || now() != file(1) {
		t.Fatalf("%v, %s", err, now())
	}
	s.catchUp(l.snapshot())
	for _, revision := range []int64{third, last} {
		if got := s.outcomeOf("f1", defaultProject, revision); got == nil || !got.rolledBack {
			t.Errorf("of revision %d: %+v", revision, got)
		}
	}
	third = change(3)
	if err := s.confirm(t.Context(), "f1", third); err != nil {
		t.Fatal(err)
	}
	// A confirmed change stays, whatever the forwarder reports later.
	if err := s.rollBack(t.Context(), one, third, "no"); err != nil || now() != file(3) {
		t.Errorf("%v, %s", err, now())
	}
	// The rollback undoes the change of the refused revision, not a later one.
	fourth, fifth := change(4), change(5)
	if err := s.rollBack(t.Context(), one, fourth, "no"); err != nil || now() != file(5) {
		t.Errorf("%v, %s", err, now())
	}
	// A change from before the confirmation of an earlier one is rolled back with the changes after it.
	sixth := change(6)
	if err := s.confirm(t.Context(), "f1", fifth); err != nil {
		t.Fatal(err)
	}
	l.commit(new(cluster.Txn).Put(keyStatus+"f1", encode(status{Applied: fifth, Confirmed: fifth, InForwarder: true}), 0))
	seventh := change(7)
	l.commit(new(cluster.Txn).Put(keyStatus+"f1", encode(status{Applied: sixth, Confirmed: fifth}), 0)) // the agent has it, and its forwarder not
	if err := s.rollBack(t.Context(), one, seventh, "no"); err != nil || now() != file(5) {
		t.Errorf("%v, %s", err, now())
	}
	s.catchUp(l.snapshot())
	for revision, want := range map[int64]bool{fifth: false, sixth: true, seventh: true} {
		if got := s.outcomeOf("f1", defaultProject, revision); (got != nil && got.rolledBack) != want {
			t.Errorf("of revision %d (%d, %d, %d): %+v", revision, fifth, sixth, seventh, got)
		}
	}
}

// pretendNewer makes an agent believe that its configuration has a revision far above the store's.
func (l *lab) pretendNewer(f *runningAgent, revision int64) {
	l.Helper()
	f.stop()
	path := filepath.Join(f.options.State, agent.DesiredFile)
	data, err := os.ReadFile(path)
	if err != nil {
		l.Fatal(err)
	}
	changed := regexp.MustCompile(`Revision: \d+`).ReplaceAll(data, fmt.Appendf(nil, "Revision: %d", revision))
	if err := os.WriteFile(path, changed, 0o600); err != nil {
		l.Fatal(err)
	}
	f.options.Token = ""
	l.until("the agent is seen to be away", func() bool { return l.owner("f1") == "" })
	l.start(f)
	l.until("the controller has noticed", func() bool { return strings.Contains(l.list(l.controllers[0].admin)["f1"].GetError(), "newer") })
}

// etcd was restored from a backup: a change now has a lower revision than the agent's, so apply fails.
func TestApplyFailsIfTheAgentIsNewerThanTheStore(t *testing.T) {
	l := newLab(t, 1)
	c := l.controllers[0]
	f := l.addForwarder("f1")
	if _, err := apply(t.Context(), c.admin, "f1", "", file(10)); err != nil {
		t.Fatal(err)
	}
	l.pretendNewer(f, 1000000)
	if response, err := apply(t.Context(), c.admin, "f1", "", file(20)); connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "backup") {
		t.Errorf("%v, %v", response, err)
	}
	if got := f.Server(vip, server).GetWeight(); got != 10 {
		t.Errorf("weight %d", got)
	}
}

// If the restored etcd continues above the agents' revisions, the same file is applied again and comes into force.
func TestRestoredStoreWithHigherRevisionsIsApplied(t *testing.T) {
	l := newLab(t, 1)
	c := l.controllers[0]
	f := l.addForwarder("f1")
	if _, err := apply(t.Context(), c.admin, "f1", "", file(10)); err != nil {
		t.Fatal(err)
	}
	desired, err := l.store.Get(t.Context(), keyDesired+"f1")
	if err != nil {
		t.Fatal(err)
	}
	newer := desired.Revision + 100
	l.pretendNewer(f, newer)
	for revision := int64(0); revision <= newer; { // as etcd's "bump revision" does it
		if revision, err = l.store.Commit(t.Context(), new(cluster.Txn).Put("bump", nil, 0)); err != nil {
			t.Fatal(err)
		}
	}
	response, err := apply(t.Context(), c.admin, "f1", "", file(10))
	if err != nil || response.GetRevision() == 0 || len(response.GetWarnings()) > 0 {
		t.Fatalf("%v, %v", response, err)
	}
	if got := l.list(c.admin)["f1"]; !got.GetInForwarder() || got.GetError() != "" || got.GetDesiredRevision() <= newer {
		t.Errorf("%v", got)
	}
}

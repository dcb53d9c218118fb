// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"steelyard/internal/model"
)

const first, second = "10.1.0.1:80", "10.1.0.2:80"

// sharing opens a store whose orders controllers judge.
func sharing(t *testing.T, directory string) *Store {
	t.Helper()
	s, _ := open(t, directory)
	if err := s.Share(); err != nil {
		t.Fatal(err)
	}
	s.Adopt(model.NewTable())
	use(t, s, configOf(model.HealthNone, first, second))
	return s
}

func (s *Store) order(t *testing.T, server string, drain *Drain) {
	t.Helper()
	if err := s.SetDrain([]model.ServerRef{ref(server)}, drain); err != nil {
		t.Fatal(err)
	}
}

// give brings orders of controllers, and judges own ones up to a number.
func (s *Store) give(t *testing.T, revision int64, judged uint64, orders ...ControllerDrain) bool {
	t.Helper()
	agent, _, _ := s.OwnDrains()
	taken, _, err := s.ReplaceControllerDrains(ControllerDrains{Revision: revision, Orders: orders, Agent: agent, Judged: judged})
	if err != nil {
		t.Fatal(err)
	}
	return taken
}

func (s *Store) expectDrained(t *testing.T, when string, servers ...string) {
	t.Helper()
	var got []string
	for _, server := range sorted(s.Drained()) {
		got = append(got, server.Address.String())
	}
	if !slices.Equal(got, servers) {
		t.Errorf("%s: drained are %v, want %v", when, got, servers)
	}
}

// stopDeadline ends an agent: it wakes no more.
func (s *Store) stopDeadline() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deadline != nil {
		s.deadline.Stop()
	}
}

func drained(server string, revision int64) ControllerDrain {
	return ControllerDrain{Ref: ref(server), Revision: revision}
}

func TestOwnOrdersHoldUntilTheyAreJudged(t *testing.T) {
	directory := t.TempDir()
	s := sharing(t, directory)
	s.give(t, 10, 0, drained(first, 9))
	s.expectDrained(t, "by a controller", first)
	s.order(t, first, nil)
	s.order(t, second, &Drain{})
	s.expectDrained(t, "own orders are newer", second)
	s.give(t, 20, 0, drained(first, 15))
	s.expectDrained(t, "not judged yet", second)
	agent, last, own := s.OwnDrains()
	if agent == "" || len(own) != 2 || own[0].Ref != ref(first) || own[0].Drain != nil || own[1].Drain == nil || own[1].Number != last || own[0].Revision != 10 {
		t.Errorf("%q, %d, %+v", agent, last, own)
	}
	s = sharing(t, directory)
	s.expectDrained(t, "after a restart", second)
	if same, again, list := s.OwnDrains(); same != agent || again <= last || len(list) != 2 {
		t.Errorf("after a restart: %q, %d, %+v", same, again, list)
	}
	// The first one is void, the second one is in the store: only the judged ones go.
	s.give(t, 30, own[0].Number, drained(first, 15))
	s.expectDrained(t, "the first one is void", first, second)
	s.give(t, 31, own[1].Number, drained(first, 15), drained(second, 31))
	s.expectDrained(t, "the second one is in the store", first, second)
	if _, _, list := s.OwnDrains(); len(list) != 0 {
		t.Errorf("%+v", list)
	}
	s.give(t, 40, 0)
	s.expectDrained(t, "both have ended")
}

// A state directory may be an older one: restored from a backup, or because the disk was full for some starts. What is ordered then has numbers of
// orders that are judged already.
func TestOwnOrdersAreRenumberedAfterARestore(t *testing.T) {
	for _, revision := range []int64{30, 5} { // the second one is older than what the agent has
		directory := t.TempDir()
		s := sharing(t, directory)
		s.give(t, 10, 0)
		path := filepath.Join(directory, StateFile)
		backup, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		s = sharing(t, directory)
		s.order(t, first, &Drain{})
		s.order(t, first, nil)
		_, judged, _ := s.OwnDrains()
		s.give(t, 20, judged)
		if err := os.WriteFile(path, backup, 0o600); err != nil {
			t.Fatal(err)
		}
		s = sharing(t, directory)
		s.order(t, first, &Drain{})
		s.give(t, revision, judged)
		s.expectDrained(t, "a new one", first)
		_, last, own := s.OwnDrains()
		if len(own) != 1 || own[0].Number <= judged || own[0].Number != last {
			t.Errorf("up to %d are judged: %d, %+v", judged, last, own)
		}
		s.give(t, 31, last, drained(first, 31))
		if _, _, own := s.OwnDrains(); len(own) != 0 {
			t.Errorf("judged: %+v", own)
		}
		s.order(t, second, &Drain{})
		s.give(t, 32, last, drained(first, 31))
		s.expectDrained(t, "the next one", first, second)
	}
}

func TestWhatIsOlderIsNotTaken(t *testing.T) {
	directory := t.TempDir()
	s := sharing(t, directory)
	if !s.give(t, 10, 0, drained(first, 9)) || s.give(t, 9, 0) || !s.give(t, 10, 0, drained(first, 9)) {
		t.Error("order by revisions")
	}
	s = sharing(t, directory)
	if s.give(t, 9, 0) {
		t.Error("an older one is taken after a restart")
	}
	s.expectDrained(t, "after all", first)
	// Judgements about another host of this name say nothing of this one's.
	s.order(t, first, nil)
	if _, _, err := s.ReplaceControllerDrains(ControllerDrains{Revision: 11, Orders: []ControllerDrain{drained(first, 9)}, Agent: "another", Judged: 1 << 60}); err != nil {
		t.Fatal(err)
	}
	s.expectDrained(t, "another's judgement")
}

// Orders may come before the configuration that has their servers: a host that is replaced never gives a drained server new sessions.
func TestOrdersComeBeforeTheConfiguration(t *testing.T) {
	s, _ := open(t, t.TempDir())
	if err := s.Share(); err != nil {
		t.Fatal(err)
	}
	s.give(t, 10, 0, drained(second, 9))
	s.Adopt(model.NewTable())
	use(t, s, configOf(model.HealthNone, first))
	use(t, s, configOf(model.HealthNone, first, second))
	s.expectState(t, second, model.Drain)
	s.expectState(t, first, model.Up)
	// An own order for a removed server is dropped, as without controllers; an end of a drain stays until a controller has received it.
	s.order(t, first, &Drain{})
	s.order(t, second, nil)
	use(t, s, configOf(model.HealthNone, "10.1.0.3:80"))
	use(t, s, configOf(model.HealthNone, first, second))
	s.expectState(t, first, model.Up)
	s.expectState(t, second, model.Up)
}

func TestDeadlinesOfControllers(t *testing.T) {
	directory := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := sharing(t, directory)
		one := ControllerDrain{Ref: ref(first), Deadline: 10 * time.Minute, Revision: 5}
		s.give(t, 10, 0, one)
		time.Sleep(9 * time.Minute)
		s.give(t, 11, 0, one) // it has not begun again
		s.stopDeadline()
		s = sharing(t, directory)
		s.give(t, 12, 0, one)
		s.expectState(t, first, model.Drain)
		time.Sleep(time.Minute)
		s.expectState(t, first, model.Kill)
		one.Revision = 13
		s.give(t, 13, 0, one) // it was given again
		s.expectState(t, first, model.Drain)

		s.order(t, second, &Drain{Until: time.Now().Round(0).Add(time.Minute)})
		agent, last, _ := s.OwnDrains()
		time.Sleep(30 * time.Second)
		s.give(t, 20, last, one, ControllerDrain{Ref: ref(second), Deadline: 45 * time.Second, Revision: 19, Agent: agent, Number: last})
		time.Sleep(30 * time.Second)
		s.expectState(t, second, model.Kill)
		s.stopDeadline()
	})
}

// As with those that are given here, the clock on the wall may be set before the deadline.
func TestDeadlinesOfControllersGoByTheMonotonicClock(t *testing.T) {
	s := sharing(t, t.TempDir())
	s.give(t, 10, 0, ControllerDrain{Ref: ref(first), Deadline: time.Hour, Revision: 5})
	if at := s.Snapshot().KilledAt[ref(first)]; at.IsZero() || at == at.Round(0) { // which strips the monotonic reading
		t.Errorf("%s is a time on the wall", at)
	}
}

// Before controllers sent orders, all orders were the agent's own. An older agent reads a newer agent's file in this way.
func TestStateFilesOfOtherVersionsAreHandled(t *testing.T) {
	directory := t.TempDir()
	s := started(t, directory, configOf(model.HealthNone, first, second))
	s.order(t, first, &Drain{Kill: true})
	s = sharing(t, directory)
	s.expectDrained(t, "from before", first)
	if _, _, own := s.OwnDrains(); len(own) != 1 || !own[0].Drain.Kill || own[0].Revision != 0 {
		t.Errorf("%+v", own)
	}
	s.give(t, 10, 0, drained(second, 9))
	data, err := os.ReadFile(filepath.Join(directory, StateFile))
	if err != nil {
		t.Fatal(err)
	}
	var known struct {
		Version int               `json:"version"`
		Drained []json.RawMessage `json:"drained"`
	}
	if err := json.Unmarshal(data, &known); err != nil || known.Version != 1 || len(known.Drained) != 2 {
		t.Errorf("%v: %s", err, data)
	}
	// Without controllers again, what is in force stays.
	alone := started(t, directory, configOf(model.HealthNone, first, second))
	alone.expectDrained(t, "alone", first, second)
	alone.order(t, second, nil)
	again := sharing(t, directory)
	again.expectDrained(t, "with controllers again", first)
	if _, _, own := again.OwnDrains(); len(own) != 1 || own[0].Revision != 0 {
		t.Errorf("%+v", own)
	}
}

// Orders for a service of a request say nothing of another one that has its VIP by a file.
func TestOrdersFollowTheServiceName(t *testing.T) {
	directory := t.TempDir()
	s := sharing(t, directory)
	named := drained(first, 9)
	named.Service = "nfv.web"
	s.give(t, 10, 0, named, drained(second, 8))
	s.expectDrained(t, "the file's service", second)
	renamed := configOf(model.HealthNone, first, second)
	renamed.Services[0].Name = named.Service
	use(t, s, renamed)
	s.expectState(t, first, model.Drain)
	s.expectState(t, second, model.Drain) // a service that has another name keeps its drains
	s.order(t, second, nil)
	if _, _, own := s.OwnDrains(); len(own) != 1 || own[0].Service != named.Service {
		t.Errorf("%+v", own)
	}
	s = sharing(t, directory) // with the file's service again
	s.expectState(t, first, model.Up)
	s.expectState(t, second, model.Up)
	if _, _, own := s.OwnDrains(); len(own) != 1 || own[0].Service != named.Service {
		t.Errorf("after a restart: %+v", own)
	}
}

func TestAwaitOwn(t *testing.T) {
	s := sharing(t, t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		heard := make(chan uint64)
		s.mu.Lock()
		s.ordered = make(chan struct{}) // of this bubble
		s.mu.Unlock()
		go func() {
			last, _ := s.AwaitOwn(t.Context(), 0)
			heard <- last
		}()
		synctest.Wait()
		s.order(t, first, &Drain{})
		if last := <-heard; last != 1 {
			t.Error(last)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.AwaitOwn(ctx, 1); err == nil {
			t.Error("there is none")
		}
	})
}

func TestTheSameIsNoChange(t *testing.T) {
	s := sharing(t, t.TempDir())
	s.give(t, 10, 0, drained(first, 9))
	version, before := s.Version(), maps.Clone(s.drains.orders)
	if taken, changed, err := s.ReplaceControllerDrains(ControllerDrains{Revision: 12, Orders: []ControllerDrain{drained(first, 11)}}); !taken || changed || err != nil {
		t.Error(taken, changed, err)
	}
	if s.Version() != version || !maps.Equal(before, s.drains.orders) {
		t.Error("the forwarder would be notified again")
	}
}

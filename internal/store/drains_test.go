// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"
	"testing/synctest"
	"time"

	"steelyard/internal/model"
)

func drainedConfig(deadline time.Duration) *model.Config {
	config := configOf(model.HealthTCP, "10.1.0.1:80", "10.1.0.2:80")
	config.Services[0].Servers[0].Drain = true
	config.Services[0].Servers[0].DrainDeadline = deadline
	return config
}

func started(t *testing.T, directory string, config *model.Config) *Store {
	t.Helper()
	s, _ := open(t, directory)
	s.Adopt(model.NewTable())
	use(t, s, config)
	return s
}

func (s *Store) expectState(t *testing.T, server string, want model.State) {
	t.Helper()
	if got := s.Snapshot().States[ref(server)].State; got != want {
		t.Errorf("%s is %s, want %s", server, got, want)
	}
}

func TestADeadlineEndsADrain(t *testing.T) {
	for name, begin := range map[string]func(t *testing.T, directory string) *Store{
		"by command": func(t *testing.T, directory string) *Store {
			s := started(t, directory, configOf(model.HealthTCP, "10.1.0.1:80", "10.1.0.2:80"))
			if err := s.SetDrain([]model.ServerRef{ref("10.1.0.1:80")}, &Drain{Until: time.Now().Add(10 * time.Minute)}); err != nil {
				t.Fatal(err)
			}
			return s
		},
		"by the file": func(t *testing.T, directory string) *Store {
			return started(t, directory, drainedConfig(10*time.Minute))
		},
	} {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				s := begin(t, directory)
				s.expectState(t, "10.1.0.1:80", model.Drain)
				s.Desired()
				time.Sleep(9 * time.Minute)
				synctest.Wait()
				if changes := s.TakeChanges(); changes.All || len(changes.Servers) != 0 {
					t.Errorf("%+v before the deadline", changes)
				}
				// A new agent knows the start time.
				config, _ := s.running.config, s.running.generation
				s.stopDeadline()
				s = started(t, directory, config)
				s.expectState(t, "10.1.0.1:80", model.Drain)
				s.Desired()
				time.Sleep(time.Minute)
				synctest.Wait()
				changes := s.TakeChanges()
				if len(changes.Servers) != 1 || changes.Servers[ref("10.1.0.1:80")].State != model.Kill {
					t.Errorf("%+v at the deadline", changes)
				}
				s.expectState(t, "10.1.0.2:80", model.Up)
				if s.deadline != nil {
					t.Error("it waits for more")
				}
				s = started(t, directory, config)
				s.expectState(t, "10.1.0.1:80", model.Kill)
			})
		})
	}
}

// The clock on the wall may be set meanwhile: a deadline neither comes sooner for that nor later.
func TestDeadlinesGoByTheMonotonicClock(t *testing.T) {
	s := started(t, t.TempDir(), drainedConfig(time.Hour))
	if at := s.Snapshot().KilledAt[ref("10.1.0.1:80")]; at == at.Round(0) { // which strips the monotonic reading
		t.Errorf("%s is a time on the wall", at)
	}
}

func TestADrainByTheFileBeginsAgain(t *testing.T) {
	directory := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := started(t, directory, drainedConfig(time.Hour))
		time.Sleep(50 * time.Minute)
		use(t, s, configOf(model.HealthTCP, "10.1.0.1:80", "10.1.0.2:80"))
		s.expectState(t, "10.1.0.1:80", model.Up)
		use(t, s, drainedConfig(time.Hour))
		time.Sleep(50 * time.Minute)
		s.expectState(t, "10.1.0.1:80", model.Drain)
		use(t, s, drainedConfig(30*time.Minute)) // shorter: it has already passed
		s.expectState(t, "10.1.0.1:80", model.Kill)
		use(t, s, drainedConfig(2*time.Hour))
		s.expectState(t, "10.1.0.1:80", model.Drain)
		s.stopDeadline()
	})
}

func TestKillSurvivesAndIsUndone(t *testing.T) {
	directory := t.TempDir()
	config := configOf(model.HealthTCP, "10.1.0.1:80", "10.1.0.2:80")
	one := []model.ServerRef{ref("10.1.0.1:80")}
	s := started(t, directory, config)
	if err := s.SetDrain(one, &Drain{Kill: true}); err != nil {
		t.Fatal(err)
	}
	s.expectState(t, "10.1.0.1:80", model.Kill)
	s = started(t, directory, config)
	s.expectState(t, "10.1.0.1:80", model.Kill)
	if order := s.Snapshot().Drained[one[0]]; !order.Kill {
		t.Errorf("%+v", order)
	}
	if err := s.SetDrain(one, nil); err != nil {
		t.Fatal(err)
	}
	s.expectState(t, "10.1.0.1:80", model.Up)
	s = started(t, directory, config)
	s.expectState(t, "10.1.0.1:80", model.Up)
}

func directConfig(mode model.Mode, health model.HealthType, servers ...string) *model.Config {
	config := configOf(health, servers...)
	config.Services[0].Mode = mode
	return config
}

func TestMarksAreUniqueAndStay(t *testing.T) {
	s, checks := open(t, t.TempDir())
	table := tableOf(map[string]model.State{"10.1.0.1:80": model.Up, "10.1.0.2:80": model.Down})
	kept := table.Services[vip].Servers[ref("10.1.0.2:80").Address]
	kept.CheckMark = model.FirstMark + 1
	table.Services[vip].Servers[ref("10.1.0.2:80").Address] = kept
	s.Adopt(table)
	marks := func() map[string]uint32 {
		found := map[string]uint32{}
		for _, target := range checks.targets {
			spec := s.Snapshot().States[target.Ref]
			if spec.CheckMark != target.Mark {
				t.Errorf("%s is checked with mark %#x, and the forwarder has %#x", target.Ref.Address, target.Mark, spec.CheckMark)
			}
			found[target.Ref.Address.String()] = target.Mark
		}
		return found
	}
	use(t, s, directConfig(model.DR, model.HealthTCP, "10.1.0.1:80", "10.1.0.2:80", "10.1.0.3:80"))
	first := marks()
	if first["10.1.0.2:80"] != model.FirstMark+1 || first["10.1.0.1:80"] != model.FirstMark || first["10.1.0.3:80"] != model.FirstMark+2 {
		t.Errorf("%#x", first)
	}
	for _, target := range checks.targets {
		if known := target.Ref.Address == ref("10.1.0.2:80").Address; known != (target.Marked == 0) || target.Marked > s.Version() {
			t.Errorf("%s has its mark since version %d of %d", target.Ref.Address, target.Marked, s.Version())
		}
	}
	use(t, s, directConfig(model.IPIP, model.HealthTCP, "10.1.0.3:80", "10.1.0.4:80"))
	second := marks()
	if second["10.1.0.3:80"] != first["10.1.0.3:80"] || second["10.1.0.4:80"] != model.FirstMark+3 {
		t.Errorf("%#x", second)
	}
	for _, config := range []*model.Config{
		directConfig(model.FNAT, model.HealthTCP, "10.1.0.3:80"), directConfig(model.DR, model.HealthNone, "10.1.0.3:80"),
	} {
		use(t, s, config)
		for address, mark := range marks() {
			if mark != 0 {
				t.Errorf("%s has %#x", address, mark)
			}
		}
		if spec := s.Snapshot().States[ref("10.1.0.3:80")]; spec.CheckMark != 0 {
			t.Errorf("%+v", spec)
		}
	}
}

// TestFailingServerIsDownEvenIfDrained: its clients may get resets then; after recovery it is drained again.
func TestFailingServerIsDownEvenIfDrained(t *testing.T) {
	for name, byFile := range map[string]bool{"by the file": true, "by command": false} {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			s, checks := open(t, directory)
			config := configOf(model.HealthTCP, "10.1.0.1:80", "10.1.0.2:80")
			config.Services[0].Servers[0].Drain = byFile
			s.Adopt(model.NewTable())
			use(t, s, config)
			one := ref("10.1.0.1:80")
			if !byFile {
				if err := s.SetDrain([]model.ServerRef{one}, &Drain{}); err != nil {
					t.Fatal(err)
				}
			}
			s.expectState(t, "10.1.0.1:80", model.Drain)
			for _, up := range []bool{false, true, false} {
				s.SetUp(one, checks.epoch(one), up)
				s.expectState(t, "10.1.0.1:80", map[bool]model.State{false: model.Down, true: model.Drain}[up])
				if changes := s.TakeChanges(); !changes.All && len(changes.Servers) != 1 {
					t.Errorf("the forwarder hears nothing of it: %v", changes)
				}
				s.Desired()
			}
			snapshot := s.Snapshot()
			if !snapshot.IsDrained(one, config.Services[0].Servers[0]) {
				t.Error("it is not drained any more")
			}
			// The next agent treats it as down until a check passes, then as drained.
			next, checks := open(t, directory)
			next.Adopt(tableOf(map[string]model.State{"10.1.0.1:80": model.Down, "10.1.0.2:80": model.Up}))
			use(t, next, config)
			next.expectState(t, "10.1.0.1:80", model.Down)
			next.SetUp(one, checks.epoch(one), true)
			next.expectState(t, "10.1.0.1:80", model.Drain)
		})
	}
}

// TestDrainedNewServerNeedsNoCheck: a new drained server has no sessions that could be lost.
func TestDrainedNewServerNeedsNoCheck(t *testing.T) {
	s, checks := open(t, t.TempDir())
	s.Adopt(tableOf(map[string]model.State{"10.1.0.2:80": model.Up}))
	config := configOf(model.HealthTCP, "10.1.0.1:80", "10.1.0.2:80")
	config.Services[0].Servers[0].Drain = true
	use(t, s, config)
	s.expectState(t, "10.1.0.1:80", model.Drain)
	one := ref("10.1.0.1:80")
	s.SetUp(one, checks.epoch(one), false)
	s.expectState(t, "10.1.0.1:80", model.Down)
}

// SPDX-License-Identifier: Apache-2.0

package store

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"steelyard/internal/model"
)

// lastChecks keeps the latest targets.
type lastChecks struct{ targets []Target }

func (c *lastChecks) Watch(targets []Target) { c.targets = targets }

var vip = model.ServiceKey{Protocol: model.TCP, VIP: netip.MustParseAddr("10.0.0.80"), Port: 80}

func ref(server string) model.ServerRef {
	return model.ServerRef{Service: vip, Address: netip.MustParseAddrPort(server)}
}

func open(t testing.TB, directory string) (*Store, *lastChecks) {
	t.Helper()
	checks := &lastChecks{}
	s, err := Open(directory, checks)
	if err != nil {
		t.Fatal(err)
	}
	return s, checks
}

func configOf(health model.HealthType, servers ...string) *model.Config {
	service := model.Service{Name: "web", Key: vip, Health: model.Health{Type: health}}
	for _, server := range servers {
		service.Servers = append(service.Servers, model.Server{Address: netip.MustParseAddrPort(server), Weight: 1})
	}
	return &model.Config{Services: []model.Service{service}}
}

func tableOf(states map[string]model.State) *model.Table {
	table := model.NewTable()
	service := &model.TableService{Servers: map[netip.AddrPort]model.ServerSpec{}}
	for server, state := range states {
		service.Servers[netip.MustParseAddrPort(server)] = model.ServerSpec{State: state}
	}
	table.Services[vip] = service
	return table
}

func use(t *testing.T, s *Store, config *model.Config) {
	t.Helper()
	if err := s.Accept(config, s.SetConfig(config)); err != nil {
		t.Fatal(err)
	}
}

// epoch returns the epoch of a server's target, 0 if the server is not checked.
func (c *lastChecks) epoch(ref model.ServerRef) uint64 {
	for _, target := range c.targets {
		if target.Ref == ref {
			return target.Epoch
		}
	}
	return 0
}

// expect compares targets written as "address up|down checked|unchecked".
func (c *lastChecks) expect(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, target := range c.targets {
		words := []string{target.Ref.Address.String(), "down", "unchecked"}
		if target.Up {
			words[1] = "up"
		}
		if target.Checked {
			words[2] = "checked"
		}
		got = append(got, strings.Join(words, " "))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAgentRestartFlipsNothing(t *testing.T) {
	table := tableOf(map[string]model.State{
		"10.1.0.1:80": model.Up, "10.1.0.2:80": model.Down, "10.1.0.3:80": model.Drain, "10.1.0.9:80": model.Up})
	want := []string{"10.1.0.1:80 up checked", "10.1.0.2:80 down checked", "10.1.0.3:80 up unchecked", "10.1.0.4:80 down unchecked"}
	config := configOf(model.HealthTCP, "10.1.0.1:80", "10.1.0.2:80", "10.1.0.3:80", "10.1.0.4:80")
	t.Run("file first", func(t *testing.T) {
		s, checks := open(t, t.TempDir())
		use(t, s, config)
		if len(checks.targets) != 0 || s.Desired().Table != nil {
			t.Error("something happened before the forwarder was read")
		}
		s.Adopt(table)
		checks.expect(t, want...)
	})
	t.Run("forwarder first", func(t *testing.T) {
		s, checks := open(t, t.TempDir())
		s.Adopt(table)
		use(t, s, config)
		checks.expect(t, want...)
		state := s.Desired().Table.Services[vip].Servers[netip.MustParseAddrPort("10.1.0.2:80")].State
		if state != model.Down {
			t.Errorf("the server that was down is %s", state)
		}
	})
}

func TestNewcomersProveThemselvesWhereOthersServe(t *testing.T) {
	s, checks := open(t, t.TempDir())
	s.Adopt(model.NewTable())
	use(t, s, configOf(model.HealthTCP, "10.1.0.1:80", "10.1.0.2:80"))
	checks.expect(t, "10.1.0.1:80 up unchecked", "10.1.0.2:80 up unchecked")
	use(t, s, configOf(model.HealthTCP, "10.1.0.1:80", "10.1.0.3:80"))
	checks.expect(t, "10.1.0.1:80 up unchecked", "10.1.0.3:80 down unchecked")
	s.SetUp(ref("10.1.0.1:80"), checks.epoch(ref("10.1.0.1:80")), false)
	use(t, s, configOf(model.HealthTCP, "10.1.0.1:80", "10.1.0.4:80"))
	checks.expect(t, "10.1.0.1:80 down checked", "10.1.0.4:80 up unchecked") // no other server is up
	use(t, s, configOf(model.HealthNone, "10.1.0.1:80", "10.1.0.4:80"))
	checks.expect(t)
	if state := s.Snapshot().States[ref("10.1.0.1:80")].State; state != model.Up {
		t.Errorf("a server that is not checked is %s", state)
	}
}

func TestChangesAreTakenOnce(t *testing.T) {
	s, checks := open(t, t.TempDir())
	s.Adopt(model.NewTable())
	use(t, s, configOf(model.HealthTCP, "10.1.0.1:80"))
	epoch := checks.epoch(ref("10.1.0.1:80"))
	if !s.TakeChanges().All {
		t.Error("a new configuration is not everything")
	}
	s.Desired()
	version := s.Version()
	s.SetUp(ref("10.1.0.1:80"), epoch, true) // as before
	s.SetUp(ref("10.1.0.7:80"), epoch, false)
	if s.Version() != version {
		t.Error("nothing changed, and yet")
	}
	s.SetUp(ref("10.1.0.1:80"), epoch, false)
	changes := s.TakeChanges()
	if changes.All || len(changes.Servers) != 1 || changes.Servers[ref("10.1.0.1:80")].State != model.Down {
		t.Errorf("%+v", changes)
	}
	if again := s.TakeChanges(); len(again.Servers) != 0 {
		t.Errorf("taken twice: %+v", again)
	}
}

// Check results of a removed server say nothing about a new one at its address.
func TestLateCheckResultDoesNotAffectASuccessor(t *testing.T) {
	s, checks := open(t, t.TempDir())
	s.Adopt(model.NewTable())
	one := ref("10.1.0.1:80")
	use(t, s, configOf(model.HealthTCP, "10.1.0.1:80"))
	late := checks.epoch(one)
	use(t, s, configOf(model.HealthTCP, "10.1.0.2:80"))
	use(t, s, configOf(model.HealthTCP, "10.1.0.1:80"))
	if s.SetUp(one, late, false) || s.Snapshot().States[one].State != model.Up {
		t.Error("a late report was noted")
	}
	if !s.SetUp(one, checks.epoch(one), false) || s.Snapshot().States[one].State != model.Down {
		t.Error("a report was not noted")
	}
}

func TestARefusedConfigurationLeavesWhatIsKnown(t *testing.T) {
	s, checks := open(t, t.TempDir())
	s.Adopt(model.NewTable())
	one, two := ref("10.1.0.1:80"), ref("10.1.0.2:80")
	use(t, s, configOf(model.HealthTCP, "10.1.0.1:80", "10.1.0.2:80"))
	s.SetUp(one, checks.epoch(one), false)
	if err := s.SetDrain([]model.ServerRef{two}, &Drain{}); err != nil {
		t.Fatal(err)
	}
	refused := s.SetConfig(configOf(model.HealthTCP, "10.1.0.3:80"))
	if !s.Refuse(refused) {
		t.Fatal("there is a configuration to go back to")
	}
	states := s.Snapshot().States
	if len(states) != 2 || states[one].State != model.Down || states[two].State != model.Drain {
		t.Errorf("%v", states)
	}
	if _, generation := s.Refused(); generation != refused {
		t.Errorf("refused: %d", generation)
	}
	s.Abandon(refused)
	if refused, _ := s.Refused(); refused != nil {
		t.Error("it is kept after all")
	}
}

func TestDrainsSurviveAndAreForgotten(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "state")
	s, _ := open(t, directory)
	s.Adopt(model.NewTable())
	use(t, s, configOf(model.HealthTCP, "10.1.0.1:80", "10.1.0.2:80"))
	if err := s.SetDrain([]model.ServerRef{ref("10.1.0.1:80"), ref("10.1.0.2:80")}, &Drain{}); err != nil {
		t.Fatal(err)
	}
	if err := s.SetDrain([]model.ServerRef{ref("10.1.0.2:80")}, nil); err != nil {
		t.Fatal(err)
	}
	drained := func(s *Store) bool {
		return s.Snapshot().States[ref("10.1.0.1:80")].State == model.Drain &&
			s.Snapshot().States[ref("10.1.0.2:80")].State == model.Up
	}
	if !drained(s) {
		t.Error("not drained")
	}

	s, _ = open(t, directory)
	s.Adopt(model.NewTable())
	use(t, s, configOf(model.HealthTCP, "10.1.0.1:80", "10.1.0.2:80"))
	if !drained(s) {
		t.Error("not drained after a restart")
	}
	use(t, s, configOf(model.HealthTCP, "10.1.0.2:80"))
	use(t, s, configOf(model.HealthTCP, "10.1.0.1:80", "10.1.0.2:80"))
	if drained(s) {
		t.Error("a server that left the file came back drained")
	}
	left, err := os.ReadDir(directory)
	if err != nil || len(left) != 1 || left[0].Name() != StateFile {
		t.Errorf("%v, %v", left, err)
	}
}

func TestDrainsOfManyPortsSurvive(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "state")
	s, _ := open(t, directory)
	s.Adopt(model.NewTable())
	config := configOf(model.HealthNone, "10.1.0.1:0")
	config.Services[0].Key.LastPort = 99
	use(t, s, config)
	wide := model.ServerRef{Service: config.Services[0].Key, Address: netip.MustParseAddrPort("10.1.0.1:0")}
	if err := s.SetDrain([]model.ServerRef{wide}, &Drain{}); err != nil {
		t.Fatal(err)
	}
	s, _ = open(t, directory)
	s.Adopt(model.NewTable())
	use(t, s, config)
	if state := s.Snapshot().States[wide].State; state != model.Drain {
		t.Errorf("got %s", state)
	}
}

func TestBadStateIsReported(t *testing.T) {
	for text, want := range map[string]string{
		"{":              "remove the file",
		`{"version": 2}`: "version 2 is not known",
	} {
		directory := t.TempDir()
		if err := os.WriteFile(filepath.Join(directory, StateFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := Open(directory, &lastChecks{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestADrainedNodeSurvivesRestarts(t *testing.T) {
	directory := t.TempDir()
	s, _ := open(t, directory)
	for _, drain := range []bool{true, true, false, false, true} {
		before := s.IsNodeDrained()
		if changed, err := s.DrainNode(drain); err != nil || changed != (drain != before) {
			t.Errorf("drain %v: changed %v, %v", drain, changed, err)
		}
		if s.IsNodeDrained() != drain {
			t.Errorf("drain %v has no effect", drain)
		}
		if again, _ := open(t, directory); again.IsNodeDrained() != drain {
			t.Errorf("drain %v is not saved", drain)
		}
	}
}

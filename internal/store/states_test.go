// SPDX-License-Identifier: Apache-2.0

package store

import (
	"net/netip"
	"slices"
	"testing"

	"steelyard/internal/model"
)

func TestStatesAreThoseOfTheSnapshot(t *testing.T) {
	config := configOf(model.HealthTCP, "10.1.0.1:80", "10.1.0.2:80", "10.1.0.3:80")
	config.Services[0].Servers[1].Drain = true
	s := started(t, t.TempDir(), config)
	service := &config.Services[0]
	before := s.Version()
	for _, down := range []string{"", "10.1.0.3:80"} {
		if down != "" {
			s.mu.Lock()
			s.health[ref(down)] = serverHealth{up: false, checked: true}
			s.touch(ref(down))
			s.mu.Unlock()
		}
		var want []model.State
		for _, server := range service.Servers {
			want = append(want, s.Snapshot().States[model.ServerRef{Service: service.Key, Address: server.Address}].State)
		}
		if got := s.States(service, []model.State{model.Kill}); !slices.Equal(got[1:], want) || got[0] != model.Kill {
			t.Errorf("%v, want %v", got, want)
		}
	}
	if s.Version() == before {
		t.Error("a change leaves the version as it is")
	}
	other := *service // with a server that is not in the running configuration
	other.Servers = []model.Server{{Address: netip.MustParseAddrPort("10.1.0.9:80")}}
	if got := s.States(&other, nil); !slices.Equal(got, []model.State{model.Down}) {
		t.Errorf("%v", got)
	}
}

// A drained newcomer counts as drained until a check has failed, though it was not up before.
func TestFirstFailedCheckChangesTheState(t *testing.T) {
	s, checks := open(t, t.TempDir())
	s.Adopt(model.NewTable())
	use(t, s, configOf(model.HealthTCP, "10.1.0.1:80"))
	config := configOf(model.HealthTCP, "10.1.0.1:80", "10.1.0.2:80")
	config.Services[0].Servers[1].Drain = true
	use(t, s, config)
	newcomer := ref("10.1.0.2:80")
	state := func() model.State { return s.States(&config.Services[0], nil)[1] }
	if state() != model.Drain {
		t.Errorf("before its first check it is %s", state())
	}
	before := s.Version()
	for range 2 {
		s.SetUp(newcomer, checks.epoch(newcomer), false)
	}
	if state() != model.Down {
		t.Errorf("after a failed check it is %s", state())
	}
	if got := s.Version(); got != before+1 {
		t.Errorf("version %d, want %d: one change", got, before+1)
	}
}

// The queries of an iteration of the shares' loop, with 10 000 services of ten servers.
func BenchmarkStates(b *testing.B) {
	config := &model.Config{}
	for i := range 10_000 {
		key := model.ServiceKey{Protocol: model.TCP, VIP: netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)}), Port: 80}
		service := model.Service{Key: key, Health: model.Health{Type: model.HealthNone}}
		for k := range 10 {
			address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 3, byte(i), byte(k)}), 8080)
			service.Servers = append(service.Servers, model.Server{Address: address, Weight: 1})
		}
		config.Services = append(config.Services, service)
	}
	s, _ := open(b, b.TempDir())
	s.Adopt(model.NewTable())
	s.SetConfig(config)
	b.Run("snapshot", func(b *testing.B) {
		for range b.N {
			_ = s.Snapshot().States
		}
	})
	b.Run("changed", func(b *testing.B) {
		var into []model.State
		for range b.N {
			for i := range config.Services {
				into = s.States(&config.Services[i], into[:0])
			}
		}
	})
	b.Run("unchanged", func(b *testing.B) {
		for range b.N {
			_ = s.Version()
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"steelyard/internal/model"
)

// servicesOf puts the services of a random configuration into one whose local addresses do not change.
func servicesOf(r *rand.Rand) *model.Config {
	config := randomConfig(r)
	config.LocalAddresses = []netip.Addr{netip.MustParseAddr("10.9.9.9"), netip.MustParseAddr("fd09::9")}
	config.PeerLocals = nil
	return config
}

// Successive configurations differ only in services, and share some of them, while servers go up and
// down.
func TestChangesOfServicesAreReached(t *testing.T) {
	b := newBench(t, time.Hour)
	before := servicesOf(rand.New(rand.NewPCG(0, 2)))
	b.use(before)
	b.settle()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		next := *servicesOf(r)
		if r.IntN(3) > 0 && len(before.Services) > 0 { // else the whole configuration is another one
			next.Services = append([]model.Service(nil), before.Services...)
			at := r.IntN(len(next.Services))
			switch servers := next.Services[at].Servers; {
			case r.IntN(3) == 0:
				next.Services = append(next.Services[:at], next.Services[at+1:]...)
			case len(servers) > 0:
				next.Services[at].Servers = append([]model.Server(nil), servers...)
				next.Services[at].Servers[r.IntN(len(servers))].Weight += 7
			}
		}
		for _, service := range before.Services {
			for _, server := range service.Servers {
				if r.IntN(4) == 0 {
					b.find(model.ServerRef{Service: service.Key, Address: server.Address}, r.IntN(2) == 0)
				}
			}
		}
		b.use(&next)
		b.settle()
		if got, want := b.read(), b.store.Preview(&next); !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: got %+v, want %+v", seed, got, want)
		}
		before = &next
	}
}

func TestAChangedServiceIsAllThatIsCompared(t *testing.T) {
	b := newBench(t, time.Hour)
	before := oneService()
	other := before.Services[0]
	other.Name, other.Key.Port = "other", 81
	before.Services = append(before.Services, other)
	b.use(before)
	b.settle()
	after := *before
	after.Services = append([]model.Service(nil), before.Services...)
	after.Services[1].Name = "another"
	b.store.SetConfig(&after)
	desired := b.store.DesiredSince(before)
	if len(desired.Services) != 1 || len(desired.Table.Services) != 1 || desired.Table.Services[other.Key] == nil {
		t.Errorf("%+v", desired)
	}
}

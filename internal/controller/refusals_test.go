// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"steelyard/internal/cluster"
)

// A refusal begins with the name of a service or with an address.
func TestRefusalNamesAServiceOrAnAddress(t *testing.T) {
	config := cluster.Entry{Key: keyConfigs + "f1/b", Value: packed(service("10.8.0.80", "80", "fnat", "fd00:1::31"))}
	for reason, want := range map[string]bool{
		"service b.s: load.url: x": true, "service a.s: load.url: b.s": false, "service s: x": false, "10.8.0.80 is another host's": true, "10.8.0.80: x": true,
		"fd00:1::31: x": true, "10.8.0.81 is another host's": false, "it is full": false, "": false,
	} {
		if named, err := new(Server).isNamed(t.Context(), config, "b", reason); named != want || err != nil {
			t.Errorf("%s: %v, %v", reason, named, err)
		}
	}
}

// If the agent or the forwarder refuses a project's changes one after another, changes of other projects are not rolled back with them.
func TestRefusalRollsBackItsOwnProjectOnly(t *testing.T) {
	_, a, b := tenants(t)
	bad := strings.Replace(service("10.8.0.1", "80", "fnat", "10.1.0.21"), "health:", "load: { type: prometheus, url: \"http://127.0.0.1:1\", query: x }, health:", 1)
	if _, err := apply(t.Context(), a, "f1", "a", service("10.8.0.1", "80", "fnat", "10.1.0.21")); err != nil {
		t.Fatal(err)
	}
	good := service("10.8.0.81", "80", "fnat", "10.1.0.31")
	if _, err := apply(t.Context(), b, "f1", "b", good); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var refused sync.WaitGroup
	for i := range 4 {
		refused.Go(func() {
			for weight := i + 1; ctx.Err() == nil; weight += 4 {
				_, _ = apply(ctx, a, "f1", "a", strings.Replace(bad, "{ address", fmt.Sprintf("{ weight: %d, address", 1+weight%1000), 1))
			}
		})
	}
	for weight := 2; weight < 62; weight++ {
		text := strings.Replace(good, "{ address", fmt.Sprintf("{ weight: %d, address", weight), 1)
		if _, err := apply(t.Context(), b, "f1", "b", text); err != nil {
			t.Errorf("weight %d: %v", weight, err)
		}
	}
	cancel()
	refused.Wait()
}

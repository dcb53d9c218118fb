// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strings"
	"testing"
)

const formerKey = `version: 1
limits:
  - { name: noisy, packets_per_second: 1k, clients: { most: 10 } }
services: []
`

// A key's former name is accepted, with a warning that names the new one; both names together are a duplicate.
func TestFormerKeyIsAcceptedWithAWarning(t *testing.T) {
	config, err := Parse("f", []byte(formerKey))
	if err != nil {
		t.Fatal(err)
	}
	if got := config.Limits[0].Spec.MaxClients; got != 10 {
		t.Errorf("at most %d clients", got)
	}
	want := "f:3:61: limits[0].clients.most: this key is deprecated and will be removed in 1.0: rename it to `max_clients`"
	if warnings := Warnings("f", []byte(formerKey), config); !slices.Contains(warnings, want) {
		t.Errorf("warnings: %q", warnings)
	}
	both := strings.Replace(formerKey, "most: 10", "most: 10, max_clients: 10", 1)
	if _, err := Parse("f", []byte(both)); err == nil || !strings.Contains(err.Error(), "duplicate key") {
		t.Errorf("both names: %v", err)
	}
}

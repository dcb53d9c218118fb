// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
)

func TestLongestNamesAreAccepted(t *testing.T) {
	for _, one := range []struct {
		name    string
		parse   func(string) (string, error)
		prefix  string
		maximum int
	}{
		{"metric", parseMetric, "named_metrics.", 128},
		{"utilization", parseMetric, "utilization.", 128},
		{"instance", parseInstance, "", 128},
		{"host", parseHost, "", 253},
	} {
		t.Run(one.name, func(t *testing.T) {
			for length, accepted := range map[int]bool{0: false, 1: true, one.maximum: true, one.maximum + 1: false} {
				_, err := one.parse(one.prefix + strings.Repeat("a", length))
				if (err == nil) != accepted {
					t.Errorf("%d bytes: %v", length, err)
				}
			}
		})
	}
}

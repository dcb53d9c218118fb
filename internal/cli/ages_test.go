// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"
	"time"
)

func TestAgesAreNotNegative(t *testing.T) {
	now := time.Now()
	for at, want := range map[time.Time]string{now.Add(time.Hour): "0s ago", now.Add(-90 * time.Minute): "1h30m0s ago"} {
		if got := ago(at); got != want {
			t.Errorf("%s: %s", at, got)
		}
	}
	if got := (attackView{Began: uint64(now.Add(time.Hour).UnixMilli())}).sinceText(); got != "0s ago" {
		t.Error(got)
	}
}

// SPDX-License-Identifier: Apache-2.0

package api

import (
	"testing"
	"time"

	"steelyard/internal/drain"
)

// The clock on the wall may be set before the deadline.
func TestDeadlinesGoByTheMonotonicClock(t *testing.T) {
	order := orderOf(drain.Order{Drain: true, Deadline: time.Minute})
	if order.Until == order.Until.Round(0) { // which strips the monotonic reading
		t.Errorf("%+v", order)
	}
}

// SPDX-License-Identifier: Apache-2.0

package api

import (
	"testing"

	pb "steelyard/internal/gen/agentpb"
)

// The clock on the wall may be set before the deadline.
func TestDeadlinesGoByTheMonotonicClock(t *testing.T) {
	drain, err := readDrain(&pb.SetDrainRequest{Drain: true, DeadlineMs: 60_000})
	if err != nil || drain.Until == drain.Until.Round(0) { // which strips the monotonic reading
		t.Errorf("%+v, %v", drain, err)
	}
}

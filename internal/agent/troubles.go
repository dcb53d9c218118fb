// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"
	"sync"
	"time"

	"steelyard/internal/health"
)

// troublesEvery is the minimum time between two log lines about one kind of trouble: thousands of checks may have it.
const troublesEvery = 30 * time.Second

// hostTroubles logs that this host's own faults make health checks inconclusive.
type hostTroubles struct {
	log *slog.Logger

	mu     sync.Mutex
	logged [health.HostStalled + 1]time.Time
	checks [health.HostStalled + 1]int // undecided since
}

func (t *hostTroubles) note(check health.Observation, now time.Time) {
	why := check.Undecided
	if why == health.Decided {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.checks[why]++
	if last := t.logged[why]; !last.IsZero() && now.Sub(last) < troublesEvery {
		return
	}
	if why == health.HostFault {
		t.log.Warn("health checks are inconclusive: servers keep their states", "reason", "a fault of this host", "checks", t.checks[why],
			"error", check.Err, "remedy", health.Remedy(check.Err))
	} else {
		t.log.Warn("health checks are inconclusive and are repeated", "reason", "this host was stalled", "checks", t.checks[why],
			"error", check.Err)
	}
	t.logged[why], t.checks[why] = now, 0
}

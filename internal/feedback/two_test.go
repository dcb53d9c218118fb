// SPDX-License-Identifier: Apache-2.0

package feedback

import (
	"testing"
	"time"
)

// Two forwarders with one configuration weigh its servers by their own links, and each gives its shares to its own data plane.
func TestForwardersWeighServersDifferently(t *testing.T) {
	const ms = time.Millisecond
	here, there := newLab(t, 2), newLab(t, 2)
	there.config = here.config
	for range 200 {
		here.turns(1, 10, ms, 4*ms)
		there.turns(1, 10, 4*ms, ms)
	}
	for name, l := range map[string]struct {
		*lab
		near, far int
	}{"here": {here, 0, 1}, "there": {there, 1, 0}} {
		last := l.sent[len(l.sent)-1][0]
		near, far := last.Servers[l.near], last.Servers[l.far]
		if near.Share <= far.Share+0.05 || near.Address != l.ref(l.near).Address {
			t.Errorf("%s: %+v, %+v", name, near, far)
		}
	}
}

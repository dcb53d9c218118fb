// SPDX-License-Identifier: Apache-2.0

package feedback

import (
	"testing"
	"time"

	"steelyard/internal/health"
	"steelyard/internal/model"
	"steelyard/internal/share"
)

// Where no answers to SYNs pass, as under dr, ipip and with UDP, an HTTP check's connection measures the delay of the link; how long the server
// needs to answer does not.
func TestConnectionsOfHTTPChecksAreTheDelay(t *testing.T) {
	const ms = time.Millisecond
	l := newLab(t, 2)
	l.config.Services[0].Health.Type = model.HealthHTTP
	checked := func(seconds int, connects ...time.Duration) {
		for range seconds {
			for i, connect := range connects {
				l.checks[l.ref(i)] = health.State{LastPassed: true, LastCheck: l.now, LastConnect: connect, LastDuration: 50*ms - connect}
			}
			l.turns(1, 0)
		}
	}
	checked(100, ms, 3*ms)
	if near, far := l.share(0), l.share(1); near.Share <= far.Share+0.05 || near.State != share.Partly {
		t.Errorf("%+v, %+v", near, far)
	}
	l.turns(100, 10, 3*ms, ms) // traffic knows better
	if l.share(0).Share >= l.share(1).Share-0.05 {
		t.Errorf("%+v, %+v", l.share(0), l.share(1))
	}
	checked(100, ms, 3*ms) // and then there is none again
	if l.share(0).Share <= l.share(1).Share+0.05 {
		t.Errorf("%+v, %+v", l.share(0), l.share(1))
	}
	checked(200, 0, 0) // no connection of its own is known: nothing is
	if near := l.share(0); near.State != share.Blind {
		t.Errorf("%+v", near)
	}
}

// SPDX-License-Identifier: Apache-2.0

package health

import (
	"errors"
	"testing"
	"time"
)

// Strings of results, "+" passed and "-" failed, with the state after each: "U" up, "d" down.
func TestMachine(t *testing.T) {
	for _, test := range []struct {
		name          string
		up, checked   bool
		rise, fall    int
		results, want string
	}{
		{"falls after fall failures in a row", true, true, 2, 3, "--+---", "UUUUUd"},
		{"rises after rise passes in a row", false, true, 2, 3, "+-++", "dddU"},
		{"the first check takes an unchecked one down", true, false, 2, 3, "-+-++", "ddddU"},
		{"the first check brings an unchecked one up", false, false, 2, 3, "+--+---", "UUUUUUd"},
		{"a first check that agrees proves it", true, false, 2, 3, "+---", "UUUd"},
		{"one is enough", true, true, 1, 1, "-+-+", "dUdU"},
	} {
		m := machine{State: State{Up: test.up}, checked: test.checked, rise: test.rise, fall: test.fall}
		got, flips, wantFlips := "", 0, 0
		last := test.up
		for i, result := range test.results {
			err := errors.New("no")
			if result == '+' {
				err = nil
			}
			if m.note(err, time.Unix(int64(i+1), 0), time.Millisecond) {
				flips++
			}
			if m.Up {
				got += "U"
			} else {
				got += "d"
			}
			if m.Up != last {
				wantFlips++
			}
			last = m.Up
		}
		if got != test.want || flips != wantFlips {
			t.Errorf("%s: got %s with %d flips, want %s with %d", test.name, got, flips, test.want, wantFlips)
		}
	}
}

func TestMachineKeepsWhatPeopleAsk(t *testing.T) {
	m := machine{State: State{Up: true}, checked: true, rise: 2, fall: 2}
	m.note(errors.New("first"), time.Unix(1, 0), time.Second)
	m.note(errors.New("second"), time.Unix(2, 0), 2*time.Second)
	m.note(nil, time.Unix(3, 0), 3*time.Second)
	want := State{Up: false, Streak: 1, LastPassed: true, LastError: "second", LastCheck: time.Unix(3, 0),
		LastDuration: 3 * time.Second, Changed: time.Unix(2, 0)}
	if m.State != want {
		t.Errorf("got  %+v\nwant %+v", m.State, want)
	}
}

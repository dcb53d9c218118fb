// SPDX-License-Identifier: Apache-2.0

package model

import "strings"

// Resets says when TCP peers are told by a reset that their session is over; comparable.
type Resets struct {
	Expired bool // both ends, when it was idle for too long
	Down    bool // clients of a server whose health checks fail; their sessions end
	Unknown bool // who sends a packet of no session
}

// DefaultResets are those of a TCP service that says nothing: only ends of its own sessions are told.
var DefaultResets = Resets{Expired: true}

func (r Resets) String() string {
	var words []string
	for _, one := range []struct {
		set  bool
		word string
	}{{r.Expired, "expired"}, {r.Down, "down"}, {r.Unknown, "unknown"}} {
		if one.set {
			words = append(words, one.word)
		}
	}
	if words == nil {
		return "none"
	}
	return strings.Join(words, "+")
}

// SPDX-License-Identifier: Apache-2.0

package model

import "strings"

// Resets selects when TCP peers get a reset because their session has ended; comparable.
type Resets struct {
	Expired bool // both peers, when the session was idle for too long
	Down    bool // clients of a server whose health checks fail; the sessions end
	Unknown bool // the sender of a packet without a session
}

// DefaultResets apply to a TCP service without its own setting: a reset only for expired sessions.
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

// SPDX-License-Identifier: Apache-2.0

package store

import "steelyard/internal/model"

// marks assigns a unique number to each server that is checked on the VIP. The server keeps it as long as it exists, also over restarts of the agent,
// because the forwarder stores it.
type marks struct {
	of   map[model.ServerRef]marked
	used map[uint32]struct{}
	last uint32
}

type marked struct {
	mark  uint32
	since uint64 // version of the store
}

func newMarks() marks {
	return marks{of: map[model.ServerRef]marked{}, used: map[uint32]struct{}{}, last: model.FirstMark - 1}
}

// adopt records a mark that the forwarder has.
func (m *marks) adopt(ref model.ServerRef, mark uint32) {
	if _, taken := m.used[mark]; mark < model.FirstMark || mark > model.LastMark || taken {
		return
	}
	m.of[ref] = marked{mark: mark}
	m.used[mark] = struct{}{}
}

// assign returns the server's mark, or a new one if it has none; 0 if all are in use.
func (m *marks) assign(ref model.ServerRef, version uint64) marked {
	if has, ok := m.of[ref]; ok {
		return has
	}
	for range model.LastMark - model.FirstMark + 1 {
		// Assign the next one, not the smallest: a recently freed mark may still be in use.
		if m.last++; m.last > model.LastMark {
			m.last = model.FirstMark
		}
		if _, taken := m.used[m.last]; !taken {
			m.used[m.last] = struct{}{}
			m.of[ref] = marked{m.last, version}
			return m.of[ref]
		}
	}
	return marked{}
}

// keep removes the marks of servers for which keep returns false.
func (m *marks) keep(keep func(model.ServerRef) bool) {
	for ref, has := range m.of {
		if !keep(ref) {
			delete(m.used, has.mark)
			delete(m.of, ref)
		}
	}
}

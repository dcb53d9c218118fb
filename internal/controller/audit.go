// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"slices"

	"steelyard/internal/cluster"
)

const (
	maxAudit  = 10000
	auditStep = 5000 // records that are looked at beyond these
)

// trimAudit removes old audit records until maxAudit are left: the oldest of the callers who have most, so that none of them pushes out what others did.
// However many have come since the last time, they do not fill the store.
func (s *Server) trimAudit(ctx context.Context) error {
	for {
		entries, err := s.store.Last(ctx, keyAudit, maxAudit+auditStep)
		if err != nil || len(entries) <= maxAudit {
			return err
		}
		for some := range slices.Chunk(excessOf(entries, maxAudit), maxOperations) {
			txn := new(cluster.Txn)
			for _, one := range some {
				txn.Delete(one.Key)
			}
			if _, err := s.store.Commit(ctx, txn); err != nil {
				return err
			}
		}
	}
}

// excessOf returns the records to remove so that so many are left. Entries are the newest first.
func excessOf(entries []cluster.Entry, most int) (excess []cluster.Entry) {
	who := make([]string, len(entries))
	counts := map[string]int{}
	for i, entry := range entries {
		var one audit
		_ = json.Unmarshal(entry.Value, &one) // those that nobody can read are one caller's
		who[i] = one.Who
		counts[one.Who]++
	}
	share := shareOf(counts, most)
	kept := map[string]int{}
	left := 0
	for i, entry := range entries {
		if kept[who[i]]++; kept[who[i]] > share || left == most {
			excess = append(excess, entry)
		} else {
			left++
		}
	}
	return excess
}

// shareOf returns how many each caller may have at most, so that together they have no more than a number: those that have fewer leave the rest to others.
func shareOf(counts map[string]int, most int) int {
	var sorted []int
	for _, count := range counts {
		sorted = append(sorted, count)
	}
	slices.Sort(sorted)
	share := most
	for i, count := range sorted {
		if share = most / (len(sorted) - i); count > share {
			break
		}
		most -= count
	}
	return max(share, 1)
}

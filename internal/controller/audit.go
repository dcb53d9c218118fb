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
	auditStep = 5000 // further records that one pass reads
)

// trimAudit removes old audit records until maxAudit are left. It removes the oldest records of the callers with the most records, so that no caller
// displaces the records of others. Its cost does not depend on how many records came since the last call.
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

// excessOf returns the records to remove so that at most `limit` are left. entries begin with the newest.
func excessOf(entries []cluster.Entry, limit int) (excess []cluster.Entry) {
	callers := make([]string, len(entries))
	counts := map[string]int{}
	for i, entry := range entries {
		var one audit
		_ = json.Unmarshal(entry.Value, &one) // unreadable records count as those of one caller
		callers[i] = one.Who
		counts[one.Who]++
	}
	share := shareOf(counts, limit)
	kept := map[string]int{}
	left := 0
	for i, entry := range entries {
		if kept[callers[i]]++; kept[callers[i]] > share || left == limit {
			excess = append(excess, entry)
		} else {
			left++
		}
	}
	return excess
}

// shareOf returns the maximum number of records per caller, so that all together have at limit `limit`. Callers with fewer records leave their share to others.
func shareOf(counts map[string]int, limit int) int {
	var sorted []int
	for _, count := range counts {
		sorted = append(sorted, count)
	}
	slices.Sort(sorted)
	share := limit
	for i, count := range sorted {
		if share = limit / (len(sorted) - i); count > share {
			break
		}
		limit -= count
	}
	return max(share, 1)
}

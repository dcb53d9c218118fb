// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"testing"

	"steelyard/internal/cluster"
)

// A caller with very many records does not displace the records of others, and one pass removes the whole excess.
func TestAuditTrimsTheLargestCallersFirst(t *testing.T) {
	entry := func(n int, who string) cluster.Entry {
		return cluster.Entry{Key: fmt.Sprintf("%s%020d-c", keyAudit, n), Value: encode(audit{Who: who, What: "apply"})}
	}
	var entries []cluster.Entry // the newest first
	for n := 200; n > 100; n-- {
		entries = append(entries, entry(n, "user/greedy"))
	}
	for n := 100; n > 70; n-- {
		entries = append(entries, entry(n, "user/busy"))
	}
	for n := 70; n > 60; n-- {
		entries = append(entries, entry(n, "user/ada"))
	}
	removed := map[string]bool{}
	for _, one := range excessOf(entries, 60) {
		removed[one.Key] = true
	}
	if len(removed) != len(entries)-60 {
		t.Errorf("%d of %d are removed", len(removed), len(entries))
	}
	for n, want := range map[int]bool{200: false, 176: false, 175: true, 101: true, 100: false, 76: false, 75: true, 70: false, 61: false} {
		if caller := entry(n, ""); removed[caller.Key] != want {
			t.Errorf("record %d is removed: %v", n, !want)
		}
	}
	if got := excessOf(entries, len(entries)); len(got) != 0 {
		t.Errorf("%d are removed without need", len(got))
	}
}

func TestAuditIsTrimmedAtOnce(t *testing.T) {
	l := newLab(t, 1)
	const some = maxAudit + 2*auditStep + 50
	for n := 0; n < some; n += maxOperations {
		txn := new(cluster.Txn)
		for i := range min(maxOperations, some-n) {
			txn.Put(fmt.Sprintf("%s%020d-x", keyAudit, n+i), encode(audit{Who: "user/greedy"}), 0)
		}
		l.commit(txn)
	}
	if err := (&Server{store: l.store}).trimAudit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, err := l.store.Last(t.Context(), keyAudit, some); err != nil || len(left) != maxAudit {
		t.Errorf("%d are left, %v", len(left), err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"testing"
)

func TestAccessChangesAreOrdered(t *testing.T) {
	key := ServiceKey{Protocol: TCP, VIP: netip.MustParseAddr("10.0.0.80"), Port: 80}
	from, to := NewTable(), NewTable()
	from.AccessLists["old"] = AccessList{Name: "old", Otherwise: AccessDrop}
	from.AccessLists["same"] = AccessList{Name: "same", Otherwise: AccessAllow, Rules: []AccessRule{{Action: AccessDrop}}}
	from.AccessSets["gone"] = AccessSet{Name: "gone"}
	from.GlobalAccess = "old"
	from.Services[key] = &TableService{Spec: ServiceSpec{Name: "a", Mode: FNAT, Policy: Policy{Access: "old"}}}
	to.AccessLists["same"] = AccessList{Name: "same", Otherwise: AccessAllow, Rules: []AccessRule{{Action: AccessDrop}}}
	to.AccessLists["new"] = AccessList{Name: "new", Otherwise: AccessAllow}
	to.AccessSets["named"] = AccessSet{Name: "named"}
	to.GlobalAccess = "new"
	to.Services[key] = &TableService{Spec: ServiceSpec{Name: "a", Mode: FNAT, Policy: Policy{Access: "new"}}}

	changes := Diff(from, to)
	want := []ChangeKind{PutAccessSet, PutAccessList, PutGlobalAccess, PutService, DeleteAccessList, DeleteAccessSet}
	for i, change := range changes {
		if i >= len(want) || change.Kind != want[i] {
			t.Fatalf("change %d of %d is %s", i+1, len(changes), change.Kind)
		}
		if d := Describe(change, from, func(ServiceKey) string { return "a" }); d.Object == "" || d.Action == "" {
			t.Errorf("%s: %+v", change.Kind, d)
		}
		if err := from.Do(change); err != nil {
			t.Fatal(err)
		}
	}
	if len(changes) != len(want) || len(Diff(from, to)) != 0 {
		t.Errorf("%d changes, then %d", len(changes), len(Diff(from, to)))
	}
}

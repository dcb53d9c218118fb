// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"strings"
	"testing"
)

func TestSetsOfFiles(t *testing.T) {
	first := NewSetData([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")})
	second := NewSetData([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")})
	table := func(set AccessSet) *Table {
		table := NewTable()
		if set.Name != "" {
			table.AccessSets[set.Name] = set
		}
		return table
	}
	for _, test := range []struct {
		from, to AccessSet
		want     string // of the only change; empty: none
	}{
		{AccessSet{}, AccessSet{Name: "bad", Data: first}, "add 1 prefix of its file"},
		{AccessSet{Name: "bad", Data: first}, AccessSet{Name: "bad", Data: &SetData{Digest: first.Digest}}, ""},
		{AccessSet{Name: "bad", Data: &SetData{Digest: first.Digest}}, AccessSet{Name: "bad", Data: second},
			"change another version of its file -> 2 prefixes of its file; existing sessions continue"},
		{AccessSet{Name: "bad"}, AccessSet{Name: "bad", Data: first},
			"change 0 prefixes -> 1 prefix of its file; existing sessions continue"},
		{AccessSet{Name: "bad", Data: first}, AccessSet{Name: "bad", File: "/unread"}, ""},
		{AccessSet{}, AccessSet{Name: "bad", File: "/unread"}, "add empty until its file is read"},
	} {
		from := table(test.from)
		got := ""
		for _, change := range Diff(from, table(test.to)) {
			d := Describe(change, from, nil)
			got += d.Action + " " + d.Detail
		}
		if got != test.want {
			t.Errorf("%+v -> %+v: %q", test.from, test.to, got)
		}
	}
}

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

// What is announced before a change.
func TestEndsOfSessionsAreAnnounced(t *testing.T) {
	key := ServiceKey{Protocol: TCP, VIP: netip.MustParseAddr("10.0.0.80"), Port: 80}
	rules := []AccessRule{{Action: AccessDrop, Sets: []string{"blocked"}}}
	from := NewTable()
	from.AccessLists["keep"] = AccessList{Name: "keep", Otherwise: AccessAllow, Rules: rules}
	from.AccessLists["end"] = AccessList{Name: "end", Otherwise: AccessAllow, Rules: rules, Existing: EndExisting}
	from.AccessSets["blocked"] = AccessSet{Name: "blocked"}
	from.AccessSets["other"] = AccessSet{Name: "other"}
	from.Services[key] = &TableService{Spec: ServiceSpec{Name: "a", Mode: FNAT, Policy: Policy{Access: "keep"}}}
	const ends = "no longer allows end"
	for _, test := range []struct {
		change Change
		ends   bool
	}{
		{Change{Kind: PutAccessList, AccessList: AccessList{Name: "end", Otherwise: AccessDrop, Existing: EndExisting}}, true},
		{Change{Kind: PutAccessList, AccessList: AccessList{Name: "keep", Otherwise: AccessAllow, Rules: rules, Existing: EndExisting}}, true},
		{Change{Kind: PutAccessList, AccessList: AccessList{Name: "end", Otherwise: AccessAllow, Rules: rules}}, false},
		{Change{Kind: PutAccessList, AccessList: AccessList{Name: "new", Otherwise: AccessDrop, Existing: EndExisting}}, true},
		{Change{Kind: PutAccessSet, AccessSet: AccessSet{Name: "blocked", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}, true},
		{Change{Kind: PutAccessSet, AccessSet: AccessSet{Name: "other", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}, false},
		{Change{Kind: PutGlobalAccess, AccessList: AccessList{Name: "end"}}, true},
		{Change{Kind: PutGlobalAccess, AccessList: AccessList{Name: "keep"}}, false},
		{Change{Kind: PutService, Service: key, Spec: ServiceSpec{Name: "a", Mode: FNAT, Policy: Policy{Access: "end"}}}, true},
	} {
		d := Describe(test.change, from, func(ServiceKey) string { return "a" })
		if strings.Contains(d.Detail, ends) != test.ends {
			t.Errorf("%s %s: %+v", test.change.Kind, test.change.AccessList.Name, d)
		}
	}
}

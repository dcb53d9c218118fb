// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
)

const ecmpGroup = `version: 1
group: edge
mode: ecmp
nodes:
  - { forwarder: f1, node: 1, sync: 10.9.0.1, next_hops: [10.9.0.1], local_addresses: [10.1.1.10] }
  - { forwarder: f2, node: 2, sync: "10.9.0.2:9000", next_hops: [10.9.0.2], local_addresses: [10.1.2.10, "fd00::2"] }
`

const pairGroup = `version: 1
group: edge
mode: pair
next_hops: [10.0.0.5]
local_addresses: [10.1.0.200]
nodes:
  - { forwarder: f1, node: 1, sync: "[fd00::1]:8850" }
  - { forwarder: f2, node: 2, sync: "fd00::2" }
`

func TestGroup(t *testing.T) {
	group, err := ParseGroup("edge.yaml", []byte(ecmpGroup))
	if err != nil {
		t.Fatal(err)
	}
	if !group.ECMP || group.Name != "edge" || group.Of("f1").Sync.String() != "10.9.0.1:8849" || group.Of("f2").Sync.String() != "10.9.0.2:9000" || group.Of("f3") != nil {
		t.Errorf("%+v", group)
	}
	if group, err = ParseGroup("edge.yaml", []byte(pairGroup)); err != nil || group.Of("f1").Sync.String() != "[fd00::1]:8850" || group.Of("f2").Sync.Port() != 8849 {
		t.Errorf("%+v, %v", group, err)
	}
}

func TestMistakesInGroups(t *testing.T) {
	for _, one := range []struct{ text, before, after, want string }{
		{ecmpGroup, "group: edge\n", "", "edge.yaml:1:1: `group` is missing"},
		{ecmpGroup, "mode: ecmp", "mode: both", `edge.yaml:3:7: mode: "both" is unknown: use pair or ecmp`},
		{ecmpGroup, "mode: ecmp", "mode: pair", "edge.yaml:5:5: nodes[0]: in `mode: pair` both nodes have the same `next_hops` and `local_addresses`: move them out of `nodes`"},
		{ecmpGroup, "node: 2", "node: 1", "edge.yaml:6:28: nodes[1].node: 1 is already in line 5: remove one"},
		{ecmpGroup, "node: 2", "node: 32", "edge.yaml:6:28: nodes[1].node: "},
		{ecmpGroup, "forwarder: f2", "forwarder: f1", "edge.yaml:6:18: nodes[1].forwarder: f1 is already in line 5: remove one"},
		{ecmpGroup, `"10.9.0.2:9000"`, "10.9.0.1", "nodes[1].sync: 10.9.0.1 is already in line 5"},
		{ecmpGroup, `"10.9.0.2:9000"`, `"fd00::9"`, "nodes[1].sync: fd00::9 is of another family than 10.9.0.1: use one for all nodes"},
		{ecmpGroup, `"10.9.0.2:9000"`, `"10.9.0.2:0"`, "is not an address of a host: write ADDRESS"},
		{ecmpGroup, "10.1.2.10", "10.1.1.10", "nodes[1].local_addresses[0]: 10.1.1.10 is already in line 5"},
		{ecmpGroup, "next_hops: [10.9.0.2]", "next_hops: [10.9.0.2, 10.9.0.3]", "nodes[1].next_hops[1]: 10.9.0.3 is the second one of its family"},
		{ecmpGroup, "mode: ecmp\n", "mode: ecmp\nlocal_addresses: [10.1.9.9]\n", "in `mode: ecmp` each node has its own `next_hops` and `local_addresses`: move them into `nodes`"},
		{ecmpGroup, "  - { forwarder: f2", "#  - { forwarder: f2", "nodes: a group has 2 to 8 nodes, not 1"},
		{pairGroup, "  - { forwarder: f2", "  - { forwarder: f3, node: 3, sync: \"fd00::3\" }\n  - { forwarder: f2", "nodes: a pair has two nodes, not 3: use `mode: ecmp` for more"},
		{pairGroup, "mode: pair", "mode: pair\ncolor: red", "edge.yaml:4:1: color: unknown key"},
		{"[]", "", "", "a mapping is needed"},
		{"", "", "", "the file is empty"},
	} {
		_, err := ParseGroup("edge.yaml", []byte(strings.Replace(one.text, one.before, one.after, 1)))
		if err == nil || !strings.Contains(err.Error(), one.want) {
			t.Errorf("%v, want %s", err, one.want)
		}
	}
}

func TestFilesOfNodesAreExtended(t *testing.T) {
	group, err := ParseGroup("edge.yaml", []byte(ecmpGroup))
	if err != nil {
		t.Fatal(err)
	}
	got, err := group.Extend("web.yaml", []byte("version: 1\nservices: []\n\n"), "f1")
	want := "version: 1\nservices: []\nlocal_addresses: [\"10.1.1.10\"]\npeer_local_addresses: [\"10.1.2.10\", \"fd00::2\"]\nnext_hops: [\"10.9.0.1\"]\n"
	if err != nil || string(got) != want {
		t.Errorf("%v:\n%s", err, got)
	}
	for _, text := range []string{"{version: 1, services: []}", "  version: 1\n  services: []\n"} { // no line can be appended
		got, err := group.Extend("web.yaml", []byte(text), "f2")
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := Parse("web.yaml", got)
		if err != nil || len(parsed.LocalAddresses) != 2 || parsed.PeerLocals[0].String() != "10.1.1.10" {
			t.Errorf("%v:\n%s", err, got)
		}
	}
	_, err = group.Extend("web.yaml", []byte("version: 1\nnext_hops: [10.0.0.1]\nservices: []\n"), "f1")
	if err == nil || err.Error() != "web.yaml:2:12: next_hops: the group edge has this key for its nodes: remove it here, and change it by `steelyard group set`" {
		t.Error(err)
	}
	if group, err = ParseGroup("edge.yaml", []byte(pairGroup)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"f1", "f2"} {
		got, err := group.Extend("web.yaml", []byte("version: 1\nservices: []"), name)
		if err != nil || string(got) != "version: 1\nservices: []\nlocal_addresses: [\"10.1.0.200\"]\nnext_hops: [\"10.0.0.5\"]\n" {
			t.Errorf("%v:\n%s", err, got)
		}
	}
}

func FuzzGroup(f *testing.F) {
	f.Add([]byte(ecmpGroup), []byte("version: 1\nservices: []\n"))
	f.Add([]byte(pairGroup), []byte("{version: 1}"))
	f.Fuzz(func(t *testing.T, text, file []byte) {
		group, err := ParseGroup("edge.yaml", text)
		if err != nil {
			return
		}
		if len(group.Nodes) < 2 {
			t.Errorf("%+v", group)
		}
		extended, err := group.Extend("web.yaml", file, group.Nodes[0].Forwarder)
		if err != nil {
			return
		}
		if _, err := Parse("web.yaml", file); err == nil { // an accepted file stays YAML
			if err := Addresses(extended); err == nil {
				t.Errorf("%s", extended)
			}
		}
	})
}

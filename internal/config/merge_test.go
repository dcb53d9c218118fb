// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
)

const mergeBase = `version: 1
local_addresses: [10.1.0.10]
services:
  - { name: web, vip: 10.0.0.80, port: 80, servers: [{ address: 10.1.0.21, port: 8080 }] }
`

func partOf(name, vip string) Part {
	return Part{name, []byte("version: 1\nservices:\n  - name: web\n    vip: " + vip + "\n    port: 80\n    servers: [{ address: 10.1.0.22, port: 8080 }]\n")}
}

// checkMerge merges files, and compares the names of their services.
func checkMerge(t *testing.T, want, base string, parts ...Part) {
	t.Helper()
	merged, err := Merge([]byte(base), parts)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := Parse("merged", merged)
	if err != nil {
		t.Fatalf("%v\n%s", err, merged)
	}
	var names []string
	for _, service := range parsed.Services {
		names = append(names, service.Name)
	}
	if got := strings.Join(names, " "); got != want {
		t.Errorf("services %s", got)
	}
}

func TestMerge(t *testing.T) {
	checkMerge(t, "web shop.web blog.web", mergeBase, partOf("shop", "10.0.0.81"), partOf("blog", "10.0.0.82"))
	if same, err := Merge([]byte(mergeBase), nil); err != nil || string(same) != mergeBase {
		t.Errorf("without parts the text changed: %s, %v", same, err)
	}
	if alone, err := Merge([]byte("version: 1\nlocal_addresses: [10.1.0.10]\n"), []Part{partOf("shop", "10.0.0.81")}); err != nil {
		t.Error(err)
	} else if _, err := Parse("merged", alone); err != nil {
		t.Errorf("%v\n%s", err, alone)
	}
}

func TestMergeRefuses(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"other keys": {"version: 1\nlocal_addresses: [10.1.0.11]\nservices: []\n", "only the default project"},
		"no list":    {"version: 1\nservices: 3\n", "not a list"},
		"nothing":    {"version: 1\n", "missing"},
		"no YAML":    {"services: [", "shop"},
	} {
		if _, err := Merge([]byte(mergeBase), []Part{{"shop", []byte(test.text)}}); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Two projects cannot have the same VIP: the whole is checked.
	merged, err := Merge([]byte(mergeBase), []Part{partOf("shop", "10.0.0.80")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse("merged", merged); err == nil {
		t.Error("the VIP of another project is taken")
	}
}

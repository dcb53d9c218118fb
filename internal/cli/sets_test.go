// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A set's file: refused while it is wrong, shown once it is right, and reported when it is wrong later.
func TestSetsOfFiles(t *testing.T) {
	l := newLab(t)
	list, next := filepath.Join(l.directory, "bad.txt"), filepath.Join(l.directory, "next.yaml")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const shown = "DIR/bad.txt"
	write(list, "10.0.0.1/33\n")
	write(next, strings.Replace(configText, "access_sets:\n", "access_sets:\n  - { name: bad, file: "+list+" }\n", 1))
	for _, command := range []string{"check", "apply"} {
		code, _, errOut := l.run(command, next)
		if code != 2 || !strings.Contains(errOut, "access set bad: "+shown+`:1: this line is not a prefix`) {
			t.Errorf("%s: exit code %d: %s", command, code, errOut)
		}
	}
	write(list, "10.0.0.1\n2001:db8::/32\n")
	if code, out, errOut := l.run("check", next); code != 0 || !strings.Contains(out, "2 access sets") {
		t.Errorf("check: exit code %d: %s%s", code, out, errOut)
	}
	if code, out, errOut := l.run("apply", next); code != 0 {
		t.Fatalf("apply: exit code %d: %s%s", code, out, errOut)
	}
	if _, out, _ := l.run("get", "sets"); !strings.Contains(out, shown) || strings.Contains(out, "keeps") {
		t.Error(out)
	}
	write(list, "10.0.0.1\nx\n")
	want := "bad keeps its prefixes: " + shown + `:2: this line is not a prefix`
	for {
		if _, out, _ := l.run("get", "sets"); strings.Contains(out, want) {
			break
		}
	}
	if _, out, _ := l.run("get", "status"); !strings.Contains(out, "access set bad has its file as it was at ") {
		t.Error(out)
	}
}

// check reports every file that is wrong.
func TestAllBadFilesOfSets(t *testing.T) {
	l := newLab(t)
	next := filepath.Join(l.directory, "next.yaml")
	text := strings.Replace(configText, "access_sets:\n", "access_sets:\n  - { name: one, file: /nowhere/one }\n  - { name: two, file: /nowhere/two }\n", 1)
	if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	code, _, errOut := l.run("check", next)
	for _, want := range []string{"access set one: ", "access set two: "} {
		if code != 2 || !strings.Contains(errOut, want) {
			t.Errorf("exit code %d: %s\nwant %s", code, errOut, want)
		}
	}
}

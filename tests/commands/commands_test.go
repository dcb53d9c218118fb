// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestCommandsAreIndependent(t *testing.T) {
	const good = "version: 1\nlocal_addresses: [10.1.0.200]\nservices: []\n"
	steps := []struct {
		command
		code           int
		stdout, stderr string
	}{
		{command{Args: []string{"version"}}, 0, "steelyard", ""},
		{command{Args: []string{"no-command"}}, 2, "", "no-command"},
		{command{Args: []string{"check", "-"}, Stdin: good}, 0, "valid", ""},
		{command{Args: []string{"check", "-"}, Stdin: "version: 2\n"}, 2, "", "version"},
		{command{Args: []string{"version"}}, 0, "steelyard", ""},
	}
	var in, out strings.Builder
	for _, one := range steps {
		_ = json.NewEncoder(&in).Encode(one.command)
	}
	if err := serve(strings.NewReader(in.String()), &out); err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(strings.NewReader(out.String()))
	for _, want := range steps {
		var got result
		if err := decoder.Decode(&got); err != nil {
			t.Fatal(err)
		}
		if got.Code != want.code || !strings.Contains(got.Stdout, want.stdout) || !strings.Contains(got.Stderr, want.stderr) {
			t.Errorf("%q: %+v, want %+v", want.Args, got, want)
		}
	}
	if decoder.More() {
		t.Error("more results than commands")
	}
}

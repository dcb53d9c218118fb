// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The forwarder has nothing of health checks, metrics and export: diff and apply list them all the same.
func TestSettingsOfTheAgentAreListed(t *testing.T) {
	l := newLab(t)
	next := filepath.Join(l.directory, "next.yaml")
	var log strings.Builder
	try := func(text string, commands ...string) {
		if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, command := range commands {
			code, out, errOut := l.run(append(strings.Fields(command), next)...)
			fmt.Fprintf(&log, "$ steelyard %s\n%s%s[%d]\n\n", command, out, errOut, code)
		}
	}
	checked := configText + "  - { name: spare, vip: 10.0.0.82, port: 80, health: { type: http, path: / }, servers: [] }\n" // no server to check
	collector := "export: { sflow: { collector: \"127.0.0.1:6343\" } }\n"
	try(checked, "apply")
	try(strings.Replace(checked, "path: / }", "path: /healthz }", 1)+collector, "diff", "diff -o json", "apply", "diff", "apply")
	try(strings.Replace(checked, "weight: 10", "weight: 9", 1)+collector, "diff", "apply")
	expectGolden(t, "settings", log.String())
}

// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"runtime/debug"
	"testing"
)

// GOMEMLIMIT in the environment overrides the agent's limit, even with "off".
func TestGOMEMLIMITOverridesTheMemoryLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	for _, text := range []string{"off", "2GiB"} { // read by the runtime when the program began
		t.Setenv("GOMEMLIMIT", text)
		limitMemory()
		if got := debug.SetMemoryLimit(-1); got != before {
			t.Errorf("%s: the limit is %d, not %d", text, got, before)
		}
	}
	if err := os.Unsetenv("GOMEMLIMIT"); err != nil {
		t.Fatal(err)
	}
	limitMemory()
	if got := debug.SetMemoryLimit(-1); got != agentMemory {
		t.Errorf("without it: the limit is %d", got)
	}
}

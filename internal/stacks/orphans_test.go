// SPDX-License-Identifier: Apache-2.0

package stacks

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestOrphans(t *testing.T) {
	proc := t.TempDir()
	for _, one := range []struct {
		pid, parent int
		name, maps  string
	}{
		{1, 0, "init", ""},
		{10, 1, "steelyard-super", ""},
		{11, 10, "nginx", "7f00-7f01 r-xp 0 00:00 1 /usr/libexec/steelyard/libsteelyard-preload.so\n"},
		{12, 11, "nginx", "7f00-7f01 r-xp 0 00:00 1 /usr/libexec/steelyard/libsteelyard-preload.so\n"},
		{20, 1, "odd) (name", "7f00-7f01 r-xp 0 00:00 1 /usr/libexec/steelyard/libsteelyard-preload.so\n"},
		{21, 20, "nginx", "7f00-7f01 r-xp 0 00:00 1 /usr/libexec/steelyard/libsteelyard-preload.so (deleted)\n"},
		{30, 1, "redis", "7f00-7f01 r-xp 0 00:00 1 /usr/lib/libc.so\n"},
		{40, 41, "nginx", "7f00-7f01 r-xp 0 00:00 1 /libsteelyard-preload.so\n"}, // its parent is gone right now
		{50, 1, "gdb", "7f00-7f01 r--p 0 00:00 1 /usr/libexec/steelyard/libsteelyard-preload.so\n"},
		{60, 0, "nsenter", "7f00-7f01 r-xp 0 00:00 1 /usr/libexec/steelyard/libsteelyard-preload.so\n"}, // its parent is in a namespace above
	} {
		folder := filepath.Join(proc, fmt.Sprint(one.pid))
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"stat": fmt.Sprintf("%d (%s) S %d 1 1 0", one.pid, one.name, one.parent), "maps": one.maps} {
			if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if found := Orphans(proc); !slices.Equal(found, []int{20, 21}) {
		t.Error(found)
	}
	// The first process of a PID namespace is the program itself.
	if err := os.WriteFile(filepath.Join(proc, "1", "maps"), []byte("7f00-7f01 r-xp 0 00:00 1 /libsteelyard-preload.so\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if found := Orphans(proc); len(found) != 0 {
		t.Error(found)
	}
}

// SPDX-License-Identifier: Apache-2.0

package stacks

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

const (
	library = "/libsteelyard-preload.so"
	keeper  = "steelyard-keepe" // as the kernel cuts it
)

// Orphans lists processes with the preloaded library that no keeper is an ancestor of: their `steelyard run` was
// killed. proc: where a proc filesystem is.
func Orphans(proc string) []int {
	entries, err := filepath.Glob(filepath.Join(proc, "[0-9]*"))
	if err != nil {
		return nil
	}
	var found []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(filepath.Base(entry))
		if err != nil {
			continue
		}
		maps, err := os.ReadFile(filepath.Join(entry, "maps"))
		if err == nil && bytes.Contains(maps, []byte(library)) && !kept(proc, pid) {
			found = append(found, pid)
		}
	}
	slices.Sort(found)
	return found
}

// kept tells whether a keeper is the process, or one of its ancestors.
func kept(proc string, pid int) bool {
	for pid > 0 {
		name, parent, ok := status(proc, pid)
		if !ok || name == keeper { // it has ended meanwhile: nothing is to be said of it
			return true
		}
		pid = parent
	}
	return false
}

// status reads PID (NAME) STATE PARENT from stat; a name may have spaces and parentheses.
func status(proc string, pid int) (name string, parent int, ok bool) {
	text, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if err != nil || open < 0 || end < open {
		return "", 0, false
	}
	var state string
	_, err = fmt.Sscan(string(text[end+1:]), &state, &parent)
	return string(text[open+1 : end]), parent, err == nil
}

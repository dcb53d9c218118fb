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

const library = "/libsteelyard-preload.so"

// supervisor is the program's name as stat has it: the kernel keeps 15 bytes.
var supervisor = "steelyard-supervisor"[:15]

// Orphans lists processes that run the preloaded library and have no supervisor among their ancestors: their `steelyard run` was killed. It omits a process
// whose supervisor may be invisible, in a parent PID namespace. proc: path of a proc filesystem.
func Orphans(proc string) []int {
	entries, err := filepath.Glob(filepath.Join(proc, "[0-9]*"))
	if err != nil {
		return nil
	}
	var found []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(filepath.Base(entry))
		if err == nil && runs(proc, pid) && lost(proc, pid) {
			found = append(found, pid)
		}
	}
	slices.Sort(found)
	return found
}

// runs reports whether a process has mapped the library's code.
func runs(proc string, pid int) bool {
	maps, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "maps"))
	if err != nil || !bytes.Contains(maps, []byte(library)) {
		return false
	}
	for line := range bytes.Lines(maps) {
		if bytes.Contains(line, []byte(library)) && bytes.Contains(line, []byte(" r-xp ")) {
			return true
		}
	}
	return false
}

// lost reports whether all ancestors are visible, up to the first process outside the program, and none is a supervisor.
func lost(proc string, pid int) bool {
	for {
		name, parent, ok := status(proc, pid)
		switch {
		case !ok || name == supervisor: // it has ended meanwhile, or is a supervisor
			return false
		case parent == 0:
			return pid == 1 && !runs(proc, pid)
		}
		pid = parent
	}
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

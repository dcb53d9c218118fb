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

// Orphans lists processes that run the preloaded library and have no keeper among their ancestors: their `steelyard run`
// was killed. Where a keeper may be out of sight, in a PID namespace above, nothing is said. proc: where a proc filesystem is.
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

// runs tells whether code of the library is in a process.
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

// lost tells whether all ancestors are there, up to a first process that is not the program's, and none is a keeper.
func lost(proc string, pid int) bool {
	for {
		name, parent, ok := status(proc, pid)
		switch {
		case !ok || name == keeper: // it has ended meanwhile: nothing is to be said of it
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

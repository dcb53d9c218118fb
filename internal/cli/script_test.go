// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// The scenarios of testdata/script: commands with their outputs, run in this process against an agent with a fake forwarder. Each begins with its
// steelyard.yaml in force. `steelyard` takes file names below the scenario's directory; FORWARDER stands for the forwarder's socket.
// `exits N` checks the last command's exit code.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			var s script
			testscript.Run(t, testscript.Params{
				Files: []string{file}, UpdateScripts: *update,
				Setup: func(env *testscript.Env) error {
					text, err := os.ReadFile(filepath.Join(env.WorkDir, "steelyard.yaml"))
					s.lab, s.directory = newLabWith(t, string(text)), env.WorkDir
					return err
				},
				Cmds: map[string]func(*testscript.TestScript, bool, []string){"steelyard": s.steelyard, "exits": s.exits},
			})
		})
	}
}

// script is the state of a scenario.
type script struct {
	lab       *lab
	directory string
	code      int // of the last command
}

// steelyard runs a command, and fails if its success is not as expected.
func (s *script) steelyard(ts *testscript.TestScript, neg bool, args []string) {
	command := make([]string, len(args))
	for i, arg := range args {
		command[i] = arg
		if arg == "FORWARDER" {
			command[i] = s.lab.forwarder.Socket
		}
		if path := filepath.Join(s.directory, arg); strings.HasSuffix(arg, ".yaml") {
			command[i] = path
		}
	}
	var out, errOut string
	s.code, out, errOut = s.lab.run(command...)
	clean := strings.NewReplacer(s.directory+"/", "")
	fmt.Fprint(ts.Stdout(), clean.Replace(out))
	fmt.Fprint(ts.Stderr(), clean.Replace(errOut))
	if (s.code != exitOK) != neg {
		ts.Fatalf("exit code %d: %s%s", s.code, out, errOut)
	}
}

// exits checks the last exit code.
func (s *script) exits(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 || args[0] != strconv.Itoa(s.code) {
		ts.Fatalf("exit code %d, want %s", s.code, strings.Join(args, " "))
	}
}

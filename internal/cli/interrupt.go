// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"syscall"

	"connectrpc.com/connect"
)

// interruptMessage is a command's message after a signal: what continues without the command, and how to check or undo it.
type interruptMessage struct{ text string }

func (m *interruptMessage) Error() string { return m.text }

// interruptMessages has the messages of commands whose effect a signal does not undo, by the prefix of the command's path. Commands that only read have
// no entry.
var interruptMessages = []struct{ path, text string }{
	{"apply", "the file may be in force nevertheless: `steelyard get status` shows the revision, `steelyard diff` what is missing"},
	{"drain", "the order may be in effect nevertheless: `steelyard get servers` shows it, `steelyard drain SERVER --undo` ends it"},
	{"kill", "the order may be in effect nevertheless: `steelyard get servers` shows it, `steelyard kill SERVER --undo` ends it"},
	{"upgrade", "the forwarder continues the upgrade: see `steelyard get status`"},
	{"role", "the role may be set nevertheless: `steelyard role` shows it"},
	{"release", "a part may be removed already: run it again"},
	{"cleanup", "a part may be removed already: run it again"},
	{"hook load", "the hook may be loaded nevertheless: `steelyard hook list` shows it"},
	{"hook swap", "the hook may be swapped nevertheless: `steelyard hook list` shows it"},
	{"hook set", "the parameter may be set nevertheless: `steelyard hook list -o json` shows it"},
	{"hook rm", "the hook may be removed nevertheless: `steelyard hook list` shows it"},
	{"nfv request", "the request may be recorded nevertheless: `steelyard get requests` shows it"},
	{"nfv route-set", "the confirmation may be recorded nevertheless: `steelyard get requests` shows it"},
	{"nfv delete", "the request may end nevertheless: `steelyard get requests` shows it"},
	{"project", "the change may be made nevertheless: `steelyard get projects` shows it"},
	{"token", "the token may exist nevertheless, unseen, until it expires: create another one"},
	{"member", "the change may be made nevertheless: `steelyard get audit` shows it"},
	{"authority replace", "the replacement may have begun nevertheless: `steelyard authority show` shows it"},
	{"context add", "the token may be used up: if the context is missing in `steelyard context list`, create another token"},
}

// isInterruption reports whether an error only says that the command's context has ended.
func isInterruption(err error) bool {
	var child *exec.ExitError
	if errors.As(err, &child) {
		state, ok := child.Sys().(syscall.WaitStatus)
		return ok && state.Signaled()
	}
	return errors.Is(err, context.Canceled) || connect.CodeOf(err) == connect.CodeCanceled
}

// afterInterruption returns the message after a signal has ended a command.
func afterInterruption(path string, err error) string {
	var own *interruptMessage
	if errors.As(err, &own) {
		return own.text
	}
	path = strings.TrimPrefix(path, "steelyard ")
	for _, one := range interruptMessages {
		if path == one.path || strings.HasPrefix(path, one.path+" ") {
			return "interrupted; " + one.text
		}
	}
	return "interrupted"
}

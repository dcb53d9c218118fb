// SPDX-License-Identifier: Apache-2.0

// Package confine permanently removes from this process the system calls that the agent does not need. calls.go lists those that it needs.
// docs/design/0029-control-plane-rights.md has the reasons.
package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
)

// Mode is the action for a call that is not allowed. The forwarder's --seccomp has the same words.
type Mode string

const (
	// On refuses it with EPERM; the kernel logs it.
	On Mode = "on"
	// Trap ends the process, with the stack of the caller: for tests.
	Trap Mode = "trap"
	// Off allows all calls.
	Off Mode = "off"
)

// String is part of pflag.Value.
func (m *Mode) String() string { return string(*m) }

// Type is part of pflag.Value.
func (m *Mode) Type() string { return "mode" }

// Set is part of pflag.Value.
func (m *Mode) Set(text string) error {
	switch mode := Mode(text); mode {
	case On, Trap, Off:
		*m = mode
		return nil
	}
	return errors.New("must be on, trap or off")
}

// NoDumps keeps this process's memory out of core dumps, and other processes of its user out of its memory.
// Call it before Apply, which forbids the call.
func NoDumps() error {
	const setDumpable = 4 // PR_SET_DUMPABLE
	if _, _, err := syscall.RawSyscall(syscall.SYS_PRCTL, setDumpable, 0, 0); err != 0 {
		return err
	}
	return nil
}

// Apply filters the system calls of all threads, and of those that they start.
func Apply(mode Mode) error {
	if mode == Off {
		return nil
	}
	policy, err := newPolicy(mode)
	if err != nil {
		return err
	}
	// The right to install a filter belongs to a thread; TSYNC applies the filter to the other threads.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := seccomp.LoadFilter(seccomp.Filter{
		NoNewPrivs: true, Flag: seccomp.FilterFlagTSync | seccomp.FilterFlagLog, Policy: policy,
	}); err != nil {
		return err
	}
	// A thread with a filter of its own would keep the others from getting this one; the library does
	// not report that.
	return threadsAreFiltered("/proc/self/task")
}

func threadsAreFiltered(directory string) error {
	threads, err := filepath.Glob(directory + "/*/status")
	if err != nil || len(threads) == 0 {
		return fmt.Errorf("%s cannot be read: whether the filter is in force is unknown", directory)
	}
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has ended
		}
		if err != nil {
			return err
		}
		if !strings.Contains(string(text), "\nSeccomp:\t2\n") {
			return fmt.Errorf("the thread of %s has no filter", path)
		}
	}
	return nil
}

// newPolicy allows only the listed calls.
func newPolicy(mode Mode) (seccomp.Policy, error) {
	refused := seccomp.ActionErrno // with EPERM
	if mode == Trap {
		refused = seccomp.ActionTrap
	}
	machine, err := arch.GetInfo("")
	if err != nil {
		return seccomp.Policy{}, fmt.Errorf("system calls of this machine: %w", err)
	}
	exists := func(name string) bool { _, ok := machine.SyscallNames[name]; return ok }
	allowed := seccomp.SyscallGroup{Action: seccomp.ActionAllow}
	for _, name := range always {
		if exists(name) { // some machines have only the newer form of a call
			allowed.Names = append(allowed.Names, name)
		}
	}
	for _, call := range conditional() {
		if exists(call.Name) {
			allowed.NamesWithCondtions = append(allowed.NamesWithCondtions, call)
		}
	}
	// Its flags lie in memory, where a filter cannot look. A C library then uses clone().
	missing := seccomp.SyscallGroup{Action: seccomp.ActionErrno&^0xffff | seccomp.Action(syscall.ENOSYS), Names: []string{"clone3"}}
	return seccomp.Policy{DefaultAction: refused, Syscalls: []seccomp.SyscallGroup{allowed, missing}}, nil
}

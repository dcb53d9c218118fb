// SPDX-License-Identifier: Apache-2.0

package confine

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/fsnotify/fsnotify"
)

// forbidden are calls that the agent does not need, with arguments that do no harm where they are allowed.
var forbidden = map[string][6]uintptr{
	"execve":            {},
	"execveat":          {^uintptr(0)},
	"ptrace":            {0xffff},
	"mount":             {},
	"umount2":           {},
	"bpf":               {^uintptr(0)},
	"perf_event_open":   {},
	"unshare":           {},
	"setns":             {^uintptr(0)},
	"chroot":            {},
	"pivot_root":        {},
	"init_module":       {},
	"finit_module":      {^uintptr(0)},
	"keyctl":            {^uintptr(0)},
	"add_key":           {},
	"io_uring_setup":    {},
	"userfaultfd":       {^uintptr(0)},
	"process_vm_readv":  {1, 0, 0, 0, 0, ^uintptr(0)},
	"pidfd_open":        {^uintptr(0)},
	"open_by_handle_at": {^uintptr(0)},
	"memfd_create":      {},
	"personality":       {0xffffffff},
	"setuid":            {^uintptr(0)},
	"kill":              {1},
	"prctl":             {4}, // PR_SET_DUMPABLE
	"clone":             {syscall.CLONE_SIGHAND},
	"socketpair":        {syscall.AF_UNIX, syscall.SOCK_STREAM, 0, 0},
}

// variants are calls that are allowed with other arguments.
var variants = map[string]struct {
	call      string
	arguments [6]uintptr
}{
	"a thread with a network of its own": {"clone", [6]uintptr{syscall.CLONE_THREAD | syscall.CLONE_NEWNET}},
	"memory with code":                   {"mmap", [6]uintptr{0, 4096, syscall.PROT_READ | syscall.PROT_EXEC, syscall.MAP_PRIVATE | syscall.MAP_ANON, ^uintptr(0)}},
	"a raw socket":                       {"socket", [6]uintptr{syscall.AF_INET, syscall.SOCK_RAW | syscall.SOCK_CLOEXEC, syscall.IPPROTO_ICMP}},
	"a socket for frames":                {"socket", [6]uintptr{syscall.AF_PACKET, syscall.SOCK_RAW | syscall.SOCK_CLOEXEC, 0x0300}},
	"an AF_XDP socket":                   {"socket", [6]uintptr{44, syscall.SOCK_RAW | syscall.SOCK_CLOEXEC, 0}},
	"a netlink socket for filters":       {"socket", [6]uintptr{syscall.AF_NETLINK, syscall.SOCK_RAW | syscall.SOCK_CLOEXEC, 12}},
	"a socket type in 64 bits":           {"socket", [6]uintptr{syscall.AF_INET, 1<<32 | syscall.SOCK_RAW | syscall.SOCK_CLOEXEC, syscall.IPPROTO_ICMP}},
}

// childMode is the environment variable that makes this test binary the confined process; with childWorks it
// makes no forbidden calls.
const (
	childMode  = "STEELYARD_TEST_CONFINE"
	childWorks = "STEELYARD_TEST_WORKS"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv(childMode); mode != "" {
		child(Mode(mode))
		return
	}
	os.Exit(m.Run())
}

// child prints "call: error" for each forbidden call, then does some of the agent's work.
func child(mode Mode) {
	idle := make(chan struct{})
	ready := make(chan struct{})
	for range 4 { // threads that exist before the filter
		go func() {
			runtime.LockOSThread()
			ready <- struct{}{}
			<-idle
		}()
		<-ready
	}
	if err := Apply(mode); err != nil {
		fmt.Println("apply:", err)
		os.Exit(1)
	}
	if os.Getenv(childWorks) == "" {
		makeForbiddenCalls()
	}
	fmt.Println("threads:", threadsAreFiltered("/proc/self/task"))
	fmt.Println("work:", work())
}

func makeForbiddenCalls() {
	machine, err := arch.GetInfo("")
	if err != nil {
		panic(err)
	}
	call := func(label, name string, a [6]uintptr) {
		number, ok := machine.SyscallNames[name]
		if !ok {
			return
		}
		if _, _, err := syscall.RawSyscall6(uintptr(number), a[0], a[1], a[2], a[3], a[4], a[5]); err != 0 {
			fmt.Printf("%s: %s\n", label, err)
		} else {
			fmt.Printf("%s: done\n", label)
		}
	}
	for name, a := range forbidden {
		call(name, name, a)
	}
	for label, v := range variants {
		call(label, v.call, v.arguments)
	}
}

// work does what the agent does: sockets of each kind, files, a watch, new threads.
func work() error {
	directory, err := os.MkdirTemp("", "confine")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	path := filepath.Join(directory, "agent.sock")
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": path} {
		listener, err := net.Listen(network, address)
		if err != nil {
			return err
		}
		conn, err := net.Dial(network, listener.Addr().String())
		if err != nil {
			return err
		}
		conn.Close()
		listener.Close()
	}
	conn, err := net.Dial("udp", "127.0.0.1:9")
	if err != nil {
		return err
	}
	conn.Close()
	if _, err := syscall.NetlinkRIB(syscall.RTM_GETADDR, syscall.AF_UNSPEC); err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watcher.Close()
	if err := watcher.Add(directory); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", []byte("x"), 0o600); err != nil {
		return err
	}
	if err := errors.Join(os.Chmod(path+".new", 0o640), os.Rename(path+".new", path), os.Lchown(path, -1, os.Getgid())); err != nil {
		return err
	}
	done := make(chan struct{})
	for range 8 {
		go func() {
			runtime.LockOSThread() // ends with the goroutine
			runtime.GC()
			done <- struct{}{}
		}()
	}
	for range 8 {
		<-done
	}
	return threadsAreFiltered("/proc/self/task")
}

func startChild(t *testing.T, mode Mode) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), self)
	command.Env = append(os.Environ(), childMode+"="+string(mode))
	return command
}

func results(t *testing.T, mode Mode) map[string]string {
	t.Helper()
	var failure bytes.Buffer
	command := startChild(t, mode)
	command.Stderr = &failure
	text, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s%s", mode, err, text, failure.Bytes())
	}
	found := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		label, result, _ := strings.Cut(lines.Text(), ": ")
		found[label] = result
	}
	return found
}

func TestWhatIsNotNeededIsRefused(t *testing.T) {
	free, confined := results(t, Off), results(t, On)
	refused, confirmed := syscall.EPERM.Error(), 0
	for label, result := range confined {
		if label == "threads" || label == "work" {
			if result != "<nil>" {
				t.Errorf("%s: %s", label, result)
			}
			continue
		}
		if result != refused {
			t.Errorf("%s: %s", label, result)
		}
		if free[label] != refused { // else this user may not call it anyway
			confirmed++
		}
	}
	if all := len(forbidden) + len(variants); len(confined) < all || confirmed < all/2 {
		t.Errorf("%d results of %d, %d of them by the filter: %v", len(confined), all, confirmed, free)
	}
	if free["work"] == "<nil>" || free["threads"] == "<nil>" {
		t.Error("a process without a filter is taken for one with")
	}
}

func TestATrapEndsTheProcess(t *testing.T) {
	text, err := startChild(t, Trap).CombinedOutput()
	var status *exec.ExitError
	if !errors.As(err, &status) || !bytes.Contains(text, []byte("bad system call")) {
		t.Errorf("%v: %s", err, text)
	}
}

// Each call of the agent's work is allowed, also those whose failure Go would ignore.
func TestNeededCallsAreAllowed(t *testing.T) {
	command := startChild(t, Trap)
	command.Env = append(command.Env, childWorks+"=1")
	if text, err := command.CombinedOutput(); err != nil || !bytes.Contains(text, []byte("work: <nil>")) {
		t.Errorf("%v: %s", err, text)
	}
}

func TestModesAreTheForwarders(t *testing.T) {
	var mode Mode
	for _, word := range []string{"on", "trap", "off"} {
		if err := mode.Set(word); err != nil || mode.String() != word {
			t.Errorf("%s: %v", word, err)
		}
	}
	if err := mode.Set("log"); err == nil || !strings.Contains(err.Error(), "on, trap or off") || mode != Off {
		t.Errorf("%v, %s", err, mode)
	}
}

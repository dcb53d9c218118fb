// SPDX-License-Identifier: Apache-2.0

package confine

import (
	"syscall"

	"github.com/elastic/go-seccomp-bpf"
)

// always are the calls that are allowed whatever their arguments are; the kernel answers them from a bitmap.
var always = []string{
	// Go's runtime: memory, threads, signals, time, waiting, its end.
	"brk", "clock_getres", "clock_gettime", "clock_nanosleep", "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2", "epoll_wait",
	"eventfd2", "exit", "exit_group", "futex", "getcpu", "getpid", "getrandom", "gettid", "gettimeofday", "madvise", "membarrier",
	"munmap", "nanosleep", "pipe2", "restart_syscall", "rseq", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sched_getaffinity",
	"sched_yield", "set_robust_list", "sigaltstack",
	// Files: its configuration, its state, Unix sockets, /proc and /sys.
	"close", "faccessat", "faccessat2", "fchmod", "fchmodat", "fchown", "fchownat", "fcntl", "fdatasync", "flock", "fstat", "fsync",
	"ftruncate", "getdents64", "inotify_add_watch", "inotify_init1", "inotify_rm_watch", "lchown", "lseek", "mkdirat", "newfstatat",
	"openat", "pread64", "pwrite64", "read", "readlinkat", "renameat", "renameat2", "umask", "unlinkat", "write", "writev",
	// Sockets, once they exist.
	"accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt", "listen", "recvfrom", "recvmsg", "sendmsg", "sendto",
	"setsockopt", "shutdown",
	// User and host.
	"getegid", "geteuid", "getgid", "getuid", "uname",
}

const (
	protocolMPTCP = 262        // Go's listeners use it, if the kernel has it
	nameMemory    = 0x53564d41 // PR_SET_VMA: the runtime names its memory
	newNamespaces = syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID |
		syscall.CLONE_NEWNET | 0x02000000 /* CLONE_NEWCGROUP */
)

// conditional are the calls that are allowed with certain arguments only.
func conditional() []seccomp.NameWithConditions {
	own := uint64(syscall.Getpid())
	calls := []seccomp.NameWithConditions{
		// Threads, and no processes.
		with("clone", seccomp.Condition{Argument: 0, Operation: seccomp.BitsSet, Value: syscall.CLONE_THREAD},
			seccomp.Condition{Argument: 0, Operation: seccomp.BitsNotSet, Value: newNamespaces}),
		// No memory with code.
		with("mmap", seccomp.Condition{Argument: 2, Operation: seccomp.BitsNotSet, Value: syscall.PROT_EXEC}),
		with("mprotect", seccomp.Condition{Argument: 2, Operation: seccomp.BitsNotSet, Value: syscall.PROT_EXEC}),
		// Signals to itself.
		with("kill", is(0, own)),
		with("tgkill", is(0, own)),
		with("prctl", is(0, nameMemory)),
	}
	return append(calls, sockets()...)
}

// sockets are those for the command line, the forwarder, servers, Prometheus and a collector, and one to ask
// the kernel for its addresses. None is raw, or for whole frames.
func sockets() []seccomp.NameWithConditions {
	const flags = syscall.SOCK_CLOEXEC | syscall.SOCK_NONBLOCK
	calls := []seccomp.NameWithConditions{
		with("socket", is(0, syscall.AF_UNIX), is(1, syscall.SOCK_STREAM|flags), is(2, 0)),
		with("socket", is(0, syscall.AF_NETLINK), is(1, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC), is(2, syscall.NETLINK_ROUTE)),
	}
	for _, family := range []uint64{syscall.AF_INET, syscall.AF_INET6} {
		for _, protocol := range []uint64{0, syscall.IPPROTO_TCP, protocolMPTCP} {
			calls = append(calls, with("socket", is(0, family), is(1, syscall.SOCK_STREAM|flags), is(2, protocol)))
		}
		for _, protocol := range []uint64{0, syscall.IPPROTO_UDP} {
			calls = append(calls, with("socket", is(0, family), is(1, syscall.SOCK_DGRAM|flags), is(2, protocol)))
		}
	}
	return calls
}

func with(name string, all ...seccomp.Condition) seccomp.NameWithConditions {
	return seccomp.NameWithConditions{Name: name, Conditions: all}
}

func is(argument uint32, value uint64) seccomp.Condition {
	return seccomp.Condition{Argument: argument, Operation: seccomp.Equal, Value: value}
}

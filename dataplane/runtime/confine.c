// SPDX-License-Identifier: Apache-2.0
#include <sy_confine.h>

#include <errno.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Environment variable for executed programs: a filter of this version is installed. */
#define MARK         "STEELYARD_FILTER"
#define MARK_VERSION "1"
/* Add no filter if so many are installed, including those of the service manager. */
#define FILTERS_MAX 16

/* System calls that no version of the forwarder needs. */
static const int denied[] = {
#ifndef __SANITIZE_ADDRESS__ /* the leak checker traces its own threads */
        SCMP_SYS(ptrace),
#endif
        SCMP_SYS(process_vm_readv),
        SCMP_SYS(process_vm_writev),
        SCMP_SYS(pidfd_getfd),
        SCMP_SYS(kexec_load),
        SCMP_SYS(kexec_file_load),
        SCMP_SYS(init_module),
        SCMP_SYS(finit_module),
        SCMP_SYS(delete_module),
        SCMP_SYS(add_key),
        SCMP_SYS(request_key),
        SCMP_SYS(keyctl),
        SCMP_SYS(io_uring_setup),
        SCMP_SYS(io_uring_enter),
        SCMP_SYS(io_uring_register),
        SCMP_SYS(userfaultfd),
        SCMP_SYS(open_by_handle_at),
        SCMP_SYS(swapon),
        SCMP_SYS(swapoff),
        SCMP_SYS(reboot),
        SCMP_SYS(settimeofday),
        SCMP_SYS(clock_settime),
        SCMP_SYS(clock_adjtime),
        SCMP_SYS(adjtimex),
        SCMP_SYS(quotactl),
        SCMP_SYS(acct),
        SCMP_SYS(chroot),
        SCMP_SYS(pivot_root),
        SCMP_SYS(unshare),
        SCMP_SYS(setns),
        SCMP_SYS(personality),
};

/* clone() with one of these flags is an unshare(). */
static const unsigned long namespaces[] = {CLONE_NEWNS,    CLONE_NEWUTS, CLONE_NEWIPC,
                                           CLONE_NEWUSER,  CLONE_NEWPID, CLONE_NEWNET,
                                           CLONE_NEWCGROUP};

/* System calls of a worker of AF_XDP ports: kicks, sleep and waking, time, memory, logs, exit. */
static const int allowed[] = {
        SCMP_SYS(sendto),
        SCMP_SYS(recvfrom),
        SCMP_SYS(poll),
        SCMP_SYS(ppoll),
        SCMP_SYS(epoll_wait),
        SCMP_SYS(epoll_pwait),
        SCMP_SYS(epoll_ctl),
        SCMP_SYS(read),
        SCMP_SYS(pread64),
        SCMP_SYS(write),
        SCMP_SYS(writev),
        SCMP_SYS(close),
        SCMP_SYS(futex),
        SCMP_SYS(sched_yield),
        SCMP_SYS(getcpu),
        SCMP_SYS(clock_gettime),
        SCMP_SYS(gettimeofday),
        SCMP_SYS(nanosleep),
        SCMP_SYS(clock_nanosleep),
        SCMP_SYS(munmap),
        SCMP_SYS(madvise),
        SCMP_SYS(brk),
        SCMP_SYS(newfstatat),
        SCMP_SYS(fstat),
        SCMP_SYS(getpid),
        SCMP_SYS(gettid),
        SCMP_SYS(rt_sigprocmask),
        SCMP_SYS(rt_sigreturn),
        SCMP_SYS(rt_sigaction),
        SCMP_SYS(restart_syscall),
        SCMP_SYS(rseq),
        SCMP_SYS(getrandom),
        SCMP_SYS(set_robust_list),
        SCMP_SYS(membarrier),
        SCMP_SYS(exit),
        SCMP_SYS(exit_group),
        SCMP_SYS(msync),
        SCMP_SYS(epoll_pwait2),
#ifdef __SANITIZE_ADDRESS__
        SCMP_SYS(sigaltstack),
        SCMP_SYS(prctl),
        SCMP_SYS(openat),
        SCMP_SYS(readlink),
        SCMP_SYS(sched_getaffinity),
#endif
};

static struct sock_fprog worker_program; /* written before workers start; len 0: none */
static enum sy_confine mode;

/* ---- building -------------------------------------------------------------------------------- */

static uint32_t refusal(enum sy_confine how)
{
	return how == SY_CONFINE_TRAP ? SCMP_ACT_TRAP : SCMP_ACT_ERRNO(EPERM);
}

/* Compiles a filter ahead of time, so that installing it in a worker is cheap. */
static int program_make(scmp_filter_ctx filter, struct sock_fprog *out)
{
	int fd = memfd_create("filter", MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	int rc = seccomp_export_bpf(filter, fd);
	off_t size = rc == 0 ? lseek(fd, 0, SEEK_END) : 0;
	void *code = size > 0 ? malloc((size_t)size) : NULL;
	if (rc == 0 && (!code || pread(fd, code, (size_t)size, 0) != size))
		rc = -ENOMEM;
	close(fd);
	if (rc < 0) {
		free(code);
		return rc;
	}
	out->filter = code;
	out->len = (unsigned short)((size_t)size / sizeof(struct sock_filter));
	return 0;
}

static int process_rules(scmp_filter_ctx f, enum sy_confine how)
{
	int rc = 0;
	for (unsigned i = 0; i < SY_ARRAY_LEN(denied) && rc == 0; i++)
		rc = seccomp_rule_add(f, refusal(how), denied[i], 0);
	for (unsigned i = 0; i < SY_ARRAY_LEN(namespaces) && rc == 0; i++)
		rc = seccomp_rule_add(f, refusal(how), SCMP_SYS(clone), 1,
		                      SCMP_A0(SCMP_CMP_MASKED_EQ, namespaces[i], namespaces[i]));
	/* clone3() has its flags in memory, which a filter cannot read. The C library falls back to
	 * clone(). */
	return rc == 0 ? seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0) : rc;
}

static int worker_rules(scmp_filter_ctx f)
{
	int rc = 0;
	for (unsigned i = 0; i < SY_ARRAY_LEN(allowed) && rc == 0; i++)
		rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, allowed[i], 0);
	const struct scmp_arg_cmp data = SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0);
	const struct scmp_arg_cmp self = SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)getpid(), 0);
	if (rc == 0)
		rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1, data);
	if (rc == 0)
		rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1, data);
	if (rc == 0) /* abort() */
		rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1, self);
	return rc;
}

static int programs_make(enum sy_confine how, bool workers, struct sock_fprog *process)
{
	scmp_filter_ctx f = seccomp_init(SCMP_ACT_ALLOW);
	int rc = f ? process_rules(f, how) : -ENOMEM;
	if (rc == 0)
		rc = program_make(f, process);
	seccomp_release(f);
	if (rc < 0 || !workers)
		return rc;
	f = seccomp_init(refusal(how));
	rc = f ? worker_rules(f) : -ENOMEM;
	if (rc == 0)
		rc = program_make(f, &worker_program);
	seccomp_release(f);
	return rc;
}

/* ---- installing ------------------------------------------------------------------------------ */

static int program_install(const struct sock_fprog *program)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	/* The kernel logs refused calls. */
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_LOG, program) < 0
	               ? -errno
	               : 0;
}

/* For tests: a refused call ends the process. */
static void on_trap(int number, siginfo_t *info, void *context)
{
	char text[120];
	char *name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, info->si_syscall);
	int n = snprintf(text, sizeof(text), "the system call %s (%d) is not allowed\n",
	                 name ? name : "?", info->si_syscall);
	ssize_t written = write(STDERR_FILENO, text, (size_t)n);
	(void)written;
	_exit(EXIT_FAILURE);
}

static unsigned filters_in_force(void)
{
	char line[128];
	unsigned n = 0;
	FILE *f = fopen("/proc/self/status", "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Seccomp_filters: %u", &n) == 1)
			break;
	if (f)
		fclose(f);
	return n;
}

int sy_confine_process(enum sy_confine how, bool filter_workers, struct sy_error *err)
{
	struct sock_fprog process = {0};
	const char *mark = getenv(MARK);
	unsigned filters = filters_in_force();
	mode = how;
	if (how == SY_CONFINE_OFF)
		return 0;
	if (how == SY_CONFINE_TRAP) {
		struct sigaction trap = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
		sigaction(SIGSYS, &trap, NULL);
	}
	int rc = programs_make(how, filter_workers, &process);
	if (rc < 0)
		return sy_fail(err, -rc, "building the system call filters: %s", strerror(-rc));
	bool inherited = mark && !strcmp(mark, MARK_VERSION) && filters > 0;
	if (!inherited && filters < FILTERS_MAX) {
		rc = program_install(&process);
		if (rc == 0)
			setenv(MARK, MARK_VERSION, 1);
		else
			sy_log(SY_LOG_WARN, "confine",
			       "no system call filter: %s; this process may make all calls",
			       strerror(-rc));
	}
	free(process.filter);
	return 0;
}

void sy_confine_worker(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};
	sigset_t trap;
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (syscall(SYS_capset, &head, none) < 0)
		sy_log(SY_LOG_WARN, "confine", "a worker keeps its capabilities: %s",
		       strerror(errno));
	if (!worker_program.len)
		return;
	if (mode == SY_CONFINE_TRAP) {
		sigemptyset(&trap);
		sigaddset(&trap, SIGSYS);
		pthread_sigmask(SIG_UNBLOCK, &trap, NULL);
	}
	int rc = program_install(&worker_program);
	if (rc < 0)
		sy_log(SY_LOG_WARN, "confine", "a worker without system call filter: %s",
		       strerror(-rc));
}

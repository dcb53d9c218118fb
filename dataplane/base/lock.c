// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "sy_base.h"
#include "sy_lock.h"
#include "sy_patience.h"

#define STEP_NS      UINT64_C(5000000)
#define GRACE_NS     UINT64_C(50000000)    /* between the delivery of SIGKILL and PF_EXITING */
#define DYING_MAX_NS UINT64_C(30000000000) /* to unmap tables of many GB on a busy host */
#define PF_EXITING   0x4                   /* the kernel's; in field 9 of /proc/PID/stat */

/* Returns whether a thread group exits: proc(5), the state and the flags behind the name. */
static bool stat_is_exiting(int pid)
{
	char path[48], line[512], state = 0;
	unsigned flags = 0;
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	FILE *f = fopen(path, "re");
	if (!f)
		return false;
	const char *behind = fgets(line, sizeof(line), f) ? strrchr(line, ')') : NULL;
	int fields = behind ? sscanf(behind, ") %c %*d %*d %*d %*d %*d %u", &state, &flags) : 0;
	fclose(f);
	return fields == 2 && (state == 'Z' || state == 'X' || flags & PF_EXITING);
}

/* Returns whether SIGKILL is pending: the process was killed, and had no processor since. */
static bool kill_is_pending(int pid)
{
	char path[48], line[256];
	uint64_t pending = 0, mask;
	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	FILE *f = fopen(path, "re");
	if (!f)
		return false;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "SigPnd: %" SCNx64, &mask) == 1 ||
		    sscanf(line, "ShdPnd: %" SCNx64, &mask) == 1)
			pending |= mask;
	fclose(f);
	return pending & UINT64_C(1) << (SIGKILL - 1);
}

bool sy_process_is_dying(int pid)
{
	return pid > 0 && (kill_is_pending(pid) || stat_is_exiting(pid));
}

/* Returns the process that holds the flock() on fd's file, from proc_locks(5); 0: not found. */
static int lock_holder(int fd)
{
	char line[256];
	int pid = 0;
	struct stat st;
	if (fstat(fd, &st) != 0)
		return 0;
	FILE *f = fopen("/proc/locks", "re");
	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f)) {
		int holder;
		uint64_t inode;
		if (sscanf(line, "%*d: FLOCK ADVISORY WRITE %d %*x:%*x:%" SCNu64, &holder,
		           &inode) == 2 &&
		    inode == st.st_ino)
			pid = holder;
	}
	fclose(f);
	return pid;
}

bool sy_lock(int fd, uint64_t wait_ns)
{
	const uint64_t live_ns = wait_ns > GRACE_NS ? wait_ns : GRACE_NS;
	struct sy_patience live = sy_patience_begin(live_ns, 4 * STEP_NS);
	struct sy_patience all = sy_patience_begin(live_ns + DYING_MAX_NS, 4 * STEP_NS);
	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		bool is_late = sy_patience_left(&live) == 0;
		if (sy_patience_left(&all) == 0 ||
		    (is_late && !sy_process_is_dying(lock_holder(fd))))
			return false;
		nanosleep(&(struct timespec){.tv_nsec = (long)STEP_NS}, NULL);
	}
	return true;
}

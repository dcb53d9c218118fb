// SPDX-License-Identifier: Apache-2.0
#include "host.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <sy_lock.h>

#define BPFFS "/sys/fs/bpf"

uint64_t host_netns(void)
{
	struct stat st;

	/* of the thread: threads of a process may be in different namespaces */
	return stat("/proc/thread-self/ns/net", &st) == 0 ? st.st_ino : 0;
}

uint64_t sy_netns_cookie(void)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	uint64_t cookie = 0;
	socklen_t len = sizeof(cookie);

	if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &len) < 0)
		cookie = host_netns();
	if (fd >= 0)
		close(fd);
	return cookie;
}

/* Does the host's first process have this file system mounted, so that it outlives this process? */
static bool host_has_mount(dev_t dev)
{
	unsigned major_no, minor_no;
	char line[512];
	FILE *in = fopen("/proc/1/mountinfo", "re");
	bool found = !in; /* unknown */

	while (in && !found && fgets(line, sizeof(line), in))
		found = sscanf(line, "%*u %*u %u:%u", &major_no, &minor_no) == 2 &&
		        makedev(major_no, minor_no) == dev;
	if (in)
		fclose(in);
	return found;
}

/* Each mount of a bpffs has its own device number, unless it is a copy of another mount. */
bool sy_pins_are_private(void)
{
	struct stat own;

	return stat(BPFFS, &own) == 0 && !host_has_mount(own.st_dev);
}

/* Finds the first line of a mount table with this mount id; id 0: any. Returns its id, 0 if there
 * is none, −1 if the table cannot be read. */
static long mount_find(const char *table, long id)
{
	char line[512];
	long found = 0;
	FILE *in = fopen(table, "re");

	if (!in)
		return -1;
	while (!found && fgets(line, sizeof(line), in))
		if (!id || strtol(line, NULL, 10) == id)
			found = strtol(line, NULL, 10);
	fclose(in);
	return found;
}

/* Is the mount namespace another one than that of the host's first process? Mount ids differ
 * between namespaces; links in /proc/1/ns would need CAP_SYS_PTRACE. Returns false if that cannot
 * be determined. */
static bool mounts_are_private(void)
{
	long own = mount_find("/proc/thread-self/mountinfo", 0);

	return own > 0 && mount_find("/proc/1/mountinfo", own) == 0;
}

int host_bpffs_check(struct sy_error *err)
{
	struct statfs fs;

	if (statfs(BPFFS, &fs) < 0)
		return sy_fail(err, errno, BPFFS ": %s; mount sysfs at /sys", strerror(errno));
	if (fs.f_type != BPF_FS_MAGIC && mounts_are_private())
		return sy_fail(err, EPERM,
		               BPFFS
		               " has no bpffs in this mount namespace, which ends with this "
		               "process (as under ip netns exec): the pinned XDP programs would "
		               "end with it, and the kernel would answer for VIPs; enter the "
		               "network namespace alone: nsenter --net=/run/netns/NAME "
		               "steelyard-forwarder; or mount the host's bpffs there first");
	return 0;
}

int host_bpffs(struct sy_error *err)
{
	struct statfs fs;
	int rc = host_bpffs_check(err);

	if (rc)
		return rc;
	if (statfs(BPFFS, &fs) < 0)
		return sy_fail(err, errno, BPFFS ": %s; mount sysfs at /sys", strerror(errno));
	if (fs.f_type != BPF_FS_MAGIC &&
	    mount("bpf", BPFFS, "bpf", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0700") < 0)
		return sy_fail(err, errno, "cannot mount bpffs at " BPFFS ": %s", strerror(errno));
	if (mkdir(HOST_BPF_DIR, 0700) < 0 && errno != EEXIST)
		return sy_fail(err, errno, "cannot create " HOST_BPF_DIR ": %s", strerror(errno));
	return 0;
}

void host_pin_path(char out[static HOST_PATH], uint64_t netns, int ifindex)
{
	snprintf(out, HOST_PATH, HOST_BPF_DIR "/%" PRIu64 "-%d", netns, ifindex);
}

void host_lock_path(char out[static HOST_PATH], uint64_t netns, const char *what)
{
	snprintf(out, HOST_PATH, HOST_RUN_DIR "/lock-%" PRIu64 "-%s", netns, what);
}

/* Is the locked file still the one at path? Cleanup may have removed it between open and lock. */
static bool lock_is_current(int fd, const char *path)
{
	struct stat held, there;

	return fstat(fd, &held) == 0 && stat(path, &there) == 0 && held.st_ino == there.st_ino &&
	       held.st_dev == there.st_dev;
}

static int lock_refuse(int fd, const char *held, const char *also, struct sy_error *err)
{
	char pid[16] = "";
	ssize_t n = pread(fd, pid, sizeof(pid) - 1, 0);

	if (n > 0)
		pid[strcspn(pid, "\n")] = 0;
	close(fd);
	return sy_fail(err, EBUSY,
	               "%s is in use by another forwarder (process %s); stop it first%s", held,
	               pid[0] ? pid : "unknown", also);
}

int host_lock(const char *what, const char *held, const char *also, unsigned wait_ms,
              struct sy_error *err)
{
	char path[HOST_PATH];
	int fd;

	host_lock_path(path, host_netns(), what);
	for (;;) {
		if (mkdir(HOST_RUN_DIR, 0755) < 0 && errno != EEXIST)
			return sy_fail(err, errno, "cannot create " HOST_RUN_DIR ": %s",
			               strerror(errno));
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (fd < 0 && errno == ENOENT)
			continue; /* another namespace's cleanup removed the folder */
		if (fd < 0)
			return sy_fail(err, errno, "cannot open %s: %s", path, strerror(errno));
		/* an earlier build made it readable: any process could hold the lock */
		(void)fchmod(fd, 0600);
		if (!sy_lock(fd, wait_ms * UINT64_C(1000000)))
			return lock_refuse(fd, held, also, err);
		if (lock_is_current(fd, path))
			break;
		close(fd);
	}
	if (ftruncate(fd, 0) < 0 || dprintf(fd, "%d\n", (int)getpid()) < 0) {
		close(fd);
		return sy_fail(err, errno, "cannot write %s: %s", path, strerror(errno));
	}
	return fd;
}

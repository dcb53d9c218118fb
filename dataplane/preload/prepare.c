// SPDX-License-Identifier: Apache-2.0
/*
 * Calls after which a process can neither read files of the system nor create threads, as haproxy
 * does before it serves: EAL and the helper thread start before them. And limits of memory: the
 * mappings of this library do not count for the program (vsftpd limits its children to 200 MB).
 */
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "preload.h"
#include "real.h"

PRELOAD_EXPORT int chroot(const char *path)
{
	__typeof__(&chroot) real = REAL_OF(chroot);

	runner_prepare();
	return real(path);
}

/* Returns the bytes that count for a limit now, the program's included: the kernel does not
 * distinguish them. 0: the kernel does not report them (no /proc). */
static rlim_t limit_used(int resource)
{
	unsigned long size = 0, data = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	if (f && fscanf(f, "%lu %*u %*u %*u %*u %lu", &size, &data) != 2)
		size = data = 0;
	if (f)
		fclose(f);
	return (resource == RLIMIT_AS ? size : data) * (rlim_t)sysconf(_SC_PAGESIZE);
}

static rlim_t limit_add(rlim_t limit, rlim_t more)
{
	return limit == RLIM_INFINITY || limit > RLIM_INFINITY - 1 - more ? limit : limit + more;
}

/* Returns the limit to set instead of the program's: it adds what is used now. The hard limit rises
 * only if the program raises it. */
static const struct rlimit *limit_widen(int resource, const struct rlimit *limit,
                                        struct rlimit *wider)
{
	struct rlimit now;

	if (resource == RLIMIT_NPROC)
		runner_prepare();
	if ((resource != RLIMIT_AS && resource != RLIMIT_DATA) || !is_user_memory(limit) ||
	    !supervisor_config() || getrlimit((__rlimit_resource_t)resource, &now))
		return limit;
	rlim_t used = limit_used(resource), max = limit->rlim_max;
	wider->rlim_cur = limit_add(limit->rlim_cur, used);
	wider->rlim_max = limit_add(max, used);
	if (max <= now.rlim_max && wider->rlim_max > now.rlim_max)
		wider->rlim_max = now.rlim_max;
	if (wider->rlim_cur > wider->rlim_max && limit->rlim_cur <= max)
		wider->rlim_cur = wider->rlim_max;
	return wider;
}

static __attribute__((noinline)) int limit_set(__typeof__(&setrlimit) real, int resource,
                                               const struct rlimit *limit)
{
	struct rlimit wider;

	return real((__rlimit_resource_t)resource, limit_widen(resource, limit, &wider));
}

/* AddressSanitizer calls this before its shadow memory exists: no variable here may be on the
 * stack. */
PRELOAD_EXPORT int setrlimit(__rlimit_resource_t resource, const struct rlimit *limit)
{
	__typeof__(&setrlimit) real = REAL_OF(setrlimit);

	if (resource != RLIMIT_NPROC && resource != RLIMIT_AS && resource != RLIMIT_DATA)
		return real(resource, limit);
	return limit_set(real, (int)resource, limit);
}

static_assert(sizeof(struct rlimit) == sizeof(struct rlimit64), "setrlimit64() is setrlimit()");

PRELOAD_EXPORT int setrlimit64(__rlimit_resource_t resource, const struct rlimit64 *limit)
{
	return setrlimit(resource, (const struct rlimit *)limit);
}

PRELOAD_EXPORT int prlimit(pid_t pid, __rlimit_resource_t resource, const struct rlimit *limit,
                           struct rlimit *old)
{
	__typeof__(&prlimit) real = REAL_OF(prlimit);
	struct rlimit wider;

	if (limit && (pid == 0 || pid == getpid()))
		limit = limit_widen((int)resource, limit, &wider);
	return real(pid, resource, limit, old);
}

PRELOAD_EXPORT int prlimit64(pid_t pid, __rlimit_resource_t resource, const struct rlimit64 *limit,
                             struct rlimit64 *old)
{
	return prlimit(pid, resource, (const struct rlimit *)limit, (struct rlimit *)old);
}

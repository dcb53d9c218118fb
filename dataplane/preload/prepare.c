// SPDX-License-Identifier: Apache-2.0
/* Calls after which a process can neither read files of the system nor make threads, as haproxy
 * does before it waits: EAL and the helper thread start before them. */
#include <dlfcn.h>
#include <sys/resource.h>
#include <unistd.h>

#include "preload.h"

PRELOAD_EXPORT int chroot(const char *path)
{
	int (*real)(const char *) = (int (*)(const char *))dlsym(RTLD_NEXT, "chroot");

	runner_prepare();
	return real(path);
}

PRELOAD_EXPORT int setrlimit(__rlimit_resource_t resource, const struct rlimit *limit)
{
	__typeof__(&setrlimit) real = (__typeof__(&setrlimit))dlsym(RTLD_NEXT, "setrlimit");

	if (resource == RLIMIT_NPROC)
		runner_prepare();
	return real(resource, limit);
}

PRELOAD_EXPORT int setrlimit64(__rlimit_resource_t resource, const struct rlimit64 *limit)
{
	__typeof__(&setrlimit64) real = (__typeof__(&setrlimit64))dlsym(RTLD_NEXT, "setrlimit64");

	if (resource == RLIMIT_NPROC)
		runner_prepare();
	return real(resource, limit);
}

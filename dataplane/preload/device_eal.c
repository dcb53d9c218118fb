// SPDX-License-Identifier: Apache-2.0
/* DPDK's EAL, for the packet pool only: no devices, no files, no telemetry. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_log.h>
#include <rte_memory.h>

#include "packets.h"

#define EAL_MB "32"

/* Writes the CPUs of the program's thread: EAL would pin it to one CPU. */
static void lcores_write(char *out, size_t cap)
{
	cpu_set_t set;
	size_t at = (size_t)snprintf(out, cap, "0@(");
	const char *comma = "";

	CPU_ZERO(&set);
	sched_getaffinity(0, sizeof(set), &set);
	for (int i = 0; i < CPU_SETSIZE && at + 8 < cap; i++) {
		if (!CPU_ISSET(i, &set))
			continue;
		at += (size_t)snprintf(out + at, cap - at, "%s%d", comma, i);
		comma = ",";
	}
	snprintf(out + at, cap - at, ")");
}

/* Reports EAL's messages only if it does not start: it also logs an error about a folder that it
 * cannot create beside another user's, and does not need. */
static void eal_failed(const char *text, int code, struct sy_error *err)
{
	sy_fail(err, code, "EAL does not start: %s%s%s", rte_strerror(code),
	        text && *text ? ": " : "", text ? text : "");
}

/* EAL shares its memory with child processes if there are no huge pages. A child that starts its
 * own stack gets a copy. */
static int memory_unshare(const struct rte_memseg_list *list, void *arg)
{
	struct rte_memseg *first = rte_fbarray_get(&list->memseg_arr, 0);
	int fd = list->external ? -1 : rte_memseg_get_fd_thread_unsafe(first);

	if (fd < 0) /* private already */
		return 0;
	void *at = mmap(list->base_va, list->len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED,
	                fd, 0);
	return at == MAP_FAILED ? -errno : 0;
}

/* Removes the empty folder that EAL creates; its parent folder is shared by all programs with DPDK.
 * Signals are for the program's threads, not for EAL's. */
static int eal_init(struct sy_error *err)
{
	char lcores[600], prefix[32], *text = NULL;
	size_t said_len;
	FILE *log = open_memstream(&text, &said_len);
	sigset_t all, before;
	char *argv[] = {"steelyard",         "--no-shconf",    "--no-huge",      "-m",       EAL_MB,
	                "--no-pci",          "--iova-mode=va", "--no-telemetry", "--lcores", lcores,
	                "--log-level=error", "--file-prefix",  prefix,           NULL};

	lcores_write(lcores, sizeof(lcores));
	snprintf(prefix, sizeof(prefix), "run-%d", getpid());
	rte_log_set_global_level(RTE_LOG_ERR);
	rte_openlog_stream(log);
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	int rc = rte_eal_init(sizeof(argv) / sizeof(*argv) - 1, argv);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	int code = rte_errno;
	rmdir(rte_eal_get_runtime_dir());
	rte_openlog_stream(NULL);
	if (log)
		fclose(log);
	if (rc < 0)
		eal_failed(text, code, err);
	free(text);
	if (rc < 0)
		return -code;
	rc = rte_memseg_list_walk(memory_unshare, NULL);
	return rc ? sy_fail(err, -rc, "the memory of EAL: %s", strerror(-rc)) : 0;
}

int device_prepare(struct sy_error *err)
{
	static bool started; /* in this process, or in one that it was forked from */
	int rc = started ? 0 : eal_init(err);

	started |= !rc;
	return rc;
}

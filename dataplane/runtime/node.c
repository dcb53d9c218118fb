// SPDX-License-Identifier: Apache-2.0
/*
 * NUMA: tables, buffers and queues are on the node of the workers' CPUs. A cache miss on another
 * node costs twice as much, and cache misses dominate a packet's time.
 */
#include <dirent.h>
#include <errno.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime.h"

#define NODES 64

/* A CPU's node by sysfs, where the CPU's folder has an entry nodeN; −1: unknown. */
static int cpu_node(const char *cpus, unsigned cpu)
{
	char path[256];
	int node = -1;
	snprintf(path, sizeof(path), "%s/cpu%u", cpus, cpu);
	DIR *dir = opendir(path);
	for (struct dirent *e; dir && node < 0 && (e = readdir(dir));)
		if (sscanf(e->d_name, "node%d", &node) != 1)
			node = -1;
	if (dir)
		closedir(dir);
	return node < NODES ? node : -1;
}

uint64_t nodes_of(const char *cpus, const unsigned *core, unsigned cores)
{
	uint64_t nodes = 0;
	for (unsigned i = 0; i < cores; i++) {
		int node = cpu_node(cpus, core[i]);
		if (node >= 0)
			nodes |= UINT64_C(1) << node;
	}
	return nodes;
}

int sy_memory_near(const char *cores, unsigned workers, struct sy_error *err)
{
	unsigned core[SY_MAX_WORKERS];
	int n = cores_of_workers(cores, workers, core, err);
	if (n < 0)
		return n;
	/* with more workers than CPUs, workers are not pinned */
	uint64_t nodes = nodes_of("/sys/devices/system/cpu", core, (unsigned)n);
	if (__builtin_popcountll(nodes) > 1) {
		sy_log(SY_LOG_WARN, "runtime",
		       "the workers' CPUs are on several NUMA nodes: packets, tables and buffers "
		       "cross between them; better run one forwarder per node, each with --cores "
		       "of one NUMA node");
		return 0;
	}
	/* Preferred, not bound: remote memory is better than none. */
	unsigned long mask = (unsigned long)nodes;
	if (nodes && syscall(SYS_set_mempolicy, MPOL_PREFERRED, &mask, 8 * sizeof(mask)) < 0)
		sy_log(SY_LOG_WARN, "runtime",
		       "memory cannot be kept on NUMA node %d, where the workers are: %s",
		       __builtin_ctzll(nodes), strerror(errno));
	return 0;
}

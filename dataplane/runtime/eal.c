// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_log.h>

#include "runtime.h"

/* EAL's last message, for the error text if it fails to start. */
static char last_complaint[160];

static ssize_t log_write(void *cookie, const char *text, size_t len)
{
	bool error = rte_log_cur_msg_loglevel() <= (int)RTE_LOG_ERR;
	int shown = (int)len;
	while (shown && text[shown - 1] == '\n')
		shown--;
	if (error)
		snprintf(last_complaint, sizeof(last_complaint), "%.*s", shown, text);
	/* its warnings are mostly about features that were not requested */
	if (shown)
		sy_log(error ? SY_LOG_WARN : SY_LOG_DEBUG, "eal", "%.*s", shown, text);
	return (ssize_t)len;
}

static int log_redirect(void)
{
	FILE *f = fopencookie(NULL, "w", (cookie_io_functions_t){.write = log_write});
	if (!f)
		return -errno;
	setvbuf(f, NULL, _IOLBF, 1024);
	rte_log_set_global_level(RTE_LOG_WARNING);
	return rte_openlog_stream(f);
}

/* A number from one of the kernel's files, 0 if there is none. */
static unsigned long number_read(const char *path)
{
	unsigned long n = 0;
	FILE *f = fopen(path, "r");
	if (f && fscanf(f, "%lu", &n) != 1)
		n = 0;
	if (f)
		fclose(f);
	return n;
}

/* Free megabytes in huge pages of all sizes, without pages reserved by other processes. */
static unsigned long huge_free_mb(void)
{
	const char *root = "/sys/kernel/mm/hugepages";
	unsigned long mb = 0, kb;
	DIR *dir = opendir(root);
	for (struct dirent *e; dir && (e = readdir(dir));) {
		char path[320];
		if (sscanf(e->d_name, "hugepages-%lukB", &kb) != 1)
			continue;
		snprintf(path, sizeof(path), "%s/%s/free_hugepages", root, e->d_name);
		unsigned long free = number_read(path);
		snprintf(path, sizeof(path), "%s/%s/resv_hugepages", root, e->d_name);
		unsigned long reserved = number_read(path);
		mb += free > reserved ? kb * (free - reserved) / 1024 : 0;
	}
	if (dir)
		closedir(dir);
	return mb;
}

/* The page size to which vm.nr_hugepages refers. */
static unsigned long huge_page_kb(void)
{
	unsigned long kb = 0;
	char line[128];
	FILE *f = fopen("/proc/meminfo", "r");
	while (f && !kb && fgets(line, sizeof(line), f))
		sscanf(line, "Hugepagesize: %lu kB", &kb);
	if (f)
		fclose(f);
	return kb;
}

unsigned long huge_pages_needed(unsigned long pages, unsigned long page_kb, unsigned long wanted_mb,
                                unsigned long free_mb)
{
	unsigned long missing_mb = wanted_mb > free_mb ? wanted_mb - free_mb : 0;
	return pages + (missing_mb * 1024 + page_kb - 1) / page_kb;
}

static bool is_pci(const struct sy_port_options *o)
{
	unsigned domain, bus, device, function;
	return o->backend == SY_PORT_ETHDEV &&
	       (sscanf(o->devargs, "%x:%x:%x.%x", &domain, &bus, &device, &function) == 4 ||
	        sscanf(o->devargs, "%x:%x.%x", &bus, &device, &function) == 3);
}

int cores_parse(const char *list, unsigned *core, unsigned cap, struct sy_error *err)
{
	unsigned n = 0;
	if (!*list) {
		cpu_set_t set;
		if (sched_getaffinity(0, sizeof(set), &set))
			return sy_fail(err, errno, "reading the CPU affinity");
		for (unsigned c = 0; c < CPU_SETSIZE && n < cap; c++)
			if (CPU_ISSET(c, &set))
				core[n++] = c;
		return (int)n;
	}
	for (const char *at = list; n < cap;) {
		char *end;
		unsigned long first = strtoul(at, &end, 10), last = first;
		bool digits = end != at;
		if (digits && *end == '-') {
			at = end + 1;
			last = strtoul(at, &end, 10);
			digits = end != at;
		}
		if (!digits || first > last || last >= CPU_SETSIZE || (*end && *end != ','))
			return sy_fail(err, EINVAL,
			               "CPU list \"%s\" cannot be read; write it like 0,2-3", list);
		for (unsigned long c = first; c <= last && n < cap; c++)
			core[n++] = (unsigned)c;
		if (!*end)
			break;
		at = end + 1;
	}
	return (int)n;
}

int cores_of_workers(const char *list, unsigned workers, unsigned core[static SY_MAX_WORKERS],
                     struct sy_error *err)
{
	unsigned all[CPU_SETSIZE];
	int n = cores_parse(list, all, CPU_SETSIZE, err);
	if (n < 0)
		return n;
	unsigned taken = (unsigned)n < workers ? (unsigned)n : workers;
	memcpy(core, *list ? all : all + ((unsigned)n - taken), taken * sizeof(*core));
	return (int)taken;
}

int cores_check(const char *list, struct sy_error *err)
{
	unsigned core[CPU_SETSIZE];
	cpu_set_t set;
	int n = cores_parse(list, core, CPU_SETSIZE, err);
	long there = sysconf(_SC_NPROCESSORS_CONF);
	if (n < 0)
		return n;
	if (sched_getaffinity(0, sizeof(set), &set))
		return sy_fail(err, errno, "reading the CPU affinity: %s", strerror(errno));
	for (int i = 0; i < n; i++) {
		if (CPU_ISSET(core[i], &set))
			continue;
		if (there > 0 && core[i] >= (unsigned long)there)
			return sy_fail(err, EINVAL,
			               "CPU list \"%s\": this machine has no CPU %u; its CPUs "
			               "are 0 to %ld",
			               list, core[i], there - 1);
		return sy_fail(err, EINVAL,
		               "CPU list \"%s\": this process may not run on CPU %u; "
		               "choose others, or widen its affinity (taskset, "
		               "CPUAffinity=, AllowedCPUs=)",
		               list, core[i]);
	}
	return 0;
}

/* Keeps the control thread's affinity; EAL would pin it to one CPU. */
static void main_lcore(char *out, size_t cap)
{
	unsigned core[CPU_SETSIZE];
	int n = cores_parse("", core, CPU_SETSIZE, NULL);
	size_t at = (size_t)snprintf(out, cap, "0@(");
	for (int i = 0; i < n && at + 8 < cap; i++)
		at += (size_t)snprintf(out + at, cap - at, "%s%u", i ? "," : "", core[i]);
	snprintf(out + at, cap - at, ")");
}

/* An upgrade cannot switch between huge pages and ordinary memory, so its error text omits the
 * option. */
static int huge_check(const struct sy_runtime_options *o, struct sy_error *err)
{
	unsigned long mb = huge_free_mb(), page_kb = huge_page_kb();
	if (mb >= o->memory_mb)
		return 0;
	if (!page_kb)
		return sy_fail(err, ENOMEM,
		               "%u MB of huge pages are needed and this kernel has none; remedy: "
		               "--no-huge, which is slower",
		               o->memory_mb);
	return sy_fail(err, ENOMEM,
	               "%u MB of huge pages are needed and %lu MB are free; remedy: sysctl "
	               "vm.nr_hugepages=%lu%s",
	               o->memory_mb, mb,
	               huge_pages_needed(number_read("/proc/sys/vm/nr_hugepages"), page_kb,
	                                 o->memory_mb, mb),
	               o->inherit ? "" : " (or --no-huge, which is slower)");
}

/*
 * DPDK's drivers are shared objects in a folder. EAL loads all of them, some 130, which takes
 * several times as long as the rest of its start, and no option prevents it. AF_XDP needs none. EAL
 * looks for the folder by stat64(): if no other port is configured, this replacement of the C
 * library's function hides the folder. An EAL that looks otherwise loads them all. The mempool
 * driver is linked (meson.build).
 */
#define DRIVER_FOLDER "/dpdk/pmds-"
static bool drivers_hidden;

int stat64(const char *path, struct stat64 *out)
{
	if (drivers_hidden && strstr(path, DRIVER_FOLDER)) {
		errno = ENOENT;
		return -1;
	}
	return fstatat64(AT_FDCWD, path, out, 0);
}

/* A runtime without ports belongs to a test, which adds its own. */
static bool drivers_wanted(const struct sy_runtime_options *o)
{
	bool wanted = o->ports == 0;
	for (unsigned i = 0; i < o->ports; i++)
		wanted |= o->port[i].backend == SY_PORT_ETHDEV;
	return wanted;
}

int eal_start(const struct sy_runtime_options *o, struct sy_error *err)
{
	static bool started; /* EAL starts once per process; later runtimes reuse it */
	char memory[16], lcores[600], instance[sizeof(o->instance)], *argv[20];
	int argc = 0, rc = 0;
	if (started)
		return 0;
	if (o->huge)
		rc = huge_check(o, err);
	else
		sy_log(SY_LOG_WARN, "runtime",
		       "running without huge pages: slower, and AF_XDP copies every packet");
	if (rc)
		return rc;
	struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
	setrlimit(RLIMIT_MEMLOCK, &limit); /* for UMEMs; if this fails, binding reports it */
	rc = log_redirect();
	if (rc)
		return sy_fail(err, -rc, "redirecting EAL's log");
	bool pci = o->pci;
	for (unsigned i = 0; i < o->ports; i++)
		pci |= is_pci(&o->port[i]);
	main_lcore(lcores, sizeof(lcores));
	memcpy(instance, o->instance, sizeof(instance));
	snprintf(memory, sizeof(memory), "%u", o->memory_mb);
	argv[argc++] = "steelyard";
	/* without files, instances do not interfere */
	argv[argc++] = o->huge ? "--in-memory" : "--no-shconf";
	argv[argc++] = "--no-telemetry";
	argv[argc++] = "--log-level=warning";
	argv[argc++] = "--lcores";
	argv[argc++] = lcores;
	argv[argc++] = "-m";
	argv[argc++] = memory;
	if (!o->huge)
		argv[argc++] = "--no-huge";
	if (o->instance[0]) {
		argv[argc++] = "--file-prefix";
		argv[argc++] = instance;
	}
	if (!pci) {
		argv[argc++] = "--no-pci";
		argv[argc++] = "--iova-mode=va";
	}
	argv[argc] = NULL;
	drivers_hidden = !drivers_wanted(o);
	rc = rte_eal_init(argc, argv);
	drivers_hidden = false;
	if (rc < 0)
		return sy_fail(err, rte_errno, "EAL does not start: %s (%s)",
		               rte_strerror(rte_errno), last_complaint);
	rmdir(rte_eal_get_runtime_dir()); /* EAL leaves this empty directory */
	started = true;
	return 0;
}

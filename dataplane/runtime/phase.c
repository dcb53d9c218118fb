// SPDX-License-Identifier: Apache-2.0
/*
 * The phases of a start: for each, its duration, the CPU time of the process, and how long the
 * control thread waited for a CPU. The rest was spent waiting for the kernel or another process.
 * Control thread only; a process starts once.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <sy_phase.h>

#include "cpu_wait.h"
#include "sy_runtime.h"

#define NS      UINT64_C(1000000000)
#define SHOW_NS UINT64_C(100000) /* the log line omits shorter phases */

static const char *const phase_names[] = {
#define X(id, name, help) name,
        SY_PHASES(X)
#undef X
};
static const char *const phase_helps[] = {
#define X(id, name, help) help,
        SY_PHASES(X)
#undef X
};

static struct sy_phase_cost cost[SY_PHASE_COUNT];
/* at the last sy_phase_end() */
static struct sy_phase_cost last;

static uint64_t clock_of(clockid_t id)
{
	struct timespec t;
	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * NS + (uint64_t)t.tv_nsec;
}

static uint64_t queued_ns(void)
{
	int fd = cpu_wait_open();
	uint64_t waited = cpu_wait_ns(fd);
	if (fd >= 0)
		close(fd);
	return waited;
}

static struct sy_phase_cost cost_now(void)
{
	struct rusage use = {0};
	getrusage(RUSAGE_SELF, &use);
	return (struct sy_phase_cost){
	        .wall_ns = sy_clock_ns(),
	        .cpu_ns = clock_of(CLOCK_PROCESS_CPUTIME_ID),
	        .queued_ns = queued_ns(),
	        .faults = (uint64_t)(use.ru_minflt + use.ru_majflt),
	};
}

/* When the process was created (sy_clock_ns()), in hundredths of a second. */
static uint64_t process_began_ns(void)
{
	char text[1024];
	unsigned long long ticks = 0;
	FILE *f = fopen("/proc/self/stat", "re");
	size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
	if (f)
		fclose(f);
	text[n] = '\0';
	char *at = strrchr(text, ')'); /* the second field may contain any text */
	for (unsigned field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	if (!at || (ticks = strtoull(at + 1, NULL, 10)) == 0)
		return 0;
	uint64_t per_second = (uint64_t)sysconf(_SC_CLK_TCK);
	uint64_t age = clock_of(CLOCK_BOOTTIME) - ticks * (NS / per_second);
	return sy_clock_ns() - age;
}

void sy_phases_begin(void)
{
	memset(cost, 0, sizeof(cost));
	last = (struct sy_phase_cost){.wall_ns = process_began_ns()};
	if (last.wall_ns == 0 || last.wall_ns > sy_clock_ns())
		last.wall_ns = sy_clock_ns();
	sy_phase_end(SY_PHASE_LOAD);
}

void sy_phase_end(enum sy_phase phase)
{
	struct sy_phase_cost now = cost_now(), *c = &cost[phase];
	c->wall_ns += now.wall_ns - last.wall_ns;
	c->cpu_ns += now.cpu_ns - last.cpu_ns;
	c->queued_ns += now.queued_ns - last.queued_ns;
	c->faults += now.faults - last.faults;
	last = now;
}

void sy_phase_split(enum sy_phase first, enum sy_phase second, uint64_t at_ns)
{
	uint64_t before = last.wall_ns, now = sy_clock_ns();
	sy_phase_end(second);
	if (at_ns <= before || at_ns > now)
		return;
	cost[second].wall_ns -= at_ns - before;
	cost[first].wall_ns += at_ns - before;
}

const char *sy_phase_name(enum sy_phase phase)
{
	return (unsigned)phase < SY_PHASE_COUNT ? phase_names[phase] : "?";
}

const char *sy_phase_help(enum sy_phase phase)
{
	return (unsigned)phase < SY_PHASE_COUNT ? phase_helps[phase] : "?";
}

struct sy_phase_cost sy_phase_get(enum sy_phase phase)
{
	return cost[phase];
}

void sy_phases_log(const char *area, const char *what)
{
	char list[SY_PHASE_COUNT * 64];
	uint64_t wall = 0, cpu = 0, queued = 0;
	int at = 0;
	list[0] = '\0';
	for (unsigned p = 0; p < SY_PHASE_COUNT; p++) {
		const struct sy_phase_cost *c = &cost[p];
		wall += c->wall_ns;
		cpu += c->cpu_ns;
		queued += c->queued_ns;
		if (c->wall_ns >= SHOW_NS)
			at += snprintf(list + at, sizeof(list) - (size_t)at, "%s%s %.1f (%.1f)",
			               at ? ", " : "", phase_names[p], (double)c->wall_ns / 1e6,
			               (double)c->cpu_ns / 1e6);
	}
	sy_log(SY_LOG_INFO, area,
	       "%s in %.1f ms, of which %.1f ms computing and %.1f ms waiting for a CPU; each "
	       "phase's ms (computing): %s",
	       what, (double)wall / 1e6, (double)cpu / 1e6, (double)queued / 1e6, list);
}

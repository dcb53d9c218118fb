// SPDX-License-Identifier: Apache-2.0
/* Phases of a start, and what each costs. Control thread only. */
#ifndef SY_PHASE_H
#define SY_PHASE_H

#include <stdint.h>

/* In the order in which they happen. A phase that is not needed takes no time. */
#define SY_PHASES(X)                                                                               \
	X(LOAD, "load", "the program and its libraries, from the process's beginning (to 10 ms)")  \
	X(TABLES, "tables", "session tables: found or made, and all their memory touched")         \
	X(EAL, "eal", "DPDK's own start")                                                          \
	X(PACKETS, "packets", "the packet pool's memory")                                          \
	X(ROUTES, "routes", "memory for routes and next hops")                                     \
	X(PORTS, "ports", "sockets' memory registered, the flow director's program loaded")        \
	X(WORKERS, "workers", "workers' memory and rings")                                         \
	X(MIRROR, "mirror", "the kernel's links, addresses, routes, neighbours")                   \
	X(CONFIG, "config", "the saved configuration")                                             \
	X(WAIT, "wait", "upgrade: until the predecessor began to stop; packets flow")              \
	X(RELEASE, "release", "upgrade: the predecessor finishes packets, seals its tables")       \
	X(ACQUIRE, "acquire", "upgrade: locks, and changes accepted meanwhile")                    \
	X(ADOPT, "adopt", "sessions: trusted, or each looked at")                                  \
	X(BIND, "bind", "AF_XDP queues, once the kernel has freed them")                           \
	X(START, "start", "workers' threads; from here on packets flow")                           \
	X(CLAIM, "claim", "upgrade: addresses and the flow director's program are taken")          \
	X(SERVE, "serve", "the control socket")

enum sy_phase {
#define X(id, name, help) SY_PHASE_##id,
	SY_PHASES(X)
#undef X
	        SY_PHASE_COUNT
};

struct sy_phase_cost {
	uint64_t wall_ns;
	uint64_t cpu_ns;    /* CPU time of all threads */
	uint64_t queued_ns; /* time for which the control thread was runnable without a CPU; 0:
	                       unknown */
	uint64_t faults;    /* page faults */
};

/* Call when the process has begun. */
void sy_phases_begin(void);
/* Adds the time since the end of the previous phase to this one. A phase may end repeatedly. */
void sy_phase_end(enum sy_phase phase);
/* The same for two phases; the first ended at at_ns (sy_clock_ns()). */
void sy_phase_split(enum sy_phase first, enum sy_phase second, uint64_t at_ns);
/* Logs one line with all phases: "WHAT in … ms". */
void sy_phases_log(const char *area, const char *what);
struct sy_phase_cost sy_phase_get(enum sy_phase phase);
const char *sy_phase_name(enum sy_phase phase);
const char *sy_phase_help(enum sy_phase phase);

#endif

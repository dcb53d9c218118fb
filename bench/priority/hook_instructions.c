// SPDX-License-Identifier: Apache-2.0
/*
 * steelyard-hook-instructions: instructions in a server's stack per request and response, for
 * several uses of hooks and without. Counted by single-stepping, so other load does not affect the
 * result.
 *
 *     parent: counts  ◀── stops after each instruction ── child: a pair of stacks, one use of hooks
 *
 * Counts the server's stack only: requests of 64 bytes, one per connection, from received to
 * transmitted packets. Each use has its own process.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench_options.h"
#include "measure.h"
#include "pair.h"

#define LEN  64
#define WARM 20u /* rounds before counting */

static unsigned connections = 16;

/* ---- what is counted ------------------------------------------------------------------------- */

static uint8_t packet_nothing(struct sy_hook_packet *p, const uint8_t *payload)
{
	return SY_KEEP;
}

static uint8_t segment_nothing(struct sy_hook_segment *s, const uint8_t *payload)
{
	return SY_KEEP;
}

struct packets {
	struct rte_mbuf *m[4 * PAIR_BURST];
	unsigned count;
};

static void packets_leave(struct sy_stack *from, struct packets *p)
{
	unsigned count;

	p->count = 0;
	while ((count = sy_stack_transmit(from, p->m + p->count, PAIR_BURST, pair.now)) > 0)
		p->count += count;
}

static void server_turn(struct packets *in, struct packets *out)
{
	struct sy_stack_event e[PAIR_MAX];
	uint8_t bytes[LEN];
	unsigned count;

	for (unsigned i = 0; i < in->count; i += PAIR_BURST)
		sy_stack_receive(pair.server, in->m + i,
		                 in->count - i < PAIR_BURST ? in->count - i : PAIR_BURST, pair.now);
	while (sy_stack_process(pair.server, PAIR_BURST, pair.now) > 0)
		;
	while ((count = sy_stack_events(pair.server, e, PAIR_MAX)) > 0)
		for (unsigned i = 0; i < count; i++)
			if (sy_stack_receive_bytes(pair.server, e[i].id, bytes, LEN, pair.now) ==
			    LEN)
				sy_stack_send(pair.server, e[i].id, bytes, LEN, 0, pair.now);
	packets_leave(pair.server, out);
	sy_stack_advance(pair.server, pair.now);
}

static void mark(void)
{
	raise(SIGSTOP);
}

static void round_run(bool counted)
{
	static struct packets in, out;
	struct sy_stack_event e[PAIR_MAX];
	uint8_t bytes[LEN] = {0};

	for (unsigned i = 0; i < connections; i++)
		sy_stack_send(pair.client, pair.from[i], bytes, LEN, 0, pair.now);
	packets_leave(pair.client, &in);
	if (counted)
		mark();
	server_turn(&in, &out);
	if (counted)
		mark();
	sy_stack_receive(pair.client, out.m, out.count, pair.now);
	for (unsigned i = 0; i < connections; i++)
		if (sy_stack_receive_bytes(pair.client, pair.from[i], bytes, LEN, pair.now) != LEN)
			abort();
	while (sy_stack_events(pair.client, e, PAIR_MAX) > 0)
		;
	pair_bring(pair.client, pair.server);
	pair.now += PAIR_MS / 10;
	sy_stack_advance(pair.client, pair.now);
	sy_stack_advance(pair.server, pair.now);
}

/* ---- ways of use ----------------------------------------------------------------------------- */

enum { NEVER, NOT_ASKED, PACKETS, SEGMENTS, BOTH, WAYS };
static const char *const way_name[WAYS] = {"never", "not asked", "packets", "segments", "both"};

static void hooks_use(unsigned packet, unsigned segment)
{
	sy_stack_packet_hook(pair.server, packet);
	sy_stack_segment_hook(pair.server, SY_STACK_NONE, segment);
}

/* Not in use: loaded, used before. */
static void way_set(unsigned way)
{
	unsigned packet, segment;

	if (way == NEVER)
		return;
	packet = pair_packet_hook("packets", packet_nothing);
	segment = pair_segment_hook("segments", segment_nothing);
	hooks_use(packet, segment);
	round_run(false);
	hooks_use(way == PACKETS || way == BOTH ? packet : SY_HOOK_NONE,
	          way == SEGMENTS || way == BOTH ? segment : SY_HOOK_NONE);
}

static void child_run(unsigned way, unsigned rounds)
{
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	pair_open(NULL);
	pair_connect(connections);
	if (way == NEVER)
		round_run(false);
	way_set(way);
	for (unsigned i = 0; i < WARM; i++)
		round_run(false);
	mark(); /* cost of the marks */
	mark();
	for (unsigned i = 0; i < rounds; i++)
		round_run(true);
	pair_close();
	exit(0);
}

/* ---- counting -------------------------------------------------------------------------------- */

static void give_up(const char *why)
{
	fprintf(stderr, "steelyard-hook-instructions: %s\n", why);
	exit(1);
}

/* Resumes it until it stops. Returns true at a mark, false after one instruction or at its exit. */
static bool child_stops(pid_t child, int request, int *status)
{
	if (ptrace(request, child, NULL, NULL) || waitpid(child, status, __WALL) != child)
		give_up("the child cannot be followed");
	return WIFSTOPPED(*status) && WSTOPSIG(*status) == SIGSTOP;
}

/* Counts from one mark to the next. */
static uint64_t section_count(pid_t child)
{
	uint64_t count = 0;
	int status;

	while (!child_stops(child, PTRACE_SINGLESTEP, &status)) {
		if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP)
			give_up("the child ended or got a signal");
		count++;
	}
	return count;
}

/* Returns instructions per request. */
static double way_count(unsigned way, unsigned rounds)
{
	uint64_t marks = 0, sum = 0;
	int status;
	pid_t child = fork();

	if (child < 0)
		give_up("fork");
	if (child == 0)
		child_run(way, rounds);
	if (waitpid(child, &status, __WALL) != child || !WIFSTOPPED(status) ||
	    ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_EXITKILL))
		give_up("the child does not start");
	marks = section_count(child);
	for (unsigned i = 0; i < rounds; i++) {
		if (!child_stops(child, PTRACE_CONT, &status))
			give_up("the child ended early");
		sum += section_count(child) - marks;
	}
	child_stops(child, PTRACE_CONT, &status);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		give_up("the child failed");
	return (double)sum / rounds / connections;
}

int main(int argc, char **argv)
{
	unsigned rounds = 1;
	const struct option_entry entry[] = {
	        {"connections", "N", OPTION_UNSIGNED, &connections, 1, PAIR_MAX,
	         "each asks once in a round"},
	        {"rounds", "N", OPTION_UNSIGNED, &rounds, 1, 100, "that are counted, of each way"},
	};
	double without;

	OPTIONS_TAKE(argc, argv, "Instructions of a stack with hooks for a request.", entry);
	without = way_count(NEVER, rounds);
	for (unsigned way = NOT_ASKED; way < WAYS; way++) {
		char params[80];
		snprintf(params, sizeof(params), "\"figure\": \"costs\", \"hooks\": \"%s\"",
		         way_name[way]);
		measure_report(&(struct measure){.bench = "priority",
		                                 .params = params,
		                                 .metric = "a request on the server's stack",
		                                 .unit = "instructions"},
		               way_count(way, rounds), "without", without);
	}
	return 0;
}

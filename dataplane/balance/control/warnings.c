// SPDX-License-Identifier: Apache-2.0
/* Lists everything that does not work: for status, and for the log at the start. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "access_model.h"
#include "away.h"
#include "client_count.h"
#include "control.h"
#include "model.h"
#include "peers.h"
#include "saved.h"
#include "shaping_model.h"

#define WARNINGS_FIXED       8u /* warnings that occur at most once each */
#define WARNING_TEXT         480u
#define NEIGHBOUR_WARNING_NS (600 * UINT64_C(1000000000))

struct warnings {
	struct arena *arena;
	char **text; /* capacity for all possible warnings */
	size_t count;
	bool out_of_memory;
};

__attribute__((format(printf, 2, 3))) static void warn(struct warnings *to, const char *format, ...)
{
	char *text = arena_alloc(to->arena, WARNING_TEXT);
	va_list values;
	if (!text) {
		to->out_of_memory = true;
		return;
	}
	va_start(values, format);
	vsnprintf(text, WARNING_TEXT, format, values);
	va_end(values);
	to->text[to->count++] = text;
}

static void warn_of_port(struct sy_balance *b, struct warnings *to, const struct sy_port_info *p)
{
	/* Ports without a kernel interface get as many queues as requested. */
	if (p->ifindex && p->queues < b->workers)
		warn(to,
		     "port %s has receive queues for %u of %u workers: the others get its packets "
		     "by hand-over; give it more queues (ethtool -L %s combined %u), or start "
		     "fewer "
		     "workers",
		     p->name, p->queues, b->workers, p->name, b->workers);
}

static void warn_of_shaping(const struct sy_balance *b, struct warnings *to, unsigned port)
{
	const char *problem = shaping_problem(b, port);
	if (problem)
		warn(to, "%s; " SHAPING_FAILED, problem);
}

static void warn_of_stage(struct sy_balance *b, struct warnings *to)
{
	unsigned shared = 0;
	for (unsigned i = 0; b->stage && i < b->workers; i++)
		shared += sy_worker_shares_cpu(sy_worker_at(b->rt, i));
	if (shared > 0 && b->workers > 1)
		warn(to,
		     "%u of %u workers share a CPU with others: packets of limits with engine "
		     "atomic wait for a worker that does not run, and more are dropped "
		     "(event-full); "
		     "give each worker a CPU of its own, or use engine cas",
		     shared, b->workers);
}

static void warn_of_sets(struct sy_balance *b, struct warnings *to)
{
	for (unsigned bit = 0; bit < ADDRESS_SETS; bit++) {
		const struct model_set *s = b->ctl->access->now.set[bit];
		if (s && s->missing)
			warn(to,
			     "access set %s is empty: its data is lost; the agent sends it again "
			     "when it is connected",
			     s->name);
		else if (s && s->data && !s->data->saved)
			warn(to,
			     "access set %s is in effect but not saved, see the forwarder's log; a "
			     "forwarder that starts without its agent has it empty",
			     s->name);
	}
}

/* In a pair one node serves; the other one has the same addresses. */
static void warn_of_shared_address(const struct sy_balance *b, struct warnings *to)
{
	char text[SY_ADDR_TEXT];
	struct sy_addr addr;
	uint8_t node;
	if (group_is_ecmp(b) && names_find_shared(&b->peers->names, &node, &addr))
		warn(to,
		     "%s is a local or pool address of this node and of node %u: new sessions of "
		     "both may use the same port, and break; give each node addresses of its own, "
		     "and list those of the others in peer_local_addresses",
		     sy_addr_format(&addr, text), node);
}

static void warn_of_absent_ports(struct sy_balance *b, struct warnings *to)
{
	for (unsigned i = 0; i < SHAPED_PORTS; i++) {
		const struct model_shaping *s = b->ctl->shaping->now[i];
		if (s && shaping_port(b, s->port) == SY_PORT_NONE)
			warn(to,
			     "shaping of port %s has no effect: the forwarder has no such port; "
			     "see `steelyard get ports`",
			     s->port);
	}
}

int list_warnings(struct sy_balance *b, struct arena *a, char ***out, size_t *count)
{
	char text[SY_ADDR_TEXT];
	const struct neighbour_found *found = &b->ctl->neighbour_found;
	unsigned ports = sy_port_count(b->rt);
	unsigned problems = 0;
	bool kernel_ports = false;
	struct warnings to = {.arena = a};
	while (sy_runtime_problem(b->rt, problems))
		problems++;
	to.text = arena_alloc(
	        a, (2 * ports + ADDRESS_SETS + SHAPED_PORTS + WARNINGS_FIXED + problems) *
	                   sizeof(*to.text));
	if (!to.text)
		return -ENOMEM;
	for (unsigned i = 0; i < problems; i++)
		warn(&to, "%s", sy_runtime_problem(b->rt, i));
	for (unsigned i = 0; i < ports; i++) {
		struct sy_port_info info;
		sy_port_get_info(b->rt, i, &info);
		kernel_ports |= info.ifindex != 0;
		warn_of_port(b, &to, &info);
		warn_of_shaping(b, &to, i);
	}
	if (b->ctl->unsaved && b->ctl->save_failed)
		warn(&to,
		     "the configuration is in effect but not saved: %s; a forwarder that starts "
		     "now may use an older one",
		     b->ctl->save_error.text);
	if (b->ctl->newer.in)
		warn(&to,
		     "this forwarder started from the configuration of a newer one: settings that "
		     "it does not know have no effect (%u; first: field %u of %s); the newer one's "
		     "file is kept as %s/config" SAVED_NEWER,
		     b->ctl->newer.count, b->ctl->newer.tag, b->ctl->newer.in,
		     b->options.state_directory);
	if (kernel_ports && sy_pins_are_private())
		warn(&to, "bpffs is mounted in a private mount namespace: the flow director "
		          "ends with it, and the kernel then answers for VIPs; start the "
		          "forwarder in the host's (nsenter --net instead of ip netns exec, no "
		          "PrivateMounts)");
	if (b->ctl->access->block_failed)
		warn(&to,
		     "the flow director drops none of the access list's sources: %s; the workers "
		     "drop them all, at a higher cost",
		     b->ctl->access->block_failed == -E2BIG
		             ? "they are more than 1 048 576 IPv4 addresses in prefixes longer "
		               "than /24, or 262 144 IPv6 prefixes"
		             : strerror(-b->ctl->access->block_failed));
	warn_of_sets(b, &to);
	warn_of_absent_ports(b, &to);
	warn_of_shared_address(b, &to);
	warn_of_stage(b, &to);
	if (client_counts_lost(b->client_counts))
		warn(&to,
		     "%" PRIu64 " sessions that ended still count for their clients' limits: this "
		     "is a mistake of the forwarder, please report it; a restart counts anew",
		     client_counts_lost(b->client_counts));
	if (found->at_ns && sy_clock_ns() - found->at_ns < NEIGHBOUR_WARNING_NS)
		warn(&to, NEIGHBOUR_FOUND, NEIGHBOUR_FOUND_VALUES(found, text));
	*out = to.text;
	*count = to.count;
	return to.out_of_memory ? -ENOMEM : 0;
}

void warnings_log(struct sy_balance *b)
{
	struct arena arena = {0};
	char **text;
	size_t count;
	if (list_warnings(b, &arena, &text, &count) == 0)
		for (size_t i = 0; i < count; i++)
			sy_log(SY_LOG_WARN, "balance", "%s", text[i]);
	arena_free(&arena);
}

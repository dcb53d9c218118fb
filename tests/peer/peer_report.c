// SPDX-License-Identifier: Apache-2.0
/* One line of JSON each, at once: the reader waits for lines. */
#include <string.h>

#include "peer.h"

static void endpoint_print(const char *name, const struct sy_stack_endpoint *e)
{
	char text[SY_ADDR_TEXT];
	printf("\"%s\": [\"%s\", %u], ", name, sy_addr_format(&e->addr, text),
	       rte_be_to_cpu_16(e->port));
}

static void talk_print(struct peer *p, const struct talk *t)
{
	struct sy_stack_info i;

	printf("{\"job\": %u, \"talk\": %u, \"round\": %lu, ", t->job->number, t->number,
	       (unsigned long)t->round);
	if (sy_stack_info(p->stack, t->id, &i) == 0) {
		endpoint_print("local", &i.local);
		endpoint_print("peer", &i.peer);
		printf("\"state\": \"%s\", \"mss\": %u, \"rtt_us\": %u, \"rto_ms\": %u, "
		       "\"window\": %u, \"peer_window\": %u, \"receive_window\": %u, "
		       "\"acknowledged\": %lu, \"unsent\": %u, \"unread\": %u, "
		       "\"retransmitted\": %u, \"retries\": %u, ",
		       sy_stack_state_name(i.state), i.mss, i.rtt_us, i.rto_ms, i.window,
		       i.peer_window, i.receive_window, (unsigned long)i.sent, i.unsent, i.unread,
		       i.retransmitted, i.retries);
		printf("\"sack\": %s, \"timestamps\": %s, \"scale\": %s, \"ecn\": %s, ",
		       i.sack ? "true" : "false", i.timestamps ? "true" : "false",
		       i.scale ? "true" : "false", i.ecn ? "true" : "false");
	}
	printf("\"written\": %lu, \"received\": %lu, \"wrong_at\": %ld, \"urgent\": %u, "
	       "\"error\": \"%s\"}",
	       (unsigned long)t->written, (unsigned long)t->received, (long)t->wrong_at, t->urgent,
	       t->error ? strerrorname_np(t->error) : "");
}

void report_talk(struct peer *p, const struct talk *t, const char *event)
{
	printf("{\"event\": \"%s\", \"talk\": ", event);
	talk_print(p, t);
	puts("}");
	fflush(stdout);
}

void report_stats(struct peer *p)
{
	const struct sy_stack_counters *c = sy_stack_counters(p->stack);
	struct sy_stack_usage u;
	const char *between = "";

	sy_stack_usage(p->stack, &u);
	printf("{\"event\": \"stats\", \"counters\": {");
#define X(name, help)                                                                              \
	printf("%s\"" #name "\": %lu", between, (unsigned long)c->name);                           \
	between = ", ";
	SY_STACK_COUNTERS(X)
#undef X
	printf("}, \"usage\": {\"connections\": %u, \"half_open\": %u, \"time_wait\": %u, "
	       "\"listeners\": %u, \"send_bytes\": %lu, \"receive_bytes\": %lu, \"ranges\": %u}",
	       u.connections, u.half_open, u.time_wait, u.listeners, (unsigned long)u.send_bytes,
	       (unsigned long)u.receive_bytes, u.ranges);
	printf(", \"talks\": [");
	between = "";
	for (const struct talk *t = p->talks; t; t = t->next) {
		if (t->over)
			continue;
		fputs(between, stdout);
		talk_print(p, t);
		between = ", ";
	}
	puts("]}");
	fflush(stdout);
}

void report_job(const struct job *j)
{
	printf("{\"event\": \"job\", \"job\": %u}\n", j->number);
	fflush(stdout);
}

void report_error(const char *text)
{
	printf("{\"event\": \"error\", \"text\": \"");
	for (; *text; text++)
		printf(*text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
	puts("\"}");
	fflush(stdout);
}

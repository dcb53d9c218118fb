// SPDX-License-Identifier: Apache-2.0
/* Steps about the stack's first numbers: RFC 6528. */
#include "play.h"

#define TICK_NS 4000 /* of their clock: RFC 6528 3 */

static struct kept *kept_of(struct play *p, char name)
{
	WANT(p, name >= 'A' && name < 'A' + KEPT);
	return &p->kept[name - 'A'];
}

void do_keep(struct play *p, char *words)
{
	unsigned port = PEER, peer;
	char name;

	WANT(p, sscanf(words, "%c %u", &name, &port) >= 1);
	peer = (port - PEER) % PEERS;
	WANT(p, p->ours_known[peer]);
	*kept_of(p, name) = (struct kept){p->ours[peer], p->begun[peer]};
}

void do_apart(struct play *p, char *words)
{
	unsigned value;
	uint32_t apart;
	char a, b;

	WANT(p, sscanf(words, "%c %c %u", &a, &b, &value) == 3);
	apart = kept_of(p, b)->number - kept_of(p, a)->number;
	if (apart != value)
		FAIL(p, "it is %u beyond", apart);
}

void do_unlike(struct play *p, char *words)
{
	const struct kept *one, *other;
	uint32_t ticks;
	char a, b;

	WANT(p, sscanf(words, "%c %c", &a, &b) == 2);
	one = kept_of(p, a);
	other = kept_of(p, b);
	ticks = (uint32_t)((other->ns - one->ns) / TICK_NS);
	WANT(p, other->number - one->number != ticks);
}

void do_reboot(struct play *p, char *words)
{
	sy_stack_destroy(p->s);
	p->c = p->listener = 0;
	memset(p->ours_known, 0, sizeof(p->ours_known));
	p->written = p->read = 0;
	stack_start(p, words);
}

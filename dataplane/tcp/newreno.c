// SPDX-License-Identifier: Apache-2.0
/* NewReno: RFC 5681 3.1 with byte counting (RFC 3465 2.1). RFC 6582's partial ACKs are in sent.h.
 */
#include "congestion.h"

static void newreno_init(struct congestion *c)
{
	(void)c;
}

/* Adds a segment per acknowledged window. */
static void newreno_acked(struct congestion *c, uint32_t bytes, const struct rtt *r,
                          uint32_t now_ms)
{
	(void)r;
	(void)now_ms;
	c->counted += bytes;
	if (c->counted < c->window)
		return;
	c->counted -= c->window;
	c->window += c->mss;
	if (c->counted > c->window) /* an ACK of several windows */
		c->counted = 0;
}

static uint32_t newreno_reduced(struct congestion *c, uint32_t flight)
{
	uint32_t min = 2 * (uint32_t)c->mss; /* equation 4 */
	return flight / 2 > min ? flight / 2 : min;
}

static void newreno_undo(struct congestion *c)
{
	c->counted = 0;
}

static void newreno_unused(struct congestion *c, uint32_t ms)
{
	(void)c;
	(void)ms;
}

const struct congestion_ops congestion_newreno = {
        .name = "newreno",
        .init = newreno_init,
        .acked = newreno_acked,
        .reduced = newreno_reduced,
        .undo = newreno_undo,
        .unused = newreno_unused,
};

// SPDX-License-Identifier: Apache-2.0
/* Restores claims and the guard after other programs have changed them. */
#include "claim.h"
#include "guard.h"
#include "owner.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>

/* Claims per step: one netlink request each, some 10 µs. */
#define STEP_CLAIMS 64
/* Max claims named in a message; further ones are only counted. */
#define NAMED 8

bool sy_claims_has(const struct sy_claims *c, const struct sy_addr *addr)
{
	return claim_find(c, addr);
}

int sy_claims_fd(const struct sy_claims *c)
{
	return mnl_socket_get_fd(c->watch.events);
}

bool sy_claims_read(struct sy_claims *c)
{
	return guard_watch_read(&c->watch);
}

/* ---- the guard ------------------------------------------------------------------------------- */

static void guard_mark(void *ctx, const struct sy_addr *addr)
{
	struct claim *claim = claim_find(ctx, addr);

	if (claim)
		claim->guarded = true;
}

/* Is the guard complete? Returns true also if the sets cannot be read. */
static bool guard_is_complete(struct sy_claims *c)
{
	bool complete = true;
	int rc;

	for (uint32_t i = 0; i < c->claims.buckets; i++)
		for (struct table_node *n = c->claims.bucket[i]; n; n = n->next)
			((struct claim *)n)->guarded = false;
	rc = guard_each(&c->watch, guard_mark, c);
	if (rc < 0)
		return rc != -ENOENT;
	for (uint32_t i = 0; i < c->claims.buckets; i++)
		for (struct table_node *n = c->claims.bucket[i]; n; n = n->next)
			complete &= ((struct claim *)n)->guarded;
	return complete;
}

void sy_claims_verify_guard(struct sy_claims *c, const struct sy_verify *v)
{
	struct sy_error err = {0};

	if (guard_is_intact(&c->watch) && guard_is_complete(c))
		return;
	if (claims_guard_rebuild(c, &err))
		v->problem(v->ctx, err.text);
	else
		v->restored(v->ctx, "nftables table inet steelyard");
}

/* ---- claims ---------------------------------------------------------------------------------- */

static void claim_restored(struct sy_claims *c, const struct claim *claim,
                           const struct sy_verify *v)
{
	char addr[SY_ADDR_TEXT], name[IF_NAMESIZE] = "lo", text[SY_ADDR_TEXT + IF_NAMESIZE + 48];

	c->restored++;
	if (c->restored > NAMED)
		return;
	sy_addr_format(&claim->addr, addr);
	if (!sy_addr_is_v4(&claim->addr))
		if_indextoname((unsigned)claim->ifindex, name);
	snprintf(text, sizeof(text),
	         sy_addr_is_v4(&claim->addr) ? "local route to %s on %s" : "address %s/128 on %s",
	         addr, name);
	v->restored(v->ctx, text);
}

void sy_claim_describe_double(const struct sy_addr *addr, char *text, size_t size)
{
	char name[SY_ADDR_TEXT];

	sy_addr_format(addr, name);
	snprintf(text, size,
	         "%s was configured on this host, too: packets that this host sends from it are "
	         "dropped; remove it: ip address del %s dev INTERFACE",
	         name, name);
}

static void claim_verify(struct sy_claims *c, const struct claim *claim, const struct sy_verify *v)
{
	bool v4 = sy_addr_is_v4(&claim->addr);
	char text[2 * SY_ADDR_TEXT + 160];
	struct sy_error err = {0};
	struct owner owner;
	int rc;

	if (!v4 && !v->is_up(v->ctx, claim->ifindex))
		return;
	owner = owner_find(c->nl, &claim->addr);
	if (owner.there && (owner.own || owner.may_be_own))
		return;
	if (owner.there) {
		sy_claim_describe_double(&claim->addr, text, sizeof(text));
		v->problem(v->ctx, text);
		return;
	}
	rc = claim_put(c, &claim->addr, claim->ifindex, &err);
	if (rc == 0)
		claim_restored(c, claim, v);
	/* sy_settings_verify() reports settings of an interface, which affect all its claims */
	else if (rc == -ENETDOWN)
		v->problem(v->ctx, "interface lo is down, so the kernel does not answer for IPv4 "
		                   "VIPs; ip link set lo up");
	else if (rc != -ENODEV && rc != -EACCES && rc != -EPERM)
		v->problem(v->ctx, err.text);
}

bool sy_claims_verify_step(struct sy_claims *c, const struct sy_verify *v)
{
	char text[64];

	for (unsigned seen = 0; c->verify_bucket < c->claims.buckets; c->verify_bucket++) {
		if (seen >= STEP_CLAIMS)
			return true;
		for (struct table_node *n = c->claims.bucket[c->verify_bucket]; n;
		     n = n->next, seen++)
			claim_verify(c, (struct claim *)n, v);
	}
	if (c->restored > NAMED) {
		snprintf(text, sizeof(text), "%u further addresses", c->restored - NAMED);
		v->restored(v->ctx, text);
	}
	c->verify_bucket = c->restored = 0;
	return false;
}

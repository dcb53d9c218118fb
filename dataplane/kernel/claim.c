// SPDX-License-Identifier: Apache-2.0
/*
 * Claims. The host's state is the record of claims: routes and addresses with the forwarder's
 * protocol number. Kernels before 5.18 do not store it for addresses, so IPv6 claims are also
 * written to a journal, one "+address" or "-address" per line. Settling rewrites the journal.
 */
#include "claim.h"
#include "netlink_request.h"
#include "owner.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static uint32_t claim_hash(const struct sy_addr *addr)
{
	/* addresses come from the configuration: the key need not be secret */
	return (uint32_t)sy_hash_mix(addr->d[0] ^ 0x9e3779b97f4a7c15, addr->d[1] ^ ~0ull << 7);
}

struct claim *claim_find(const struct sy_claims *c, const struct sy_addr *addr)
{
	struct table_node *node = table_chain(&c->claims, claim_hash(addr));

	for (; node; node = node->next)
		if (sy_addr_equal(&((struct claim *)node)->addr, addr))
			return (struct claim *)node;
	return NULL;
}

static struct claim *claim_note(struct sy_claims *c, const struct sy_addr *addr, int ifindex,
                                bool found)
{
	struct claim *claim = claim_find(c, addr);

	if (!claim) {
		claim = calloc(1, sizeof(*claim));
		if (!claim)
			return NULL;
		claim->addr = *addr;
		table_insert(&c->claims, &claim->node, claim_hash(addr));
	}
	claim->ifindex = ifindex;
	claim->found = found;
	return claim;
}

static void claim_forget(struct sy_claims *c, struct claim *claim)
{
	table_remove(&c->claims, &claim->node);
	free(claim);
}

static int claim_withdraw(struct sy_claims *c, const struct claim *claim)
{
	int rc;

	if (sy_addr_is_v4(&claim->addr))
		rc = route4_request(c->nl, RTM_DELROUTE, 0, &claim->addr);
	else
		rc = addr6_request(c->nl, RTM_DELADDR, 0, &claim->addr, claim->ifindex);
	/* already removed, with its device or by another program */
	return rc == -ESRCH || rc == -EADDRNOTAVAIL || rc == -ENODEV ? 0 : rc;
}

/* ---- finding what an earlier process left ---------------------------------------------------- */

struct discovery {
	struct sy_claims *claims;
	bool v4;
	bool out_of_memory;
};

static int discovery_read(const struct nlmsghdr *nlh, void *data)
{
	struct discovery *d = data;
	struct owner owner;

	if (nlh->nlmsg_type == (d->v4 ? RTM_NEWROUTE : RTM_NEWADDR)) {
		(d->v4 ? route4_read : addr6_read)(nlh, &owner);
		if (owner.own && !claim_note(d->claims, &owner.addr, owner.ifindex, true))
			d->out_of_memory = true;
	}
	return MNL_CB_OK;
}

static int host_discover(struct sy_claims *c, bool v4)
{
	struct discovery d = {.claims = c, .v4 = v4};
	struct request r;
	int rc;

	if (v4) {
		struct rtmsg *rtm = request_begin(&r, RTM_GETROUTE, NLM_F_DUMP, sizeof(*rtm));

		rtm->rtm_family = AF_INET;
		rtm->rtm_table = RT_TABLE_LOCAL;
		rtm->rtm_protocol = HOST_PROTOCOL;
		rtm->rtm_type = RTN_LOCAL;
	} else {
		struct ifaddrmsg *ifa = request_begin(&r, RTM_GETADDR, NLM_F_DUMP, sizeof(*ifa));

		ifa->ifa_family = AF_INET6;
	}
	rc = request_send(c->nl, &r, discovery_read, &d);
	return rc == 0 && d.out_of_memory ? -ENOMEM : rc;
}

/* Adopts an address of the journal only if its route or address has the attributes of a claim. */
static int journal_read(struct sy_claims *c)
{
	char line[SY_ADDR_TEXT + 8];
	FILE *in = fopen(c->state, "re");
	struct claim *claim;
	struct sy_addr addr;
	int rc = 0;

	if (!in)
		return errno == ENOENT ? 0 : -errno;
	while (rc == 0 && fgets(line, sizeof(line), in)) {
		struct owner owner;

		line[strcspn(line, "\n")] = 0;
		if (sy_addr_parse(line + 1, &addr) < 0)
			continue;
		owner = owner_find(c->nl, &addr);
		claim = claim_find(c, &addr);
		if (line[0] == '+' && owner.there && owner.may_be_own)
			rc = claim_note(c, &addr, owner.ifindex, true) ? 0 : -ENOMEM;
		else if (line[0] == '-' && claim && !owner.own)
			claim_forget(c, claim);
	}
	fclose(in);
	return rc;
}

/* For root only: it has addresses of the host. An earlier build made the file readable. */
static FILE *journal_open(const char *path, int flags, const char *mode)
{
	int fd = open(path, flags | O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	FILE *out = fd >= 0 ? fdopen(fd, mode) : NULL;

	if (out)
		(void)fchmod(fd, 0600);
	else if (fd >= 0)
		close(fd);
	return out;
}

static int journal_add(const struct sy_claims *c, char sign, const struct sy_addr *addr)
{
	char text[SY_ADDR_TEXT];
	FILE *out;

	if (sy_addr_is_v4(addr))
		return 0;
	out = journal_open(c->state, O_APPEND, "a");
	if (!out)
		return -errno;
	fprintf(out, "%c%s\n", sign, sy_addr_format(addr, text));
	return fclose(out) == 0 ? 0 : -errno;
}

static int journal_rewrite(const struct sy_claims *c)
{
	char fresh[HOST_PATH + 4], text[SY_ADDR_TEXT];
	FILE *out;

	snprintf(fresh, sizeof(fresh), "%s.new", c->state);
	out = journal_open(fresh, O_TRUNC, "w");
	if (!out)
		return -errno;
	for (uint32_t i = 0; i < c->claims.buckets; i++)
		for (struct table_node *n = c->claims.bucket[i]; n; n = n->next)
			if (!sy_addr_is_v4(&((struct claim *)n)->addr))
				fprintf(out, "+%s\n",
				        sy_addr_format(&((struct claim *)n)->addr, text));
	if (fclose(out) != 0 || rename(fresh, c->state) < 0)
		return -errno;
	return 0;
}

/* ---- opening --------------------------------------------------------------------------------- */

int claims_load(struct sy_claims **out, unsigned wait_ms, struct sy_error *err)
{
	struct sy_claims *c = calloc(1, sizeof(*c));
	int rc;

	*out = NULL;
	if (!c || table_init(&c->claims)) {
		free(c);
		return sy_fail(err, ENOMEM, "no memory for claims");
	}
	snprintf(c->state, sizeof(c->state), HOST_RUN_DIR "/claims-%" PRIu64, host_netns());
	rc = c->lock = host_lock("claims", "this network namespace", "", wait_ms, err);
	if (rc < 0)
		goto fail;
	c->nl = request_open();
	c->nft = guard_open();
	if (!c->nl || !c->nft) {
		rc = sy_fail(err, errno ? errno : ENOMEM,
		             "cannot open netlink and nftables for claims: %s", strerror(errno));
		goto fail;
	}
	rc = host_discover(c, true);
	if (rc == 0)
		rc = host_discover(c, false);
	if (rc == 0)
		rc = journal_read(c);
	if (rc == 0) {
		*out = c;
		return 0;
	}
	sy_fail(err, -rc, "cannot find earlier claims: %s", strerror(-rc));
fail:
	sy_claims_close(c);
	return rc;
}

int claims_guard_rebuild(struct sy_claims *c, struct sy_error *err)
{
	struct sy_addr *addrs = calloc(c->claims.count + 1, sizeof(*addrs));
	size_t count = 0;
	int rc;

	if (!addrs)
		return sy_fail(err, ENOMEM, "no memory for claims");
	for (uint32_t i = 0; i < c->claims.buckets; i++)
		for (struct table_node *n = c->claims.bucket[i]; n; n = n->next)
			addrs[count++] = ((struct claim *)n)->addr;
	rc = guard_reset(c->nft, addrs, count, err);
	free(addrs);
	if (rc == 0)
		guard_watch_note(&c->watch);
	return rc;
}

int sy_claims_open(struct sy_claims **out, unsigned wait_ms, struct sy_error *err)
{
	int rc = claims_load(out, wait_ms, err);

	if (rc)
		return rc;
	rc = guard_watch_open(&(*out)->watch);
	if (rc)
		sy_fail(err, -rc, "cannot watch nftables: %s", strerror(-rc));
	else
		rc = claims_guard_rebuild(*out, err);
	if (rc) {
		sy_claims_close(*out);
		*out = NULL;
	}
	return rc;
}

void sy_claims_close(struct sy_claims *c)
{
	if (!c)
		return;
	for (uint32_t i = 0; i < c->claims.buckets; i++)
		while (c->claims.bucket[i])
			claim_forget(c, (struct claim *)c->claims.bucket[i]);
	table_fini(&c->claims);
	guard_watch_close(&c->watch);
	if (c->nl)
		mnl_socket_close(c->nl);
	if (c->nft)
		nft_ctx_free(c->nft);
	if (c->lock >= 0)
		close(c->lock);
	free(c);
}

/* ---- adding and removing --------------------------------------------------------------------- */

static int claim_refuse_own(const char *text, struct sy_error *err)
{
	return sy_fail(err, EADDRINUSE,
	               "%s is the host's own address; choose another, or move this "
	               "address off the host",
	               text);
}

int claim_put(struct sy_claims *c, const struct sy_addr *addr, int ifindex, struct sy_error *err)
{
	char text[SY_ADDR_TEXT];
	int rc;

	sy_addr_format(addr, text);
	if (sy_addr_is_v4(addr)) {
		rc = route4_request(c->nl, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, addr);
		if (rc == -EEXIST && owner_find(c->nl, addr).own)
			rc = 0;
		if (rc == -ENETDOWN)
			return sy_fail(err, ENETDOWN, "%s: interface lo is down; ip link set lo up",
			               text);
	} else {
		rc = journal_add(c, '+', addr);
		if (rc == 0)
			rc = addr6_request(c->nl, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, addr,
			                   ifindex);
	}
	if (rc == -EEXIST)
		return claim_refuse_own(text, err);
	return rc ? sy_fail(err, -rc, "%s: cannot claim it: %s", text, strerror(-rc)) : 0;
}

static int claim_check(const struct owner *owner, const struct claim *claim, const char *text,
                       struct sy_error *err)
{
	if (owner->broadcast)
		return sy_fail(err, EADDRNOTAVAIL,
		               "%s is a broadcast address of a network of this host, which no "
		               "host answers for; choose another, or give that network a "
		               "shorter prefix",
		               text);
	if (owner->there && !owner->own && !(claim && owner->may_be_own))
		return claim_refuse_own(text, err);
	return 0;
}

int sy_claims_check(const struct sy_claims *c, const struct sy_addr *addr, struct sy_error *err)
{
	const struct owner owner = owner_find(c->nl, addr);
	char text[SY_ADDR_TEXT];

	return claim_check(&owner, claim_find(c, addr), sy_addr_format(addr, text), err);
}

int sy_claims_add(struct sy_claims *c, const struct sy_addr *addr, int ifindex,
                  struct sy_error *err)
{
	struct claim *claim = claim_find(c, addr);
	bool v4 = sy_addr_is_v4(addr);
	char text[SY_ADDR_TEXT];
	struct owner owner;
	int rc;

	sy_addr_format(addr, text);
	if (!v4 && ifindex <= 0)
		return sy_fail(err, EINVAL,
		               "%s: an IPv6 address needs the interface that answers for it", text);
	if (v4)
		ifindex = 0; /* for a route on lo, the host answers on all interfaces */
	owner = owner_find(c->nl, addr);
	rc = claim_check(&owner, claim, text, err);
	if (rc)
		return rc;
	if (claim && owner.there && claim->ifindex == ifindex) {
		claim->found = false;
		return 0;
	}
	if (claim) {
		rc = claim_withdraw(c, claim);
		if (rc)
			return sy_fail(err, -rc, "%s: cannot move it to another interface: %s",
			               text, strerror(-rc));
	}
	rc = guard_add(c->nft, addr, err);
	if (rc) { /* another program may have removed the table */
		rc = claims_guard_rebuild(c, err);
		if (rc == 0)
			rc = guard_add(c->nft, addr, err);
	}
	if (rc == 0)
		rc = claim_put(c, addr, ifindex, err);
	if (rc == 0 && !claim_note(c, addr, ifindex, false))
		rc = sy_fail(err, ENOMEM, "%s: no memory for the claim", text);
	if (rc)
		guard_remove(c->nft, addr);
	return rc;
}

int sy_claims_renew(struct sy_claims *c, int ifindex)
{
	struct sy_error err = {0};
	int first = 0;

	for (uint32_t i = 0; i < c->claims.buckets; i++) {
		for (struct table_node *n = c->claims.bucket[i]; n; n = n->next) {
			struct claim *claim = (struct claim *)n;

			if (claim->ifindex != ifindex || owner_find(c->nl, &claim->addr).there)
				continue;
			int rc = claim_put(c, &claim->addr, ifindex, &err);
			first = first ? first : rc;
		}
	}
	return first;
}

void sy_claims_move(struct sy_claims *c, int from, int to)
{
	for (uint32_t i = 0; i < c->claims.buckets; i++)
		for (struct table_node *n = c->claims.bucket[i]; n; n = n->next)
			if (((struct claim *)n)->ifindex == from && from)
				((struct claim *)n)->ifindex = to;
}

void sy_claims_each(const struct sy_claims *c, void (*fn)(void *ctx, const struct sy_addr *addr),
                    void *ctx)
{
	for (uint32_t i = 0; i < c->claims.buckets; i++)
		for (struct table_node *n = c->claims.bucket[i]; n; n = n->next)
			fn(ctx, &((struct claim *)n)->addr);
}

static int claim_remove(struct sy_claims *c, struct claim *claim)
{
	int rc = claim_withdraw(c, claim);

	if (rc)
		return rc;
	/* not an error if the element is missing: another program may have flushed the guard */
	guard_remove(c->nft, &claim->addr);
	rc = journal_add(c, '-', &claim->addr);
	claim_forget(c, claim);
	return rc;
}

int sy_claims_remove(struct sy_claims *c, const struct sy_addr *addr)
{
	struct claim *claim = claim_find(c, addr);

	return claim ? claim_remove(c, claim) : 0;
}

int claims_remove_found(struct sy_claims *c, void (*report)(void *ctx, const char *text), void *ctx)
{
	int first = 0;

	for (uint32_t i = 0; i < c->claims.buckets; i++) {
		for (struct table_node *n = c->claims.bucket[i], *next; n; n = next) {
			struct claim *claim = (struct claim *)n;
			char addr[SY_ADDR_TEXT], text[SY_ADDR_TEXT + 16];
			int rc;

			next = n->next;
			if (!claim->found)
				continue;
			snprintf(text, sizeof(text), "address %s",
			         sy_addr_format(&claim->addr, addr));
			rc = claim_remove(c, claim);
			if (rc == 0 && report)
				report(ctx, text);
			first = first ? first : rc;
		}
	}
	return first;
}

int sy_claims_settle(struct sy_claims *c)
{
	int rc = claims_remove_found(c, NULL, NULL);

	return rc ? rc : journal_rewrite(c);
}

struct nft_ctx *claims_guard(struct sy_claims *c)
{
	return c->nft;
}

const char *claims_state_path(const struct sy_claims *c)
{
	return c->state;
}

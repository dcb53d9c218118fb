// SPDX-License-Identifier: Apache-2.0
/*
 * Detects changes of the guard by other programs, for example by `nft flush ruleset`. Reads the
 * table by netlink, as libnftables would read the host's whole ruleset to list one chain. The
 * kernel reports each transaction: first its changes, then the id of the process that made it.
 */
#include "guard.h"
#include "netlink_request.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <unistd.h>

#define GUARD_TABLE   "steelyard"
#define GUARD_CHAIN   "output"
#define EVENT_BYTES   65536
#define EVENT_BATCHES 64 /* max messages per call */
#define DUMP_ATTEMPTS 16 /* tries while other programs change nftables */

int guard_watch_open(struct guard_watch *w)
{
	w->requests = request_open_nft(false);
	w->events = w->requests ? request_open_nft(true) : NULL;
	return w->events ? 0 : -errno;
}

void guard_watch_close(struct guard_watch *w)
{
	if (w->requests)
		mnl_socket_close(w->requests);
	if (w->events)
		mnl_socket_close(w->events);
	*w = (struct guard_watch){0};
}

/* ---- reading the table ----------------------------------------------------------------------- */

static void nft_begin(struct request *r, uint8_t type, uint16_t flags)
{
	struct nfgenmsg *nfg =
	        request_begin(r, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | type), flags, sizeof(*nfg));

	nfg->nfgen_family = NFPROTO_INET;
	nfg->version = NFNETLINK_V0;
}

struct fingerprint {
	uint64_t sum;
	unsigned objects;
};

static void fingerprint_add(struct fingerprint *p, const struct nlattr *attr)
{
	const uint8_t *at = mnl_attr_get_payload(attr);

	p->sum = sy_hash_mix(p->sum ^ mnl_attr_get_type(attr), mnl_attr_get_payload_len(attr) + 1u);
	for (uint16_t i = 0; i < mnl_attr_get_payload_len(attr); i++)
		p->sum = sy_hash_mix(p->sum ^ at[i], 0x9e3779b97f4a7c15);
}

/* Hashes the attributes that define the table's behaviour, without handles and use counts. */
static int fingerprint_read(const struct nlmsghdr *nlh, void *data)
{
	struct fingerprint *p = data;
	const struct nlattr *attr;
	uint16_t type = nlh->nlmsg_type & 0xff;

	p->objects++;
	mnl_attr_for_each(attr, nlh, sizeof(struct nfgenmsg))
	{
		uint16_t kind = mnl_attr_get_type(attr);

		if ((type == NFT_MSG_NEWTABLE && kind == NFTA_TABLE_FLAGS) ||
		    (type == NFT_MSG_NEWCHAIN &&
		     (kind == NFTA_CHAIN_HOOK || kind == NFTA_CHAIN_POLICY)) ||
		    (type == NFT_MSG_NEWRULE && kind == NFTA_RULE_EXPRESSIONS))
			fingerprint_add(p, attr);
	}
	return MNL_CB_OK;
}

/* Returns -ENOENT if the table, its chain or its rules are missing. */
static int guard_fingerprint_once(struct guard_watch *w, uint64_t *out)
{
	struct fingerprint p = {.sum = 1};
	struct request r;
	int rc;

	nft_begin(&r, NFT_MSG_GETTABLE, 0);
	mnl_attr_put_strz(r.nlh, NFTA_TABLE_NAME, GUARD_TABLE);
	rc = request_send(w->requests, &r, fingerprint_read, &p);
	if (rc < 0)
		return rc;
	nft_begin(&r, NFT_MSG_GETCHAIN, 0);
	mnl_attr_put_strz(r.nlh, NFTA_CHAIN_TABLE, GUARD_TABLE);
	mnl_attr_put_strz(r.nlh, NFTA_CHAIN_NAME, GUARD_CHAIN);
	rc = request_send(w->requests, &r, fingerprint_read, &p);
	if (rc < 0)
		return rc;
	p.objects = 0;
	nft_begin(&r, NFT_MSG_GETRULE, NLM_F_DUMP);
	mnl_attr_put_strz(r.nlh, NFTA_RULE_TABLE, GUARD_TABLE);
	mnl_attr_put_strz(r.nlh, NFTA_RULE_CHAIN, GUARD_CHAIN);
	rc = request_send(w->requests, &r, fingerprint_read, &p);
	*out = p.sum ? p.sum : 1;
	return rc == 0 && !p.objects ? -ENOENT : rc;
}

/* Retries: a change of any table of the host interrupts a dump (NLM_F_DUMP_INTR). */
static int guard_fingerprint(struct guard_watch *w, uint64_t *out)
{
	int rc = -EINTR;

	for (unsigned i = 0; i < DUMP_ATTEMPTS && rc == -EINTR; i++)
		rc = guard_fingerprint_once(w, out);
	return rc;
}

void guard_watch_note(struct guard_watch *w)
{
	uint64_t now;

	w->expected = guard_fingerprint(w, &now) ? 0 : now;
}

bool guard_is_intact(struct guard_watch *w)
{
	uint64_t now;
	int rc = guard_fingerprint(w, &now);

	if (rc)
		return rc != -ENOENT;
	if (!w->expected) /* guard_watch_note() could not read the table */
		w->expected = now;
	return now == w->expected;
}

struct elements {
	void (*fn)(void *ctx, const struct sy_addr *addr);
	void *ctx;
};

static void element_read(const struct elements *e, const struct nlattr *element)
{
	const struct nlattr *attr, *value;
	struct sy_addr addr;

	mnl_attr_for_each_nested(attr, element)
	{
		if (mnl_attr_get_type(attr) != NFTA_SET_ELEM_KEY)
			continue;
		mnl_attr_for_each_nested(value, attr)
		{
			if (mnl_attr_get_type(value) == NFTA_DATA_VALUE &&
			    sy_addr_from_bytes(mnl_attr_get_payload(value),
			                       mnl_attr_get_payload_len(value), &addr) == 0)
				e->fn(e->ctx, &addr);
		}
	}
}

static int elements_read(const struct nlmsghdr *nlh, void *data)
{
	const struct nlattr *attr, *element;

	mnl_attr_for_each(attr, nlh, sizeof(struct nfgenmsg))
	{
		if (mnl_attr_get_type(attr) != NFTA_SET_ELEM_LIST_ELEMENTS)
			continue;
		mnl_attr_for_each_nested(element, attr) element_read(data, element);
	}
	return MNL_CB_OK;
}

static int set_read(struct guard_watch *w, const char *set, struct elements *e)
{
	struct request r;

	nft_begin(&r, NFT_MSG_GETSETELEM, NLM_F_DUMP);
	mnl_attr_put_strz(r.nlh, NFTA_SET_ELEM_LIST_TABLE, GUARD_TABLE);
	mnl_attr_put_strz(r.nlh, NFTA_SET_ELEM_LIST_SET, set);
	return request_send(w->requests, &r, elements_read, e);
}

int guard_each(struct guard_watch *w, void (*fn)(void *ctx, const struct sy_addr *addr), void *ctx)
{
	static const char *const set[] = {"claimed4", "claimed6"};
	struct elements e = {fn, ctx};
	unsigned interrupted = 0;
	int rc = 0;

	for (unsigned i = 0; i < SY_ARRAY_LEN(set) && !rc; i++)
		do
			rc = set_read(w, set[i], &e);
		while (rc == -EINTR && ++interrupted < DUMP_ATTEMPTS);
	return rc;
}

/* ---- events ---------------------------------------------------------------------------------- */

/* In messages about tables and their contents, attribute 1 is the table's name. */
static bool message_is_of_table(const struct nlmsghdr *nlh)
{
	const struct nlattr *attr;

	mnl_attr_for_each(attr, nlh, sizeof(struct nfgenmsg)) if (
	        mnl_attr_get_type(attr) ==
	        NFTA_TABLE_NAME) return mnl_attr_validate(attr, MNL_TYPE_NUL_STRING) >= 0 &&
	        !strcmp(mnl_attr_get_str(attr), GUARD_TABLE);
	return false;
}

static bool generation_is_own(const struct nlmsghdr *nlh)
{
	const struct nlattr *attr;

	mnl_attr_for_each(
	        attr, nlh,
	        sizeof(struct nfgenmsg)) if (mnl_attr_get_type(attr) == NFTA_GEN_PROC_PID &&
	                                     mnl_attr_get_payload_len(attr) ==
	                                             4) return ntohl(mnl_attr_get_u32(attr)) ==
	        (uint32_t)getpid();
	return false;
}

static bool message_read(struct guard_watch *w, const struct nlmsghdr *nlh)
{
	bool changed;

	if (nlh->nlmsg_type >> 8 != NFNL_SUBSYS_NFTABLES ||
	    mnl_nlmsg_get_payload_len(nlh) < sizeof(struct nfgenmsg))
		return false;
	if ((nlh->nlmsg_type & 0xff) != NFT_MSG_NEWGEN) {
		w->touched |= message_is_of_table(nlh);
		return false;
	}
	/* In a PID namespace the kernel reports the outer pid: our own changes then look foreign
	 * and are verified too. */
	changed = w->touched && !generation_is_own(nlh);
	w->touched = false;
	return changed;
}

bool guard_watch_read(struct guard_watch *w)
{
	static _Alignas(8) char buf[EVENT_BYTES];
	bool changed = false;

	for (unsigned i = 0; i < EVENT_BATCHES; i++) {
		ssize_t n = mnl_socket_recvfrom(w->events, buf, sizeof(buf));
		const struct nlmsghdr *nlh = (const void *)buf;
		int left = (int)n;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) /* an overrun hides changes */
			return changed || errno == ENOBUFS;
		for (; mnl_nlmsg_ok(nlh, left); nlh = mnl_nlmsg_next(nlh, &left))
			changed |= message_read(w, nlh);
	}
	return changed;
}

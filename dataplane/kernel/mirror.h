// SPDX-License-Identifier: Apache-2.0
#ifndef KERNEL_MIRROR_H
#define KERNEL_MIRROR_H

#include "mirror_store.h"

/* Larger than any kernel message (32 KiB for dumps). */
#define MIRROR_BUFFER 65536
/* Max rules that match packets; if there are more, one of them is widened to all packets. */
#define MIRROR_RULES 32
/* Changes remembered between two parts of a dump; more spoil the dump. */
#define MIRROR_RECENT 64

/* Bits of sy_mirror.wanted. */
#define MIRROR_BIT(kind)  (1u << (kind))
#define MIRROR_EVERYTHING (MIRROR_BIT(KIND_COUNT) - 1)

struct sy_mirror {
	struct store store;
	int nl;      /* netlink: dumps, requests and events, in order */
	int wake;    /* eventfd: work is left although the socket is empty */
	int epoll;   /* watches both */
	uint32_t id; /* the socket's port id */
	int buffer_bytes;
	uint32_t seq;

	/* the running dump */
	unsigned wanted; /* bits of enum store_kind: still to be dumped */
	bool dumping, sweeping;
	bool spoilt;   /* the running dump may be wrong: repeat it, do not sweep */
	bool announce; /* call `synced` when nothing is wanted any more */
	enum store_kind kind;
	uint32_t dump_seq;
	uint32_t sweep_bucket;
	uint32_t recent[MIRROR_RECENT];
	unsigned recent_count;

	/* refusals */
	struct sy_policy rule[2][MIRROR_RULES]; /* [v6] */
	unsigned rules[2];
	struct sy_policy rule_found[MIRROR_RULES]; /* found by the running dump of rules */
	unsigned rules_found;
	bool policies_changed;
	char refused[200]; /* the last text passed to the handler */

	struct table managed; /* neighbours that the kernel is requested to keep resolved */

	/* bytes received; bytes handled */
	size_t have, at;
	bool have_dump; /* the received data contain part of a dump */
	_Alignas(8) char buf[MIRROR_BUFFER];
};

/* mirror_neigh.c */
void managed_on_neigh(struct sy_mirror *m, const struct neigh_msg *msg, bool gone);
void managed_on_link_up(struct sy_mirror *m, int ifindex);
void managed_free(struct sy_mirror *m);

/* mirror_event.c */
/* Reports that claims or health checks' programs may have changed. */
void mirror_disturbed(const struct sy_mirror *m, unsigned what);
void mirror_on_message(struct sy_mirror *m, const struct nlmsghdr *nlh);

/* mirror.c */

/* Returns 0 or a negative errno; never blocks. */
int mirror_send(struct sy_mirror *m, const void *msg, size_t len);
/* The running dump is complete, or has failed with an error (of NLMSG_ERROR or NLMSG_DONE). */
void mirror_dump_done(struct sy_mirror *m);
void mirror_dump_failed(struct sy_mirror *m, int error);

#endif

// SPDX-License-Identifier: Apache-2.0
/* The nftables table `inet steelyard`: the host's own stack sends only neighbour advertisements
 * from a claimed address. */
#ifndef KERNEL_GUARD_H
#define KERNEL_GUARD_H

#include <libmnl/libmnl.h>
#include <nftables/libnftables.h>
#include <sy_base.h>

struct nft_ctx *guard_open(void);
/* Replaces the table by one with these addresses, in one transaction. */
int guard_reset(struct nft_ctx *nft, const struct sy_addr *addrs, size_t count,
                struct sy_error *err);
int guard_add(struct nft_ctx *nft, const struct sy_addr *addr, struct sy_error *err);
int guard_remove(struct nft_ctx *nft, const struct sy_addr *addr);
/* Returns true if there was a table and it was removed. */
bool guard_delete(struct nft_ctx *nft);

/* guard_watch.c: whether the table is still as guard_reset() makes it. */
struct guard_watch {
	struct mnl_socket *requests, *events;
	uint64_t expected; /* fingerprint of the table after guard_reset(); 0: unknown */
	bool touched;      /* changed by the transaction whose messages are being read */
};

/* Returns 0 or a negative errno. */
int guard_watch_open(struct guard_watch *w);
void guard_watch_close(struct guard_watch *w);
/* Call after guard_reset(): records the fingerprint of the table. */
void guard_watch_note(struct guard_watch *w);
/* Reads pending events. Returns true if another process may have changed the table. */
bool guard_watch_read(struct guard_watch *w);
/* Compares flags, chain and rules of the table with the fingerprint. Also returns true if they
 * cannot be read. */
bool guard_is_intact(struct guard_watch *w);
/* Calls fn for each address in the table's sets, maybe more than once. Returns 0, -ENOENT if a set
 * is missing, or another negative errno. */
int guard_each(struct guard_watch *w, void (*fn)(void *ctx, const struct sy_addr *addr), void *ctx);

#endif

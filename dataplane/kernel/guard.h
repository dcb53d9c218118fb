// SPDX-License-Identifier: Apache-2.0
/* The nftables table `inet steelyard`: the host's own stack sends only neighbour advertisements
 * from a claimed address. */
#ifndef KERNEL_GUARD_H
#define KERNEL_GUARD_H

#include <nftables/libnftables.h>
#include <sy_base.h>

struct nft_ctx *guard_open(void);
/* Replaces the table by one with these addresses, in one transaction. */
int guard_reset(struct nft_ctx *nft, const struct sy_addr *addrs, size_t count,
                struct sy_error *err);
int guard_add(struct nft_ctx *nft, const struct sy_addr *addr, struct sy_error *err);
int guard_remove(struct nft_ctx *nft, const struct sy_addr *addr);
/* True if there was a table and it was removed. */
bool guard_delete(struct nft_ctx *nft);

#endif

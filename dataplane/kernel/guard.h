// SPDX-License-Identifier: Apache-2.0
/* The nftables table `inet steelyard`: nothing but neighbour advertisements leaves this host's own
 * stack with a claimed address as its source. */
#ifndef KERNEL_GUARD_H
#define KERNEL_GUARD_H

#include <nftables/libnftables.h>
#include <sy_base.h>

struct nft_ctx *guard_open(void);
/* Makes the table again, with these addresses, in one transaction. */
int guard_reset(struct nft_ctx *nft, const struct sy_addr *addrs, size_t count,
                struct sy_error *err);
int guard_add(struct nft_ctx *nft, const struct sy_addr *addr, struct sy_error *err);
int guard_remove(struct nft_ctx *nft, const struct sy_addr *addr);
/* True if there was a table, and it is gone. */
bool guard_delete(struct nft_ctx *nft);

#endif

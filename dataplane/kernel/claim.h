// SPDX-License-Identifier: Apache-2.0
/* Claims, for claim.c, claim_verify.c and cleanup. */
#ifndef KERNEL_CLAIM_H
#define KERNEL_CLAIM_H

#include "guard.h"
#include "hash_table.h"
#include "host.h"

struct claim {
	struct table_node node;
	struct sy_addr addr;
	int ifindex;  /* IPv6: interface that has the address */
	bool found;   /* left by an earlier process, not confirmed yet */
	bool guarded; /* the guard had it at the last check */
};

struct sy_claims {
	int lock;
	struct mnl_socket *nl;
	struct nft_ctx *nft;
	struct guard_watch watch;
	struct table claims;
	uint32_t verify_bucket; /* sy_claims_verify_step() continues here */
	unsigned restored;      /* by the current verification */
	char state[HOST_PATH];
};

/* Acquires the lock and finds the claims on this host. Does not change the guard. */
int claims_load(struct sy_claims **out, unsigned wait_ms, struct sy_error *err);
/* Removes claims of an earlier process that this one has not confirmed; report may be NULL. */
int claims_remove_found(struct sy_claims *c, void (*report)(void *ctx, const char *text),
                        void *ctx);
struct claim *claim_find(const struct sy_claims *c, const struct sy_addr *addr);
/* Adds the address to the host; the guard already has it. */
int claim_put(struct sy_claims *c, const struct sy_addr *addr, int ifindex, struct sy_error *err);
/* Recreates the guard's table with all claims. */
int claims_guard_rebuild(struct sy_claims *c, struct sy_error *err);
struct nft_ctx *claims_guard(struct sy_claims *c);
const char *claims_state_path(const struct sy_claims *c);

#endif

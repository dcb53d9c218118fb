// SPDX-License-Identifier: Apache-2.0
/* Functions of the claims that cleanup uses. */
#ifndef KERNEL_CLAIM_H
#define KERNEL_CLAIM_H

#include "host.h"

/* Takes the lock and finds the claims on this host. Does not change the guard. */
int claims_load(struct sy_claims **out, unsigned wait_ms, struct sy_error *err);
/* Removes claims of an earlier process that this one has not added again; report may be NULL. */
int claims_remove_found(struct sy_claims *c, void (*report)(void *ctx, const char *text),
                        void *ctx);
struct nft_ctx *claims_guard(struct sy_claims *c);
const char *claims_state_path(const struct sy_claims *c);

#endif

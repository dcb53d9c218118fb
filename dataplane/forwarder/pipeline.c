// SPDX-License-Identifier: Apache-2.0
/* The packet's way: who follows whom. */
#include "pipeline.h"

#include <sy_balance.h>

const struct sy_stage pipeline[] = {
        /* receive: the worker's loop */
        {"classify", sy_classify_stage}, /* ours? whose slot? */
        {"look up", sy_lookup_stage},    /* candidates for the session */
        {"fast path", sy_fast_stage},    /* the session; established: rewrite, next hop */
        {"slow path", sy_slow_stage},    /* all else: create, change state, answer, refuse */
        {"transmit", sy_transmit_stage}, /* next hop, MACs, port */
        {NULL, NULL},
};

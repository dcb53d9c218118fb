// SPDX-License-Identifier: Apache-2.0
/* The packet's way: who follows whom. */
#include "pipeline.h"

#include <sy_balance.h>

/*
 * A packet may leave in any stage. What a stage takes out is GONE (sent, dropped, handed over, or
 * it waits); READY is written and waits for transmit; SLOW is for the slow path; LOOKUP for the two
 * stages behind classify.
 */
const struct sy_stage pipeline[] = {
        /* receive: the worker's loop */

        /* Ours? Whose slot? Drops what is not ours, keeps fragments that wait for their first,
         * hands over what another worker owns, or sends it by that worker's record. */
        {"classify", sy_classify_stage},
        /* Candidates for the session; nothing leaves. */
        {"look up", sy_lookup_stage},
        /* Plain packets whose session goes on: moves its state, rewrites, sends. What is behind a
         * packet for the slow path is READY, so that a flow keeps its order. If all have left, the
         * burst ends here: the next two stages find it empty. */
        {"fast path", sy_fast_stage},
        /* All else: creates, changes state, answers, refuses. What it forwards is READY or
         * TRANSMIT; packets of our own (resets, probes, ICMP) leave at once. */
        {"slow path", sy_slow_stage},
        /* What is left: next hop, MACs, port. */
        {"transmit", sy_transmit_stage},
        {NULL, NULL},
};

// SPDX-License-Identifier: Apache-2.0
/* The order of the packet stages. */
#include "pipeline.h"

#include <sy_balance.h>

/*
 * A packet may leave in any stage. A stage marks a packet GONE when it sent, dropped or handed it
 * over, or keeps it waiting. READY: rewritten, waits for transmit. SLOW: for the slow path. LOOKUP:
 * for the two stages after classify.
 */
const struct sy_stage pipeline[] = {
        /* receive: the worker's loop */

        /* Parses the packet. Is its address ours, and which worker owns its slot? Drops packets for
         * other hosts and keeps fragments that wait for their first fragment. Hands over a packet
         * of another worker's slot, or forwards it by that worker's session record. */
        {"classify", sy_classify_stage},
        /* Finds a candidate session for each packet. No packet leaves here. */
        {"look up", sy_lookup_stage},
        /* Plain packets of existing sessions: advances the session's state, rewrites, sends. A
         * packet after one for the slow path is marked READY, to keep the order of its flow. If all
         * packets have left, the burst ends here: the next two stages find it empty. */
        {"fast path", sy_fast_stage},
        /* All other packets: creates sessions, changes states, answers, refuses. Packets that it
         * forwards are READY or TRANSMIT. Packets that we generate (resets, probes, ICMP) leave at
         * once. */
        {"slow path", sy_slow_stage},
        /* The remaining packets: next hop, MAC addresses, port. */
        {"transmit", sy_transmit_stage},
        {NULL, NULL},
};

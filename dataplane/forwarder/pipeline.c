// SPDX-License-Identifier: Apache-2.0
/* The order of the packet stages. Each worker runs them over every burst: burst_run() in
 * runtime/worker.c. */
#include "pipeline.h"

#include <sy_balance.h>

/*
 * A packet may leave the burst in any stage. Its mark, sy_burst.next, names its next stage:
 *
 *   LOOKUP     look up and fast path
 *   SLOW       slow path
 *   TRANSMIT   transmit: rewritten; has a path, needs a next hop
 *   READY      transmit: complete, its port known
 *   SENT, QUEUED, ANSWERED, PENDING, STEERED, DROPPED   none: the packet has left the burst
 */
const struct sy_stage pipeline[] = {
        /* runtime/worker.c: worker_poll() receives bursts, by source_poll() from each queue and by
         * steer_receive() from other workers. */

        /* balance/path/classify.c: parses each packet, checks its destination, finds its slot.
         * Drops packets for other hosts, and queues fragments of incomplete datagrams. Packets of
         * another worker's slot are forwarded by that worker's session record, or steered to it
         * (balance/path/remote.c). */
        {"classify", sy_classify_stage},
        /* balance/path/lookup.c: finds a candidate session for each packet. None leaves here. */
        {"look up", sy_lookup_stage},
        /* balance/path/fast.c: plain packets of existing sessions. Advances the session's state,
         * checks limits, rewrites, sends. A packet behind one that has not left becomes READY, to
         * keep the order of its flow. If all packets have left, the next two stages find the burst
         * empty. */
        {"fast path", sy_fast_stage},
        /* balance/path/slow.c: all other packets. Evaluates access lists, creates sessions, changes
         * states, answers, refuses. Packets that it forwards become READY or TRANSMIT. Originated
         * packets (resets, probes, ICMP, fragments) leave at once. */
        {"slow path", sy_slow_stage},
        /* balance/path/queued.c: packets of limits with `engine: atomic` go to the event device;
         * the worker to which it schedules them charges these limits and sends them. All other
         * limits were charged where the session was found: in classify (balance/path/remote.c),
         * fast and slow path. Here charges of packets that were not forwarded are refunded. */
        {"event", sy_event_stage},
        /* runtime/transmit.c: next hop, MAC addresses, port. Packets for an unresolved neighbour
         * wait. Ports send when the burst ends. */
        {"transmit", sy_transmit_stage},
        {NULL, NULL},
};

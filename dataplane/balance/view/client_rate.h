// SPDX-License-Identifier: Apache-2.0
/*
 * Limits the rate at which each client begins sessions (docs/design/0027-access-lists.md): one
 * table for all workers, without locks. It ends with the process.
 *
 *     bucket    | client | client | … |    eight words of 64 bits, one cache line
 *     word      | tag 24 | time 40 |       0: empty
 *
 * A client is an IPv4 address or an IPv6 /64; the tag is a keyed hash of it and of the service. The
 * time, in microseconds, is when the client's burst is whole again (GCRA); a word whose time has
 * passed is empty. Words change by compare-and-swap.
 */
#ifndef CLIENT_RATE_H
#define CLIENT_RATE_H

#include <sy_base.h>

#define CLIENT_RATE_MAX  10000u  /* sessions per second */
#define CLIENT_BURST_MAX 100000u /* sessions */

struct client_rates;

struct client_rates *client_rates_create(void);
void client_rates_destroy(struct client_rates *r);
/* May the client begin one more session? client: hash of address and service; per_second and burst:
 * not 0. Returns true without counting if the bucket is full of other clients: a limit must not
 * become a way to lock clients out. Any worker. */
bool client_rate_charge(struct client_rates *r, uint64_t client, uint64_t now_us,
                        uint32_t per_second, uint32_t burst);
/* Clears some words whose time has passed, before the time wraps and appears to be ahead. Called by
 * the control thread every RETIRE_PERIOD_MS. */
void client_rates_tick(struct client_rates *r, uint64_t now_us);

#endif

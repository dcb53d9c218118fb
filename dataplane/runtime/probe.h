// SPDX-License-Identifier: Apache-2.0
/* Address conflict detection, for the control thread. */
#ifndef PROBE_H
#define PROBE_H

#include "sy_runtime.h"

/* Begins to probe the address. Returns false if it must be claimed at once: already claimed by this
 * host, not resolved by any neighbour, or probes are off. */
bool probe_begin(struct sy_runtime *rt, const struct sy_addr *addr);
void probe_forget(struct sy_runtime *rt, const struct sy_addr *addr);
/* Is the address being probed, or used by another host? */
bool probe_has(const struct sy_runtime *rt, const struct sy_addr *addr);
/* Call every 100 ms. */
void probes_tick(struct sy_runtime *rt);
/* Reports the claimed addresses that other hosts use too. */
void probes_verify(struct sy_runtime *rt, const struct sy_verify *v);
void probes_close(struct sy_runtime *rt);

/* address_claim.c: claims, steers and announces the address. */
int address_claim(struct sy_runtime *rt, const struct sy_addr *addr, struct sy_error *err);
/* address_claim.c: is the address on a network of this interface? */
bool address_is_connected(const struct sy_runtime *rt, const struct sy_addr *addr, int ifindex);

#endif

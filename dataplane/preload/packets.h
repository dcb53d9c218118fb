// SPDX-License-Identifier: Apache-2.0
/* Packets of this process: AF_XDP queues, other workers, next hops. Callers hold the runner's lock,
 * unless a comment says otherwise. */
#ifndef PRELOAD_PACKETS_H
#define PRELOAD_PACKETS_H

#include "preload.h"

/* ---- AF_XDP queues (device.c, device_eal.c) -------------------------------------------------- */

/* Starts EAL, unless this process or its parent has. EAL reads system files: call it before the
 * program changes its root directory or user. */
int device_prepare(struct sy_error *err);
/* memory: a descriptor, which this function closes. fd: a socket for each queue; large: a socket
 * for large segments, or −1. The caller owns the sockets. */
int device_open(const struct message_answer *config, int memory, const int *fd, int large,
                struct sy_error *err);
/* Unmaps what device_open() has mapped, also after a failure. The caller closes the sockets. EAL
 * stays: it starts only once. */
void device_close(void);
/* Call in a child process that did not inherit the mappings: discards the state. */
void device_forget(void);
/* Sets whether children of fork() inherit the mappings. */
void device_set_inherited(bool on);
/* Call in a child process that inherited the mappings. */
void device_inherit(void);
struct rte_mempool *device_pool(void);
unsigned device_receive(struct rte_mbuf **m, unsigned max, uint64_t now_ns);
/* Returns a time up to which all arrived packets have been received. */
uint64_t device_seen_ns(void);
/* Consumes all packets. Those that exceed the ring are dropped and counted. */
void device_send(struct rte_mbuf **m, unsigned count);
/* Returns whether device_send() has left frames in the ring of which the kernel is not notified.
 * The caller then calls device_kick() without the lock: that call runs the peer's half of a veth.
 */
bool device_kick_wanted(void);
void device_kick(void);
uint64_t device_unsent(void);
/* Returns how many packets came while a receive ring was full or had no buffer. */
uint64_t device_missed(void);

/* ---- segments of other workers' connections (resteer.c) -------------------------------------- */

void resteer_open(const struct message_answer *config, int inbox, const int *outbox);
void resteer_forget(void);
/* Sends packets of other workers to them. Returns how many are left. */
unsigned resteer_strays(struct rte_mbuf **m, unsigned count);
/* Receives this worker's packets from other workers. */
unsigned resteer_receive(struct rte_mbuf **m, unsigned max, uint64_t now_ns);
/* As device_seen_ns(). NEVER: the inbox was empty. */
uint64_t resteer_seen_ns(void);

/* ---- sending (outgoing.c) -------------------------------------------------------------------- */

/* Sends the stack's packets, and those whose neighbour is resolved by now. */
void outgoing_send(uint64_t now_ns);
/* Returns when to call outgoing_send() again, at the latest otherwise_ns. */
uint64_t outgoing_due(uint64_t otherwise_ns);
/* Returns how many packets had no route, or a neighbour that did not answer in time. */
uint64_t outgoing_unreachable(void);
/* Call in a child process: discards the queued packets, which the parent sends. */
void outgoing_forget(void);

/* ---- next hops (route_cache.c) --------------------------------------------------------------- */

int route_open(int ifindex);
/* Returns the MAC address of the next hop, or NULL. `waits`: the kernel is resolving the neighbour;
 * false: there is no route by the served interface. */
const uint8_t *route_mac(const struct sy_addr *dst, bool *waits);
/* Stores the source address that the kernel would choose. Returns false if the route is not by the
 * served interface. */
bool route_source(const struct sy_addr *dst, struct sy_addr *out);
/* Processes the kernel's notifications of neighbours and routes. */
void route_check(void);
void route_forget(void);

#endif

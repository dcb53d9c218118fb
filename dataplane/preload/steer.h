// SPDX-License-Identifier: Apache-2.0
/* The XDP program of `steelyard run`. Its link ends with the last process that has its
 * descriptor. */
#ifndef STEER_H
#define STEER_H

#include <sy_base.h>

#include "steer_map.h"

struct steer;

int steer_open(int ifindex, const char *ifname, const uint8_t mac[6], struct steer **out,
               struct sy_error *err);
void steer_close(struct steer *s);
int steer_link(const struct steer *s);
bool steer_is_native(const struct steer *s);
/* Adds an address of the stack, with the local ports of connections that it opens. */
int steer_address(struct steer *s, const struct sy_addr *addr, uint16_t first, uint16_t last);
/* port: network order. to: where its segments go; NULL: all to Linux. */
int steer_port(struct steer *s, const struct sy_addr *addr, uint16_t port,
               const struct steer_port *to);
int steer_socket(struct steer *s, unsigned queue, int fd);
/* Drops the queue's packets from here on, even if a process still has its socket. */
void steer_socket_end(struct steer *s, unsigned queue);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * Options of a TCP socket: values, Linux's limits, and their effect on the stack. Shared by the
 * library and the preloaded library; options and calls that only one of them has are there.
 */
#ifndef SY_SOCKET_OPTION_H
#define SY_SOCKET_OPTION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include <sy_stack.h>

enum sy_quick_ack { SY_QUICK_ACK_AUTO, SY_QUICK_ACK_ON, SY_QUICK_ACK_OFF };

struct sy_socket_options {
	bool only_v6, no_port; /* set by the owner: IPV6_V6ONLY, IP_BIND_ADDRESS_NO_PORT */
	bool reuse_addr, reuse_port, broadcast, keepalive, no_delay, cork, linger;
	uint8_t quick_ack; /* enum sy_quick_ack */
	uint8_t tos, keepalive_probes;
	uint16_t mss, keepalive_s, keepalive_interval_s;
	uint32_t linger_s, user_timeout_ms, priority;
	uint32_t receive_low_water;                   /* bytes */
	uint32_t send_bytes, receive_bytes;           /* of the stack's buffers; 0: not set */
	uint64_t pacing_rate;                         /* bytes a second; UINT64_MAX: no limit */
	uint64_t receive_timeout_ns, send_timeout_ns; /* 0: none */
};

#define SY_SOCKET_OPTION_BYTES 16 /* of a value, at most */

/* Linux's defaults. */
void sy_socket_options_init(struct sy_socket_options *o);
/* Fails with -EINVAL or -EDOM if Linux does; with -ENOPROTOOPT if the option depends on the caller,
 * as sizes of buffers do, or does not exist. */
int sy_socket_option_set(struct sy_socket_options *o, int level, int name, const void *value,
                         socklen_t len);
/* Writes the value for a caller that has space for `len` bytes, of which SO_MAX_PACING_RATE
 * depends. Returns its size; 0 if it is none of these options. */
socklen_t sy_socket_option_get(const struct sy_socket_options *o, int level, int name,
                               socklen_t len, uint8_t value[static SY_SOCKET_OPTION_BYTES]);

/* Passes an option to a connection or a listener of the stack. */
void sy_socket_option_apply(const struct sy_socket_options *o, int level, int name,
                            struct sy_stack *s, sy_stack_id id, uint64_t now_ns);
/* Passes all that differ from their defaults. */
void sy_socket_options_apply(const struct sy_socket_options *o, struct sy_stack *s, sy_stack_id id,
                             uint64_t now_ns);

#endif

// SPDX-License-Identifier: Apache-2.0
/* ICMP errors about sent segments (RFC 1122 4.2.3.9, RFC 5927, RFC 5461). */
#ifndef ICMP_ERROR_H
#define ICMP_ERROR_H

#include <sy_packet.h>

struct sy_stack;

void icmp_error_arrive(struct sy_stack *s, const uint8_t *frame, const struct sy_view *v);

#endif

// SPDX-License-Identifier: Apache-2.0
#ifndef FRAGMENT_H
#define FRAGMENT_H

#include <sy_packet.h>

/* Gives a fragment the id v->fragment_id and updates the IPv4 header checksum. */
void fragment_renumber(uint8_t *frame, const struct sy_view *v);

#endif

// SPDX-License-Identifier: Apache-2.0
#ifndef QUOTE_H
#define QUOTE_H

#include <sy_packet.h>

#define QUOTE_MIN 8 /* bytes of transport (RFC 792) */

/* Rewrite a quoted header and update its checksums incrementally; the TTL stays. l4: the quoted
 * transport header or a copy of it. */
void quote_rewrite_l3(uint8_t *l3, const struct sy_quote *q, const struct sy_rewrite *r);
void quote_rewrite_l4(uint8_t *l4, const struct sy_quote *q, const struct sy_rewrite *r);

#endif

// SPDX-License-Identifier: Apache-2.0
/* Properties of the packet module that fuzz_packet.c checks. Each function returns whether the
 * property holds for a frame of this size, with this view. */
#ifndef PACKET_PROPERTIES_H
#define PACKET_PROPERTIES_H

#include <sy_packet.h>

#include "fuzz.h"

struct sy_addr addr_of(const char *text);

/* ---- quote_properties.c ---------------------------------------------------------------------- */

/* An ICMP error's quotation is parsed, shifted, translated and rebuilt. */
bool quote_is_translated(const uint8_t *data, size_t size, const struct sy_view *v);

/* ---- length_properties.c --------------------------------------------------------------------- */

bool encapsulation_keeps_the_packet(const uint8_t *data, size_t size, const struct sy_view *v,
                                    bool v4);

bool translation_is_reversible(const uint8_t *data, size_t size, const struct sy_view *v);

bool toa_insertion_keeps_the_checksum(const uint8_t *data, size_t size, const struct sy_view *v,
                                      const char *text);

/* Inserts bytes before the payload; removes the whole payload, flags included. */
bool payload_changes_are_valid(const uint8_t *data, size_t size, const struct sy_view *v,
                               uint16_t len);

bool sequence_shift_is_reversible(const uint8_t *data, size_t size, const struct sy_view *v);

bool reset_answers_once(const uint8_t *data, const struct sy_view *v);

bool proxy_headers_fit(const struct sy_view *v);

#endif

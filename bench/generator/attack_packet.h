// SPDX-License-Identifier: Apache-2.0
/* The packets of an attack, as templates for its XDP program. */
#ifndef GENERATOR_ATTACK_PACKET_H
#define GENERATOR_ATTACK_PACKET_H

#include <stdbool.h>
#include <stdint.h>

#include <linux/types.h>

#include "attack.h"

/* A packet of a named kind (syn, udp, ...) to this MAC. False: there is no such kind. */
bool attack_template_make(struct attack_template *t, const char *kind, bool ipv6,
                          const uint8_t mac[6]);
/* False: the text is no address. */
bool attack_address_parse(struct attack_address *a, const char *text, bool *ipv6);
/* The bits that a prefix of this length leaves open. */
void attack_mask(struct attack_address *mask, unsigned prefix);

#endif

// SPDX-License-Identifier: Apache-2.0
#ifndef TCP_SACK_H
#define TCP_SACK_H

#include <stdint.h>

#define SACK_BLOCKS 4 /* limit of the option: RFC 2018, 3 */

/* Sequence numbers [from, to). */
struct sack_block {
	uint32_t from, to;
};

#endif

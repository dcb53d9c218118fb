// SPDX-License-Identifier: Apache-2.0
/* Scenario 1: short packets first. Bulk senders fill theirs. */
#include "server.h"

#define LONG 1024 /* bytes of payload */

static uint8_t by_length(struct sy_hook_packet *p, const uint8_t *payload)
{
	if (p->payload_len == 0)
		return SY_KEEP;
	return p->payload_len < LONG ? 0 : 6;
}

int main(int argc, char **argv)
{
	return server_main(argc, argv, &(struct scenario){.name = "length", .packet = by_length});
}

// SPDX-License-Identifier: Apache-2.0
/* Scenario 4: connections with few bytes so far first: short transfers do not wait for long ones,
 * without advance knowledge. */
#include "server.h"

#define MUCH 65536

static uint8_t by_bytes(struct sy_hook_segment *s, const uint8_t *payload)
{
	return s->offset < MUCH ? 0 : 6;
}

int main(int argc, char **argv)
{
	return server_main(argc, argv, &(struct scenario){.name = "bytes", .segment = by_bytes});
}

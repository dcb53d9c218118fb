// SPDX-License-Identifier: Apache-2.0
/* Scenario 3: clients on good links first: the others wait for their link in any case. */
#include "server.h"

#define SLOW_US  100000 /* smoothed RTT */
#define PERMILLE 5      /* retransmissions per mille of segments of 1000 bytes */

static uint8_t by_link(struct sy_hook_segment *s, const uint8_t *payload)
{
	if (s->srtt_us >= SLOW_US)
		return 6;
	return s->resent > 1 && s->resent * UINT64_C(1000000) > PERMILLE * s->sent ? 6 : 0;
}

int main(int argc, char **argv)
{
	return server_main(argc, argv, &(struct scenario){.name = "link", .segment = by_link});
}

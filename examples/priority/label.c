// SPDX-License-Identifier: Apache-2.0
/* Scenario 2: the client labels each request with its priority. */
#include "server.h"

static uint8_t by_label(struct sy_hook_packet *p, const uint8_t *payload)
{
	if (p->payload_len < REQUEST_HEADER)
		return SY_KEEP;
	return payload[4] < SY_PRIORITIES ? payload[4] : SY_PRIORITIES - 1;
}

int main(int argc, char **argv)
{
	return server_main(argc, argv, &(struct scenario){.name = "label", .packet = by_label});
}

// SPDX-License-Identifier: Apache-2.0
/* Scenario 6: the server measures the service time of each request type, as a moving average, and
 * stores it in each connection's private area. Its hook prefers short types. */
#include <string.h>

#include "server.h"

#define TYPES   16
#define WEIGHT  8    /* weight of the average against a new sample */
#define LONG_US 1000 /* a request is long from this time on */

static uint32_t expected_us[TYPES];

static void measure(uint8_t type, uint64_t us)
{
	uint32_t *e = &expected_us[type % TYPES];
	*e = *e ? (uint32_t)((*e * (WEIGHT - 1) + us) / WEIGHT) : (uint32_t)us;
}

static void tell(void *own)
{
	memcpy(own, expected_us, sizeof(expected_us));
}

static uint8_t by_service_time(struct sy_hook_segment *s, const uint8_t *payload)
{
	const uint32_t *expected = (const uint32_t *)s->own;

	if (s->packet.payload_len < REQUEST_HEADER)
		return SY_KEEP;
	return expected[payload[4] % TYPES] < LONG_US ? 0 : 6;
}

int main(int argc, char **argv)
{
	return server_main(argc, argv,
	                   &(struct scenario){.name = "service_time",
	                                      .segment = by_service_time,
	                                      .write = tell,
	                                      .served = measure});
}

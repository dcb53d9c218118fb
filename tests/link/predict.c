// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "predict.h"

#define LENGTH   1514u
#define INTERVAL 12000u /* ns: those of 1 Gbit/s */

/* UDP over IPv4, as far as the link looks at it. */
static const uint8_t header[] = {
        0x02, 0, 0, 0,    0, 1, 0x02, 0, 0,  0,  0, 2, 8,  0, /* Ethernet */
        0x45, 0, 5, 0xdc, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
};

static void lane_settle(struct direction *d, uint64_t now)
{
	direction_advance(d, now);
	for (uint32_t index; (index = direction_take(d, now)) != STORE_NONE;)
		direction_delivered(d, index);
}

static void lane_predict(struct direction *d, uint64_t packets)
{
	uint64_t now = 1;
	for (uint64_t i = 0; i < packets; i++, now += INTERVAL) {
		lane_settle(d, now);
		uint32_t index = pool_take(d->pool);
		if (index == STORE_NONE) {
			direction_refuse(d, 1, DROP_NO_MEMORY);
			continue;
		}
		memset(pool_bytes(d->pool, index), 0, LENGTH);
		memcpy(pool_bytes(d->pool, index), header, sizeof(header));
		d->pool->packet[index].length = LENGTH;
		d->pool->packet[index].arrived = now;
		direction_arrive(d, index);
	}
	while ((now = direction_next(d)) != UINT64_MAX)
		lane_settle(d, now);
}

void link_predict(struct link *l, uint64_t packets)
{
	for (int i = 0; i < 2; i++)
		lane_predict(&l->lane[i].direction, packets);
}

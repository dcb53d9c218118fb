// SPDX-License-Identifier: Apache-2.0
/* Scenario 5: requests spanning packets: all have the priority in the request's header. The hook
 * follows requests by their lengths. */
#include <arpa/inet.h>
#include <string.h>

#include "server.h"

/* In the connection's private area. */
struct follower {
	uint64_t next; /* stream offset of the next request */
	uint8_t label; /* of the previous request */
};

static uint8_t by_request(struct sy_hook_segment *s, const uint8_t *payload)
{
	struct follower *f = (struct follower *)s->own;
	uint64_t end = s->offset + s->packet.payload_len;
	uint8_t answer = f->next > s->offset ? f->label : SY_KEEP;

	while (f->next >= s->offset && f->next + REQUEST_HEADER <= end) {
		const uint8_t *header = payload + (f->next - s->offset);
		uint32_t len;
		memcpy(&len, header, sizeof(len));
		f->next += 4 + (uint64_t)ntohl(len);
		f->label = header[4] < SY_PRIORITIES ? header[4] : SY_PRIORITIES - 1;
		answer = answer == SY_KEEP ? f->label : answer;
	}
	return answer;
}

int main(int argc, char **argv)
{
	return server_main(argc, argv,
	                   &(struct scenario){.name = "requests", .segment = by_request});
}

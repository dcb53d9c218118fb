// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <errno.h>
#include <sy_base.h>

_Static_assert(SY_ADDR_TEXT == INET6_ADDRSTRLEN, "room for any address");

int sy_addr_parse(const char *text, struct sy_addr *out)
{
	struct in_addr v4;
	struct in6_addr v6;

	if (inet_pton(AF_INET, text, &v4) == 1) {
		*out = sy_addr_v4(v4.s_addr);
		return 0;
	}
	if (inet_pton(AF_INET6, text, &v6) == 1) {
		memcpy(out->b, &v6, sizeof(out->b));
		return 0;
	}
	return -EINVAL;
}

char *sy_addr_format(const struct sy_addr *a, char out[static SY_ADDR_TEXT])
{
	if (sy_addr_is_v4(a))
		inet_ntop(AF_INET, &a->w[3], out, SY_ADDR_TEXT);
	else
		inet_ntop(AF_INET6, a->b, out, SY_ADDR_TEXT);
	return out;
}

int sy_addr_from_bytes(const uint8_t *bytes, size_t len, struct sy_addr *out)
{
	uint32_t v4;

	switch (len) {
	case 4:
		memcpy(&v4, bytes, sizeof(v4));
		*out = sy_addr_v4(v4);
		return 0;
	case 16:
		memcpy(out->b, bytes, sizeof(out->b));
		return 0;
	default:
		return -EINVAL;
	}
}

size_t sy_addr_to_bytes(const struct sy_addr *a, uint8_t out[static 16])
{
	if (sy_addr_is_v4(a)) {
		memcpy(out, &a->w[3], 4);
		return 4;
	}
	memcpy(out, a->b, 16);
	return 16;
}

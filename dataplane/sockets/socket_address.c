// SPDX-License-Identifier: Apache-2.0
/* Conversion of socket addresses. */
#include <errno.h>

#include "context.h"

bool address_is_any(const struct sy_addr *a)
{
	static const struct sy_addr none;
	return sy_addr_equal(a, &none) || (sy_addr_is_v4(a) && a->w[3] == 0);
}

struct sy_addr address_any(bool v6)
{
	return v6 ? (struct sy_addr){{{0}}} : sy_addr_v4(0);
}

int address_read(bool v6, const struct sockaddr *addr, socklen_t len, struct sy_stack_endpoint *out)
{
	const struct sockaddr_in *v4 = (const void *)addr;
	const struct sockaddr_in6 *in6 = (const void *)addr;

	if (len < (socklen_t)sizeof(addr->sa_family))
		return -EINVAL;
	if (!v6) {
		if (len < (socklen_t)sizeof(*v4))
			return -EINVAL;
		/* As on Linux, bind() accepts AF_UNSPEC with the wildcard as AF_INET. */
		if (v4->sin_family != AF_INET &&
		    (v4->sin_family != AF_UNSPEC || v4->sin_addr.s_addr != INADDR_ANY))
			return -EAFNOSUPPORT;
		*out = (struct sy_stack_endpoint){sy_addr_v4(v4->sin_addr.s_addr), v4->sin_port};
		return 0;
	}
	if (addr->sa_family == AF_INET6 && len >= 24) { /* RFC 2133: without scope id */
		out->port = in6->sin6_port;
		memcpy(out->addr.b, &in6->sin6_addr, sizeof(out->addr.b));
		return 0;
	}
	return addr->sa_family == AF_INET6 ? -EINVAL : -EAFNOSUPPORT;
}

void address_write(bool v6, const struct sy_stack_endpoint *e, struct sockaddr *addr,
                   socklen_t *len)
{
	union {
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} out = {.v4 = {.sin_family = AF_INET}};
	socklen_t size = sizeof(out.v4), cap;

	if (!addr || !len)
		return;
	if (v6) {
		out.v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = e->port};
		memcpy(&out.v6.sin6_addr, e->addr.b, sizeof(e->addr.b));
		size = sizeof(out.v6);
	} else {
		out.v4.sin_port = e->port;
		out.v4.sin_addr.s_addr = e->addr.w[3];
	}
	cap = *len < size ? *len : size;
	memcpy(addr, &out, cap);
	*len = size;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Feeds netlink messages of arbitrary bytes through the parsers into the store. At the end, after a
 * sweep that confirms no object, the store must be empty and its counts zero.
 *
 * Input: messages. Each has a byte for the type, a byte for the change of the object, a length byte
 * in units of four, as libmnl needs it, and the payload.
 */
#include "../mirror_store.h"

#include <linux/rtnetlink.h>
#include <stdlib.h>

static void require(bool holds)
{
	if (!holds)
		abort();
}

static void on_route(void *ctx, const struct sy_route *route, bool gone)
{
	struct sy_route best;

	/* A look-up for the prefix of a reported route finds a route. */
	if (!gone && !route->blackhole)
		require(store_lookup(ctx, &route->prefix, &best));
	require(route->hop_count <= SY_ROUTE_HOPS);
}

static void message_apply(struct store *s, const struct nlmsghdr *nlh, uint8_t change)
{
	bool gone = change & 1;
	struct sy_link_addr addr;
	struct neigh_msg neigh;
	struct route_msg route;
	struct sy_link link;
	struct sy_policy policy;

	switch (nlh->nlmsg_type) {
	case RTM_NEWLINK:
		if (link_parse(nlh, &link))
			store_link(s, &link, gone);
		break;
	case RTM_NEWADDR:
		if (addr_parse(nlh, &addr))
			store_addr(s, &addr, gone);
		break;
	case RTM_NEWNEIGH:
		if (neigh_parse(nlh, &neigh))
			store_neigh(s, &neigh.neigh, gone);
		break;
	case RTM_NEWROUTE:
		if (route_parse(nlh, &route))
			store_route(s, &route, (enum route_change)(change % (ROUTE_DELETED + 1)));
		break;
	case RTM_NEWRULE:
		if (rule_parse(nlh, NULL, NULL, &policy))
			require(strlen(policy.text) < sizeof(policy.text));
		break;
	}
}

static void store_drain(struct store *s)
{
	for (enum store_kind kind = 0; kind < KIND_COUNT; kind++) {
		uint32_t bucket = 0;

		s->gen[kind]++;
		while (store_sweep(s, kind, &bucket))
			;
	}
	require(!s->links.count && !s->addrs.count && !s->neighs.count && !s->routes.count);
	require(!s->vrf_members && !s->object_routes && !s->policies && !s->policies_lost);
	for (unsigned i = 0; i < ROUTE_UNSUPPORTED_COUNT; i++)
		require(!s->unsupported_routes[i]);
	for (unsigned len = 0; len <= 128; len++)
		require(!s->prefixes[0][len] && !s->prefixes[1][len]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint16_t types[] = {RTM_NEWLINK, RTM_NEWADDR, RTM_NEWNEIGH, RTM_NEWROUTE,
	                                 RTM_NEWRULE};
	struct store s;
	const struct sy_mirror_handler handler = {.ctx = &s, .route = on_route};

	require(store_init(&s, &handler) == 0);
	while (size >= 3) {
		size_t capacity = (size - 3) & ~(size_t)3,
		       len = data[2] * 4u < capacity ? data[2] * 4u : capacity;
		struct nlmsghdr *nlh = malloc(sizeof(*nlh) + len);

		require(nlh != NULL);
		*nlh = (struct nlmsghdr){.nlmsg_len = (uint32_t)(sizeof(*nlh) + len),
		                         .nlmsg_type = types[data[0] % SY_ARRAY_LEN(types)]};
		memcpy(nlh + 1, data + 3, len);
		message_apply(&s, nlh, data[1]);
		free(nlh);
		data += 3 + len;
		size -= 3 + len;
	}
	store_drain(&s);
	store_fini(&s);
	return 0;
}

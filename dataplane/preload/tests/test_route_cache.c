// SPDX-License-Identifier: Apache-2.0
/* How often the kernel is queried for next hops and resolves neighbours, and how much a poll
 * iteration sends, in virtual time. The netlink sockets, the routes and the stack are simulated. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include <rte_eal.h>

#include "fib.h"
#include "packets.h"
#include "real.h"

#define INTERFACE 7
#define ASK_FD    1000
#define SECOND    (1000 * MS)
#define START_NS  (5000 * SECOND)

static struct {
	uint64_t now_ns;
	unsigned queries, wakes, dumps, sockets;
	bool plain, way, news;
	uint32_t existing; /* the one IPv4 address that has a neighbour */
	uint32_t wanted, sequence;
	unsigned type;
	struct rte_mbuf *out[64];
	unsigned sending, sent;
	unsigned pieces, fetches; /* pieces: what each fetch consumes */
	unsigned unreachable, events;
} world;

struct runner runner;

/* ---- a simulated kernel and stack ------------------------------------------------------------ */

static int socket_make(int family, int type, int protocol)
{
	if (family == AF_NETLINK)
		return ASK_FD + (int)world.sockets++;
	return 1;
}

static int socket_bind(int fd, __CONST_SOCKADDR_ARG to, socklen_t len)
{
	return 0;
}

static ssize_t request_take(int fd, const void *bytes, size_t len, int flags)
{
	const struct nlmsghdr *h = bytes;
	const char *at = (const char *)bytes + NLMSG_LENGTH(sizeof(struct ndmsg));

	world.type = h->nlmsg_type;
	world.sequence = h->nlmsg_seq;
	if (world.type != RTM_GETNEIGH)
		return (ssize_t)len;
	world.queries++;
	memcpy(&world.wanted, at + sizeof(struct rtattr), sizeof(world.wanted));
	return (ssize_t)len;
}

static ssize_t answer_give(int fd, void *bytes, size_t len, int flags)
{
	struct {
		struct nlmsghdr header;
		struct ndmsg neigh;
		struct rtattr attribute;
		uint8_t mac[8];
	} a = {.header = {.nlmsg_len = NLMSG_LENGTH(sizeof(a.neigh)) + RTA_LENGTH(6),
	                  .nlmsg_type = RTM_NEWNEIGH,
	                  .nlmsg_seq = world.sequence},
	       .neigh = {.ndm_state = NUD_REACHABLE},
	       .attribute = {.rta_type = NDA_LLADDR, .rta_len = RTA_LENGTH(6)}};

	if (fd != ASK_FD) {
		errno = EAGAIN;
		if (!world.news)
			return -1;
		world.news = false;
		a.header.nlmsg_type = RTM_NEWROUTE;
	} else if (world.type != RTM_GETNEIGH || world.wanted != world.existing) {
		a.header.nlmsg_type = NLMSG_ERROR;
	}
	memcpy(bytes, &a, sizeof(a));
	return a.header.nlmsg_len;
}

static ssize_t datagram_take(int fd, const void *bytes, size_t len, int flags,
                             __CONST_SOCKADDR_ARG to, socklen_t to_len)
{
	world.wakes++;
	return 0;
}

static int socket_close(int fd)
{
	return 0;
}

__typeof__(&socket) real_socket = socket_make;
__typeof__(&bind) real_bind = socket_bind;
__typeof__(&send) real_send = request_take;
__typeof__(&recv) real_recv = answer_give;
__typeof__(&sendto) real_sendto = datagram_take;
__typeof__(&close) real_close = socket_close;

int table_own(int fd)
{
	return fd;
}

void table_disown(int fd)
{
}

void endpoint_to(const struct sy_stack_endpoint *e, int family, struct sockaddr *to, socklen_t *len)
{
}

bool fib_read(int netlink)
{
	world.dumps++;
	return world.plain;
}

enum fib_answer fib_find(const struct sy_addr *dst, struct sy_addr *hop, int *ifindex)
{
	*hop = *dst;
	*ifindex = INTERFACE;
	return world.way ? FIB_ROUTE : FIB_NONE;
}

uint64_t __wrap_sy_clock_ns(void);

uint64_t __wrap_sy_clock_ns(void)
{
	return world.now_ns;
}

const struct message_answer *supervisor_config(void)
{
	static const struct message_answer config = {.ifindex = INTERFACE};

	return &config;
}

unsigned sy_stack_transmit_pieces(struct sy_stack *s, struct rte_mbuf **m, unsigned max,
                                  uint32_t *pieces, uint64_t now_ns)
{
	unsigned count = world.sending;

	world.fetches++;
	*pieces -= world.pieces < *pieces ? world.pieces : *pieces;
	memcpy(m, world.out, count * sizeof(*m));
	world.sending = 0;
	return count;
}

void sy_stack_unreachable(struct sy_stack *s, const struct rte_mbuf *packet, uint64_t now_ns)
{
	world.unreachable++;
}

void runner_events(void)
{
	world.events++;
}

void device_send(struct rte_mbuf **m, unsigned count)
{
	world.sent += count;
	for (unsigned i = 0; i < count; i++)
		rte_pktmbuf_free(m[i]);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void begin(void)
{
	uint64_t now_ns = world.now_ns ? world.now_ns : START_NS;

	outgoing_forget();
	route_forget();
	memset(&world, 0, sizeof(world));
	world.now_ns = now_ns + 10 * SECOND;
	world.plain = world.way = true;
	assert_int_equal(route_open(INTERFACE), 0);
}

static struct sy_addr addr_of(uint32_t number)
{
	return sy_addr_v4(htonl(0x0a000000 + number));
}

static bool ask(uint32_t number)
{
	struct sy_addr dst = addr_of(number);
	bool waits;

	return route_mac(&dst, &waits) != NULL;
}

/* For a second, 100 new neighbours per millisecond, none of which exists. */
static void test_forged_neighbours_are_limited(void **state)
{
	begin();
	for (unsigned ms = 0; ms < 1000; ms++, world.now_ns += MS)
		for (unsigned n = 0; n < 100; n++)
			ask(1 + ms * 100 + n);
	assert_in_range(world.queries, 6000, 6400);
	assert_in_range(world.wakes, 600, 640);
	assert_int_equal(world.dumps, 1);
}

/* An existing neighbour is found among them, each time that the kernel notifies of a change. */
static void test_a_neighbour_among_forged_ones_is_found(void **state)
{
	begin();
	world.existing = htonl(0x0a000001);
	assert_true(ask(1));
	for (unsigned ms = 0; ms < 1000; ms++, world.now_ns += MS) {
		for (unsigned n = 0; n < 100; n++)
			ask(2 + ms * 100 + n);
		world.news = true;
		route_check();
		assert_true(ask(1));
	}
}

/* One neighbour that does not exist: queried once per millisecond, resolved once per second. */
static void test_an_absent_neighbour_is_queried_rarely(void **state)
{
	begin();
	for (unsigned n = 0; n < 3000; n++, world.now_ns += MS / 2)
		assert_false(ask(1));
	assert_in_range(world.queries, 1499, 1501);
	assert_int_equal(world.wakes, 2);
	world.existing = htonl(0x0a000001);
	world.now_ns += MS;
	assert_true(ask(1));
}

/* Routes change every millisecond: all are read again only if they are few. */
static void test_few_changing_routes_are_read_again(void **state)
{
	for (unsigned plain = 0; plain < 2; plain++) {
		begin();
		world.plain = plain;
		world.existing = htonl(0x0a000001);
		for (unsigned ms = 0; ms < 3000; ms++, world.now_ns += MS) {
			world.news = true;
			route_check();
			ask(1);
		}
		assert_int_equal(world.dumps, plain ? 3000 : 3);
	}
}

static void put(struct rte_mempool *pool, uint32_t number)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(pool);
	struct sy_addr dst = addr_of(number);

	assert_non_null(m);
	uint8_t *frame = (uint8_t *)rte_pktmbuf_append(m, SY_ETH_LEN + 40);
	memset(frame, 0, SY_ETH_LEN + 40);
	frame[SY_ETH_LEN] = 0x45;
	sy_addr_to_bytes(&dst, frame + SY_ETH_LEN + 16);
	world.out[world.sending++] = m;
}

/* 200 packets wait for neighbours that do not exist; the neighbour of a later one is found. */
static void test_packets_wait_for_their_neighbour(void **state)
{
	struct rte_mempool *pool = *state;

	begin();
	for (uint32_t n = 0; n < 200; n++) {
		put(pool, 2 + n);
		outgoing_send(world.now_ns);
	}
	put(pool, 1);
	outgoing_send(world.now_ns);
	assert_int_equal(rte_mempool_in_use_count(pool), 201);
	world.existing = htonl(0x0a000001);
	world.queries = 0;
	for (unsigned ms = 0; ms < 1000; ms++, world.now_ns += MS) {
		outgoing_send(world.now_ns);
		assert_true(outgoing_due(NEVER) > world.now_ns);
	}
	assert_int_equal(world.sent, 1);
	assert_in_range(world.queries, 2500, 3200); /* at most 32 in 10 ms */
	world.now_ns += 3 * SECOND;
	outgoing_send(world.now_ns);
	assert_int_equal(rte_mempool_in_use_count(pool), 0);
	assert_int_equal(world.sent, 1);
	assert_int_equal(outgoing_unreachable(), 200);
	/* Their connections end, and so do the calls that wait for them. */
	assert_int_equal(world.unreachable, 200);
	assert_int_equal(world.events, 1);
	assert_int_equal(outgoing_due(NEVER), NEVER);
}

/* A packet without a route does not wait. */
static void test_packets_without_a_route_are_dropped(void **state)
{
	struct rte_mempool *pool = *state;

	begin();
	world.way = false;
	put(pool, 1);
	outgoing_send(world.now_ns);
	assert_int_equal(rte_mempool_in_use_count(pool), 0);
	assert_int_equal(outgoing_due(NEVER), NEVER);
	assert_int_equal(world.wakes, 0);
	assert_int_equal(outgoing_unreachable(), 1);
	/* A route is removed while a packet waits for its next hop. */
	world.way = true;
	put(pool, 1);
	outgoing_send(world.now_ns);
	assert_int_equal(rte_mempool_in_use_count(pool), 1);
	world.way = false;
	world.news = true;
	world.now_ns += MS;
	outgoing_send(world.now_ns);
	assert_int_equal(rte_mempool_in_use_count(pool), 0);
	assert_int_equal(world.sent, 0);
	assert_int_equal(outgoing_unreachable(), 2);
	assert_int_equal(world.unreachable, 2);
}

/* Packets are received between large segments: the rest of the segments is due at once. */
static void test_an_iteration_ends(void **state)
{
	begin();
	world.existing = htonl(0x0a000001);
	world.pieces = 1000;
	put(*state, 1);
	outgoing_send(world.now_ns);
	assert_int_equal(world.sent, 1);
	assert_int_equal(world.fetches, 1);
	assert_int_equal(outgoing_due(NEVER), 0);
	world.pieces = 1;
	put(*state, 1);
	outgoing_send(world.now_ns);
	assert_int_equal(world.sent, 2);
	assert_int_equal(outgoing_due(NEVER), NEVER);
}

static int setup(void **state)
{
	char *argv[] = {"test",        "--no-huge",      "-m",          "32",
	                "--no-pci",    "--no-telemetry", "--no-shconf", "--iova-mode=va",
	                "--log-level", "critical",       NULL};

	if (rte_eal_init((int)SY_ARRAY_LEN(argv) - 1, argv) < 0)
		return -1;
	*state = rte_pktmbuf_pool_create("tests", 511, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE,
	                                 SOCKET_ID_ANY);
	return *state ? 0 : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_forged_neighbours_are_limited),
	        cmocka_unit_test(test_a_neighbour_among_forged_ones_is_found),
	        cmocka_unit_test(test_an_absent_neighbour_is_queried_rarely),
	        cmocka_unit_test(test_few_changing_routes_are_read_again),
	        cmocka_unit_test(test_packets_wait_for_their_neighbour),
	        cmocka_unit_test(test_packets_without_a_route_are_dropped),
	        cmocka_unit_test(test_an_iteration_ends),
	};
	return cmocka_run_group_tests(tests, setup, NULL);
}

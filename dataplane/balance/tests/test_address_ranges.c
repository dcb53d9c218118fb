// SPDX-License-Identifier: Apache-2.0
/* The table of all sets' ranges, compared with a search through every prefix. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../base/tests/test_random.h"
#include "address_ranges_table.h"

#define SET_PREFIXES 40

struct plain {
	unsigned sets;
	struct sy_prefix prefix[ADDRESS_SETS][SET_PREFIXES];
	struct prefix_list list[ADDRESS_SETS];
};

static unsigned random_below(size_t n)
{
	return (unsigned)(random_next() % n);
}

static bool prefix_holds(const struct sy_prefix *p, const struct sy_addr *a)
{
	if (sy_addr_is_v4(&p->addr) != sy_addr_is_v4(a))
		return false;
	unsigned first = sy_addr_is_v4(a) ? 96 : 0;
	for (unsigned bit = first; bit < first + p->bits; bit++)
		if ((a->b[bit / 8] ^ p->addr.b[bit / 8]) & 0x80 >> bit % 8)
			return false;
	return true;
}

static uint32_t plain_find(const struct plain *m, const struct sy_addr *a)
{
	uint32_t mask = 0;
	for (unsigned s = 0; s < m->sets; s++)
		for (uint32_t i = 0; i < m->list[s].count; i++)
			mask |= (uint32_t)prefix_holds(&m->prefix[s][i], a) << s;
	return mask;
}

/* Few different bytes, with 0 and the highest among them, so that prefixes meet. */
static struct sy_addr random_address(void)
{
	static const uint8_t byte[] = {0, 0xff, 0x80, 0x7f, 1};
	struct sy_addr a = {0};
	for (unsigned i = 0; i < 16; i++)
		a.b[i] = byte[random_below(sizeof(byte))];
	if (random_below(2))
		return sy_addr_v4(a.w[3]);
	a.b[0] = 0x20; /* never IPv4-mapped */
	return a;
}

static struct sy_prefix random_prefix(void)
{
	struct sy_prefix p = {.addr = random_address()};
	const bool v4 = sy_addr_is_v4(&p.addr);
	p.bits = (uint8_t)random_below((v4 ? 32 : 128) + 1);
	if (!v4 && p.bits < 8)
		p.bits = 8;
	for (unsigned bit = (v4 ? 96 : 0) + p.bits; bit < 128; bit++)
		p.addr.b[bit / 8] &= (uint8_t) ~(0x80 >> bit % 8);
	return p;
}

static int prefix_compare(const void *one, const void *other)
{
	const struct sy_prefix *a = one, *b = other;
	int family = sy_addr_is_v4(&b->addr) - sy_addr_is_v4(&a->addr);
	int order = memcmp(a->addr.b, b->addr.b, 16);
	return family ? family : order ? order : a->bits - b->bits;
}

/* Sorts, and drops what lies within the prefix before. */
static uint32_t prefixes_settle(struct sy_prefix *p, uint32_t count)
{
	uint32_t kept = 0;
	qsort(p, count, sizeof(*p), prefix_compare);
	for (uint32_t i = 0; i < count; i++)
		if (kept == 0 || !prefix_holds(&p[kept - 1], &p[i].addr))
			p[kept++] = p[i];
	return kept;
}

static void plain_fill(struct plain *m)
{
	uint32_t bad;
	m->sets = random_below(ADDRESS_SETS + 1);
	for (unsigned s = 0; s < m->sets; s++) {
		uint32_t count = random_below(SET_PREFIXES + 1);
		for (uint32_t i = 0; i < count; i++)
			m->prefix[s][i] = random_prefix();
		m->list[s] =
		        (struct prefix_list){m->prefix[s], prefixes_settle(m->prefix[s], count)};
		assert_true(prefix_list_is_sorted(&m->list[s], &bad));
	}
}

static void check_addresses(const struct plain *m, const struct address_ranges *t,
                            const struct sy_addr *addr, unsigned count)
{
	const struct sy_addr *at[200] = {0};
	uint32_t sets[200];
	for (unsigned i = 0; i < count; i++)
		at[i] = &addr[i];
	address_ranges_find(t, at, sets, count);
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(sets[i], plain_find(m, &addr[i]));
}

/* The addresses beside a prefix's ends. */
static unsigned prefix_edges(const struct sy_prefix *p, struct sy_addr *out)
{
	struct sy_addr last = p->addr;
	for (unsigned bit = (sy_addr_is_v4(&p->addr) ? 96 : 0) + p->bits; bit < 128; bit++)
		last.b[bit / 8] |= (uint8_t)(0x80 >> bit % 8);
	out[0] = out[1] = p->addr;
	out[2] = out[3] = last;
	out[1].w[3] = htonl(ntohl(out[1].w[3]) - 1);
	out[3].w[3] = htonl(ntohl(out[3].w[3]) + 1);
	return 4;
}

static void test_model(void **state)
{
	(void)state;
	static struct plain m;
	for (unsigned round = 0; round < 400; round++) {
		struct address_ranges *t = NULL;
		struct sy_addr addr[200];
		plain_fill(&m);
		assert_int_equal(address_ranges_build(m.list, m.sets, &t), 0);
		for (unsigned i = 0; i < 200; i++)
			addr[i] = random_address();
		check_addresses(&m, t, addr, 200);
		for (unsigned s = 0; s < m.sets; s++)
			for (uint32_t i = 0; i < m.list[s].count; i++)
				check_addresses(&m, t, addr, prefix_edges(&m.prefix[s][i], addr));
		address_ranges_free(t);
	}
}

static void test_everybody(void **state)
{
	(void)state;
	static struct plain m = {.sets = 2};
	struct address_ranges *t = NULL;
	struct sy_addr addr[6] = {sy_addr_v4(0), sy_addr_v4(UINT32_MAX),
	                          sy_addr_v4(htonl(1u << 31))};
	memset(&addr[4], 0xff, sizeof(addr[4]));
	addr[5].b[0] = 0x80;
	m.prefix[0][0] = (struct sy_prefix){sy_addr_v4(0), 0};
	m.prefix[1][0] = (struct sy_prefix){.bits = 0}; /* ::/0 */
	m.list[0] = (struct prefix_list){m.prefix[0], 1};
	m.list[1] = (struct prefix_list){m.prefix[1], 1};
	assert_int_equal(address_ranges_build(m.list, 2, &t), 0);
	check_addresses(&m, t, addr, 6);
	address_ranges_free(t);
}

static void test_unsorted(void **state)
{
	(void)state;
	uint32_t bad;
	const struct sy_prefix v4 = {sy_addr_v4(htonl(0x0a000000)), 8};
	struct sy_prefix inner = {sy_addr_v4(htonl(0x0a010000)), 16};
	struct sy_prefix v6 = {.addr = {.b = {0x20}}, .bits = 8};
	struct sy_prefix list[3] = {v4, v6};
	assert_true(prefix_list_is_sorted(&(struct prefix_list){list, 2}, &bad));
	list[0] = v6, list[1] = v4;
	assert_false(prefix_list_is_sorted(&(struct prefix_list){list, 2}, &bad));
	assert_int_equal(bad, 1);
	list[0] = v4, list[1] = inner;
	assert_false(prefix_list_is_sorted(&(struct prefix_list){list, 2}, &bad));
	inner.bits = 15; /* one bit behind its length */
	assert_false(prefix_list_is_sorted(&(struct prefix_list){&inner, 1}, &bad));
	inner.bits = 33;
	assert_false(prefix_list_is_sorted(&(struct prefix_list){&inner, 1}, &bad));
}

/* Each host of a set is in it; those beside it are not. */
static void check_hosts(const struct address_ranges *t, const struct sy_prefix *p, uint32_t count)
{
	for (uint32_t i = 0; i < count; i += 61) {
		struct sy_addr addr[2] = {p[i].addr, p[i].addr};
		const struct sy_addr *at[2] = {&addr[0], &addr[1]};
		uint32_t sets[2];
		addr[1].w[3] = htonl(ntohl(addr[1].w[3]) + 1);
		address_ranges_find(t, at, sets, 2);
		assert_int_equal(sets[0], 1);
		assert_int_equal(sets[1], 0);
	}
}

/* Many IPv6 hosts, scattered. */
static void test_scattered(void **state)
{
	(void)state;
	enum { HOSTS = 50000 };
	struct sy_prefix *p = calloc(HOSTS, sizeof(*p));
	struct address_ranges *t = NULL;
	uint32_t bad;
	assert_non_null(p);
	for (uint32_t i = 0; i < HOSTS; i++) {
		p[i].addr = (struct sy_addr){.w = {htonl(0x20010000 + i / 10), htonl(i * 64),
		                                   (uint32_t)random_next(), htonl(i * 2)}};
		p[i].bits = 128;
	}
	assert_true(prefix_list_is_sorted(&(struct prefix_list){p, HOSTS}, &bad));
	assert_int_equal(address_ranges_build(&(struct prefix_list){p, HOSTS}, 1, &t), 0);
	check_hosts(t, p, HOSTS);
	address_ranges_free(t);
	free(p);
}

/* A million scattered hosts need no more memory than the design record says. */
static void test_memory(void **state)
{
	(void)state;
	enum { HOSTS = 1000000 };
	struct sy_prefix *p = calloc(HOSTS, sizeof(*p));
	struct address_ranges *t = NULL;
	assert_non_null(p);
	for (uint32_t i = 0; i < HOSTS; i++)
		p[i] = (struct sy_prefix){sy_addr_v4(htonl(i * 4294u + i % 7)), 32};
	assert_int_equal(address_ranges_build(&(struct prefix_list){p, HOSTS}, 1, &t), 0);
	assert_true(address_ranges_bytes(t) <= 24u << 20);
	check_hosts(t, p, HOSTS);
	address_ranges_free(t);
	free(p);
}

/* No member is decided by the filter. */
static void check_hosts_pass(const struct address_ranges *t, const struct sy_prefix *p,
                             uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct address_lookup lookup = address_lookup_begin(t, &p[i].addr);
		assert_true(address_lookup_passes(&lookup));
	}
}

/* A sanitizer finds nothing by repetition. */
#ifdef __SANITIZE_ADDRESS__
#define LOOKS 100000u
#else
#define LOOKS 1000000u
#endif

/* How many of these addresses pass the filter; those in `from`, of this length, are in no set. */
static unsigned filter_passes(const struct address_ranges *t, const char *from, unsigned length)
{
	unsigned pass = 0;
	struct sy_addr net;
	assert_int_equal(sy_addr_parse(from, &net), 0);
	for (unsigned i = 0; i < LOOKS; i++) {
		struct sy_addr a = {.d = {random_next(), random_next()}};
		const bool v4 = sy_addr_is_v4(&net);
		for (unsigned bit = 0; bit < (v4 ? 96 : 0) + length; bit++) {
			const uint8_t mask = (uint8_t)(0x80 >> bit % 8);
			a.b[bit / 8] = (a.b[bit / 8] & (uint8_t)~mask) | (net.b[bit / 8] & mask);
		}
		const struct address_lookup lookup = address_lookup_begin(t, &a);
		pass += address_lookup_passes(&lookup);
	}
	return pass;
}

/* The filter decides nearly all look-ups of others, whatever the set is like: hosts one after the
 * other, scattered ones, one network, or hosts beside a large network. */
static void test_filter(void **state)
{
	(void)state;
	enum { HOSTS = 100000 };
	static struct sy_prefix p[HOSTS + 1];
	for (unsigned kind = 0; kind < 6; kind++) {
		const bool v4 = kind < 4;
		struct address_ranges *t = NULL;
		uint32_t count = kind == 2 ? 1 : HOSTS;
		for (uint32_t i = 0; i < HOSTS; i++) {
			const uint32_t host = kind % 2 ? i * 40000u : 2 * i;
			p[i] = (struct sy_prefix){.addr = {.w = {htonl(0x20010db8), 0, 0, 0}},
			                          .bits = v4 ? 32 : 128};
			if (v4)
				p[i].addr = sy_addr_v4(htonl(host >> 1));
			else
				p[i].addr.w[kind == 4 ? 3 : 1] = htonl(host);
		}
		if (kind == 2)
			p[0] = (struct sy_prefix){sy_addr_v4(htonl(0x20000000)), 3};
		if (kind == 3)
			p[count++] = (struct sy_prefix){sy_addr_v4(htonl(0x7f000000)), 8};
		assert_int_equal(address_ranges_build(&(struct prefix_list){p, count}, 1, &t), 0);
		assert_true(filter_passes(t, v4 ? "128.0.0.0" : "3000::", v4 ? 1 : 4) <
		            LOOKS / 500);
		assert_int_equal(filter_passes(t, v4 ? "2000::" : "128.0.0.0", v4 ? 3 : 1), 0);
		if (kind == 2)
			assert_int_equal(filter_passes(t, "32.0.0.0", 3), LOOKS);
		check_hosts_pass(t, p, count);
		address_ranges_free(t);
	}
}

/* The last addresses of all. */
static void test_ends(void **state)
{
	(void)state;
	static struct plain m = {.sets = 2};
	struct address_ranges *t = NULL;
	struct sy_addr addr[8] = {sy_addr_v4(UINT32_MAX), sy_addr_v4(htonl(UINT32_MAX - 1)),
	                          sy_addr_v4(0), sy_addr_v4(htonl(1))};
	memset(&addr[4], 0xff, 2 * sizeof(addr[4]));
	addr[5].b[15] = 0xfe;
	addr[6].b[15] = 1;
	m.prefix[0][0] = (struct sy_prefix){addr[0], 32};
	m.prefix[0][1] = (struct sy_prefix){addr[4], 128};
	m.prefix[1][0] = (struct sy_prefix){addr[2], 32};
	m.prefix[1][1] = (struct sy_prefix){.bits = 128};
	m.list[0] = (struct prefix_list){m.prefix[0], 2};
	m.list[1] = (struct prefix_list){m.prefix[1], 2};
	assert_int_equal(address_ranges_build(m.list, 2, &t), 0);
	check_addresses(&m, t, addr, 8);
	address_ranges_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_model),    cmocka_unit_test(test_everybody),
	        cmocka_unit_test(test_unsorted), cmocka_unit_test(test_scattered),
	        cmocka_unit_test(test_memory),   cmocka_unit_test(test_filter),
	        cmocka_unit_test(test_ends),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

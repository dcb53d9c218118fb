// SPDX-License-Identifier: Apache-2.0
/* Random transactions against a plain array: which are accepted, and what is in force
 * afterwards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <rte_hash.h>

#include "address_set.h"
#include "harness.h"
#include "model.h"

#define SERVICES     10
#define SERVERS      5
#define LOCALS       4
#define TRANSACTIONS 4000
#define SECOND_NS    UINT64_C(1000000000)
#define UP           STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_UP

struct plain_server {
	bool there;
	uint32_t weight;
	int state;
};

struct plain {
	struct {
		bool there;
		int scheduler;
		struct plain_server server[SERVERS];
	} service[SERVICES];
	bool local[LOCALS];
};

/* Address n of a family. VIPs, local addresses and servers share one pool and can collide on
 * purpose. */
static struct sy_addr address_at(bool v4, unsigned n)
{
	struct sy_addr a = harness_addr(v4 ? "10.0.0.0" : "2001:db8::");
	a.b[15] = (uint8_t)(1 + n);
	return a;
}

static struct service_key key_at(unsigned i)
{
	struct service_key key = harness_key("10.0.0.1", (uint16_t)(80 + i / 6), SY_PROTO_TCP);
	key.vip = address_at(i % 2, i / 2 % 3); /* several services share a VIP */
	return key;
}

static struct sy_addr server_at(unsigned i, unsigned n)
{
	return address_at(i % 2, 2 + n); /* the first one is also a VIP */
}

static struct sy_addr local_at(unsigned i)
{
	return address_at(i % 2, 6 + i / 2 + (i == 3)); /* one of them is also a server */
}

static bool is_vip(const struct plain *p, const struct sy_addr *a)
{
	for (unsigned i = 0; i < SERVICES; i++) {
		struct service_key key = key_at(i);
		if (p->service[i].there && sy_addr_equal(&key.vip, a))
			return true;
	}
	return false;
}

static bool is_local(const struct plain *p, const struct sy_addr *a)
{
	for (unsigned i = 0; i < LOCALS; i++) {
		struct sy_addr local = local_at(i);
		if (p->local[i] && sy_addr_equal(&local, a))
			return true;
	}
	return false;
}

/* The rules that are checked only at the end of a transaction. */
static bool plain_is_sound(const struct plain *p)
{
	bool needed[2] = {false, false}, have[2] = {false, false};
	for (unsigned i = 0; i < LOCALS; i++)
		have[i % 2] |= p->local[i];
	for (unsigned i = 0; i < SERVICES; i++) {
		for (unsigned n = 0; n < SERVERS; n++) {
			struct sy_addr a = server_at(i, n);
			if (!p->service[i].there || !p->service[i].server[n].there)
				continue;
			needed[i % 2] = true;
			if (is_vip(p, &a) || is_local(p, &a))
				return false;
		}
	}
	return have[0] >= needed[0] && have[1] >= needed[1];
}

/* Makes one random change in the plain model and adds it to the list; false: it must be refused. */
static bool change(struct plain *p, struct changes *c)
{
	unsigned i = (unsigned)rand() % SERVICES, n = (unsigned)rand() % SERVERS;
	unsigned l = (unsigned)rand() % LOCALS;
	struct service_key key = key_at(i);
	struct sy_addr server = server_at(i, n), local = local_at(l);
	struct plain_server *s = &p->service[i].server[n];
	bool ok = p->service[i].there;
	switch (rand() % 7) {
	case 0:
		ok = ok || !is_local(p, &key.vip);
		p->service[i].there = true;
		p->service[i].scheduler = 1 + rand() % 2;
		put_service(c, &key, "random", p->service[i].scheduler, NULL);
		return ok;
	case 1:
		if (rand() % 3)
			return true;
		memset(&p->service[i], 0, sizeof(p->service[i]));
		delete_service(c, &key);
		return ok;
	case 2:
		ok = ok && s->there;
		s->there = false;
		delete_server(c, &key, &server, 80);
		return ok;
	case 3:
		ok = p->local[l] || !is_vip(p, &local);
		p->local[l] = true;
		put_local(c, &local);
		return ok;
	case 4:
		ok = p->local[l];
		p->local[l] = false;
		delete_local(c, &local);
		return ok;
	default:
		*s = (struct plain_server){true, (uint32_t)rand() % 4, 1 + rand() % 3};
		put_server(c, &key, &server, 80, s->weight, s->state);
		return ok;
	}
}

static void compare_service(const struct harness *r, const struct plain *p, unsigned i)
{
	struct service_key key = key_at(i);
	void *id;
	if (!p->service[i].there) {
		assert_true(rte_hash_lookup(inspect_directory(r->b), &key) < 0);
		return;
	}
	assert_true(rte_hash_lookup_data(inspect_directory(r->b), &key, &id) >= 0);
	const struct service *s = inspect_service(r->b, (uintptr_t)id);
	unsigned candidates = 0, total = 0;
	assert_int_equal(s->policy.scheduler, p->service[i].scheduler);
	bool by_weight = s->pool->ops->by_weight;
	for (unsigned n = 0; n < SERVERS; n++) {
		const struct plain_server *want = &p->service[i].server[n];
		struct sy_addr a = server_at(i, n);
		if (!want->there || want->state != UP || want->weight == 0)
			continue;
		candidates++;
		total += by_weight ? want->weight : 1;
		bool found = false;
		for (unsigned k = 0; k < s->pool->members; k++) {
			const struct candidate *c = &s->pool->candidate[k];
			const struct endpoint *e = inspect_endpoint(r->b, c->server);
			if (c->share == 0 || !sy_addr_equal(&e->addr, &a))
				continue;
			found = true;
			assert_int_equal(c->weight, by_weight ? want->weight : 1);
			assert_int_equal(e->service, s->id);
			assert_true(sy_addr_equal(&e->vip, &key.vip));
			assert_int_equal(e->vport, key.vport);
			assert_false(e->removed);
		}
		assert_true(found);
	}
	assert_int_equal(s->pool->eligible, candidates);
	assert_int_equal(s->pool->weight, total);
}

static void compare(const struct harness *r, const struct plain *p)
{
	unsigned services = 0, locals[2] = {0, 0};
	for (unsigned i = 0; i < SERVICES; i++) {
		services += p->service[i].there;
		compare_service(r, p, i);
	}
	assert_int_equal(inspect_model(r->b)->services, services);
	for (unsigned v4 = 0; v4 < 2; v4++)
		for (unsigned n = 0; n < 12; n++) {
			struct sy_addr a = address_at(v4, n);
			assert_int_equal(address_set_find(inspect_address_set(r->b), &a),
			                 is_vip(p, &a)     ? ADDRESS_SET_VIP
			                 : is_local(p, &a) ? ADDRESS_SET_LOCAL
			                                   : ADDRESS_SET_NONE);
		}
	for (unsigned i = 0; i < LOCALS; i++)
		locals[i % 2] += p->local[i];
	assert_int_equal(inspect_locals(r->b, 0)->count, locals[0]);
	assert_int_equal(inspect_locals(r->b, 1)->count, locals[1]);
}

static void test_random(void **state)
{
	struct harness r;
	struct sy_error err;
	struct plain now = {0};
	unsigned accepted = 0;
	const struct harness_options o = {.max_services = 64, .max_servers = 512};
	if (harness_open(&r, &o, &err) < 0)
		fail_msg("%s", err.text);
	srand(1);
	for (unsigned n = 0; n < TRANSACTIONS; n++) {
		struct plain next = now;
		struct changes c = {0};
		bool ok = true;
		for (int k = 1 + rand() % 4; k && ok; k--)
			ok = change(&next, &c);
		ok = ok && plain_is_sound(&next);
		if (harness_commit(&r, &c) != ok)
			fail_msg("transaction %u: %s", n, ok ? r.error : "accepted");
		if (ok)
			now = next;
		accepted += ok;
		compare(&r, &now);
		harness_advance(&r, (uint64_t)(rand() % 3) * SECOND_NS / 2);
	}
	assert_in_range(accepted, TRANSACTIONS / 10, TRANSACTIONS * 9 / 10);
	harness_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_random)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

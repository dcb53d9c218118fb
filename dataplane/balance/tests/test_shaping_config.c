// SPDX-License-Identifier: Apache-2.0
/* Shaping in the configuration: which queue each packet waits in, what is refused, and what changes
 * and new processes keep. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "flows.h"
#include "limit.h"
#include "service_dropped.h"
#include "shaping_model.h"

#define LAN   harness_port_name[HARNESS_LAN]
#define FAST  UINT64_C(100000000000)
#define LARGE 10000000 /* burst: nothing waits */

typedef Steelyard__Forwarder__V1__ShapingCounts pb_counts;

struct counted {
	uint64_t sent, full;
	uint32_t waiting;
};

static pb_response *list(struct flows *f)
{
	Steelyard__Forwarder__V1__ListShapingRequest ask =
	        STEELYARD__FORWARDER__V1__LIST_SHAPING_REQUEST__INIT;
	pb_request q = STEELYARD__FORWARDER__V1__REQUEST__INIT;
	q.body_case = STEELYARD__FORWARDER__V1__REQUEST__BODY_LIST_SHAPING;
	q.list_shaping = &ask;
	return harness_request(&f->harness, &q);
}

/* A queue of the only shaped port. */
static struct counted queue_of(struct flows *f, unsigned tenant, unsigned service, unsigned class)
{
	struct counted out = {0};
	pb_response *r = list(f);
	assert_null(r->error);
	assert_int_equal(r->list_shaping->n_ports, 1);
	const Steelyard__Forwarder__V1__ShapingStats *s = r->list_shaping->ports[0];
	assert_true(s->active);
	for (size_t i = 0; i < s->n_counts; i++) {
		const pb_counts *n = s->counts[i];
		if (n->tenant == tenant && n->service == service && n->class_ == class)
			out = (struct counted){n->sent_packets, n->dropped_full, n->waiting};
	}
	steelyard__forwarder__v1__response__free_unpacked(r, NULL);
	return out;
}

static unsigned ports_shaped(struct flows *f)
{
	pb_response *r = list(f);
	unsigned n = (unsigned)r->list_shaping->n_ports;
	steelyard__forwarder__v1__response__free_unpacked(r, NULL);
	return n;
}

/* Classes voice and rest; tenant acme with service 0 and, by its VIP, service 1. */
static pb_shaping *shape(struct flows *f, struct changes *c, uint64_t rate, uint64_t burst)
{
	pb_shaping *s = put_shaping(c, LAN, rate, burst);
	add_shaping_class(c, s, "voice", 46);
	add_shaping_class(c, s, "rest", 0);
	add_shaping_service(c, add_shaping_tenant(c, s, "acme"), "zero", &f->service[0]);
	return s;
}

static void test_queues(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct flow zero, other;
	flow_open(f, &zero, 0, 4000);
	flow_open(f, &other, 2, 4000);
	assert_int_equal(f->harness.b->endpoint[zero.server_id].limited, 0);
	shape(f, &c, FAST, LARGE);
	flows_commit(f, &c);
	assert_int_equal(f->harness.b->endpoint[zero.server_id].limited, LIMITED_SHAPED);
	for (unsigned n = 0; n < 5; n++) {
		flow_check(f, &zero); /* one packet in each direction */
		flow_check(f, &other);
	}
	/* Tenant 1 is acme; its service 0 is for its others. */
	assert_int_equal(queue_of(f, 1, 1, 1).sent, 5);
	assert_int_equal(queue_of(f, 0, 0, 1).sent, 5);
	/* A new session's first packet, too. */
	struct flow late;
	flow_begin(f, &late, 0, 4001);
	assert_int_equal(queue_of(f, 1, 1, 1).sent, 6);
	/* A limit beside it, which comes and goes. */
	add_limit_service(&c,
	                  put_limit(&c, "a",
	                            STEELYARD__FORWARDER__V1__LIMIT_UNIT__LIMIT_UNIT_PACKETS, 1000,
	                            1000),
	                  &f->service[0]);
	flows_commit(f, &c);
	flow_check(f, &zero);
	delete_limit(&c, "a");
	flows_commit(f, &c);
	flow_check(f, &zero);
	assert_int_equal(queue_of(f, 1, 1, 1).sent, 8);
	delete_shaping(&c, LAN);
	flows_commit(f, &c);
	flow_check(f, &zero);
	assert_int_equal(ports_shaped(f), 0);
	assert_int_equal(f->harness.b->endpoint[zero.server_id].limited, 0);
}

static void test_class_and_vip(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct flow flow;
	flow_open(f, &flow, 0, 4000);
	pb_shaping *s = put_shaping(&c, LAN, FAST, LARGE);
	add_shaping_class(&c, s, "voice", 46);
	add_shaping_class(&c, s, "rest", 0);
	pb_shaping_tenant *t = add_shaping_tenant(&c, s, "acme");
	uint8_t bytes[16];
	ProtobufCBinaryData vip = {sy_addr_to_bytes(&f->service[0].vip, bytes), bytes};
	t->services[0]->vips = &vip;
	t->services[0]->n_vips = 1;
	t->services[0]->class_ = (char[]){"voice"};
	flows_commit(f, &c);
	flow_check(f, &flow);
	assert_int_equal(queue_of(f, 1, 0, 0).sent, 1);
	/* A change of the service's own entry takes effect on sessions that go on. */
	shape(f, &c, FAST, LARGE);
	flows_commit(f, &c);
	flow_check(f, &flow);
	assert_int_equal(queue_of(f, 1, 1, 1).sent, 1);
}

/* A service that comes later, and one that is put again under another id. */
static void test_services_come_and_go(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct flow flow;
	shape(f, &c, FAST, LARGE);
	delete_service(&c, &f->service[0]);
	flows_commit(f, &c);
	flows_put(&c, &f->service[0], "again", MODE_FNAT, (const char *const[]){"10.0.0.11"}, 1,
	          80);
	flows_commit(f, &c);
	f->server[0][0] = harness_addr("10.0.0.11");
	flow_begin(f, &flow, 0, 4000);
	assert_int_equal(queue_of(f, 1, 1, 1).sent, 1);
}

static void test_wait(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct flow flow;
	struct frame out;
	flow_open(f, &flow, 0, 4000);
	shape(f, &c, 8000, 4096)->classes[1]->queue = 5;
	flows_commit(f, &c);
	unsigned through = 0;
	while (queue_of(f, 1, 1, 1).full == 0)
		through += flows_through(f, HARNESS_WAN, &flow.in[SESSION_CLIENT], &out);
	assert_int_equal(queue_of(f, 1, 1, 1).waiting, 5);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_SHAPING_FULL), 1);
	assert_int_equal(service_dropped(f, 0, SY_DROP_SHAPING_FULL), 1);
	assert_int_equal(queue_of(f, 1, 1, 1).sent, through);
	/* A transaction that is refused changes nothing. */
	shape(f, &c, FAST, LARGE);
	delete_limit(&c, "none");
	flows_check_refused(f, &c, "there is no limit none");
	assert_int_equal(queue_of(f, 1, 1, 1).waiting, 5);
	/* Nor does a restart of what waits: it leaves at the end. */
	flows_reopen(f, 1, 1, false);
	assert_int_equal(queue_of(f, 1, 1, 1).waiting, 0);
	assert_int_equal(f->harness.b->endpoint[flow.server_id].limited, LIMITED_SHAPED);
	flow_check(f, &flow);
	assert_int_equal(queue_of(f, 1, 1, 1).sent, 1);
}

int __real_sy_worker_call(struct sy_worker *w, void (*fn)(struct sy_worker *w, void *ctx),
                          void *ctx);
int __wrap_sy_worker_call(struct sy_worker *w, void (*fn)(struct sy_worker *w, void *ctx),
                          void *ctx);

static bool silent; /* workers do not answer */

int __wrap_sy_worker_call(struct sy_worker *w, void (*fn)(struct sy_worker *w, void *ctx),
                          void *ctx)
{
	return silent ? -ETIMEDOUT : __real_sy_worker_call(w, fn, ctx);
}

/* A change that takes effect without an answer of the port's owner. */
static void commit_unanswered(struct flows *f, struct changes *c)
{
	silent = true;
	flows_commit(f, c);
	silent = false;
}

#define UNANSWERED "shaping of port net_ring_lan: worker 0 does not answer"

/* A failed change is reported, and retried. */
static void test_retry(void **state)
{
	struct flows *f = *state;
	struct shaping_model *m = f->harness.b->ctl->shaping;
	struct changes c = {0};
	struct flow flow;
	flow_open(f, &flow, 0, 4000);
	shape(f, &c, FAST, LARGE);
	commit_unanswered(f, &c);
	pb_response *r = list(f);
	assert_int_equal(r->list_shaping->n_ports, 1);
	assert_false(r->list_shaping->ports[0]->active);
	assert_string_equal(r->list_shaping->ports[0]->problem, UNANSWERED);
	steelyard__forwarder__v1__response__free_unpacked(r, NULL);
	assert_int_equal(harness_warnings(&f->harness, UNANSWERED), 1);
	m->retry_ns = 0;
	harness_attend(&f->harness);
	assert_int_equal(harness_warnings(&f->harness, UNANSWERED), 0);
	flow_check(f, &flow);
	assert_int_equal(queue_of(f, 1, 1, 1).sent, 1);
	/* A change, while a service moves to another entry: the tree is still the former one. */
	pb_shaping *s = put_shaping(&c, LAN, FAST, LARGE);
	add_shaping_class(&c, s, "rest", 0);
	add_shaping_service(&c, add_shaping_tenant(&c, s, "other"), "two", &f->service[2]);
	commit_unanswered(f, &c);
	assert_int_equal(harness_warnings(&f->harness, UNANSWERED), 1);
	flow_check(f, &flow);
	m->retry_ns = 0;
	harness_attend(&f->harness);
	flow_check(f, &flow);
	assert_int_equal(queue_of(f, 0, 0, 0).sent, 3);
	/* Switched off. */
	delete_shaping(&c, LAN);
	commit_unanswered(f, &c);
	assert_int_equal(ports_shaped(f), 0);
	assert_int_equal(harness_warnings(&f->harness, UNANSWERED), 1);
	const unsigned lan = shaping_port(f->harness.b, LAN);
	assert_non_null(sy_port_shape_get(f->harness.rt, lan));
	m->retry_ns = 0;
	harness_attend(&f->harness);
	assert_null(sy_port_shape_get(f->harness.rt, lan));
	assert_int_equal(harness_warnings(&f->harness, UNANSWERED), 0);
}

static void shape_many(struct changes *c, unsigned first, unsigned count)
{
	char name[16];
	for (unsigned i = first; i < first + count; i++) {
		snprintf(name, sizeof(name), "eth%u", i);
		add_shaping_class(c, put_shaping(c, name, FAST, LARGE), "rest", 0);
	}
}

static void unshape_many(struct changes *c, unsigned first, unsigned count)
{
	char name[16];
	for (unsigned i = first; i < first + count; i++) {
		snprintf(name, sizeof(name), "eth%u", i);
		delete_shaping(c, name);
	}
}

/* As many ports as can be shaped get other names at once, whether these come before the former ones
 * leave or after. One more is refused, however it comes. */
static void test_rename_all(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	const unsigned all = SY_MAX_PORTS;
	shape_many(&c, 0, all);
	flows_commit(f, &c);
	shape_many(&c, all, all);
	unshape_many(&c, 0, all);
	flows_commit(f, &c);
	assert_int_equal(ports_shaped(f), all);
	unshape_many(&c, all, all);
	shape_many(&c, 0, all);
	flows_commit(f, &c);
	assert_int_equal(ports_shaped(f), all);
	shape_many(&c, all, 1);
	assert_false(harness_commit(&f->harness, &c));
	assert_string_equal(f->harness.error, "shaping of 17 ports: at most 16 can be shaped");
	shape_many(&c, all, all + 1);
	unshape_many(&c, 0, all);
	assert_false(harness_commit(&f->harness, &c));
	assert_string_equal(f->harness.error, "shaping of port eth32: a transaction has at most 32 "
	                                      "shaped ports before and after it");
	assert_int_equal(ports_shaped(f), all);
	unshape_many(&c, 0, all);
	flows_commit(f, &c);
	assert_int_equal(ports_shaped(f), 0);
}

/* The shaping of a port that is not there is kept, and a warning as long as it is. */
static void test_no_such_port(void **state)
{
	static const char text[] =
	        "shaping of port eth9 has no effect: the forwarder has no such port";
	struct flows *f = *state;
	struct changes c = {0};
	shape(f, &c, FAST, LARGE);
	add_shaping_class(&c, put_shaping(&c, "eth9", FAST, LARGE), "rest", 0);
	flows_commit(f, &c);
	assert_int_equal(harness_warnings(&f->harness, text), 1);
	assert_int_equal(harness_warnings(&f->harness, "shaping of port"),
	                 1); /* not of the port that there is */
	delete_shaping(&c, "eth9");
	flows_commit(f, &c);
	assert_int_equal(harness_warnings(&f->harness, "shaping of port"), 0);
}

static void test_refused(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	pb_shaping *s;
	shape(f, &c, 1, LARGE);
	flows_check_refused(f, &c,
	                    "shaping of port net_ring_lan: the rate is not within 8 kbit/s to 400 "
	                    "Gbit/s");
	put_shaping(&c, LAN, FAST, LARGE);
	flows_check_refused(f, &c, "shaping of port net_ring_lan: there are 1–8 classes");
	s = shape(f, &c, FAST, LARGE);
	add_shaping_class(&c, s, "rest", 0);
	flows_check_refused(f, &c, "shaping of port net_ring_lan: there are two classes rest");
	s = shape(f, &c, FAST, LARGE);
	add_shaping_class(&c, s, "more", 46);
	flows_check_refused(
	        f, &c,
	        "shaping of port net_ring_lan: class more: DSCP 46 is another class's, or "
	        "is above 63");
	s = shape(f, &c, FAST, LARGE);
	add_shaping_tenant(&c, s, "acme");
	flows_check_refused(f, &c, "shaping of port net_ring_lan: there are two tenants \"acme\"");
	s = shape(f, &c, FAST, LARGE);
	add_shaping_service(&c, s->tenants[0], "again", &f->service[0]);
	flows_check_refused(f, &c, "shaping of port net_ring_lan: a service or VIP is named twice");
	s = shape(f, &c, FAST, LARGE);
	s->tenants[1]->services[1]->class_ = (char[]){"none"};
	flows_check_refused(f, &c, "shaping of port net_ring_lan: there is no class none");
	s = shape(f, &c, FAST, LARGE);
	s->tenants[1]->weight = 0;
	flows_check_refused(f, &c,
	                    "shaping of port net_ring_lan: acme: its weight is not within 1–100");
	delete_shaping(&c, LAN);
	flows_check_refused(f, &c, "port net_ring_lan is not shaped");
	assert_int_equal(ports_shaped(f), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_queues, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_class_and_vip, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_services_come_and_go, flows_setup,
	                                        flows_teardown),
	        cmocka_unit_test_setup_teardown(test_wait, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_retry, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_rename_all, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_no_such_port, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_refused, flows_setup, flows_teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

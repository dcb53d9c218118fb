// SPDX-License-Identifier: Apache-2.0
/* Settings of applications: older and newer headers, defaults, and rejected values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include <sy_port_option.h>

#include "setup.h"

static const char *const interface[SY_MAX_PORTS] = {"none-0", "none-1"};
static const char *const address[] = {"192.0.2.10", "2001:db8::10"};

static struct sy_tcp_setup wanted(void)
{
	return (struct sy_tcp_setup){.size = sizeof(struct sy_tcp_setup),
	                             .interface = interface,
	                             .interfaces = 1,
	                             .address = address,
	                             .addresses = 2};
}

static void accepted(const struct sy_tcp_setup *from, struct sy_tcp_setup *o)
{
	struct sy_stack_endpoint e[SETUP_ADDRESSES];
	struct sy_error err = {0};

	if (setup_read(from, o, e, &err))
		fail_msg("%s", err.text);
	for (unsigned i = 0; i < o->addresses; i++) {
		struct sy_addr expected;
		assert_int_equal(sy_addr_parse(address[i], &expected), 0);
		assert_true(sy_addr_equal(&e[i].addr, &expected));
		assert_int_equal(e[i].port, 0);
	}
}

static void refused(const struct sy_tcp_setup *from, int rc, const char *why)
{
	struct sy_stack_endpoint e[SETUP_ADDRESSES];
	struct sy_error err = {0};
	struct sy_tcp_setup o;

	assert_int_equal(setup_read(from, &o, e, &err), rc);
	if (!strstr(err.text, why))
		fail_msg("\"%s\" does not say \"%s\"", err.text, why);
}

static void test_defaults(void **state)
{
	struct sy_tcp_setup from = wanted(), o;

	accepted(&from, &o);
	assert_int_equal(o.contexts, 1);
	assert_int_equal(o.connections, 16384);
	assert_int_equal(o.listeners, 64);
	assert_int_equal(o.port_first, 49152);
	assert_int_equal(o.port_last, 65535);
	assert_string_equal(o.congestion, "cubic");
	from.contexts = SY_MAX_WORKERS;
	from.connections = 7;
	from.congestion = "newreno";
	from.port_first = from.port_last = 50000;
	from.pacing = true;
	accepted(&from, &o);
	assert_int_equal(o.contexts, SY_MAX_WORKERS);
	assert_int_equal(o.connections, 7);
	assert_string_equal(o.congestion, "newreno");
	assert_int_equal(o.port_first, 50000);
	assert_true(o.pacing);
}

/* An older structure is shorter: later fields are ignored. */
static void test_older_programs_are_accepted(void **state)
{
	struct sy_tcp_setup from = wanted(), o;

	from.size = offsetof(struct sy_tcp_setup, pacing);
	from.pacing = true;
	from.stack = "not read";
	accepted(&from, &o);
	assert_false(o.pacing);
	assert_null(o.stack);
	from.size = offsetof(struct sy_tcp_setup, contexts);
	from.contexts = 9;
	accepted(&from, &o);
	assert_int_equal(o.contexts, 1);
	from.size--;
	refused(&from, -EINVAL, "size is not set");
}

/* A newer structure is longer: accepted unless it sets new fields. */
static void test_newer_programs_are_accepted_without_new_fields(void **state)
{
	struct {
		struct sy_tcp_setup known;
		uint8_t more[24];
	} from = {.known = wanted()};
	struct sy_tcp_setup o;

	from.known.size = sizeof(from);
	accepted(&from.known, &o);
	from.more[23] = 1;
	refused(&from.known, -E2BIG, "newer libsteelyard-tcp");
	from.known.size--;
	accepted(&from.known, &o);
}

static void test_refused(void **state)
{
	static const char *const wrong[] = {"0.0.0.0", "::", "192.0.2.256", ""};
	struct sy_tcp_setup from = wanted();

	from.contexts = SY_MAX_WORKERS + 1;
	refused(&from, -EINVAL, "65 contexts");
	from = wanted();
	from.interfaces = 0;
	refused(&from, -EINVAL, "0 interfaces");
	from.interfaces = SY_MAX_PORTS + 1;
	refused(&from, -EINVAL, "17 interfaces");
	from = wanted();
	from.addresses = 0;
	refused(&from, -EINVAL, "0 addresses");
	from.addresses = SETUP_ADDRESSES + 1; /* not read */
	refused(&from, -EINVAL, "65 addresses");
	from = wanted();
	from.port_first = 2000;
	from.port_last = 1999;
	refused(&from, -EINVAL, "from 2000 to 1999");
	from = wanted();
	from.addresses = 1;
	for (unsigned i = 0; i < SY_ARRAY_LEN(wrong); i++) {
		from.address = &wrong[i];
		refused(&from, -EINVAL, "is no address");
	}
}

static unsigned memory_of(const struct sy_tcp_setup *from)
{
	struct sy_runtime_options r = {0};
	struct sy_error err = {0};
	struct sy_tcp_setup o;

	accepted(from, &o);
	assert_int_equal(setup_ports(&o, &r, &err), 0);
	assert_int_equal(r.ports, o.interfaces);
	assert_true(r.kernel);
	sy_port_options_free(&r);
	return setup_memory_mb(&o, &r);
}

static void test_memory(void **state)
{
	struct sy_tcp_setup from = wanted();
	unsigned one = memory_of(&from), two;

	from.interfaces = 2;
	two = memory_of(&from);
	assert_true(two > one); /* each has rings to fill */
	from.packets = 160000;
	assert_true(memory_of(&from) > two);
	from.memory_mb = 77;
	assert_int_equal(memory_of(&from), 77);
}

/* DPDK devices, without kernel interfaces. */
static void test_ports(void **state)
{
	static const char *const port[] = {"net_memif0,backend=ethdev,dev=net_memif0;role=client"};
	static const char *const route[] = {"10.0.0.0/8,port=net_memif0,via=10.1.0.1"};
	static const char *const neighbour[] = {"10.1.0.1,port=net_memif0,mac=02:00:00:00:00:01"};
	struct sy_tcp_setup from = wanted(), o;
	struct sy_runtime_options r = {0};
	struct sy_error err = {0};

	from.interface = port;
	from.route = route;
	from.neighbour = neighbour;
	from.routes = from.neighbours = 1;
	accepted(&from, &o);
	assert_int_equal(setup_ports(&o, &r, &err), 0);
	assert_int_equal(r.ports, 1);
	assert_int_equal(r.port[0].backend, SY_PORT_ETHDEV);
	assert_string_equal(r.port[0].devargs, "net_memif0,role=client");
	assert_int_equal(r.routes, 1);
	assert_int_equal(r.neighs, 1);
	assert_false(r.kernel);
	unsigned one = setup_memory_mb(&o, &r);
	o.contexts = 4; /* a queue for each */
	assert_true(setup_memory_mb(&o, &r) > one);
	sy_port_options_free(&r);
}

static void test_wrong_ports(void **state)
{
	static const struct {
		const char *port, *route, *neighbour, *why;
	} wrong[] = {
	        {"eth0,backend=tun", NULL, NULL, "backend=tun is unknown"},
	        {"eth0", "10.0.0.0/8", NULL, "PREFIX/LENGTH,port=NAME"},
	        {"eth0", NULL, "10.0.0.1,mac=02:00:00:00:00:01", "port=NAME is missing"},
	};

	for (unsigned i = 0; i < SY_ARRAY_LEN(wrong); i++) {
		struct sy_tcp_setup from = wanted(), o;
		struct sy_runtime_options r = {0};
		struct sy_error err = {0};

		from.interface = &wrong[i].port;
		from.route = &wrong[i].route;
		from.routes = !!wrong[i].route;
		from.neighbour = &wrong[i].neighbour;
		from.neighbours = !!wrong[i].neighbour;
		accepted(&from, &o);
		assert_int_equal(setup_ports(&o, &r, &err), -EINVAL);
		if (!strstr(err.text, wrong[i].why))
			fail_msg("\"%s\" does not say \"%s\"", err.text, wrong[i].why);
		sy_port_options_free(&r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_defaults),
	        cmocka_unit_test(test_older_programs_are_accepted),
	        cmocka_unit_test(test_newer_programs_are_accepted_without_new_fields),
	        cmocka_unit_test(test_refused),
	        cmocka_unit_test(test_memory),
	        cmocka_unit_test(test_ports),
	        cmocka_unit_test(test_wrong_ports),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

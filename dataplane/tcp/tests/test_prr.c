// SPDX-License-Identifier: Apache-2.0
/* RFC 6937 and 9937: rules, the RFC's two examples, and bounds that hold whatever arrives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "prr.h"
#include "random.h"

#define MSS 1000

/* Sends what may be sent, in whole segments; returns how many. */
static uint32_t acked(struct prr *p, uint32_t *in_flight, uint32_t segments, bool safe)
{
	uint32_t may = prr_acked(p, segments * MSS, *in_flight, MSS, safe) / MSS;
	prr_sent(p, may * MSS);
	*in_flight += may * MSS;
	return may;
}

static void test_proportional(void **state) /* RFC 6937, 3.1: the first of 20 is lost, Reno */
{
	struct prr p;
	uint32_t in_flight = 20 * MSS, sent = 0;
	(void)state;
	prr_begin(&p, 20 * MSS, 10 * MSS);
	in_flight -= 4 * MSS; /* three duplicates, and the lost one */
	assert_int_equal(acked(&p, &in_flight, 3, false), 1); /* half of it, in whole segments */
	for (unsigned n = 4; n <= 19; n++) {
		in_flight -= MSS;
		uint32_t now = acked(&p, &in_flight, 1, false);
		assert_in_range(now, 0, 1); /* every second ACK */
		sent += now;
	}
	assert_in_range(sent, 8, 9);
	assert_in_range(in_flight, 9 * MSS, 10 * MSS); /* ssthresh, when it ends */
}

static void test_rounding(void **state) /* RFC 6937, 3: CEIL */
{
	struct prr p;
	(void)state;
	prr_begin(&p, 3 * MSS, 2 * MSS);
	prr_sent(&p, 100);
	assert_int_equal(prr_acked(&p, MSS, 5 * MSS, MSS, false),
	                 567); /* 2/3 of it, and 100 sent */
}

static void test_cubic_reduction(void **state) /* 0.7 of the ACKs */
{
	struct prr p;
	uint32_t in_flight = 99 * MSS, sent = 0;
	(void)state;
	prr_begin(&p, 100 * MSS, 70 * MSS);
	for (unsigned n = 1; n <= 90; n++) {
		in_flight -= MSS;
		sent += acked(&p, &in_flight, 1, false);
		assert_in_range(sent, n * 7 / 10, n * 7 / 10 + 1);
	}
}

static void test_many_lost(void **state) /* RFC 6937, 3.1: 15 of 20 lost: below ssthresh at once */
{
	struct prr p;
	uint32_t in_flight = 4 * MSS;
	(void)state;
	prr_begin(&p, 20 * MSS, 10 * MSS);
	/* Conservation: as much as was delivered. */
	assert_int_equal(acked(&p, &in_flight, 1, false), 1);
	in_flight -= MSS;
	assert_int_equal(acked(&p, &in_flight, 1, false), 1);
	/* SSRB: one more, as SND.UNA advances and nothing more is lost (RFC 9937, SafeACK) */
	for (uint32_t want = 5; want < 10; want++) {
		in_flight -= MSS;
		assert_int_equal(acked(&p, &in_flight, 1, true), 2);
	}
	assert_int_equal(in_flight, 9 * MSS + MSS);
	in_flight -= MSS; /* and not beyond ssthresh */
	assert_int_equal(acked(&p, &in_flight, 1, true), 1);
	assert_int_equal(in_flight, 10 * MSS);
}

static void test_unsent_is_kept(void **state) /* RFC 6937, 3: prr_delivered - prr_out */
{
	struct prr p;
	(void)state;
	prr_begin(&p, 20 * MSS, 10 * MSS);
	prr_sent(&p, MSS);
	/* The application had nothing to send for three ACKs. */
	for (unsigned n = 0; n < 3; n++)
		prr_acked(&p, MSS, 4 * MSS, MSS, false);
	assert_int_equal(prr_acked(&p, MSS, 4 * MSS, MSS, false), 3 * MSS);
	/* by SSRB one more */
	assert_int_equal(prr_acked(&p, MSS, 4 * MSS, MSS, true), 5 * MSS);
	/* never beyond ssthresh */
	assert_int_equal(prr_acked(&p, MSS, 8 * MSS, MSS, true), 2 * MSS);
}

static void test_first(void **state) /* RFC 9937: the first retransmission is never held back */
{
	struct prr p;
	(void)state;
	prr_begin(&p, 1000 * MSS, 2 * MSS);
	assert_int_equal(prr_acked(&p, 0, 999 * MSS, MSS, false), MSS);
	prr_sent(&p, MSS);
	assert_int_equal(prr_acked(&p, 0, 999 * MSS, MSS, false), 0);
	assert_int_equal(prr_acked(&p, 0, MSS, MSS, true), 0); /* nothing delivered, nothing sent */
	prr_begin(&p, 0, 2 * MSS); /* nothing was under way: divides by no zero */
	assert_int_equal(prr_acked(&p, MSS, 3 * MSS, MSS, false), MSS * 2 * MSS);
}

/* Never more than ssthresh under way once it was below, and never more sent than the proportion
 * while above. */
static void test_random(void **state)
{
	(void)state;
	for (unsigned run = 0; run < 20000; run++) {
		uint32_t flight = (2 + random_below(1000)) * MSS, in_flight = flight;
		uint32_t ssthresh = (2 + random_below(flight / MSS)) * MSS;
		uint64_t delivered = 0, out = 0;
		struct prr p;
		ssthresh = ssthresh < flight ? ssthresh : flight;
		prr_begin(&p, flight, ssthresh);
		for (unsigned step = 0; step < 50 && in_flight; step++) {
			uint32_t arrived = random_below(in_flight < 20000 ? in_flight + 1 : 20000);
			uint32_t lost = random_below(8) ? 0 : random_below(in_flight - arrived + 1);
			in_flight -= arrived + lost;
			delivered += arrived;
			uint32_t may = prr_acked(&p, arrived, in_flight, MSS, lost == 0);
			assert_true(out == 0 || in_flight <= ssthresh ||
			            (out + may) * flight <= delivered * ssthresh + flight ||
			            may == 0);
			assert_true(may <= MSS || in_flight > ssthresh ||
			            in_flight + may <= ssthresh);
			assert_true(may <= delivered + MSS);
			may -= random_below(2) ? 0 : random_below(may + 1);
			prr_sent(&p, may);
			out += may;
			in_flight += may;
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_proportional),    cmocka_unit_test(test_rounding),
	        cmocka_unit_test(test_cubic_reduction), cmocka_unit_test(test_many_lost),
	        cmocka_unit_test(test_unsent_is_kept),  cmocka_unit_test(test_first),
	        cmocka_unit_test(test_random),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

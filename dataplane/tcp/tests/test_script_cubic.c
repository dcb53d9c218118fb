// SPDX-License-Identifier: Apache-2.0
/* CUBIC's window, round by round: RFC 9438; slow start before it: RFC 9406. Ranges are 1.5 % around
 * W_cubic(t) = 0.4 (t - K)^3 + W_max as ACKs approach it (4.4), computed apart in floating point.
 */
#include "script.h"

/* A peer so many milliseconds away, and segments of 100 bytes, of which ten begin. */
#define AWAY(ms, options)                                                                          \
	"listen\n< S 0 win 60000 mss 100 " options "\n> SA 0\n+" ms "\n< A 1 ack 1 win 60000\n"    \
	"accept\ninfo cwnd 1000\n"
/* Slow start to 160 segments, the first of which is lost. */
#define LOST_AT_160(ms)                                                                            \
	AWAY(ms, "sackok")                                                                         \
	"rounds 4 " ms "\ninfo cwnd 16000\nlost " ms "\ninfo cwnd 11200\ninfo ssthresh 11200\n"

/* Ten segments of 1000 bytes under way to a peer at 20 ms. */
#define TEN(options)                                                                               \
	"listen\n< S 0 win 60000 mss 1000 " options "\n> SA 0\n+20\n< A 1 ack 1 win 60000\n"       \
	"accept\nwrite 10000\n>* A 1:10001 1000\n+20\n"

static const struct script decrease[] = {
        {"RFC 9438 4.6: a loss leaves seven tenths", "cubic sack",
         TEN("sackok") "< A 1 ack 1 sack 1001-4001\n"
                       "> A 1:1001\n"
                       "info ssthresh 7000\n"
                       "+20\n"
                       "< A 1 ack 10001\n"
                       "info cwnd 7000\n"},
        {"RFC 9438 4.6: of what is under way, not of a window that is not used", "cubic sack",
         TEN("sackok") "< A 1 ack 10001\n"
                       "info cwnd 18000\n"
                       "write 5000\n"
                       ">* A 10001:15001 1000\n"
                       "+20\n"
                       "< A 1 ack 10001 sack 11001-14001\n"
                       "> A 10001:11001\n"
                       "info ssthresh 3500\n"},
        {"RFC 9438 4.6: two segments at least", "cubic sack",
         TEN("sackok") "< A 1 ack 10001\n"
                       "write 2000\n"
                       "> A 10001:11001\n"
                       "> PA 11001:12001\n"
                       "~400\n"
                       "> PA 11001:12001\n"
                       "~400\n"
                       "> A 10001:11001\n"
                       "count tail_probes 1\n"
                       "count timeouts 1\n"
                       "info cwnd 1000\n"
                       "info ssthresh 2000\n"},
        {"RFC 9438 4.6: an ECE counts as a loss", "cubic",
         "listen\n< SEC 0 win 60000 mss 1000\n> SAE 0\n+20\n< A 1 ack 1 win 60000\naccept\n"
         "write 10000\n>* A 1:10001 1000\n+20\n"
         "< AE 1 ack 2001\n"
         "info ssthresh 5600\n"
         "count ecn_reduced 1\n"
         "< AE 1 ack 4001\n"
         "info ssthresh 5600\n"},
        {"RFC 9438 4.8: a time-out leaves one segment, and seven tenths for slow start", "cubic",
         TEN("") "+190\n~40\n"
                 "> A 1:1001\n"
                 "info cwnd 1000\n"
                 "info ssthresh 7000\n"
                 "< A 1 ack 10001\n"
                 "info cwnd 2000\n"},
        {"RFC 9438 4.9.2: a loss that was none takes nothing", "cubic sack",
         TEN("sackok") "< A 1 ack 1 sack 1001-4001\n"
                       "> A 1:1001\n"
                       "info ssthresh 7000\n"
                       "< A 1 ack 4001\n"
                       "< A 1 ack 4001 sack 1-1001\n"
                       "count undone 1\n"
                       "info cwnd 10000\n"
                       "info ssthresh 4294967295\n"},
};

static const struct script increase[] = {
        {"RFC 9438 4.2: concave up to W_max, flat at K, convex beyond", "cubic sack",
         LOST_AT_160("100") "# K = cbrt(160 * 0.3 / 0.4) = 4.93 s\n"
                            "rounds 10 100\n"
                            "info cwnd 13250 13650\n"
                            "rounds 10 100\n"
                            "info cwnd 14700 15150\n"
                            "rounds 10 100\n"
                            "info cwnd 15450 15920\n"
                            "rounds 20 100\n"
                            "info cwnd 15760 16240\n"
                            "rounds 10 100\n"
                            "info cwnd 15800 16280\n"
                            "rounds 20 100\n"
                            "info cwnd 16840 17350\n"
                            "rounds 20 100\n"
                            "info cwnd 20720 21350\n"},
        {"RFC 9438 4.3: where Reno would be faster, its window: 9/17 a round trip, then 1",
         "cubic sack",
         AWAY("10", "sackok") "rounds 1 10\n"
                              "info cwnd 2000\n"
                              "lost 10\n"
                              "info cwnd 1400\n"
                              "# the curve would be at 14.7 segments after ten round trips\n"
                              "rounds 10 10\n"
                              "info cwnd 1880 1940\n"
                              "# 20, as before the loss, is reached in the twelfth\n"
                              "rounds 2 10\n"
                              "info cwnd 1995 2055\n"
                              "rounds 10 10\n"
                              "info cwnd 2960 3050\n"},
        {"RFC 9438 4.7: fast convergence: who has less than before leaves more to others",
         "cubic sack",
         LOST_AT_160("200") "# W_max = 112 * 0.85 = 95.2, K = 3.48 s\n"
                            "lost 200\n"
                            "info cwnd 7840\n"
                            "rounds 10 200\n"
                            "info cwnd 9210 9490\n"
                            "rounds 9 200\n"
                            "info cwnd 9380 9660\n"
                            "rounds 3 200\n"
                            "info cwnd 9400 9690\n"},
        {"RFC 9438 4.7: but not who has more", "cubic sack",
         LOST_AT_160("100") "rounds 80 100\n"
                            "info cwnd 16840 17350\n"
                            "lost 100\n"
                            "info cwnd 11780 12150\n"
                            "# W_max = 171, K = 5.04 s\n"
                            "rounds 50 100\n"
                            "info cwnd 16840 17350\n"},
        {"RFC 9438 4.8: after a time-out the curve begins with its convex part", "cubic",
         AWAY("800", "") "write 1000\n"
                         ">* A 1:1001 100\n"
                         "+2399\n~30\n"
                         "> A 1:101\n"
                         "info ssthresh 700\n"
                         "< A 1 ack 1001\n"
                         "info cwnd 200\n"
                         "rounds 2 800\n"
                         "info cwnd 700 710\n"
                         "# with K of a loss at ten segments it would be below 20\n"
                         "rounds 5 800\n"
                         "info cwnd 3000 3400\n"},
};

static const struct script use[] = {
        {"RFC 9438 5.8: a window that the application does not fill stands still", "cubic sack",
         LOST_AT_160("100") "rounds 10 100\n"
                            "info cwnd 13250 13650\n"
                            "rounds 2 100 1000\n"
                            "info cwnd 13250 13750\n"
                            "# the curve goes on where it was\n"
                            "rounds 9 100\n"
                            "info cwnd 14550 15150\n"},
        {"RFC 2861 3: and after a time-out it comes halfway down to what is used", "cubic sack",
         LOST_AT_160("100") "rounds 10 100\n"
                            "info cwnd 13250 13650\n"
                            "rounds 6 100 1000\n"
                            "info cwnd 7500 7900\n"
                            "info ssthresh 11200\n"},
        {"RFC 9438 5.8, RFC 5681 4.1: after a silence the initial window, and a new curve",
         "cubic sack",
         LOST_AT_160("100") "rounds 10 100\n"
                            "rounds 1 100 0\n"
                            "+10000\n"
                            "rounds 1 100 100\n"
                            "info cwnd 1000\n"
                            "info ssthresh 11200\n"
                            "rounds 4 100\n"
                            "info cwnd 8000\n"
                            "rounds 1 100\n"
                            "info cwnd 11200 11400\n"},
        {"RFC 6928 2, RFC 9438 4.10: in slow start an ACK adds what it acknowledges", "cubic",
         AWAY("100", "") "rounds 1 100\n"
                         "info cwnd 2000\n"
                         "rounds 2 100\n"
                         "info cwnd 8000\n"},
        {"RFC 9406 4.2: HyStart++: where round trips become longer, a quarter of that", "cubic",
         AWAY("100", "") "rounds 2 100\n"
                         "info cwnd 4000\n"
                         "# this round began with an answer after 100 ms\n"
                         "rounds 1 130\n"
                         "info cwnd 8000\n"
                         "# the next one shows it\n"
                         "rounds 1 130\n"
                         "info cwnd 10000 10300\n"
                         "info ssthresh 4294967295\n"
                         "# conservative slow start ends after five rounds\n"
                         "rounds 5 130\n"
                         "info ssthresh 20000 27000\n"},
        {"RFC 9406 4.2: and slow start goes on where that was an error", "cubic",
         AWAY("100", "") "rounds 2 100\n"
                         "rounds 2 130\n"
                         "info cwnd 10000 10300\n"
                         "rounds 1 100\n"
                         "info cwnd 19000 21300\n"
                         "info ssthresh 4294967295\n"},
};

TEST(decrease)
TEST(increase)
TEST(use)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_decrease),
	        cmocka_unit_test(test_increase),
	        cmocka_unit_test(test_use),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

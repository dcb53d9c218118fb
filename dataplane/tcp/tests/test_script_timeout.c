// SPDX-License-Identifier: Apache-2.0
/* Time-outs that were none, by F-RTO (RFC 5682); windows that are not used, or in part (RFC 2861);
 * slow start and pacing (RFC 9406). */
#include "script.h"

/* Fourteen segments of 1000 bytes, ten of which are under way when the time-out comes. */
#define TIMED_OUT "write 14000\n>* A 1:10001 1000\n~300\n> A 1:1001\ninfo cwnd 1000\n"
#define TWO_NEW   "> A 10001:11001\n> A 11001:12001\n"

static const struct script spurious[] = {
        {"RFC 5682 2.1, 3b: two new segments bring an answer to a first transmission", "",
         OPEN TIMED_OUT "+50\n"
                        "< A 1 ack 1001\n" TWO_NEW "+1\n"
                        "< A 1 ack 2001\n"
                        "> A 12001:13001\n"
                        "count undone 1\n"
                        "info cwnd 11000\n"
                        "info ssthresh 4294967295\n"
                        "+1\n"
                        "< A 1 ack 12001\n"
                        "> PA 13001:14001\n"
                        "count retransmitted 1\n"},
        {"RFC 5682 2.1, 3a: a duplicate answers one of the new segments", "",
         OPEN TIMED_OUT "+50\n"
                        "< A 1 ack 1001\n" TWO_NEW "+50\n"
                        "< A 1 ack 1001\n"
                        "> A 1001:2001\n> A 2001:3001\n"
                        "info cwnd 3000\n"
                        "< A 1 ack 1001\n"
                        "> A 3001:4001\n"
                        "count undone 0\n"},
        {"RFC 5682 2.1, 2a: the first answer is a duplicate", "",
         OPEN TIMED_OUT "+50\n"
                        "< A 1 ack 1\n"
                        "> A 1001:2001\n"
                        "+50\n"
                        "< A 1 ack 1001\n"
                        "> A 2001:3001\n> A 3001:4001\n"
                        "count undone 0\n"},
        {"RFC 5682 2.1, 2a: the first answer acknowledges all", "",
         OPEN TIMED_OUT "+50\n"
                        "< A 1 ack 10001\n"
                        "> A 10001:11001\n> A 11001:12001\n"
                        "count undone 0\n"},
        {"RFC 5682 2.1, 2: without new bytes recovery is the usual one", "",
         OPEN "write 10000\n>* A 1:10001 1000\n~300\n> A 1:1001\n+50\n"
              "< A 1 ack 1001\n"
              "> A 1001:2001\n> A 2001:3001\n"},
        {"RFC 5682 2.1, 2: and without a window for them", "",
         OPEN_WITH("") "< A 1 ack 1 win 10000\n" TIMED_OUT "+50\n"
                       "< A 1 ack 1001 win 9000\n"
                       "> A 1001:2001\n> A 2001:3001\n"},
        {"RFC 5682 2.1, 1: not after the second time-out for a segment", "",
         OPEN TIMED_OUT "~500\n> A 1:1001\n+50\n"
                        "< A 1 ack 1001\n"
                        "> A 1001:2001\n> A 2001:3001\n"},
        {"RFC 5682 2.1: a time-out while it waits is a loss", "",
         OPEN TIMED_OUT "+50\n"
                        "< A 1 ack 1001\n" TWO_NEW "~500\n"
                        "> A 1001:2001\n"
                        "< A 1 ack 2001\n"
                        "> A 2001:3001\n> A 3001:4001\n"
                        "count undone 0\n"},
        {"RFC 5682 3.1, 3a: SACK of a new segment", "sack",
         OPEN_WITH("sackok") "write 14000\n>* A 1:10001 1000\n~300\n> A 10001:11001\n~300\n"
                             "> A 1:1001\n+50\n"
                             "< A 1 ack 1001\n"
                             "> A 11001:12001\n> A 12001:13001\n"
                             "+50\n"
                             "< A 1 ack 1001 sack 11001-12001\n"
                             "> A 1001:2001\n> A 2001:3001\n"
                             "count undone 0\n"},
        {"RFC 5682 3.1, 3b: SACK of a first transmission", "sack",
         OPEN_WITH("sackok") "write 14000\n>* A 1:10001 1000\n~300\n> A 10001:11001\n~300\n"
                             "> A 1:1001\n+50\n"
                             "< A 1 ack 1001\n"
                             "> A 11001:12001\n> A 12001:13001\n"
                             "+1\n"
                             "< A 1 ack 1001 sack 2001-3001\n"
                             "count undone 1\n"},
};

/* A peer so many milliseconds away, and segments of 100 bytes, of which ten begin. */
#define AWAY(ms)                                                                                   \
	"listen\n< S 0 win 60000 mss 100 sackok\n> SA 0\n+" ms "\n< A 1 ack 1 win 60000\naccept\n" \
	"info cwnd 1000\n"

static const struct script unused[] = {
        {"RFC 2861 3, RFC 7661 4.3: a window of which a part is used comes down to that", "",
         AWAY("100") "rounds 4 100\n"
                     "info cwnd 16000\n"
                     "rounds 6 100 3000\n"
                     "info cwnd 20450\n"
                     "# in each time-out of 300 ms halfway to the 5900 that are under way\n"
                     "rounds 3 100 3000\n"
                     "info cwnd 13175\n"
                     "# of which twice as much counts as used in slow start\n"
                     "rounds 100 100 3000\n"
                     "info cwnd 5900 11900\n"},
        {"RFC 2861 3: and no further than to the initial one", "",
         AWAY("100") "rounds 4 100\n"
                     "info cwnd 16000\n"
                     "rounds 100 100 100\n"
                     "info cwnd 1000 2000\n"},
        {"RFC 2861 3: slow start then ends where the window was in use", "cubic sack",
         AWAY("100") "rounds 4 100\n"
                     "lost 100\n"
                     "info ssthresh 11200\n"
                     "rounds 100 100 100\n"
                     "info ssthresh 11200\n"
                     "info cwnd 1000 2000\n"},
        {"RFC 7661 4.2: a window that is in use stays", "cubic sack",
         AWAY("100") "rounds 4 100\n"
                     "lost 100\n"
                     "rounds 20 100\n"
                     "info cwnd 11200 60000\n"},
};

static const struct script starts[] = {
        {"RFC 9406 4.3: an ACK adds eight segments at most in slow start", "cubic",
         OPEN "write 10000\n>* A 1:10001 1000\n+5\n"
              "< A 1 ack 10001\n"
              "info cwnd 18000\n"},
        {"RFC 9406 4.3: and all that it acknowledges, if segments are paced", "cubic",
         OPEN "set pacing 1\nwrite 10000\n>* A 1:10001 1000\n+5\n"
              "< A 1 ack 10001\n"
              "info cwnd 20000\n"},
};

TEST(spurious)
TEST(unused)
TEST(starts)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_spurious),
	        cmocka_unit_test(test_unused),
	        cmocka_unit_test(test_starts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

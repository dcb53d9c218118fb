// SPDX-License-Identifier: Apache-2.0
/* Loss: RFC 6298, RFC 5681, RFC 6582, RFC 6675, RFC 8985, RFC 6937, RFC 2883, RFC 3168, RFC 6928.
 */
#include "script.h"

/* Ten segments of 1000 bytes under way. */
#define TEN                                                                                        \
	"write 10000\n> A 1:1001\n> A 1001:2001\n> A 2001:3001\n> A 3001:4001\n> A 4001:5001\n"    \
	"> A 5001:6001\n> A 6001:7001\n> A 7001:8001\n> A 8001:9001\n> PA 9001:10001\n+5\n"

/* A peer with SACK at 20 ms. */
#define FAR                                                                                        \
	"listen\n< S 0 win 60000 mss 1000 sackok\n> SA 0\n+20\n"                                   \
	"< A 1 ack 1 win 60000\naccept\n"

static const struct script timeouts[] = {
        {"RFC 6298 2.4, 5.5: the time-out doubles each time", "",
         OPEN "write 100\n"
              "> PA 1:101\n"
              "+200\n~5\n"
              "> PA 1:101\n"
              "+400\n~5\n"
              "> PA 1:101\n"
              "+800\n~10\n"
              "> PA 1:101\n"
              "+1600\n~20\n"
              "> PA 1:101\n"
              "count timeouts 4\n"
              "< A 1 ack 101\n"
              "write 100\n"
              "> PA 101:201\n"
              "+200\n~10\n"
              "> PA 101:201\n"},
        {"RFC 6298 5.3: an acknowledgement restarts the timer", "",
         OPEN "write 2000\n"
              "> A 1:1001\n"
              "> PA 1001:2001\n"
              "+150\n"
              "< A 1 ack 1001\n"
              "+200\n"
              "~500\n"
              "> PA 1001:2001\n"},
        {"RFC 6298 2.2: the first sample", "",
         "connect\n"
         "> S 0\n"
         "+100\n"
         "< SA 0 ack 1 mss 1000\n"
         "> A 1\n"
         "info rto 300\n"},
        {"RFC 6298 5.7, 3: a SYN that was sent again brings no sample, and 3 s", "",
         "connect\n"
         "> S 0\n"
         "+1001\n"
         "> S 0\n"
         "+10\n"
         "< SA 0 ack 1 mss 1000\n"
         "> A 1\n"
         "info rto 3000\n"},
        {"RFC 5681 3.1: after a time-out one segment, and half of what was under way", "",
         OPEN TEN "+195\n~5\n"
                  "> A 1:1001\n"
                  "info cwnd 1000\n"
                  "info ssthresh 5000\n"
                  "< A 1 ack 1001\n"
                  "> A 1001:2001\n"
                  "> A 2001:3001\n"
                  "< A 1 ack 10001\n"},
        {"RFC 9293 3.8.3: given up after the user's time-out", "",
         OPEN "set timeout 5000\n"
              "write 100\n"
              "> PA 1:101\n"
              "~250\n"
              "> PA 1:101\n"
              "~450\n"
              "> PA 1:101\n"
              "~850\n"
              "> PA 1:101\n"
              "~1650\n"
              "> PA 1:101\n"
              "+1700\n"
              "state established\n"
              "+300\n"
              "state closed\n"
              "failed 110\n"
              "count timed_out 1\n"},
        {"RFC 6928 2: ten segments begin", "",
         OPEN "write 20000\n"
              "> A 1:1001\n> A 1001:2001\n> A 2001:3001\n> A 3001:4001\n> A 4001:5001\n"
              "> A 5001:6001\n> A 6001:7001\n> A 7001:8001\n> A 8001:9001\n> A 9001:10001\n"
              "info cwnd 10000\n"},
        {"RFC 5681 3.1: slow start adds what is acknowledged", "",
         OPEN "write 20000\n"
              "> A 1:1001\n> A 1001:2001\n> A 2001:3001\n> A 3001:4001\n> A 4001:5001\n"
              "> A 5001:6001\n> A 6001:7001\n> A 7001:8001\n> A 8001:9001\n> A 9001:10001\n"
              "< A 1 ack 2001\n"
              "> A 10001:11001\n> A 11001:12001\n> A 12001:13001\n> A 13001:14001\n"
              "info cwnd 12000\n"},
};

static const struct script restarts[] = {
        {"RFC 1122 4.2.3.9: a hint that did not come true is no error", "",
         OPEN "write 1000\n"
              "> PA 1:1001\n"
              "icmp host 1 1\n"
              "< A 1 ack 1001\n"
              "< FA 1 ack 1001\n"
              "> A 1001 ack 2\n"
              "shutdown\n"
              "> FA 1001 ack 2\n"
              "< A 2 ack 1002\n"
              "state closed\n"
              "failed 0\n"},
        {"RFC 5681 3.1: after a lost SYN one segment begins slow start", "newreno",
         "connect\n"
         "> S 0\n"
         "~1100\n"
         "> S 0\n"
         "< SA 0 ack 1 win 60000 mss 1000\n"
         "> A 1\n"
         "info ssthresh 4294967295\n"
         "write 5000\n"
         "> A 1:1001\n"
         "+50\n"
         "< A 1 ack 1001 win 60000\n"
         "> A 1001:2001\n"
         "> A 2001:3001\n"},
        {"RFC 6298 5.1: what is sent meanwhile does not put off the time-out", "",
         OPEN "set nodelay 1\n"
              "write 100\n"
              "> PA 1:101\n"
              "+100\n"
              "write 10\n"
              "> PA 101:111\n"
              "~150\n"
              "> A 1:101\n"
              "> PA 101:111\n"
              "count timeouts 1\n"},
};

static const struct script idle[] = {
        {"RFC 5681 4.1, RFC 2861 3: a window that was not used for long is forgotten", "",
         OPEN "write 14000\n"
              "> A 1:1001\n> A 1001:2001\n> A 2001:3001\n> A 3001:4001\n> A 4001:5001\n"
              "> A 5001:6001\n> A 6001:7001\n> A 7001:8001\n> A 8001:9001\n> A 9001:10001\n"
              "< A 1 ack 10001\n"
              "> A 10001:11001\n> A 11001:12001\n> A 12001:13001\n> PA 13001:14001\n"
              "< A 1 ack 14001\n"
              "info cwnd 14000\n"
              "+150\n"
              "write 1000\n"
              "> PA 14001:15001\n"
              "info cwnd 14000\n"
              "< A 1 ack 15001\n"
              "+5000\n"
              "write 1000\n"
              "> PA 15001:16001\n"
              "info cwnd 10000\n"},
};

static const struct script windows[] = {
        {"RFC 5681 3.1: FIN waits for the congestion window as bytes do", "",
         OPEN TEN "shutdown\n"
                  "+1\n"
                  "< A 1 ack 1001\n"
                  "> FA 10001\n"},
};

static const struct script duplicates[] = {
        {"RFC 5681 3.2: the third duplicate sends again, and halves", "",
         OPEN TEN "< A 1 ack 1\n"
                  "< A 1 ack 1\n"
                  "< A 1 ack 1\n"
                  "> A 1:1001\n"
                  "count recoveries 1\n"
                  "info ssthresh 5000\n"
                  "< A 1 ack 10001\n"
                  "info cwnd 5000\n"},
        {"RFC 5681 3.2: what brings bytes or a window is no duplicate", "",
         OPEN TEN "< A 1 ack 1 win 59999\n"
                  "< A 1 ack 1 win 59998\n"
                  "< A 1:11 ack 1 win 59998\n"
                  "< A 11:21 ack 1 win 59998\n"
                  "> A 10001 ack 21\n"
                  "count recoveries 0\n"},
        {"RFC 3042 2: limited transmit", "",
         OPEN "write 12000\n"
              "> A 1:1001\n> A 1001:2001\n> A 2001:3001\n> A 3001:4001\n> A 4001:5001\n"
              "> A 5001:6001\n> A 6001:7001\n> A 7001:8001\n> A 8001:9001\n> A 9001:10001\n"
              "< A 1 ack 1\n"
              "> A 10001:11001\n"
              "< A 1 ack 1\n"
              "> PA 11001:12001\n"},
        {"RFC 3042 2: limited transmit within the peer's window", "",
         OPEN "write 12000\n>* A 1:10001 1000\n"
              "< A 1 ack 1 win 11000\n"
              "< A 1 ack 1 win 11000\n"
              "> A 10001:11001\n"
              "< A 1 ack 1 win 11000\n"},
        {"RFC 3042 2, RFC 6675 5: limited transmit with SACK, and the window stays", "sack",
         OPEN_WITH("sackok") "write 12000\n>* A 1:10001 1000\n"
                             "< A 1 ack 1 sack 1001-2001\n"
                             "> A 10001:11001\n"
                             "< A 1 ack 1 sack 1001-3001\n"
                             "> PA 11001:12001\n"
                             "info cwnd 10000\n"},
        {"RFC 6582 3.2, step 2: in recovery each duplicate stands for a segment that arrived", "",
         OPEN "write 20000\n"
              "> A 1:1001\n> A 1001:2001\n> A 2001:3001\n> A 3001:4001\n> A 4001:5001\n"
              "> A 5001:6001\n> A 6001:7001\n> A 7001:8001\n> A 8001:9001\n> A 9001:10001\n"
              "< A 1 ack 1\n"
              "> A 10001:11001\n"
              "< A 1 ack 1\n"
              "> A 11001:12001\n"
              "< A 1 ack 1\n"
              "> A 1:1001\n"
              "< A 1 ack 1\n"
              "< A 1 ack 1\n"
              "< A 1 ack 1\n"
              "> A 12001:13001\n"},
        {"RFC 6582 3.2, step 3: a partial acknowledgement sends the next one", "",
         OPEN TEN "< A 1 ack 1\n"
                  "< A 1 ack 1\n"
                  "< A 1 ack 1\n"
                  "> A 1:1001\n"
                  "< A 1 ack 3001\n"
                  "> A 3001:4001\n"
                  "< A 1 ack 10001\n"
                  "count recoveries 1\n"
                  "count timeouts 0\n"},
};

static const struct script selective[] = {
        {"RFC 6675 5: three segments SACKed: the one before them is lost", "sack",
         FAR TEN "< A 1 ack 1 sack 1001-2001\n"
                 "< A 1 ack 1 sack 1001-3001\n"
                 "< A 1 ack 1 sack 1001-4001\n"
                 "> A 1:1001\n"
                 "info ssthresh 5000\n"
                 "< A 1 ack 10001\n"
                 "info cwnd 5000\n"
                 "count recoveries 1\n"},
        {"RFC 8985 6.2: what is sent again is not sent twice", "sack",
         FAR TEN "+15\n"
                 "< A 1 ack 1 sack 3001-10001\n"
                 "> A 1:1001\n"
                 "> A 1001:2001\n"
                 "> A 2001:3001\n"
                 "+20\n"
                 "< A 1 ack 1001 sack 3001-10001\n"
                 "< A 1 ack 10001\n"
                 "count retransmitted 3\n"},
        {"RFC 8985 7: the tail is probed before the time-out", "sack",
         "connect\n"
         "> S 0 sackok\n"
         "+20\n"
         "< SA 0 ack 1 mss 1000 sackok win 60000\n"
         "> A 1\n"
         "write 2000\n"
         "> A 1:1001\n"
         "> PA 1001:2001\n"
         "+40\n~5\n"
         "> PA 1001:2001\n"
         "count tail_probes 1\n"
         "count timeouts 0\n"
         "+20\n"
         "< A 1 ack 1 sack 1001-2001\n"
         "> A 1:1001\n"
         "< A 1 ack 2001\n"
         "count timeouts 0\n"},
        {"RFC 8985 7.2: a recovery needs no probe", "sack",
         FAR TEN "+15\n"
                 "< A 1 ack 1 sack 1001-4001\n"
                 "> A 1:1001\n"
                 "write 5000\n"
                 "+100\n"
                 "count tail_probes 0\n"
                 "< A 1 ack 10001\n"
                 "> A 10001:11001\n> A 11001:12001\n> A 12001:13001\n> A 13001:14001\n"
                 "> PA 14001:15001\n"},
        {"RFC 8985 7.4: a loss that the probe has repaired reduces the window, and is no ECN",
         "sack",
         "connect\n"
         "> S 0 sackok\n"
         "+20\n"
         "< SA 0 ack 1 mss 1000 sackok win 60000\n"
         "> A 1\n"
         "write 2000\n"
         "> A 1:1001\n"
         "> PA 1001:2001\n"
         "+40\n~5\n"
         "> PA 1001:2001\n"
         "count tail_probes 1\n"
         "set nodelay 1\n"
         "write 500\n"
         "> PA 2001:2501\n"
         "< A 1 ack 2501\n"
         "info ssthresh 2000\n"
         "count recoveries 0\n"
         "count ecn_reduced 0\n"},
        {"RFC 8985 7.3: a probe sends new bytes if there are any", "sack",
         "connect\n"
         "> S 0 sackok\n"
         "+20\n"
         "< SA 0 ack 1 mss 1000 sackok win 60000\n"
         "> A 1\n"
         "write 11000\n"
         "> A 1:1001\n> A 1001:2001\n> A 2001:3001\n> A 3001:4001\n> A 4001:5001\n"
         "> A 5001:6001\n> A 6001:7001\n> A 7001:8001\n> A 8001:9001\n> A 9001:10001\n"
         "+40\n~5\n"
         "> PA 10001:11001\n"
         "count tail_probes 1\n"},
        {"RFC 3708, RFC 2883 5: D-SACK shows that nothing was lost", "sack",
         FAR TEN "+15\n"
                 "< A 1 ack 1 sack 1001-4001\n"
                 "> A 1:1001\n"
                 "info ssthresh 5000\n"
                 "< A 1 ack 4001\n"
                 "< A 1 ack 4001 sack 1-1001\n"
                 "count undone 1\n"
                 "< A 1 ack 10001\n"},
        {"RFC 4015 3.2: after a time-out that came too early nothing else is sent again", "sack ts",
         "connect\n"
         "> S 0 sackok ts 0 0\n"
         "+20\n"
         "< SA 0 ack 1 win 60000 mss 1012 sackok ts 1000 0\n"
         "> A 1 ts 20 1000\n"
         "+1\n"
         "write 6000\n"
         "> A 1:1001 ts 21 1000\n> A 1001:2001\n> A 2001:3001\n> A 3001:4001\n"
         "> A 4001:5001\n> PA 5001:6001\n"
         "+40\n~5\n"
         "> PA 5001:6001\n"
         "~300\n"
         "> A 1:1001\n"
         "< A 1 ack 1001 ts 1300 21\n"
         "info cwnd 11000\n"
         "info rto 789\n"
         "count undone 1\n"
         "+10\n"
         "< A 1 ack 2001 ts 1310 21\n"
         "+10\n"
         "< A 1 ack 6001 ts 1320 21\n"
         "count retransmitted 2\n"},
        {"RFC 4015 3.3: but an answer to the copy says nothing of the round trip", "sack ts",
         "connect\n"
         "> S 0 sackok ts 0 0\n"
         "+20\n"
         "< SA 0 ack 1 win 60000 mss 1012 sackok ts 1000 0\n"
         "> A 1 ts 20 1000\n"
         "+1\n"
         "write 1000\n"
         "> PA 1:1001 ts 21 1000\n"
         "~1000\n"
         "> PA 1:1001\n"
         "~2000\n"
         "> PA 1:1001\n"
         "< A 1 ack 1001 sack 1-1001 ts 1300 21\n"
         "info rto 220\n"},
        {"RFC 4015 3.3: without SACK it may be one", "ts",
         OPEN_TS "write 2000\n"
                 "> A 1:1001 ts 0 1000\n> PA 1001:2001\n"
                 "~300\n"
                 "> A 1:1001\n"
                 "+100\n"
                 "< A 1 ack 1001 ts 1300 1\n"
                 "info rto 201\n"
                 "< A 1 ack 2001 ts 1300 1\n"
                 "count undone 1\n"},
        {"RFC 2018 8: after a time-out what was SACKed is not trusted", "sack",
         OPEN_WITH("sackok") "write 2000\n"
                             "> A 1:1001\n"
                             "> PA 1001:2001\n"
                             "< A 1 ack 1 sack 1001-2001\n"
                             "~3000\n"
                             "> A 1:1001\n"
                             "< A 1 ack 1001\n"
                             "~3000\n"
                             "> PA 1001:2001\n"
                             "< A 1 ack 2001\n"},
        {"RFC 2018 2: blocks of a peer that has not agreed are not read", "sack",
         OPEN TEN "< A 1 ack 1 sack 1001-10001\n"
                  "# it counts as a duplicate\n"
                  "info flight 9000\n"},
        {"blocks beyond what was sent are ignored", "sack",
         OPEN_WITH("sackok") TEN "< A 1 ack 1 sack 20001-30001\n"
                                 "info flight 10000\n"
                                 "< A 1 ack 1 sack 5001-4001\n"
                                 "info flight 10000\n"},
};

static const struct script marks[] = {
        {"RFC 3168 6.1.2: ECE halves the window once in a round trip, and CWR tells so", "",
         OPEN_WITH("") "abort\n"
                       "> RA 1\n"
                       "unlisten\n"
                       "anew\n"
                       "listen\n"
                       "< SEC 0 win 60000 mss 1000 port 4000\n"
                       "> SAE 0\n"
                       "< A 1 ack 1 win 60000\n"
                       "accept\n"
                       "write 20000\n"
                       "> A 1:1001 ect\n> A 1001:2001\n> A 2001:3001\n> A 3001:4001\n"
                       "> A 4001:5001\n> A 5001:6001\n> A 6001:7001\n> A 7001:8001\n"
                       "> A 8001:9001\n> A 9001:10001\n"
                       "< AE 1 ack 2001\n"
                       "> AC 10001:11001 ect\n"
                       "info ssthresh 4000\n"
                       "< AE 1 ack 5001\n"
                       "> A 11001:12001 ect\n"
                       "info ssthresh 4000\n"
                       "count ecn_reduced 1\n"},
};

/* A peer at 100 ms, and ten segments that may go at once. */
#define PACED                                                                                      \
	"listen\n< S 0 win 60000 mss 1000 sackok\n> SA 0\n+100\n< A 1 ack 1 win 60000\naccept\n"   \
	"set pacing 1\n"

static const struct script paces[] = {
        {"RFC 9002 7.7: in slow start a window takes half of a round trip", "sack",
         PACED "write 4000\n"
               "> A 1:1001\n"
               "+3\n~2\n"
               "> A 1001:2001\n"
               "+3\n~3\n"
               "> A 2001:3001\n"
               "+3\n~3\n"
               "> PA 3001:4001\n"},
        {"SO_MAX_PACING_RATE: a hundred segments a second, and then as many as may go", "",
         OPEN "set rate 106000\n"
              "write 4000\n"
              "> A 1:1001\n"
              "+6\n~4\n"
              "> A 1001:2001\n"
              "+8\n~4\n"
              "> A 2001:3001\n"
              "+8\n~4\n"
              "> PA 3001:4001\n"
              "< A 1 ack 4001\n"
              "set rate 4294967295\n"
              "+10\n"
              "write 3000\n"
              "> A 4001:5001\n"
              "> A 5001:6001\n"
              "> PA 6001:7001\n"},
        {"RFC 9293 3.8.6.3: acknowledgements do not wait for the pace", "sack",
         PACED "write 4000\n"
               "> A 1:1001\n"
               "< A 1:1001 ack 1\n< A 1001:2001 ack 1\n"
               "> A 1001 ack 2001\n"
               "+3\n~2\n"
               "> A 1001:2001 ack 2001\n"
               "+3\n~3\n"
               "> A 2001:3001\n"
               "+3\n~3\n"
               "> PA 3001:4001\n"},
        {"RFC 9002 7.7: after a silence no more than was missed in 2 ms leaves at once", "sack",
         PACED "+10000\n"
               "write 3000\n"
               "> A 1:1001\n"
               "+3\n~2\n"
               "> A 1001:2001\n"
               "+3\n~3\n"
               "> PA 2001:3001\n"},
};

TEST(paces)
TEST(timeouts)
TEST(restarts)
TEST(idle)
TEST(windows)
TEST(duplicates)
TEST(selective)
TEST(marks)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_paces),      cmocka_unit_test(test_idle),
	        cmocka_unit_test(test_timeouts),   cmocka_unit_test(test_windows),
	        cmocka_unit_test(test_duplicates), cmocka_unit_test(test_selective),
	        cmocka_unit_test(test_marks),      cmocka_unit_test(test_restarts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

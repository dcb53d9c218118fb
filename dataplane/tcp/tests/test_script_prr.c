// SPDX-License-Identifier: Apache-2.0
/* What leaves in recovery, ACK by ACK: RFC 6937 with RFC 9937's conditions (prr.h). The RFC counts
 * segments; the stack counts bytes and sends whole segments, so one may leave an ACK later. */
#include "script.h"

/* Twenty segments of 1000 bytes, 10001:30001, under way to a peer at 20 ms; more wait. */
#define TWENTY(options)                                                                            \
	"listen\n< S 0 win 60000 mss 1000 " options "\n> SA 0\n+20\n< A 1 ack 1 win 60000\n"       \
	"accept\nwrite 10000\n>* A 1:10001 1000\n+20\n"                                            \
	"< A 1 ack 2001\n< A 1 ack 4001\n< A 1 ack 6001\n< A 1 ack 8001\n< A 1 ack 10001\n"        \
	"info cwnd 20000\nwrite 40000\n>* A 10001:30001 1000\n+20\n"

/* Ten, 1:10001, and nothing waits. */
#define TEN                                                                                        \
	"listen\n< S 0 win 60000 mss 1000 sackok\n> SA 0\n+20\n< A 1 ack 1 win 60000\naccept\n"    \
	"write 10000\n>* A 1:10001 1000\n+20\n"

static const struct script proportional[] = {
        {"RFC 6937 3.1, first example: one of 20 is lost: a segment for each second ACK", "sack",
         TWENTY("sackok") "< A 1 ack 10001 sack 11001-12001\n"
                          "> A 30001:31001\n"
                          "< A 1 ack 10001 sack 11001-13001\n"
                          "> A 31001:32001\n"
                          "< A 1 ack 10001 sack 11001-14001\n"
                          "> A 10001:11001\n"
                          "info ssthresh 10000\n"
                          "< A 1 ack 10001 sack 11001-15001\n"
                          "< A 1 ack 10001 sack 11001-16001\n"
                          "< A 1 ack 10001 sack 11001-17001\n"
                          "> A 32001:33001\n"
                          "< A 1 ack 10001 sack 11001-18001\n"
                          "< A 1 ack 10001 sack 11001-19001\n"
                          "> A 33001:34001\n"
                          "< A 1 ack 10001 sack 11001-20001\n"
                          "< A 1 ack 10001 sack 11001-21001\n"
                          "> A 34001:35001\n"
                          "< A 1 ack 10001 sack 11001-22001\n"
                          "< A 1 ack 10001 sack 11001-23001\n"
                          "> A 35001:36001\n"
                          "< A 1 ack 10001 sack 11001-24001\n"
                          "< A 1 ack 10001 sack 11001-25001\n"
                          "> A 36001:37001\n"
                          "< A 1 ack 10001 sack 11001-26001\n"
                          "< A 1 ack 10001 sack 11001-27001\n"
                          "> A 37001:38001\n"
                          "< A 1 ack 10001 sack 11001-28001\n"
                          "# ten are under way: no more than ssthresh\n"
                          "< A 1 ack 10001 sack 11001-29001\n"
                          "< A 1 ack 10001 sack 11001-30001\n"
                          "> A 38001:39001\n"
                          "info flight 10000\n"
                          "+20\n"
                          "< A 1 ack 30001\n"
                          "> A 39001:40001\n"
                          "< A 1 ack 31001\n"
                          "> A 40001:41001\n"
                          "< A 1 ack 32001\n"
                          "> A 41001:42001\n"
                          "info cwnd 10000\n"
                          "count recoveries 1\n"
                          "count retransmitted 1\n"},
        {"RFC 6937 3: without SACK a duplicate stands for a segment", "",
         TWENTY("") "< A 1 ack 10001\n"
                    "> A 30001:31001\n"
                    "< A 1 ack 10001\n"
                    "> A 31001:32001\n"
                    "< A 1 ack 10001\n"
                    "> A 10001:11001\n"
                    "< A 1 ack 10001\n"
                    "< A 1 ack 10001\n"
                    "< A 1 ack 10001\n"
                    "> A 32001:33001\n"
                    "< A 1 ack 10001\n"
                    "< A 1 ack 10001\n"
                    "> A 33001:34001\n"
                    "+20\n"
                    "< A 1 ack 32001\n"
                    ">* A 34001:42001 1000\n"
                    "info cwnd 10000\n"},
        {"RFC 6937 3, RFC 9438 4.6: CUBIC keeps seven of ten", "sack cubic",
         TEN "write 20000\n"
             "< A 1 ack 1 sack 1001-2001\n"
             "> A 10001:11001\n"
             "< A 1 ack 1 sack 1001-3001\n"
             "> A 11001:12001\n"
             "< A 1 ack 1 sack 1001-4001\n"
             "> A 1:1001\n"
             "info ssthresh 7000\n"
             "< A 1 ack 1 sack 1001-5001\n"
             "< A 1 ack 1 sack 1001-6001\n"
             "info flight 7000\n"
             "< A 1 ack 1 sack 1001-7001\n"
             "> A 12001:13001\n"
             "< A 1 ack 1 sack 1001-8001\n"
             "> A 13001:14001\n"
             "< A 1 ack 1 sack 1001-9001\n"
             "> A 14001:15001\n"
             "< A 1 ack 1 sack 1001-10001\n"
             "> A 15001:16001\n"
             "info flight 7000\n"
             "+20\n"
             "< A 1 ack 12001\n"
             ">* A 16001:19001 1000\n"
             "info cwnd 7000\n"},
        {"RFC 6937 3: an ACK of several segments lets half as many go", "sack",
         TWENTY("sackok") "< A 1 ack 10001 sack 11001-14001\n"
                          "> A 10001:11001\n"
                          "< A 1 ack 10001 sack 11001-18001\n"
                          "> A 30001:31001\n"
                          "> A 31001:32001\n"
                          "< A 1 ack 10001 sack 11001-22001\n"
                          "> A 32001:33001\n"
                          "> A 33001:34001\n"
                          "info flight 13000\n"},
};

static const struct script bounds[] = {
        {"RFC 6937 3.1, second example: 15 of 20 are lost: a segment for each ACK, then two",
         "sack",
         TWENTY("sackok") "< A 1 ack 10001 sack 25001-26001\n"
                          "> A 30001:31001\n"
                          "+1\n"
                          "< A 1 ack 10001 sack 25001-27001\n"
                          "> A 31001:32001\n"
                          "+1\n"
                          "# four are under way, less than ssthresh: as much as is delivered "
                          "(CRB)\n"
                          "< A 1 ack 10001 sack 25001-28001\n"
                          "> A 10001:11001\n"
                          "info ssthresh 10000\n"
                          "info flight 5000\n"
                          "+1\n"
                          "< A 1 ack 10001 sack 25001-29001\n"
                          "> A 11001:12001\n"
                          "+1\n"
                          "< A 1 ack 10001 sack 25001-30001\n"
                          "> A 12001:13001\n"
                          "+16\n"
                          "< A 1 ack 10001 sack 25001-31001\n"
                          "> A 13001:14001\n"
                          "+1\n"
                          "< A 1 ack 10001 sack 25001-32001\n"
                          "> A 14001:15001\n"
                          "+1\n"
                          "# SND.UNA advances, and nothing more is lost: one more for each ACK "
                          "(SSRB)\n"
                          "< A 1 ack 11001 sack 25001-32001\n"
                          "> A 15001:16001\n> A 16001:17001\n"
                          "+1\n"
                          "< A 1 ack 12001 sack 25001-32001\n"
                          "> A 17001:18001\n> A 18001:19001\n"
                          "+1\n"
                          "< A 1 ack 13001 sack 25001-32001\n"
                          "> A 19001:20001\n> A 20001:21001\n"
                          "+16\n"
                          "< A 1 ack 14001 sack 25001-32001\n"
                          "> A 21001:22001\n> A 22001:23001\n"
                          "+1\n"
                          "< A 1 ack 15001 sack 25001-32001\n"
                          "> A 23001:24001\n> A 24001:25001\n"
                          "info flight 10000\n"
                          "+1\n"
                          "# and never beyond ssthresh\n"
                          "< A 1 ack 16001 sack 25001-32001\n"
                          "> A 32001:33001\n"
                          "info flight 10000\n"
                          "count retransmitted 15\n"
                          "count timeouts 0\n"},
        {"RFC 6937 3: what the application left unused goes at once, up to ssthresh", "sack",
         TEN "< A 1 ack 1 sack 1001-4001\n"
             "> A 1:1001\n"
             "< A 1 ack 1 sack 1001-7001\n"
             "< A 1 ack 1 sack 1001-10001\n"
             "info flight 1000\n"
             "write 10000\n"
             ">* A 10001:14001 1000\n"
             "info flight 5000\n"
             "info ssthresh 5000\n"},
        {"RFC 6937 3: an ACK that delivers nothing lets nothing go", "sack",
         TEN "write 20000\n"
             "< A 1 ack 1 sack 1001-4001\n"
             "> A 1:1001\n"
             "< A 1 ack 1 sack 1001-4001\n"
             "< A 1 ack 1 sack 1001-4001\n"
             "< A 1 ack 1 win 59000 sack 1001-4001\n"
             "info flight 7000\n"},
        {"RFC 6937 3: the last one of a recovery leaves ssthresh, no more and no less", "sack",
         TEN "< A 1 ack 1 sack 1001-10001\n"
             "> A 1:1001\n"
             "+20\n"
             "< A 1 ack 10001\n"
             "info cwnd 5000\n"
             "write 20000\n"
             ">* A 10001:15001 1000\n"},
};

TEST(proportional)
TEST(bounds)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_proportional),
	        cmocka_unit_test(test_bounds),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: Apache-2.0
/* First numbers: RFC 6528, and beyond those of a connection before: RFC 6191, RFC 9293 3.4.1, RFC
 * 1122 4.2.2.13.
 */
#include "script.h"

static const struct script ticks[] = {
        {"RFC 6528 3: of the same four-tuple they follow a clock of 4 µs", "",
         "listen\n"
         "< S 0\n"
         "> SA 0\n"
         "keep A\n"
         "< R 1\n"
         "gone\n"
         "anew\n"
         "+4\n"
         "< S 0\n"
         "> SA 0\n"
         "keep B\n"
         "apart A B 1000\n"
         "< R 1\n"
         "anew\n"
         "+60000\n"
         "< S 7\n"
         "> SA 0 ack 8\n"
         "keep C\n"
         "apart B C 15000000\n"},
        {"RFC 6528 3: the clock wraps after 4.77 hours, as the numbers do", "",
         "listen\n"
         "< S 0\n"
         "> SA 0\n"
         "keep A\n"
         "< R 1\n"
         "anew\n"
         "# 2^32 ticks are 17179869.184 ms\n"
         "+17179869\n"
         "< S 0\n"
         "> SA 0\n"
         "keep B\n"
         "apart A B 4294967250\n"
         "< R 1\n"
         "anew\n"
         "+1\n"
         "< S 0\n"
         "> SA 0\n"
         "keep C\n"
         "apart A C 204\n"},
        {"RFC 6528 3: a listener answers the same, however often the SYN comes", "",
         "listen\n"
         "< S 0\n"
         "> SA 0\n"
         "+500\n"
         "< S 0\n"
         "> SA 0\n"
         "< A 1 ack 1\n"
         "accept\n"},
};

static const struct script secret[] = {
        {"RFC 6528 3: another port of the same peer has another offset", "",
         "listen\n"
         "< S 0\n"
         "> SA 0\n"
         "keep A\n"
         "< S 0 port 4001\n"
         "> SA 0 port 4001\n"
         "keep B 4001\n"
         "< S 0 port 4002\n"
         "> SA 0 port 4002\n"
         "keep C 4002\n"
         "unlike A B\n"
         "unlike A C\n"
         "unlike B C\n"},
        {"RFC 6528 3: so have connections that this side opens", "",
         "connect\n"
         "> S 0\n"
         "keep A\n"
         "abort\n"
         "gone\n"
         "anew\n"
         "+10\n"
         "connect\n"
         "> S 0\n"
         "keep B\n"
         "unlike A B\n"},
        {"RFC 6528 3: another secret gives others, the same one the same", "",
         "listen\n"
         "< S 0\n"
         "> SA 0\n"
         "keep A\n"
         "reboot another\n"
         "+4\n"
         "listen\n"
         "< S 0\n"
         "> SA 0\n"
         "keep B\n"
         "unlike A B\n"
         "reboot 0123456789abcde\n"
         "+4\n"
         "listen\n"
         "< S 0\n"
         "> SA 0\n"
         "keep C\n"
         "apart A C 2000\n"},
        {"RFC 6528 3, RFC 4987 3.6: cookies follow neither the clock nor each other", "",
         "listen backlog 1\n"
         "< S 0 port 4001\n"
         "> SA 0 port 4001\n"
         "< S 0 port 4002\n"
         "> SA 0 port 4002\n"
         "keep A 4002\n"
         "anew\n"
         "+4\n"
         "< S 0 port 4003\n"
         "> SA 0 port 4003\n"
         "keep B 4003\n"
         "count cookies_sent 2\n"
         "unlike A B\n"},
};

/* A connection that has sent 5000 bytes and its FIN, in TIME-WAIT at once. */
#define SENT_5000                                                                                  \
	"keep A\nwrite 5000\n>* A 1:5001 1000\n< A 1 ack 5001\nclose\n> FA 5001\n"                 \
	"< FA 1 ack 5002\n> A 5002 ack 2\nanew\n"

static const struct script reuse[] = {
        {"RFC 6528 3, RFC 1122 4.2.2.13: the clock is beyond the old ones: it goes on", "",
         OPEN "keep A\n"
              "close\n"
              "> FA 1\n"
              "< FA 1 ack 2\n"
              "> A 2 ack 2\n"
              "anew\n"
              "+4\n"
              "< S 5000\n"
              "> SA 0 ack 5001\n"
              "keep B\n"
              "apart A B 1000\n"
              "count time_wait_reused 1\n"},
        {"RFC 6528 3, RFC 1122 4.2.2.13: who was faster than it goes on beyond his last number", "",
         OPEN SENT_5000 "+4\n"
                        "# the clock is at 1000; the last number was 5001\n"
                        "< S 5000\n"
                        "> SA 0 ack 5001\n"
                        "keep B\n"
                        "apart A B 70537\n"
                        "< A 5001 ack 1\n"
                        "accept\n"
                        "state established\n"},
        {"RFC 6528 3, RFC 6191 2: with timestamps as well", "ts",
         OPEN_TS "keep A\n"
                 "write 5000\n"
                 ">* A 1:5001 1000\n"
                 "< A 1 ack 5001 ts 1005 1\n"
                 "close\n"
                 "> FA 5001\n"
                 "< FA 1 ack 5002 ts 1010 1\n"
                 "> A 5002 ack 2\n"
                 "anew\n"
                 "< S 0 mss 1012 ts 1011 0\n"
                 "> SA 0 ack 1\n"
                 "keep B\n"
                 "apart A B 70537\n"},
        {"RFC 6528 3, RFC 9293 3.4.2: after TIME-WAIT the clock is far beyond them", "",
         OPEN SENT_5000 "+60001\n"
                        "gone\n"
                        "< S 0\n"
                        "> SA 0 ack 1\n"
                        "keep B\n"
                        "apart A B 15000250\n"
                        "count time_wait_reused 0\n"},
};

TEST(ticks)
TEST(secret)
TEST(reuse)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_ticks),
	        cmocka_unit_test(test_secret),
	        cmocka_unit_test(test_reuse),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

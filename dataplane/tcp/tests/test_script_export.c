// SPDX-License-Identifier: Apache-2.0
/* Connections that another TCP goes on with, and their listener. */
#include "script.h"

static const struct script retired[] = {
        {"it drops SYNs, and half-open connections complete", "",
         "listen\n"
         "< S 0\n"
         "> SA 0 ack 1\n"
         "retire\n"
         "< S 0 port 4001\n"
         "count retired_dropped 1\n"
         "gone 1\n"
         "# its SYN-ACK was lost\n"
         "< S 0\n"
         "> SA 0 ack 1\n"
         "< A 1 ack 1\n"
         "accept\n"
         "write 10\n"
         "> PA 1:11\n"},
        {"segments that belong to no connection get no reset until it is closed", "",
         "listen\n"
         "retire\n"
         "< PA 5:15 ack 77\n"
         "< FA 5 ack 77\n"
         "count retired_dropped 2\n"
         "unlisten\n"
         "< A 5 ack 77\n"
         "> R 77\n"
         "count retired_dropped 2\n"},
        {"closing it forgets what is half open, and resets what no thread has accepted", "",
         "listen\n"
         "< S 0\n"
         "> SA 0\n"
         "< S 0 port 4001\n"
         "> SA 0 port 4001\n"
         "retire\n"
         "< A 1 ack 1\n"
         "unlisten\n"
         "> RA 1 port 4000\n"
         "gone\n"},
        {"RFC 4987 3.6: cookies that it has sent complete as well", "",
         "listen backlog 1\n"
         "< S 0\n"
         "> SA 0\n"
         "< S 0 port 4001\n"
         "> SA 0 ack 1 port 4001\n"
         "count cookies_sent 1\n"
         "retire\n"
         "# a wrong one\n"
         "< A 1 ack 9 port 4001\n"
         "count retired_dropped 1\n"
         "< A 1 ack 1 port 4001\n"
         "count cookies_right 1\n"
         "accept\n"},
        {"RFC 6191 2: a SYN that would take over a TIME-WAIT is dropped", "ts",
         "listen\n"
         "< S 0 ts 1000 0\n"
         "> SA 0\n"
         "< A 1 ack 1 ts 1000 1\n"
         "accept\n"
         "close\n"
         "> FA 1\n"
         "< FA 1 ack 2 ts 1000 1\n"
         "> A 2 ack 2\n"
         "retire\n"
         "< S 5000 ts 3000 0\n"
         "count retired_dropped 1\n"
         "gone 1\n"},
        {"a new one at the same address accepts", "",
         "listen\n"
         "retire\n"
         "listen\n"
         "< A 5 ack 77\n"
         "count retired_dropped 1\n"
         "< S 0\n"
         "> SA 0 ack 1\n"
         "< A 1 ack 1\n"
         "accept\n"},
};

static const struct script exported[] = {
        {"facts and bytes; no segment is sent", "",
         "listen\n"
         "< S 0 mss 1400 win 1000\n"
         "> SA 0 ack 1\n"
         "< PA 1:11 ack 1 win 1000\n"
         "retire\n"
         "accept\n"
         "export 1 11 1000 10 1400 0 0\n"
         "# it changes nothing\n"
         "export 1 11 1000 10 1400 0 0\n"
         "forget\n"
         "gone\n"
         "no event\n"
         "count exported 1\n"
         "< PA 11:21 ack 1\n"
         "count retired_dropped 1\n"},
        {"options of both sides, bytes of several segments", "ts ws sack",
         "listen\n"
         "< S 0 mss 1400 win 1000 ws 3 sackok ts 5000 0\n"
         "> SA 0 ack 1 ts 0 5000\n"
         "< PA 1:1001 ack 1 win 1000 ts 5000 1\n"
         "< PA 1001:2501 ack 1 win 1000 ts 5000 1\n"
         "> A 1 ack 2501\n"
         "+40\n"
         "retire\n"
         "accept\n"
         "export 1 2501 8000 2500 1400 3 40 sack ts ws\n"
         "forget\n"
         "gone\n"},
        {"data out of order stays with the peer", "sack",
         "listen\n"
         "< S 0 mss 1400 sackok win 500\n"
         "> SA 0 ack 1\n"
         "< A 1 ack 1 win 500\n"
         "< PA 11:21 ack 1 win 500\n"
         "> A 1 ack 1 sack 11-21\n"
         "retire\n"
         "accept\n"
         "export 1 1 500 0 1400 0 0 sack\n"
         "forget\n"
         "gone\n"
         "held 0\n"},
        {"what cannot go on elsewhere stays", "",
         "listen\n"
         "< S 0\n"
         "> SA 0 ack 1\n"
         "< A 1 ack 1\n"
         "accept\n"
         "write 10\n"
         "> PA 1:11\n"
         "stays 16\n"
         "< A 1 ack 11\n"
         "< PA 1:1461 ack 11\n"
         "< PA 1461:2921 ack 11\n"
         "> A 11 ack 2921\n"
         "< PA 2921:4381 ack 11\n"
         "# 4096 bytes are asked for\n"
         "stays 90\n"
         "read 4380\n"
         "> A 11 ack 4381\n"
         "< FA 4381 ack 11\n"
         "> A 11 ack 4382\n"
         "stays 107\n"
         "abort\n"
         "> RA 11 ack 4382\n"
         "gone\n"},
};

TEST(retired)
TEST(exported)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_retired),
	        cmocka_unit_test(test_exported),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: Apache-2.0
/* Closing: RFC 9293 3.6, 3.10.4, 3.10.5, 3.10.7.4; RFC 1122 4.2.2.13; RFC 1337; RFC 6191; RFC 2525.
 */
#include "script.h"

/* As on Linux, a reset leaves the receive queue alone. */
static const struct script bytes_first[] = {
        {"RFC 9293 3.10.7.4, second: bytes that came before a reset are read before its error", "",
         OPEN "< PA 1:11 ack 1\n"
              "< PA 21:31 ack 1\n"
              "> A 1 ack 11\n"
              "held 2\n"
              "< R 11\n"
              "state closed\n"
              "event readable writable hangup error\n"
              "# what is behind a gap will never be read\n"
              "held 1\n"
              "read 10\n"
              "failed 104\n"
              "eof\n"
              "broken 32\n"
              "close\n"
              "gone\n"},
        {"RFC 9293 3.10.7.4, second: the call that gets the error discards no bytes", "",
         OPEN "< PA 1:11 ack 1\n"
              "< R 11\n"
              "broken 104\n"
              "broken 32\n"
              "read 10\n"
              "eof\n"},
        {"RFC 9293 3.10.7.4, second: close() discards them", "",
         OPEN "< PA 1:11 ack 1\n"
              "< R 11\n"
              "close\n"
              "gone\n"
              "held 0\n"},
        {"RFC 9293 3.8.3: nor does a time-out discard them", "",
         OPEN "< PA 1:11 ack 1\n"
              "+41\n"
              "> A 1 ack 11\n"
              "set timeout 500\n"
              "write 100\n"
              "> PA 1:101\n"
              "~250\n"
              "> PA 1:101\n"
              "+1000\n"
              "state closed\n"
              "read 10\n"
              "failed 110\n"
              "eof\n"},
};

static const struct script closing[] = {
        {"RFC 9293 3.6, figure 12: this side closes first", "",
         OPEN "info unsent 0\n"
              "shutdown\n"
              "> FA 1 ack 1\n"
              "state fin-wait-1\n"
              "info unsent 0\n"
              "< A 1 ack 2\n"
              "state fin-wait-2\n"
              "info unsent 0\n"
              "< FA 1 ack 2\n"
              "> A 2 ack 2\n"
              "state time-wait\n"
              "event readable done hangup\n"
              "eof\n"
              "close\n"
              "+59999\n"
              "gone 1\n"
              "+2\n"
              "gone\n"},
        {"RFC 9293 3.6, case 2: the peer closes first", "",
         OPEN "< FA 1 ack 1\n"
              "> A 1 ack 2\n"
              "state close-wait\n"
              "event readable done\n"
              "eof\n"
              "shutdown\n"
              "> FA 1 ack 2\n"
              "state last-ack\n"
              "< A 2 ack 2\n"
              "state closed\n"
              "event readable writable hangup\n"
              "close\n"
              "gone\n"},
        {"RFC 9293 3.6, figure 13: both close at once", "",
         OPEN "shutdown\n"
              "> FA 1 ack 1\n"
              "< FA 1 ack 1\n"
              "> A 2 ack 2\n"
              "state closing\n"
              "< A 2 ack 2\n"
              "state time-wait\n"
              "close\n"
              "+60001\n"
              "gone\n"},
        {"RFC 9293 3.6, figure 13: both close at once, and the peer's ACK is lost", "",
         OPEN "shutdown\n"
              "> FA 1 ack 1\n"
              "< FA 1 ack 1\n"
              "> A 2 ack 2\n"
              "state closing\n"
              "+195\n~10\n"
              "> FA 1 ack 2\n"
              "< A 2 ack 2\n"
              "state time-wait\n"
              "close\n"},
        {"RFC 9293 3.10.7.4, eighth: the peer's FIN acknowledges ours", "",
         OPEN "shutdown\n"
              "> FA 1 ack 1\n"
              "< FA 1 ack 2\n"
              "> A 2 ack 2\n"
              "state time-wait\n"
              "close\n"},
        {"RFC 9293 3.6.1: half closed, the peer goes on sending", "",
         OPEN "shutdown\n"
              "> FA 1 ack 1\n"
              "< A 1 ack 2\n"
              "< PA 1:101 ack 2\n"
              "+41\n"
              "> A 2 ack 101\n"
              "read 100\n"
              "broken 32\n"
              "< FA 101 ack 2\n"
              "> A 2 ack 102\n"
              "eof\n"
              "close\n"},
        {"RFC 9293 3.6.1: half closed by the peer, this side goes on sending", "",
         OPEN "< FA 1 ack 1\n"
              "> A 1 ack 2\n"
              "write 1500\n"
              "> A 1:1001 ack 2\n"
              "> PA 1001:1501 ack 2\n"
              "< A 2 ack 1501\n"
              "close\n"
              "> FA 1501 ack 2\n"
              "< A 2 ack 1502\n"
              "gone\n"},
        {"RFC 9293 3.10.4: FIN follows the last byte, in its segment if it can", "",
         OPEN "write 1200 fin\n"
              "> A 1:1001\n"
              "> FPA 1001:1201\n"
              "< A 1 ack 1202\n"
              "state fin-wait-2\n"},
        {"RFC 9293 3.8.1: FIN is sent again", "",
         OPEN "shutdown\n"
              "> FA 1 ack 1\n"
              "+200\n~5\n"
              "> FA 1 ack 1\n"
              "+400\n~5\n"
              "> FA 1 ack 1\n"
              "< A 1 ack 2\n"
              "state fin-wait-2\n"},
        {"RFC 9293 3.8.1: bytes and FIN are sent again together", "",
         OPEN "write 300 fin\n"
              "> FPA 1:301\n"
              "+200\n~5\n"
              "> FPA 1:301\n"
              "< A 1 ack 302\n"
              "state fin-wait-2\n"},
        {"RFC 9293 3.10.7.4, fifth: a part of it is acknowledged", "",
         OPEN "write 300 fin\n"
              "> FPA 1:301\n"
              "< A 1 ack 101\n"
              "state fin-wait-1\n"
              "+200\n~5\n"
              "> FPA 101:301\n"
              "< A 1 ack 301\n"
              "state fin-wait-1\n"
              "< A 1 ack 302\n"
              "state fin-wait-2\n"},
        {"the peer's FIN comes before its bytes", "",
         OPEN "< FPA 101:201 ack 1\n"
              "> A 1 ack 1\n"
              "> A 1 ack 1\n"
              "state established\n"
              "< A 1:101 ack 1\n"
              "> A 1 ack 202\n"
              "read 200\n"
              "eof\n"
              "state close-wait\n"},
        {"RFC 9293 3.10.7.4, seventh: bytes after FIN are ignored", "",
         OPEN "< FA 1:11 ack 1\n"
              "> A 1 ack 12\n"
              "< PA 12:22 ack 1\n"
              "state close-wait\n"
              "read 10\n"
              "eof\n"},
        {"an orphan waits for the peer's FIN for a limited time", "",
         OPEN "close\n"
              "> FA 1 ack 1\n"
              "< A 1 ack 2\n"
              "+59999\n"
              "gone 1\n"
              "+2\n"
              "gone\n"},
        {"RFC 9293 3.10.4: the id ends with close", "",
         OPEN "close\n"
              "> FA 1 ack 1\n"
              "broken 9\n"
              "no event\n"},
};

static const struct script aborts[] = {
        {"RFC 9293 3.10.5: abort resets", "",
         OPEN "write 10\n"
              "> PA 1:11\n"
              "abort\n"
              "> RA 11 ack 1\n"
              "gone\n"},
        {"RFC 9293 3.10.5: abort in SYN-SENT says nothing", "",
         "connect\n"
         "> S 0\n"
         "abort\n"
         "gone\n"},
        {"RFC 2525 2.17: close with unread bytes resets", "",
         OPEN "< PA 1:11 ack 1\n"
              "close\n"
              "> RA 1 ack 11\n"
              "gone\n"},
        {"RFC 1122 4.2.2.13: bytes that come after close are answered by a reset", "",
         OPEN "close\n"
              "> FA 1 ack 1\n"
              "< A 1 ack 2\n"
              "< PA 1:11 ack 2\n"
              "> RA 2 ack 1\n"
              "gone\n"},
        {"SO_LINGER of 0: close resets", "",
         OPEN "set linger 1\n"
              "close\n"
              "> RA 1 ack 1\n"
              "gone\n"},
        {"RFC 9293 3.10.7.4, second: the peer resets", "",
         OPEN "write 10\n"
              "> PA 1:11\n"
              "< R 1\n"
              "event readable writable hangup error\n"
              "state closed\n"
              "broken 104\n"
              "broken 32\n"
              "eof\n"
              "close\n"
              "gone\n"},
        {"RFC 9293 3.10.7.4, second: a reset in LAST-ACK", "",
         OPEN "< FA 1 ack 1\n"
              "> A 1 ack 2\n"
              "close\n"
              "> FA 1 ack 2\n"
              "< R 2\n"
              "gone\n"},
};

static const struct script time_wait[] = {
        {"RFC 9293 3.10.7.4: the peer's FIN again: acknowledged, and the time starts anew", "",
         OPEN "close\n"
              "> FA 1 ack 1\n"
              "< FA 1 ack 2\n"
              "> A 2 ack 2\n"
              "+40000\n"
              "< FA 1 ack 2\n"
              "> A 2 ack 2\n"
              "+59999\n"
              "gone 1\n"
              "+2\n"
              "gone\n"},
        {"RFC 9293 3.10.7.4: a reset with the exact number ends TIME-WAIT (RFC 1337 2)", "",
         OPEN "close\n"
              "> FA 1 ack 1\n"
              "< FA 1 ack 2\n"
              "> A 2 ack 2\n"
              "< R 3\n"
              "> A 2 ack 2\n"
              "gone 1\n"
              "< R 2\n"
              "gone\n"},
        {"RFC 7323 5.2: so does one without a timestamp, where the connection had them", "ts",
         OPEN_TS "close\n"
                 "> FA 1 ack 1\n"
                 "< FA 1 ack 2 ts 1010 1\n"
                 "> A 2 ack 2\n"
                 "< R 2\n"
                 "gone\n"},
        {"RFC 1337 2: old bytes in TIME-WAIT are only acknowledged", "",
         OPEN "< A 1:101 ack 1\n"
              "read 100\n"
              "> A 1 ack 101\n"
              "close\n"
              "> FA 1 ack 101\n"
              "< FA 101 ack 2\n"
              "> A 2 ack 102\n"
              "< A 1:101 ack 2\n"
              "> A 2 ack 102\n"
              "gone 1\n"},
        {"RFC 6191 2: a SYN with a later timestamp begins anew", "ts",
         OPEN_TS "close\n"
                 "> FA 1 ack 1\n"
                 "< FA 1 ack 2 ts 1010 1\n"
                 "> A 2 ack 2\n"
                 "anew\n"
                 "< S 0 mss 1000 ts 1011 0\n"
                 "> SA 0 ack 1\n"
                 "count time_wait_reused 1\n"
                 "< A 1 ack 1 ts 1011 1\n"
                 "accept\n"
                 "gone 1\n"
                 "abort\n"
                 "> RA 1 ack 1\n"},
        {"RFC 6191 2: one with an earlier timestamp does not", "ts",
         OPEN_TS "close\n"
                 "> FA 1 ack 1\n"
                 "< FA 1 ack 2 ts 1010 1\n"
                 "> A 2 ack 2\n"
                 "< S 5000 mss 1000 ts 1009 0\n"
                 "> A 2 ack 2\n"
                 "count time_wait_reused 0\n"},
        {"RFC 6191 2: TIME-WAIT goes on while the new connection finds no place", "",
         "listen backlog 1\n"
         "< S 0 mss 1000\n"
         "> SA 0 ack 1\n"
         "< A 1 ack 1\n"
         "accept\n"
         "close\n"
         "> FA 1 ack 1\n"
         "< FA 1 ack 2\n"
         "> A 2 ack 2\n"
         "# another one waits for being accepted\n"
         "< S 0 mss 1000 port 4001\n"
         "> SA 0 ack 1 port 4001\n"
         "< A 1 ack 1 port 4001\n"
         "< S 5000 mss 1000\n"
         "count refused_backlog 1\n"
         "count time_wait_reused 0\n"
         "gone 2\n"
         "< FA 1 ack 2\n"
         "> A 2 ack 2\n"
         "accept\n"
         "anew\n"
         "< S 5000 mss 1000\n"
         "> SA 0 ack 5001\n"
         "count time_wait_reused 1\n"
         "gone 2\n"},
        {"RFC 6191 2: the place is the old one's, whoever floods: no cookie", "",
         "listen backlog 1\n"
         "< S 0 mss 1000\n"
         "> SA 0 ack 1\n"
         "< A 1 ack 1\n"
         "accept\n"
         "close\n"
         "> FA 1 ack 1\n"
         "< FA 1 ack 2\n"
         "> A 2 ack 2\n"
         "< S 0 mss 1000 port 4001\n"
         "> SA 0 ack 1 port 4001\n"
         "anew\n"
         "< S 5000 mss 1000\n"
         "> SA 0 ack 5001\n"
         "count cookies_sent 0\n"
         "count time_wait_reused 1\n"
         "< A 5001 ack 1\n"
         "accept\n"},
        {"RFC 6191 2: an application that holds the old one keeps its place", "connections 1",
         "listen\n"
         "< S 0 mss 1000\n"
         "> SA 0 ack 1\n"
         "< A 1 ack 1\n"
         "accept\n"
         "shutdown\n"
         "> FA 1 ack 1\n"
         "< FA 1 ack 2\n"
         "> A 2 ack 2\n"
         "state time-wait\n"
         "< S 5000 mss 1000\n"
         "state time-wait\n"
         "count time_wait_reused 0\n"
         "count refused_memory 1\n"
         "close\n"
         "anew\n"
         "< S 5000 mss 1000\n"
         "> SA 0 ack 5001\n"
         "gone 1\n"},
        {"RFC 1122 4.2.2.13: without timestamps, a SYN with a later number begins anew", "",
         OPEN "close\n"
              "> FA 1 ack 1\n"
              "< FA 1 ack 2\n"
              "> A 2 ack 2\n"
              "anew\n"
              "< S 5000 mss 1000\n"
              "> SA 0 ack 5001\n"
              "count time_wait_reused 1\n"},
        {"RFC 1122 4.2.2.13: one with an old number is acknowledged", "",
         OPEN "close\n"
              "> FA 1 ack 1\n"
              "< FA 1 ack 2\n"
              "> A 2 ack 2\n"
              "< S 1 mss 1000\n"
              "> A 2 ack 2\n"
              "count time_wait_reused 0\n"
              "count challenges 1\n"},
        {"the longest in TIME-WAIT gives way when all connections are in use", "connections 1",
         OPEN "close\n"
              "> FA 1 ack 1\n"
              "< FA 1 ack 2\n"
              "> A 2 ack 2\n"
              "gone 1\n"
              "< S 0 port 4001\n"
              "> SA 0 port 4001\n"
              "gone 1\n"
              "count time_wait_reused 1\n"},
        {"all connections are in use", "connections 1",
         OPEN "< S 0 port 4001\n"
              "count refused_memory 1\n"},
};

/* Closed by the application; the peer is alive but reads nothing. */
static const struct script orphans[] = {
        {"what its peer takes is counted, before its FIN", "",
         OPEN "write 1000\n"
              "> PA 1:1001\n"
              "< A 1 ack 501\n"
              "close\n"
              "> FA 1001\n"
              "took 0\n"
              "< A 1 ack 901\n"
              "took 400\n"
              "< A 1 ack 1002\n"
              "took 500\n"},
        {"RFC 6429 5: a closed connection does not wait for a closed window for ever", "",
         OPEN "write 1000\n"
              "> PA 1:1001\n"
              "< A 1 ack 1001 win 0\n"
              "write 500\n"
              "close\n"
              "answer 99000 A 1 ack 1001 win 0\n"
              "gone 1\n"
              "~1100\n"
              "> RA 1001 ack 1\n"
              "gone\n"
              "count orphans_ended 1\n"},
        {"RFC 6429 5: nor for one that opens too little", "",
         OPEN "write 1000\n"
              "> PA 1:1001\n"
              "< A 1 ack 1001 win 0\n"
              "write 500\n"
              "close\n"
              "answer 50000 A 1 ack 1001 win 1\n"
              "answer 50100 A 1 ack 1001 win 0\n"
              "gone\n"
              "count orphans_ended 1\n"},
        {"RFC 6429 5: nor for what a window that has shrunk leaves out", "",
         OPEN "write 2000\n"
              "> A 1:1001\n"
              "> PA 1001:2001\n"
              "close\n"
              "> FA 2001\n"
              "answer 100300 A 1 ack 1 win 0\n"
              "gone\n"
              "count orphans_ended 1\n"
              "count timed_out 0\n"},
        {"RFC 9293 3.8.6.1: one that the application holds stays", "",
         OPEN "write 1000\n"
              "> PA 1:1001\n"
              "< A 1 ack 1001 win 0\n"
              "write 500 fin\n"
              "answer 86400000 A 1 ack 1001 win 0\n"
              "state fin-wait-1\n"
              "< A 1 ack 1001 win 1000\n"
              "> FPA 1001:1501\n"},
        {"RFC 9293 3.8.6: a window that shrinks to nothing does not end the connection", "",
         OPEN "write 2000\n"
              "> A 1:1001\n"
              "> PA 1001:2001\n"
              "answer 86400000 A 1 ack 1 win 0\n"
              "state established\n"
              "count timed_out 0\n"
              "info mss 1000\n"},
        {"RFC 9293 3.8.3: but a peer that falls silent then does", "",
         OPEN "write 2000\n"
              "> A 1:1001\n"
              "> PA 1001:2001\n"
              "set timeout 60000\n"
              "answer 120000 A 1 ack 1 win 0\n"
              "state established\n"
              "~60000\n"
              "> A 1:1001\n"
              "+60100\n"
              "failed 110\n"
              "state closed\n"},
        {"RFC 6429 5: progress is what keeps it", "",
         OPEN "write 1000\n"
              "> PA 1:1001\n"
              "< A 1 ack 1001 win 0\n"
              "write 1500\n"
              "close\n"
              "answer 90000 A 1 ack 1001 win 0\n"
              "< A 1 ack 1001 win 1000\n"
              "> A 1001:2001\n"
              "< A 1 ack 2001 win 0\n"
              "answer 90000 A 1 ack 2001 win 0\n"
              "gone 1\n"
              "answer 10100 A 1 ack 2001 win 0\n"
              "gone\n"},
        {"RFC 6429 5: too many of them are reset at once", "orphans 1",
         OPEN "write 1000\n"
              "> PA 1:1001\n"
              "close\n"
              "> FA 1001\n"
              "anew\n"
              "< S 0 mss 1000 port 4001\n"
              "> SA 0 ack 1 port 4001\n"
              "< A 1 ack 1 port 4001\n"
              "accept\n"
              "write 1000\n"
              "> PA 1:1001 port 4001\n"
              "close\n"
              "> RA 1001 ack 1 port 4001\n"
              "gone 1\n"
              "count orphans_ended 1\n"
              "# the first one may still end well, and is none any more\n"
              "< FA 1 ack 1002\n"
              "> A 1002 ack 2\n"},
};

TEST(bytes_first)
TEST(closing)
TEST(orphans)
TEST(aborts)
TEST(time_wait)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_bytes_first), cmocka_unit_test(test_closing),
	        cmocka_unit_test(test_orphans),     cmocka_unit_test(test_aborts),
	        cmocka_unit_test(test_time_wait),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: Apache-2.0
/* Bytes both ways: RFC 9293 3.7.4, 3.8; RFC 1122 4.2.3; RFC 896; RFC 6093; RFC 7323. */
#include "script.h"

static const struct script acknowledging[] = {
        {"RFC 9293 3.8.6.3: an acknowledgement is delayed", "",
         OPEN "< PA 1:101 ack 1\n"
              "event readable\n"
              "+39\n"
              "+2\n"
              "> A 1 ack 101\n"
              "read 100\n"
              "empty\n"},
        {"RFC 9293 3.8.6.3: every second full segment is acknowledged at once", "",
         OPEN "< A 1:1001 ack 1\n"
              "< A 1001:2001 ack 1\n"
              "> A 1 ack 2001\n"
              "< A 2001:3001 ack 1\n"
              "+41\n"
              "> A 1 ack 3001\n"
              "read 3000\n"},
        {"RFC 9293 3.8.6.3: the answer carries the acknowledgement", "",
         OPEN "< PA 1:101 ack 1\n"
              "write 50\n"
              "> PA 1:51 ack 101\n"
              "read 100\n"
              "+100\n"},
        {"RFC 9293 3.8.6.3: the peer's second short segment need not wait for the delay", "",
         OPEN "< PA 1:11 ack 1\n"
              "read 10\n"
              "> A 1 ack 11\n"
              "< PA 11:21 ack 1\n"
              "write 50\n"
              "> PA 1:51 ack 21\n"
              "read 10\n"
              "< PA 21:31 ack 51\n"
              "+10\n"
              "read 10\n"
              "> A 51 ack 31\n"
              "< PA 31:41 ack 51\n"
              "+39\n~3\n"
              "> A 51 ack 41\n"
              "read 10\n"},
        {"RFC 9293 3.8.6.3: acknowledgements wait for answers where these come in time", "",
         OPEN "< PA 1:11 ack 1\n"
              "write 50\n"
              "> PA 1:51 ack 11\n"
              "read 10\n"
              "< PA 11:21 ack 51\n"
              "read 10\n"
              "+20\n"
              "write 50\n"
              "> PA 51:101 ack 21\n"
              "< PA 21:31 ack 101\n"
              "read 10\n"
              "+39\n~3\n"
              "> A 101 ack 31\n"
              "# in vain: the next ones do not wait\n"
              "< PA 31:41 ack 101\n"
              "read 10\n"
              "> A 101 ack 41\n"},
        {"an application may want each segment acknowledged", "",
         OPEN "set quickack 1\n"
              "< PA 1:101 ack 1\n"
              "> A 1 ack 101\n"},
        {"RFC 5681 4.2: a segment out of order is acknowledged at once", "",
         OPEN "< A 1001:2001 ack 1\n"
              "> A 1 ack 1\n"
              "< A 2001:3001 ack 1\n"
              "> A 1 ack 1\n"
              "empty\n"
              "< A 1:1001 ack 1\n"
              "> A 1 ack 3001\n"
              "read 3000\n"},
        {"RFC 9293 3.10.7.4, first: old bytes are acknowledged", "",
         OPEN "< A 1:1001 ack 1\n"
              "+41\n"
              "> A 1 ack 1001\n"
              "< A 1:1001 ack 1\n"
              "> A 1 ack 1001\n"
              "read 1000\n"
              "empty\n"},
        {"RFC 9293 3.10.7.4, seventh: a segment that is partly old", "",
         OPEN "< A 1:1001 ack 1\n"
              "+41\n"
              "> A 1 ack 1001\n"
              "< A 501:1501 ack 1\n"
              "> A 1 ack 1501\n"
              "read 1500\n"},
        {"overlapping segments out of order", "",
         OPEN "< A 101:301 ack 1\n"
              "> A 1 ack 1\n"
              "< A 201:401 ack 1\n"
              "> A 1 ack 1\n"
              "< A 51:151 ack 1\n"
              "> A 1 ack 1\n"
              "< A 1:401 ack 1\n"
              "> A 1 ack 401\n"
              "read 400\n"},
        {"one segment over several gaps", "",
         OPEN "< A 101:201 ack 1\n"
              "> A 1 ack 1\n"
              "< A 301:401 ack 1\n"
              "> A 1 ack 1\n"
              "< A 51:501 ack 1\n"
              "> A 1 ack 1\n"
              "< A 1:52 ack 1\n"
              "> A 1 ack 501\n"
              "read 500\n"},
        {"RFC 2018 3: SACK tells of what is out of order, the newest first", "sack",
         OPEN_WITH("sackok") "< A 1001:2001 ack 1\n"
                             "> A 1 ack 1 sack 1001-2001\n"
                             "< A 3001:4001 ack 1\n"
                             "> A 1 ack 1 sack 3001-4001 1001-2001\n"
                             "< A 2001:2501 ack 1\n"
                             "> A 1 ack 1 sack 1001-2501 3001-4001\n"
                             "< A 1:1001 ack 1\n"
                             "> A 1 ack 2501 sack 3001-4001\n"
                             "read 2500\n"},
        {"RFC 2883 4.1.1: D-SACK tells of duplicates", "sack",
         OPEN_WITH("sackok") "< A 1:1001 ack 1\n"
                             "+41\n"
                             "> A 1 ack 1001\n"
                             "< A 1:1001 ack 1\n"
                             "> A 1 ack 1001 sack 1-1001\n"
                             "< A 1001:1101 ack 1\n"
                             "+41\n"
                             "> A 1 ack 1101 sack\n"},
        {"RFC 2883 4.2.1: D-SACK with other blocks", "sack",
         OPEN_WITH("sackok") "< A 1001:2001 ack 1\n"
                             "> A 1 ack 1 sack 1001-2001\n"
                             "< A 1001:1501 ack 1\n"
                             "> A 1 ack 1 sack 1001-1501 1001-2001\n"},
        {"RFC 2018 2: no SACK without permission", "sack",
         OPEN "< A 1001:2001 ack 1\n"
              "> A 1 ack 1 sack\n"},
        {"RFC 3168 6.1.3: congestion is echoed until the peer has answered", "",
         "listen\n"
         "< SEC 0 mss 1000\n"
         "> SAE 0\n"
         "< A 1 ack 1\n"
         "accept\n"
         "< A 1:101 ack 1 ce\n"
         "> AE 1 ack 101\n"
         "< A 101:201 ack 1 ect\n"
         "+41\n"
         "> AE 1 ack 201\n"
         "< AC 201:301 ack 1 ect\n"
         "+41\n"
         "> A 1 ack 301\n"
         "read 300\n"},
};

static const struct script windows[] = {
        {"RFC 9293 3.8.6: no more than the window is sent", "",
         OPEN "< A 1 ack 1 win 1500\n"
              "write 3000\n"
              "> A 1:1001\n"
              "# half a segment is not worth it while another is under way\n"
              "< A 1 ack 1001 win 2000\n"
              "> A 1001:2001\n"
              "> PA 2001:3001\n"},
        {"RFC 9293 3.8.6.2.1: a window that stays small is filled, not probed byte by byte", "",
         OPEN "< A 1 ack 1 win 1012\n"
              "write 3000\n"
              "> A 1:1001\n"
              "< A 1 ack 1001 win 12\n"
              "+200\n"
              "~21\n"
              "> A 1001:1013\n"
              "# a small window after that waits again\n"
              "< A 1 ack 1013 win 10\n"
              "+200\n"
              "~21\n"
              "> A 1013:1023\n"
              "< A 1 ack 1023 win 0\n"
              "~221\n"
              "> A 1023:1024\n"
              "# nor does a probe let one go\n"
              "< A 1 ack 1023 win 11\n"
              "+200\n"
              "< A 1 ack 1023 win 5000\n"
              "> A 1023:2023\n"
              "> PA 2023:3001\n"},
        {"RFC 9293 3.8.6.1: a closed window is probed", "",
         OPEN "write 1000\n"
              "> PA 1:1001\n"
              "< A 1 ack 1001 win 0\n"
              "write 500\n"
              "+200\n"
              "~5\n"
              "> A 1001:1002\n"
              "< A 1 ack 1001 win 0\n"
              "+400\n"
              "~5\n"
              "> A 1001:1002\n"
              "< A 1 ack 1001 win 1000\n"
              "> PA 1001:1501\n"
              "< A 1 ack 1501\n"},
        {"RFC 9293 3.8.6.1: the peer takes the byte of a probe", "",
         OPEN "write 1000\n"
              "> PA 1:1001\n"
              "< A 1 ack 1001 win 0\n"
              "write 500\n"
              "~221\n"
              "> A 1001:1002\n"
              "< A 1 ack 1002 win 0\n"
              "~422\n"
              "> A 1002:1003\n"
              "< A 1 ack 1003 win 5000\n"
              "> PA 1003:1501\n"},
        {"RFC 9293 3.8.6.1: both sides probe, and take the other's byte", "",
         OPEN "write 1000\n"
              "> PA 1:1001\n"
              "< A 1 ack 1001 win 0\n"
              "write 500\n"
              "~221\n"
              "> A 1001:1002 ack 1\n"
              "< A 1:2 ack 1001 win 0\n"
              "+41\n"
              "> A 1001 ack 2\n"
              "# that is lost; the peer does not know of its byte, but tells of ours\n"
              "< A 1 ack 1002 win 5000\n"
              "> A 1002 ack 2\n"
              "> PA 1002:1501 ack 2\n"
              "read 1\n"},
        {"RFC 9293 3.10.7.4, fifth: what was never sent is not acknowledged as a probe's byte", "",
         OPEN "write 1000\n"
              "> PA 1:1001\n"
              "< A 1 ack 1001 win 0\n"
              "write 500\n"
              "~221\n"
              "> A 1001:1002\n"
              "< A 1 ack 1001 win 60000\n"
              "> PA 1001:1501\n"
              "< A 1 ack 1501 win 60000\n"
              "< A 1 ack 1502 win 60000\n"
              "> A 1501\n"
              "info flight 0\n"
              "write 10\n"
              "> PA 1501:1511\n"
              "< A 1 ack 1511\n"
              "close\n"
              "> FA 1511\n"
              "< FA 1 ack 1512\n"
              "> A 1512\n"},
        {"RFC 6298 3: a probe's byte says nothing of the round trip", "",
         OPEN "write 1000\n"
              "> PA 1:1001\n"
              "+150\n"
              "< A 1 ack 1001 win 0\n"
              "write 500\n"
              "info rto 219\n"
              "~9000\n"
              "> A 1001:1002\n"
              "< A 1 ack 1002 win 0\n"
              "info rto 219\n"},
        {"RFC 1122 4.2.2.17: a window may stay closed for as long as probes are answered", "",
         OPEN "set timeout 3000\n"
              "write 1000\n"
              "> PA 1:1001\n"
              "< A 1 ack 1001 win 0\n"
              "write 1\n"
              "~221\n"
              "> A 1001:1002\n"
              "< A 1 ack 1001 win 0\n"
              "~422\n"
              "> A 1001:1002\n"
              "< A 1 ack 1001 win 0\n"
              "~822\n"
              "> A 1001:1002\n"
              "< A 1 ack 1001 win 0\n"
              "~1622\n"
              "> A 1001:1002\n"
              "< A 1 ack 1001 win 0\n"
              "~3222\n"
              "> A 1001:1002\n"
              "state established\n"
              "+3005\n"
              "state closed\n"
              "failed 110\n"},
        {"RFC 9293 3.8.6: a window that opens lets bytes go", "",
         OPEN "< A 1 ack 1 win 0\n"
              "write 100\n"
              "< A 1 ack 1 win 5000\n"
              "> PA 1:101\n"},
        {"RFC 9293 3.10.7.4, fifth: an old window is not taken", "",
         OPEN "< PA 1:11 ack 1 win 5000\n"
              "info wnd 5000\n"
              "< A 1 ack 1 win 100\n"
              "> A 1 ack 11\n"
              "info wnd 5000\n"},
        {"RFC 9293 3.8.6: the window closes as bytes wait, and bytes beyond it are cut off",
         "receive 2000",
         OPEN "< A 1:1001 ack 1\n"
              "< A 1001:2001 ack 1\n"
              "> A 1 ack 2001 win 0\n"
              "< A 2001:2101 ack 1\n"
              "> A 1 ack 2001 win 0\n"
              "read 2000\n"
              "> A 1 ack 2001 win 2000\n"},
        {"RFC 9293 3.8.6.2.2: the window does not open in silly steps", "receive 2000",
         OPEN "< A 1:1001 ack 1\n"
              "< A 1001:2001 ack 1\n"
              "> A 1 ack 2001 win 0\n"
              "read 500\n"
              "read 400\n"
              "read 200\n"
              "> A 1 ack 2001 win 1100\n"
              "read 900\n"},
        {"RFC 9293 3.8.6.2.1: half of the largest window is worth a segment", "",
         OPEN "write 1000\n"
              "> PA 1:1001\n"
              "< A 1 ack 1001 win 600\n"
              "write 1000\n"
              "# the largest window was 60000\n"
              "+200\n"
              "~21\n"
              "> A 1001:1601\n"
              "< A 1 ack 1601 win 1000\n"
              "> PA 1601:2001\n"},
        {"RFC 9293 3.8.6: a window that shrinks", "",
         OPEN "write 3000\n"
              "> A 1:1001\n"
              "> A 1001:2001\n"
              "> PA 2001:3001\n"
              "< A 1 ack 1001 win 500\n"
              "write 1000\n"
              "+200\n~5\n"
              "> A 1001:2001\n"
              "< A 1 ack 3001 win 5000\n"
              "> PA 3001:4001\n"},
};

static const struct script nagle[] = {
        {"RFC 896: a short segment waits while another one is under way", "",
         OPEN "write 10\n"
              "> PA 1:11\n"
              "write 10\n"
              "write 10\n"
              "< A 1 ack 11\n"
              "> PA 11:31\n"},
        {"RFC 896: a full one does not", "",
         OPEN "write 10\n"
              "> PA 1:11\n"
              "write 1010\n"
              "> A 11:1011\n"
              "< A 1 ack 1011\n"
              "> PA 1011:1021\n"},
        {"Minshall: what follows full segments does not wait", "",
         OPEN "write 1100\n"
              "> A 1:1001\n"
              "> PA 1001:1101\n"},
        {"RFC 9293 3.7.4: an application may turn it off", "",
         OPEN "set nodelay 1\n"
              "write 10\n"
              "> PA 1:11\n"
              "write 10\n"
              "> PA 11:21\n"},
        {"cork: only full segments, or after 200 ms", "",
         OPEN "set cork 1\n"
              "write 500\n"
              "write 600\n"
              "> A 1:1001\n"
              "< A 1 ack 1001\n"
              "+199\n"
              "~5\n"
              "> PA 1001:1101\n"
              "< A 1 ack 1101\n"
              "write 10\n"
              "set cork 0\n"
              "> PA 1101:1111\n"},
        {"more: a short segment waits for what follows", "",
         OPEN "write 10 more\n"
              "write 10\n"
              "> PA 1:21\n"},
        {"more: or 200 ms", "",
         OPEN "write 10 more\n"
              "+199\n"
              "~5\n"
              "> PA 1:11\n"},
        {"more: what was sent before does not wait, and what is behind it until then", "",
         OPEN "write 10 then 10 more then 10 more\n"
              "> PA 1:11\n"
              "< A 1 ack 11\n"
              "> PA 11:31\n"},
        {"more: nor longer than for an acknowledgement does what RFC 896 keeps back", "",
         OPEN "write 10\n"
              "> PA 1:11\n"
              "write 10 then 10 more\n"
              "< A 1 ack 11\n"
              "> PA 11:31\n"},
        {"more: full segments leave", "",
         OPEN "write 10 then 1000 more\n"
              "> A 1:1001\n"
              "write 10\n"
              "> PA 1001:1021\n"},
        {"cork: full segments leave, and what is urgent", "",
         OPEN "set cork 1\n"
              "write 1010\n"
              "> A 1:1001\n"
              "write 1 oob\n"
              "> UPA 1001:1012 urg 11\n"},
        {"cork: what was sent before does not wait", "",
         OPEN "write 10 cork then 10\n"
              "> PA 1:11\n"
              "< A 1 ack 11\n"
              "+199\n"
              "~5\n"
              "> PA 11:21\n"},
        {"cork: what RFC 896 keeps back waits on", "",
         OPEN "write 10\n"
              "> PA 1:11\n"
              "write 10 cork\n"
              "< A 1 ack 11\n"
              "+199\n"
              "~5\n"
              "> PA 11:21\n"},
        {"cork: to turn Nagle's rule off lets go what waits, and no more", "",
         OPEN "set cork 1\n"
              "write 10\n"
              "set nodelay 1\n"
              "> PA 1:11\n"
              "write 10\n"
              "write 10 more\n"
              "< A 1 ack 11\n"
              "set cork 0\n"
              "> PA 11:31\n"},
        {"a full send buffer, and the event when it is empty again", "",
         OPEN "set send 2000\n"
              "write 2000\n"
              "> A 1:1001\n"
              "> PA 1001:2001\n"
              "full\n"
              "no event\n"
              "< A 1 ack 1001\n"
              "event writable\n"
              "write 1000\n"
              "> PA 2001:3001\n"},
};

static const struct script urgent[] = {
        {"RFC 6093 3.1: the pointer is that of the byte after urgent data", "",
         OPEN "write 10 oob\n"
              "> UPA 1:11 urg 10\n"
              "< A 1 ack 11\n"
              "write 10\n"
              "> PA 11:21\n"},
        {"RFC 6093 3.2: urgent data arrives among the others", "",
         OPEN "< UPA 1:11 ack 1 urg 10\n"
              "event readable urgent\n"
              "read 9\n"
              "read 1\n"
              "> A 1 ack 11\n"},
        {"RFC 6093 3.2, 4: what is read ends before the urgent byte, which is one of the others",
         "",
         OPEN "< UPA 1:21 ack 1 urg 10\n"
              "mark 0\n"
              "event readable urgent\n"
              "part 9\n"
              "mark 1\n"
              "part 11\n"
              "> A 1 ack 21\n"
              "mark 0\n"
              "empty\n"
              "# a later pointer replaces one that is not read yet\n"
              "< UPA 21:26 ack 1 urg 5\n"
              "event readable urgent\n"
              "< UPA 26:31 ack 1 urg 5\n"
              "event readable urgent\n"
              "part 9\n"
              "mark 1\n"
              "< FA 31 ack 1\n"
              "> A 1 ack 32\n"
              "mark 1\n"
              "part 1\n"
              "mark 0\n"
              "eof\n"},
        {"RFC 9293 3.10.7.4, sixth: urgent data that is still to come", "",
         OPEN "< UA 1 ack 1 urg 100\n"
              "event urgent\n"
              "< UA 1 ack 1 urg 100\n"
              "no event\n"},
};

static const struct script timestamps[] = {
        {"RFC 7323 5.3: PAWS refuses old segments, and acknowledges them", "ts",
         OPEN_TS "< A 1:101 ack 1 ts 1005 1\n"
                 "+41\n"
                 "> A 1 ack 101 ts 41 1005\n"
                 "< A 101:201 ack 1 ts 1004 1\n"
                 "> A 1 ack 101 ts 41 1005\n"
                 "count paws 1\n"
                 "< A 101:201 ack 1 ts 1005 1\n"
                 "+41\n"
                 "> A 1 ack 201\n"
                 "read 200\n"},
        {"RFC 7323 3.2: a segment without the option is dropped", "ts",
         OPEN_TS "< A 1:101 ack 1\n"
                 "empty\n"},
        {"RFC 7323 5.2: a reset is accepted without it", "ts",
         OPEN_TS "< R 1\n"
                 "state closed\n"
                 "failed 104\n"},
        {"RFC 7323 4.3: the echo is that of the segment that begins what is acknowledged", "ts",
         OPEN_TS "< A 1:1001 ack 1 ts 1001 1\n"
                 "< A 1001:2001 ack 1 ts 1002 1\n"
                 "> A 1 ack 2001 ts 0 1001\n"
                 "read 2000\n"},
        {"RFC 7323 4.3: of segments out of order the one before the gap counts", "ts",
         OPEN_TS "< A 1001:2001 ack 1 ts 1002 1\n"
                 "> A 1 ack 1 ts 0 1000\n"
                 "< A 1:1001 ack 1 ts 1003 1\n"
                 "> A 1 ack 2001 ts 0 1003\n"
                 "read 2000\n"},
        {"RFC 7323 5.5: after 24 days a timestamp means nothing", "ts",
         OPEN_TS "+2073600001\n"
                 "< A 1:101 ack 1 ts 5 1\n"
                 "+41\n"
                 "> A 1 ack 101\n"
                 "read 100\n"},
        {"RFC 7323 3.2: segments are shorter by the option", "ts",
         OPEN_TS "write 1001\n"
                 "> A 1:1001\n"
                 "> PA 1001:1002\n"},
};

TEST(acknowledging)
TEST(windows)
TEST(nagle)
TEST(urgent)
TEST(timestamps)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_acknowledging), cmocka_unit_test(test_windows),
	        cmocka_unit_test(test_nagle),         cmocka_unit_test(test_urgent),
	        cmocka_unit_test(test_timestamps),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: Apache-2.0
/* What strangers send: RFC 5961, RFC 9293 3.10.7, RFC 4987; and silence: RFC 9293 3.8.4. */
#include "script.h"

static const struct script blind[] = {
        {"RFC 5961 3.2: a reset in the window is challenged", "",
         OPEN "< R 100\n"
              "> A 1 ack 1\n"
              "state established\n"
              "count challenges 1\n"
              "# the peer has no connection: it answers with the exact number\n"
              "< R 1\n"
              "state closed\n"},
        {"RFC 5961 3.2: a reset outside of the window is ignored", "",
         OPEN "< R 70000\n"
              "< R 0\n"
              "state established\n"
              "count challenges 0\n"},
        {"RFC 5961 4.2: a SYN is challenged, whatever its number", "",
         OPEN "< S 100\n"
              "> A 1 ack 1\n"
              "< S 700000\n"
              "> A 1 ack 1\n"
              "< S 1\n"
              "> A 1 ack 1\n"
              "state established\n"
              "count challenges 3\n"},
        {"RFC 5961 5.2: bytes with an acknowledgement of what was never sent", "",
         OPEN "< PA 1:11 ack 5000\n"
              "> A 1 ack 1\n"
              "empty\n"},
        {"RFC 5961 5.2: bytes with an acknowledgement too old", "",
         OPEN "write 100\n"
              "> PA 1:101\n"
              "< A 1 ack 101\n"
              "< PA 1:11 ack -70000\n"
              "> A 101 ack 1\n"
              "empty\n"
              "< PA 1:11 ack 51\n"
              "read 10\n"
              "> A 101 ack 11\n"},
        {"RFC 7323 5.3, RFC 5961 5.2: TS.Recent is not taken before the ACK is checked", "ts",
         OPEN_TS "< PA 1:11 ack 5000 ts 900000 1\n"
                 "> A 1 ack 1 ts 0 1000\n"
                 "empty\n"
                 "< PA 1:11 ack 1 ts 1001 1\n"
                 "read 10\n"
                 "> A 1 ack 11\n"
                 "count paws 0\n"},
        {"RFC 7323 5.3: nor in SYN-RECEIVED", "ts",
         "listen\n"
         "< S 0 win 60000 mss 1012 ts 1000 0\n"
         "> SA 0 ack 1 ts 0 1000\n"
         "< A 1 ack 5000 win 60000 ts 900000 1\n"
         "> A 1 ack 1 ts 0 1000\n"
         "< A 1 ack 1 win 60000 ts 1001 1\n"
         "accept\n"},
        {"RFC 9293 3.10.7.4, eighth: in TIME-WAIT only the peer's own FIN restarts the time",
         "tw 60000",
         OPEN "close\n"
              "> FA 1 ack 1\n"
              "< FA 1 ack 2\n"
              "> A 2 ack 2\n"
              "+30000\n"
              "< FA 70000 ack 2\n"
              "> A 2 ack 2\n"
              "< FA 1 ack 70000\n"
              "> A 2 ack 2\n"
              "+30010\n"
              "gone\n"},
        {"RFC 5961 7: ten challenges in a second", "",
         OPEN "< S 100\n> A 1\n< S 100\n> A 1\n< S 100\n> A 1\n< S 100\n> A 1\n< S 100\n> A 1\n"
              "< S 100\n> A 1\n< S 100\n> A 1\n< S 100\n> A 1\n< S 100\n> A 1\n< S 100\n> A 1\n"
              "< S 100\n"
              "count challenges_limited 1\n"
              "+1000\n"
              "< S 100\n"
              "> A 1\n"},
        {"RFC 9293 3.10.7.4, first: a segment beyond the window is acknowledged and dropped", "",
         OPEN "< A 70000:70100 ack 1\n"
              "> A 1 ack 1\n"
              "empty\n"
              "count out_of_window 1\n"},
        {"RFC 9293 3.10.7.4, fifth: a segment without ACK is dropped", "",
         OPEN "< P 1:11\n"
              "empty\n"},
        {"RFC 5961 3.2: in SYN-RECEIVED as well", "",
         "listen\n"
         "< S 0\n"
         "> SA 0\n"
         "< R 100\n"
         "> A 1 ack 1\n"
         "gone 1\n"},
        {"a malformed segment is dropped", "",
         OPEN "< SF 1\n"
              "< . 1\n"
              "count malformed 2\n"},
};

static const struct script silence[] = {
        {"RFC 9293 3.8.4: keepalive", "",
         OPEN "set keepalive 10\n"
              "set interval 2\n"
              "set probes 3\n"
              "+9999\n"
              "~5\n"
              "> A 0 ack 1\n"
              "< A 1 ack 1\n"
              "+9999\n"
              "~5\n"
              "> A 0 ack 1\n"
              "+1999\n"
              "~5\n"
              "> A 0 ack 1\n"
              "+1999\n"
              "~5\n"
              "> A 0 ack 1\n"
              "+1999\n"
              "~5\n"
              "> RA 1 ack 1\n"
              "failed 110\n"
              "count keepalives 4\n"},
        {"RFC 9293 3.8.4: TCP_USER_TIMEOUT replaces the number of probes, as on Linux", "",
         OPEN "set keepalive 10\n"
              "set interval 2\n"
              "set probes 9\n"
              "set timeout 13000\n"
              "+9999\n"
              "~5\n"
              "> A 0 ack 1\n"
              "+1999\n"
              "~5\n"
              "> A 0 ack 1\n"
              "+1999\n"
              "~5\n"
              "> RA 1 ack 1\n"
              "failed 110\n"
              "count keepalives 2\n"},
        {"RFC 9293 3.8.4: no earlier than one probe", "",
         OPEN "set keepalive 10\n"
              "set interval 2\n"
              "set probes 1\n"
              "set timeout 1000\n"
              "+9999\n"
              "~5\n"
              "> A 0 ack 1\n"
              "+1999\n"
              "~5\n"
              "> RA 1 ack 1\n"
              "failed 110\n"},
        {"RFC 9293 3.8.4: only the peer's segments stop it", "",
         OPEN "set keepalive 10\n"
              "set interval 2\n"
              "set probes 1\n"
              "+9999\n"
              "~5\n"
              "> A 0 ack 1\n"
              "+1000\n"
              "< A 1 ack 5000\n"
              "> A 1 ack 1\n"
              "< A 70000 ack 1\n"
              "> A 1 ack 1\n"
              "< R 100\n"
              "> A 1 ack 1\n"
              "+999\n"
              "~5\n"
              "> RA 1 ack 1\n"
              "failed 110\n"},
        {"RFC 9293 3.8.4: the peer's probe shows that it is alive", "",
         OPEN "set keepalive 10\n"
              "+9000\n"
              "< A 0 ack 1\n"
              "> A 1 ack 1\n"
              "+9000\n"
              "< A 0:1 ack 1\n"
              "> A 1 ack 1\n"
              "+9999\n"
              "~5\n"
              "> A 0 ack 1\n"},
        {"RFC 9293 3.8.4: no keepalive without being asked", "",
         OPEN "+86400000\n"
              "state established\n"},
        {"RFC 9293 3.8.4: a listener's keepalive is its connections'", "",
         "listen\n"
         "set keepalive 5\n"
         "< S 0\n"
         "> SA 0\n"
         "< A 1 ack 1\n"
         "accept\n"
         "+4999\n"
         "~5\n"
         "> A 0 ack 1\n"},
        {"RFC 9293 3.8.4: a probe of the peer is answered", "",
         OPEN "< A 0 ack 1\n"
              "> A 1 ack 1\n"
              "< A 0:1 ack 1\n"
              "> A 1 ack 1\n"
              "empty\n"},
};

static const struct script cookies[] = {
        {"RFC 4987 3.6: a cookie returns", "",
         "listen backlog 1\n"
         "< S 0 port 4001\n"
         "> SA 0 port 4001\n"
         "< S 0 mss 1000 port 4002\n"
         "> SA 0 ack 1 port 4002\n"
         "gone 1\n"
         "< A 1 ack 1 win 5000 port 4002\n"
         "count cookies_right 1\n"
         "gone 2\n"
         "accept\n"
         "event writable\n"
         "write 1000\n"
         "v4> A 1:537 port 4002\n"
         "v4> PA 537:1001 port 4002\n"
         "v6> PA 1:1001 port 4002\n"},
        {"RFC 4987 3.6: bytes come with the cookie", "",
         "listen backlog 1\n"
         "< S 0 port 4001\n"
         "> SA 0 port 4001\n"
         "< S 0 mss 1460 port 4002\n"
         "> SA 0 ack 1 port 4002\n"
         "< PA 1:11 ack 1 port 4002\n"
         "accept\n"
         "read 10\n"
         "> A 1 ack 11 port 4002\n"},
        {"RFC 4987 3.6: options survive in timestamps", "ts ws sack",
         "listen backlog 1\n"
         "< S 0 port 4001\n"
         "> SA 0 port 4001\n"
         "anew\n"
         "< S 0 mss 1460 ws 9 sackok ts 500 0 port 4002\n"
         "> SA 0 ack 1 ws 2 sackok port 4002 ts 0 500\n"
         "< A 1 ack 1 win 100 ts 501 1 port 4002\n"
         "accept\n"
         "info wnd 51200\n"
         "v4info mss 1448\n"
         "v6info mss 1428\n"},
        {"a forged cookie is reset", "",
         "listen backlog 1\n"
         "< S 0 port 4001\n"
         "> SA 0 port 4001\n"
         "< S 0 mss 1460 port 4002\n"
         "> SA 0 ack 1 port 4002\n"
         "< A 1 ack 2 port 4002\n"
         "> R 2 port 4002\n"
         "count cookies_wrong 1\n"
         "gone 1\n"},
        {"a cookie is too old after two epochs", "",
         "listen backlog 1\n"
         "< S 0 port 4001\n"
         "> SA 0 port 4001\n"
         "< S 0 mss 1460 port 4002\n"
         "> SA 0 ack 1 port 4002\n"
         "< R 1 port 4001\n"
         "+130000\n"
         "< A 1 ack 1 port 4002\n"
         "> R 1 port 4002\n"
         "gone\n"},
};

static const struct script names[] = {
        {"TOA: the third segment names the client", "toa",
         "listen\n"
         "< S 0\n"
         "> SA 0\n"
         "< A 1 ack 1 toa 1234\n"
         "accept\n"
         "client 1234\n"
         "< A 1 ack 1 toa 1235\n"
         "client 1234\n"},
        {"TOA: the first data names the client", "toa",
         OPEN "client 0\n"
              "< A 1:11 ack 1 toa 1234\n"
              "client 1234\n"
              "read 10\n"
              "> A 1 ack 11\n"},
        {"TOA: not behind the first data", "toa",
         OPEN "< A 1:11 ack 1\n"
              "< A 11:21 ack 1 toa 1234\n"
              "> A 1 ack 21\n"
              "client 0\n"
              "read 20\n"},
        {"TOA: ignored in a SYN: load balancers insert none there", "toa",
         "listen\n"
         "< S 0 toa 6666\n"
         "> SA 0\n"
         "< S 0 toa 6666\n"
         "> SA 0\n"
         "< A 1 ack 1\n"
         "accept\n"
         "client 0\n"
         "< S 100 toa 6666\n"
         "> A 1 ack 1\n"
         "client 0\n"
         "< A 1 ack 1 toa 1234\n"
         "client 1234\n"},
        {"TOA: ignored without the SYN-ACK's number", "toa",
         "listen\n"
         "< S 0\n"
         "> SA 0\n"
         "< A 1 ack 500 toa 6666\n"
         "> A 1 ack 1\n"
         "< P 1:11 toa 6666\n"
         "< A 1 ack 1 toa 1234\n"
         "accept\n"
         "client 1234\n"},
        {"TOA: a segment that is not acceptable names no client", "toa",
         OPEN "< A 1 ack 5000 toa 6666\n"
              "> A 1 ack 1\n"
              "< A 70000 ack 1 toa 6666\n"
              "> A 1 ack 1\n"
              "client 0\n"
              "< A 1 ack 1 toa 1234\n"
              "client 1234\n"},
        {"TOA: with a cookie", "toa",
         "listen backlog 1\n"
         "< S 0 port 4001\n"
         "> SA 0 port 4001\n"
         "< S 0 toa 6666 port 4002\n"
         "> SA 0 ack 1 port 4002\n"
         "< A 1 ack 1 toa 1234 port 4002\n"
         "accept\n"
         "client 1234\n"},
};

TEST(names)
TEST(blind)
TEST(silence)
TEST(cookies)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_names),
	        cmocka_unit_test(test_blind),
	        cmocka_unit_test(test_silence),
	        cmocka_unit_test(test_cookies),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

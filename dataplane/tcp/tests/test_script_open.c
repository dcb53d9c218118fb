// SPDX-License-Identifier: Apache-2.0
/* Opening: RFC 9293 3.5, 3.7.1, 3.10.7; RFC 7323 2; RFC 2018 2; RFC 3168 6.1.1; RFC 4987. */
#include "script.h"

static const struct script passive[] = {
        {"RFC 9293 3.5, figure 6: a peer opens", "",
         "listen\n"
         "< S 0 win 1000\n"
         "> SA 0 ack 1 win 65535 mss 1460\n"
         "refused\n"
         "no event\n"
         "< A 1 ack 1\n"
         "event readable\n"
         "accept\n"
         "event writable\n"
         "state established\n"},
        {"RFC 9293 3.10.7.4, seventh: the handshake's last ACK brings bytes", "",
         "listen\n"
         "< S 0\n"
         "> SA 0 ack 1\n"
         "< PA 1:11 ack 1\n"
         "accept\n"
         "read 10\n"
         "> A 1 ack 11\n"},
        {"RFC 9293 3.10.7.2, first: a reset for a listener is ignored", "",
         "listen\n"
         "< R 0\n"
         "< RA 0 ack 5\n"
         "gone\n"},
        {"RFC 9293 3.10.7.2, second: an ACK for a listener is reset", "",
         "listen\n"
         "< A 5 ack 77\n"
         "> R 77\n"},
        {"RFC 9293 3.10.7.1: a SYN to a closed port is reset", "",
         "< S 0\n"
         "> RA 0 ack 1\n"
         "< SF 0\n"
         "count malformed 1\n"
         "< A 5:105 ack 9\n"
         "> R 9\n"
         "< R 5\n"
         "gone\n"},
        {"RFC 9293 3.10.7.1: the reset acknowledges bytes and FIN", "",
         "< F 0:100\n"
         "> RA 0 ack 101\n"},
        {"RFC 9293 3.8.1: the SYN-ACK is sent again, twice as late each time", "",
         "listen\n"
         "< S 0\n"
         "> SA 0 ack 1\n"
         "+999\n"
         "+2\n"
         "> SA 0 ack 1\n"
         "+1999\n"
         "+2\n"
         "> SA 0 ack 1\n"
         "< A 1 ack 1\n"
         "accept\n"
         "state established\n"},
        {"RFC 9293 3.8.3: a half-open connection is given up", "",
         "listen\n"
         "< S 0\n"
         "> SA 0\n"
         "+1001\n"
         "> SA 0\n"
         "+2001\n"
         "> SA 0\n"
         "+4001\n"
         "> SA 0\n"
         "+8001\n"
         "> SA 0\n"
         "+16001\n"
         "> SA 0\n"
         "+30000\n"
         "gone\n"},
        {"RFC 9293 3.5: which ACKs belong to a half-open connection", "",
         "listen\n"
         "alien 1\n"
         "< S 0\n"
         "> SA 0 ack 1\n"
         "expects 1\n"
         "alien 0\n"
         "alien 2\n"
         "< A 1 ack 1\n"
         "accept\n"
         "expects 1\n"
         "expects 0\n"
         "expects 77\n"},
        {"RFC 9293 3.10.7.4, fourth: the peer repeats its SYN", "",
         "listen\n"
         "< S 0\n"
         "> SA 0 ack 1\n"
         "< S 0\n"
         "> SA 0 ack 1\n"
         "< A 1 ack 1\n"
         "accept\n"},
        {"RFC 9293 3.10.7.4, fifth: a wrong ACK of the SYN-ACK is reset", "",
         "listen\n"
         "< S 0\n"
         "> SA 0 ack 1\n"
         "< A 1 ack 0\n"
         "> R 0\n"
         "< A 1 ack 1\n"
         "accept\n"},
        {"RFC 9293 3.10.7.4, second: a reset in SYN-RECEIVED returns to LISTEN", "",
         "listen\n"
         "< S 0\n"
         "> SA 0 ack 1\n"
         "< R 1\n"
         "gone\n"
         "no event\n"
         "< S 0\n"
         "> SA 0 ack 1\n"
         "< A 1 ack 1\n"
         "accept\n"},
        {"RFC 9293 3.10.7.4, eighth: FIN with the last ACK of the handshake", "",
         "listen\n"
         "< S 0\n"
         "> SA 0 ack 1\n"
         "< FA 1:6 ack 1\n"
         "> A 1 ack 7\n"
         "accept\n"
         "event readable writable done\n"
         "read 5\n"
         "eof\n"
         "state close-wait\n"},
        {"a connection that is reset before accept() is accepted, as on Linux", "",
         "listen backlog 1\n"
         "< S 0\n"
         "> SA 0\n"
         "< A 1 ack 1\n"
         "< PA 1:11 ack 1\n"
         "< R 11\n"
         "# it takes a place of the backlog\n"
         "< S 0 port 4001\n"
         "count refused_backlog 1\n"
         "accept\n"
         "event readable writable hangup error\n"
         "read 10\n"
         "failed 104\n"
         "eof\n"
         "close\n"
         "gone\n"},
        {"a listener that closes forgets one that was reset", "",
         "listen\n"
         "< S 0\n"
         "> SA 0\n"
         "< A 1 ack 1\n"
         "< PA 1:11 ack 1\n"
         "< R 11\n"
         "unlisten\n"
         "gone\n"
         "held 0\n"},
        {"closing a listener resets its accept queue and drops half-open connections", "",
         "listen\n"
         "< S 0\n"
         "> SA 0\n"
         "< S 0 port 4001\n"
         "> SA 0 port 4001\n"
         "< A 1 ack 1\n"
         "unlisten\n"
         "> RA 1 port 4000\n"
         "gone\n"
         "< A 1 ack 1 port 4001\n"
         "> R 1 port 4001\n"},
};

static const struct script active[] = {
        {"RFC 9293 3.5: this side opens", "",
         "connect\n"
         "> S 0 mss 1460\n"
         "state syn-sent\n"
         "broken 11\n"
         "< SA 0 ack 1 win 1000\n"
         "> A 1 ack 1\n"
         "event writable\n"
         "state established\n"},
        {"RFC 9293 3.10.7.3, first: a wrong ACK is reset, and the SYN is sent again", "",
         "connect\n"
         "> S 0\n"
         "< SA 0 ack 7\n"
         "> R 7\n"
         "state syn-sent\n"
         "+1001\n"
         "> S 0\n"
         "< SA 0 ack 1\n"
         "> A 1 ack 1\n"},
        {"RFC 9293 3.10.7.3, second: refused", "",
         "connect\n"
         "> S 0\n"
         "< RA 0 ack 1\n"
         "event readable writable hangup error\n"
         "state closed\n"
         "failed 111\n"
         "close\n"
         "gone\n"},
        {"RFC 9293 3.10.7.3, second: a reset that acknowledges nothing is ignored", "",
         "connect\n"
         "> S 0\n"
         "< R 0\n"
         "< RA 0 ack 9\n"
         "state syn-sent\n"
         "< SA 0 ack 1\n"
         "> A 1 ack 1\n"},
        {"RFC 9293 3.10.7.3, fifth: neither SYN nor RST", "",
         "connect\n"
         "> S 0\n"
         "< A 5 ack 1\n"
         "state syn-sent\n"},
        {"RFC 9293 3.8.3: a SYN is sent for at least three minutes", "",
         "connect\n"
         "> S 0\n"
         "+1001\n"
         "> S 0\n"
         "+2001\n"
         "> S 0\n"
         "+4001\n"
         "> S 0\n"
         "+8001\n"
         "> S 0\n"
         "+16001\n"
         "> S 0\n"
         "+32001\n"
         "> S 0\n"
         "+64001\n"
         "> S 0\n"
         "+50000\n"
         "state syn-sent\n"
         "+5000\n"
         "event readable writable hangup error\n"
         "failed 110\n"
         "close\n"
         "gone\n"},
        {"RFC 9293 3.5, figure 7: both open", "",
         "connect\n"
         "> S 0\n"
         "< S 0 win 1000\n"
         "> SA 0 ack 1\n"
         "state syn-received\n"
         "< SA 0 ack 1 win 1000\n"
         "state established\n"
         "event writable\n"
         "write 10\n"
         "> PA 1:11 ack 1\n"},
        {"RFC 9293 3.5, figure 7: both open, and the peer only acknowledges", "",
         "connect\n"
         "> S 0\n"
         "< S 0\n"
         "> SA 0 ack 1\n"
         "< A 1 ack 1\n"
         "state established\n"},
        {"RFC 9293 3.10.4: close in SYN-SENT", "",
         "connect\n"
         "> S 0\n"
         "close\n"
         "gone\n"
         "< SA 0 ack 1\n"
         "> R 1\n"},
        {"RFC 9293 3.5, figure 8: an old SYN arrives", "",
         "connect\n"
         "> S 0\n"
         "< SA 50 ack 4000000\n"
         "> R 4000000\n"
         "< SA 0 ack 1\n"
         "> A 1 ack 1\n"},
        {"RFC 9293 3.10.7.3: bytes come with the SYN-ACK", "",
         "connect\n"
         "> S 0\n"
         "< SA 0:10 ack 1\n"
         "> A 1 ack 11\n"
         "event readable writable\n"},
        {"RFC 9293 3.5.1, figure 9: the peer has forgotten the connection", "",
         "connect\n"
         "> S 0\n"
         "< A 300 ack 100\n"
         "> R 100\n"
         "+1001\n"
         "> S 0\n"
         "< SA 0 ack 1\n"
         "> A 1 ack 1\n"},
};

static const struct script options[] = {
        {"RFC 9293 3.7.1: without the option a segment has 536 bytes", "",
         "listen\n"
         "< S 0\n"
         "> SA 0\n"
         "< A 1 ack 1\n"
         "accept\n"
         "write 1220\n"
         "# IPv6: 1220 bytes\n"
         "v4> A 1:537\n"
         "v4> A 537:1073\n"
         "v4> PA 1073:1221\n"
         "v6> PA 1:1221\n"},
        {"RFC 9293 3.7.1: the peer's MSS", "",
         "listen\n"
         "< S 0 mss 100\n"
         "> SA 0\n"
         "< A 1 ack 1\n"
         "accept\n"
         "write 250\n"
         "> A 1:101\n"
         "> A 101:201\n"
         "> PA 201:251\n"},
        {"a tiny MSS counts as 48", "",
         "listen\n"
         "< S 0 mss 1\n"
         "> SA 0\n"
         "< A 1 ack 1\n"
         "accept\n"
         "write 60\n"
         "> A 1:49\n"
         "> PA 49:61\n"},
        {"RFC 7323 2.2: windows are scaled once both have said so, but not of SYNs", "ws",
         "listen\n"
         "< S 0 win 100 ws 4 mss 1000\n"
         "> SA 0 ack 1 ws 2 win 65535\n"
         "< A 1 ack 1 win 50\n"
         "accept\n"
         "info wnd 800\n"
         "write 2000\n"
         "> A 1:801\n"},
        {"RFC 7323 2.2: a SYN-ACK's window is not scaled", "ws",
         "connect\n"
         "> S 0 ws 2\n"
         "< SA 0 ack 1 win 1000 ws 7 mss 1000\n"
         "> A 1 ack 1\n"
         "info wnd 1000\n"
         "< A 1 ack 1 win 10\n"
         "info wnd 1280\n"},
        {"RFC 7323 2.2: no scale for a peer that offers none", "ws",
         "listen\n"
         "< S 0 win 1000\n"
         "> SA 0 ws 15\n"
         "< A 1 ack 1 win 1000\n"
         "accept\n"
         "info wnd 1000\n"},
        {"RFC 7323 2.3: a scale above 14 counts as 14", "ws",
         "listen\n"
         "< S 0 ws 15 mss 1000\n"
         "> SA 0\n"
         "< A 1 ack 1 win 1\n"
         "accept\n"
         "info wnd 1\n"},
        {"RFC 7323 3.2: timestamps if both have them", "ts",
         "listen\n"
         "< S 0 ts 1000 0\n"
         "> SA 0 ts 0 1000\n"
         "+5\n"
         "< A 1 ack 1 ts 1001 1\n"
         "accept\n"
         "write 10\n"
         "> PA 1:11 ts 5 1001\n"},
        {"RFC 7323 3.2: no timestamps for a peer without", "ts sack",
         "listen\n"
         "< S 0 sackok\n"
         "> SA 0 sackok\n"
         "< A 1 ack 1\n"
         "accept\n"
         "write 10\n"
         "> PA 1:11\n"},
        {"RFC 7323 3.2: an opener asks for all", "ts sack ws",
         "connect\n"
         "> S 0 ts 0 0 sackok ws 2 mss 1460\n"
         "< SA 0 ack 1 sackok ws 3 ts 77 1\n"
         "> A 1 ack 1 ts 0 77\n"},
        {"RFC 3168 6.1.1: an ECN-setup SYN", "",
         "listen\n"
         "< SEC 0\n"
         "> SAE 0\n"
         "< A 1 ack 1\n"
         "accept\n"
         "write 10\n"
         "> PA 1:11 ect\n"},
        {"RFC 3168 6.1.1: a SYN with ECE alone asks for nothing", "",
         "listen\n"
         "< SE 0\n"
         "> SA 0\n"
         "< A 1 ack 1\n"
         "accept\n"
         "write 10\n"
         "> PA 1:11 notect\n"},
        {"RFC 3168 6.1.1: this side asks", "ecn",
         "connect\n"
         "> SEC 0 notect\n"
         "< SAE 0 ack 1\n"
         "> A 1 notect\n"
         "write 10\n"
         "> PA 1:11 ect\n"},
        {"RFC 3168 6.1.1: the peer does not want it", "ecn",
         "connect\n"
         "> SEC 0\n"
         "< SAEC 0 ack 1\n"
         "> A 1\n"
         "write 10\n"
         "> PA 1:11 notect\n"},
        {"RFC 3168 6.1.1.1: a SYN that is lost may be for ECN", "ecn",
         "connect\n"
         "> SEC 0\n"
         "+1001\n"
         "> S 0\n"},
};

static const struct script backlog[] = {
        {"no SYN is taken while the queue of accept is full", "",
         "listen backlog 1\n"
         "< S 0\n"
         "> SA 0\n"
         "< A 1 ack 1\n"
         "< S 0 port 4001\n"
         "count refused_backlog 1\n"
         "accept\n"
         "< S 0 port 4001\n"
         "> SA 0 port 4001\n"},
        {"a cookie is taken only when the queue has space", "",
         "listen backlog 1\n"
         "< S 0\n"
         "> SA 0\n"
         "< S 0 port 4001\n"
         "> SA 0 ack 1 port 4001\n"
         "count cookies_sent 1\n"
         "< A 1 ack 1\n"
         "< A 1 ack 1 port 4001\n"
         "count refused_backlog 1\n"
         "count cookies_right 0\n"
         "accept\n"
         "< A 1 ack 1 port 4001\n"
         "count refused_backlog 1\n"
         "count cookies_right 1\n"
         "accept\n"},
        {"a handshake is completed only when the queue has space", "",
         "listen backlog 1\n"
         "< S 0\n"
         "> SA 0\n"
         "< S 0 port 4001\n"
         "> SA 0 ack 1 port 4001\n"
         "< A 1 ack 1 port 4001\n"
         "count cookies_right 1\n"
         "< A 1 ack 1\n"
         "count refused_backlog 1\n"
         "accept\n"
         "< A 1 ack 1\n"
         "count refused_backlog 1\n"
         "accept\n"},
};

TEST(passive)
TEST(active)
TEST(options)
TEST(backlog)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_passive),
	        cmocka_unit_test(test_active),
	        cmocka_unit_test(test_options),
	        cmocka_unit_test(test_backlog),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

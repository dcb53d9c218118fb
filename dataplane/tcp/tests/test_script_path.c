// SPDX-License-Identifier: Apache-2.0
/* Path MTU: RFC 1191, RFC 8201, RFC 4821, RFC 8899, RFC 5927; errors of routers: RFC 1122 4.2.3.9.
 */
#include "script.h"

/* A router has told of 1400 bytes (IPv6: 1420), and ten minutes have passed. */
#define TOLD                                                                                       \
	"listen\n< S 0 win 60000 mss 1460 sackok\n> SA 0\n+10\n< A 1 ack 1 win 60000\naccept\n"    \
	"write 1460\n> PA 1:1461\nv4icmp toobig 0 1 1400\nv6icmp toobig 0 1 1420\n"                \
	"> A 1:1361\n> PA 1361:1461\n+10\n< A 1 ack 1461\ninfo mss 1360\n"
/* A probe of 1380 bytes, and what follows it. */
#define PROBE                                                                                      \
	"+600001\nwrite 8180\n> A 1461:2841\n> A 2841:4201\n> A 4201:5561\n> A 5561:6921\n"        \
	"> A 6921:8281\n> PA 8281:9641\ncount path_probes 1\n+10\n"

static const struct script probes[] = {
        {"RFC 1191 6.3: not before ten minutes", "sack",
         TOLD "+599900\n"
              "write 8160\n"
              "> A 1461:2821\n"
              "> A 2821:4181\n"
              "> A 4181:5541\n"
              "> A 5541:6901\n"
              "> A 6901:8261\n"
              "> PA 8261:9621\n"
              "count path_probes 0\n"},
        {"RFC 8899 4.3: then a larger size is tried, and taken, and the search goes on", "sack",
         TOLD PROBE "< A 1 ack 2841\n"
                    "info mss 1380\n"
                    "count path_raised 1\n"
                    "+1\n"
                    "< A 1 ack 9641\n"
                    "write 8200\n"
                    "v4> A 9641:11101\n"
                    "v4> A 11101:12481\n"
                    "v4> A 12481:13861\n"
                    "v4> A 13861:15241\n"
                    "v4> A 15241:16621\n"
                    "v4> PA 16621:17841\n"
                    "v6> A 9641:11081\n"
                    "v6> A 11081:12461\n"
                    "v6> A 12461:13841\n"
                    "v6> A 13841:15221\n"
                    "v6> A 15221:16601\n"
                    "v6> PA 16601:17841\n"
                    "count path_probes 2\n"},
        {"RFC 4821 7.6.2: its loss is no congestion, and its bytes go again as ever", "sack",
         TOLD PROBE "info cwnd 13600\n"
                    "< A 1 ack 1461 sack 2841-6921\n"
                    "> A 1461:2821\n"
                    "> A 2821:2841\n"
                    "count recoveries 0\n"
                    "info cwnd 13600\n"
                    "+10\n"
                    "< A 1 ack 9641\n"
                    "info mss 1360\n"
                    "count path_raised 0\n"},
        {"RFC 4821 7.6.4: with other losses it is, and says nothing of the size", "sack",
         TOLD PROBE "< A 1 ack 1461 sack 4201-8281\n"
                    "> A 1461:2821\n"
                    "> A 2821:4181\n"
                    "> A 4181:4201\n"
                    "count recoveries 1\n"},
        {"RFC 8899 5.1.4: a peer without SACK", "sack",
         "listen\n< S 0 win 60000 mss 1460\n> SA 0\n+10\n< A 1 ack 1 win 60000\naccept\n"
         "write 1460\n> PA 1:1461\nv4icmp toobig 0 1 1400\nv6icmp toobig 0 1 1420\n"
         "> A 1:1361\n> PA 1361:1461\n+10\n< A 1 ack 1461\n" PROBE "< A 1 ack 1461\n"
         "< A 1 ack 1461\n"
         "< A 1 ack 1461\n"
         "> A 1461:2821\n"
         "> A 2821:2841\n"
         "count recoveries 0\n"
         "+10\n"
         "< A 1 ack 9641\n"
         "info mss 1360\n"},
        {"RFC 8899 4.6.2: a router refuses the probe", "sack",
         TOLD PROBE "v4icmp toobig 0 1461 1400\n"
                    "v6icmp toobig 0 1461 1420\n"
                    "info mss 1360\n"
                    "< A 1 ack 1461 sack 2841-6921\n"
                    "> A 1461:2821\n"
                    "> A 2821:2841\n"
                    "count recoveries 0\n"},
        {"RFC 5927 7.2: a quoted packet larger than any that was sent is not believed", "sack",
         TOLD "write 1360\n"
              "> PA 1461:2821\n"
              "icmp toobig 0 1461 1300\n"
              "info mss 1360\n"
              "count too_big 1\n"
              "count icmp_ignored 1\n"},
};

static const struct script path[] = {
        {"RFC 1191 6.4, RFC 8201 5.3: a router's MTU is taken, and the bytes sent again", "",
         "listen\n"
         "< S 0 win 60000 mss 1460\n"
         "> SA 0\n"
         "< A 1 ack 1 win 60000\n"
         "accept\n"
         "write 1460\n"
         "> PA 1:1461\n"
         "v4icmp toobig 0 1 1400\n"
         "v6icmp toobig 0 1 1420\n"
         "> A 1:1361\n"
         "> PA 1361:1461\n"
         "info mss 1360\n"
         "count too_big 1\n"},
        {"RFC 5927 7: a quoted number that is not under way is not believed", "",
         "listen\n"
         "< S 0 win 60000 mss 1460\n"
         "> SA 0\n"
         "< A 1 ack 1 win 60000\n"
         "accept\n"
         "write 1460\n"
         "> PA 1:1461\n"
         "icmp toobig 0 1461 1300\n"
         "icmp toobig 0 0 1300\n"
         "info mss 1460\n"
         "count icmp_ignored 2\n"},
        {"RFC 1191 3, RFC 8201 4: no size below the least", "",
         "listen\n"
         "< S 0 win 60000 mss 1460\n"
         "> SA 0\n"
         "< A 1 ack 1 win 60000\n"
         "accept\n"
         "write 100\n"
         "> PA 1:101\n"
         "icmp toobig 0 1 68\n"
         "# with IPv6 it is not even believed\n"
         "v4> PA 1:101\n"
         "v4info mss 536\n"
         "v6info mss 1460\n"},
        {"RFC 4821 7.6, RFC 8899 4.3: a path that swallows full segments", "",
         "listen\n"
         "< S 0 win 60000 mss 1460\n"
         "> SA 0\n"
         "< A 1 ack 1 win 60000\n"
         "accept\n"
         "write 1460\n"
         "> PA 1:1461\n"
         "~300\n"
         "> PA 1:1461\n"
         "~500\n"
         "> PA 1:1461\n"
         "~1000\n"
         "v4> A 1:1161\n"
         "v6> A 1:1221\n"},
        {"RFC 8899 4.3: or segments that are not full, and larger than what surely passes", "",
         "listen\n"
         "< S 0 win 60000 mss 1460\n"
         "> SA 0\n"
         "< A 1 ack 1 win 60000\n"
         "accept\n"
         "write 1450\n"
         "> PA 1:1451\n"
         "~300\n"
         "> PA 1:1451\n"
         "~500\n"
         "> PA 1:1451\n"
         "~1000\n"
         "v4> A 1:1161\n"
         "v6> A 1:1221\n"},
        {"RFC 8899 4.3: also behind an old ACK whose window was closed", "",
         "listen\n"
         "< S 0 win 60000 mss 1460\n"
         "> SA 0\n"
         "< A 1 ack 1 win 60000\n"
         "accept\n"
         "write 1460\n"
         "> PA 1:1461\n"
         "< A 1 ack 1 win 0\n"
         "~300\n"
         "> PA 1:1461\n"
         "~500\n"
         "> PA 1:1461\n"
         "~1000\n"
         "v4> A 1:1161\n"
         "v6> A 1:1221\n"},
        {"RFC 8899 4.3: smaller ones say nothing", "",
         "listen\n"
         "< S 0 win 60000 mss 1460\n"
         "> SA 0\n"
         "< A 1 ack 1 win 60000\n"
         "accept\n"
         "write 1160\n"
         "> PA 1:1161\n"
         "~300\n"
         "> PA 1:1161\n"
         "~500\n"
         "> PA 1:1161\n"
         "~1000\n"
         "> PA 1:1161\n"
         "info mss 1460\n"},
        {"RFC 1122 4.2.3.9: unreachable is a hint, which counts at the end", "",
         OPEN "set timeout 1000\n"
              "write 100\n"
              "> PA 1:101\n"
              "icmp host 1 1\n"
              "state established\n"
              "count icmp_accepted 1\n"
              "~300\n"
              "> PA 1:101\n"
              "~500\n"
              "> PA 1:101\n"
              "+500\n"
              "state closed\n"
              "failed 113\n"},
        {"RFC 5461 4.1: while a connection is opened, port unreachable ends it", "",
         "connect\n"
         "> S 0\n"
         "icmp port 3 0\n"
         "state closed\n"
         "failed 111\n"},
        {"RFC 1122 4.2.3.9: host unreachable does not", "",
         "connect\n"
         "> S 0\n"
         "icmp host 1 0\n"
         "state syn-sent\n"
         "< SA 0 ack 1\n"
         "> A 1\n"
         "state established\n"},
};

TEST(probes)
TEST(path)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_probes),
	        cmocka_unit_test(test_path),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

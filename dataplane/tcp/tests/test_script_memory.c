// SPDX-License-Identifier: Apache-2.0
/* Queued data has bounded memory: in order, RFC 9293 3.8.6; out of order, 3.10.7.4. */
#include "script.h"

/* The driver's buffers: 32767, of which 8191 are a quarter. */
static const struct script memory[] = {
        {"RFC 9293 3.8.6: what waits is copied while the driver's buffers are scarce", "copies",
         OPEN "< A 1:1001 ack 1\n"
              "held 1\n"
              "scarce 8000\n"
              "+1\n"
              "< A 1001:2001 ack 1\n"
              "> A 1 ack 2001\n"
              "< A 2001:3001 ack 1\n"
              "count copied 2\n"
              "held 1\n"
              "# out of order as well\n"
              "< A 5001:6001 ack 1\n"
              "> A 1 ack 3001\n"
              "count copied 3\n"
              "held 1\n"
              "< A 3001:4001 ack 1\n"
              "> A 1 ack 4001\n"
              "< A 4001:5001 ack 1\n"
              "# no memory: it has to come again\n"
              "> A 1 ack 4001\n"
              "count copied 4\n"
              "count refused_memory 1\n"
              "held 1\n"
              "read 4000\n"
              "held 0\n"
              "< A 4001:5001 ack 1\n"
              "> A 1 ack 6001\n"
              "read 2000\n"
              "scarce 0\n"
              "+1\n"
              "< A 6001:7001 ack 1\n"
              "held 1\n"
              "read 1000\n"
              "> A 1 ack 7001\n"},
        {"RFC 9293 3.8.6: the last ones are not for who already has some", "copies",
         OPEN "scarce 8000\n"
              "+1\n"
              "< A 1:1001 ack 1\n< A 1001:2001 ack 1\n> A 1 ack 2001\n"
              "< A 2001:3001 ack 1\n< A 3001:4001 ack 1\n> A 1 ack 4001\n"
              "< A 4001:5001 ack 1\n"
              "anew\n"
              "< S 0 mss 1000 port 4001\n"
              "> SA 0 port 4001\n"
              "< A 1 ack 1 port 4001\n"
              "< A 1:1001 ack 1 port 4001\n"
              "held 1\n"
              "< A 1001:2001 ack 1 port 4001\n"
              "> A 1 ack 1001 port 4001\n"
              "held 1\n"
              "count refused_memory 1\n"
              "accept\n"
              "read 1000\n"
              "scarce 4000\n"
              "+1\n"
              "< A 1001:2001 ack 1 port 4001\n"
              "> A 1 ack 1001 port 4001\n"
              "held 0\n"
              "count refused_memory 2\n"},
};

/* A connection's window is 65535 at first, and a packet counts with its whole buffer. */
static const struct script reassembly[] = {
        {"RFC 9293 3.10.7.4, SHLD-31: out of order, what lies beyond the window is cut off",
         "receive 2000",
         OPEN "< A 1001:2501 ack 1\n"
              "> A 1 ack 1\n"
              "< A 3001:3501 ack 1\n"
              "> A 1 ack 1\n"
              "count out_of_window 1\n"
              "held 1\n"
              "< A 1:1001 ack 1\n"
              "> A 1 ack 2001 win 0\n"
              "read 2000\n"
              "> A 1 ack 2001 win 2000\n"},
        {"RFC 9293 3.10.7.4, SHLD-31: single bytes behind gaps take twice the window at most", "",
         OPEN "gaps 600\n"
              "count out_of_order_dropped 1 600\n"
              "# in order there is room all the same, and what was kept follows\n"
              "< A 1:3 ack 1\n"
              "> A 1 ack 4\n"
              "< A 4:5 ack 1\n"
              "> A 1 ack 6\n"
              "read 5\n"},
        {"RFC 9293 3.10.7.4, SHLD-31: of a connection 256 pieces, however large its window is",
         "receive 1000000",
         OPEN "set receive 1000000\n"
              "gaps 600\n"
              "count out_of_order_dropped 344\n"
              "held 256\n"
              "< A 1:1001 ack 1\n"
              "> A 1 ack 1001\n"
              "read 1000\n"
              "> A 1 ack 1001\n"
              "held 0\n"},
        {"RFC 9293 3.10.7.4, SHLD-31: what was told of by SACK is kept", "sack",
         OPEN_WITH("sackok") "< A 1001:2001 ack 1\n"
                             "> A 1 ack 1 sack 1001-2001\n"
                             "< A 1501:1601 ack 1\n"
                             "> A 1 ack 1 sack 1501-1601 1001-2001\n"
                             "count duplicates 1\n"
                             "held 1\n"
                             "< A 1:1501 ack 1\n"
                             "> A 1 ack 2001\n"
                             "read 2000\n"
                             "held 0\n"},
};

TEST(memory)
TEST(reassembly)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_memory),
	        cmocka_unit_test(test_reassembly),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

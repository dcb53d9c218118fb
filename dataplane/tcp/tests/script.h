// SPDX-License-Identifier: Apache-2.0
/*
 * Scripts of segments: one stack, and a peer that does what the script says, in virtual time. A
 * script is text, a line for each step:
 *
 *     listen [backlog N]         a listener                connect    an active open
 *     accept                     takes a connection        abort, close, shutdown, unlisten
 *     write N                    N bytes are to be sent    read N     N bytes are read, all right
 *     full                       write gives -EAGAIN       eof        read gives 0
 *     part N                     a read of 64 gives N       mark 0|1   the next byte is urgent
 *     expects N, alien N         would it take an ACK of N? (sy_stack_expects_ack())
 *     refused                    connect or accept fails   failed E   the connection's error
 *     set OPTION V               nodelay, cork, quickack, keepalive, interval, probes, timeout,
 *                                linger, receive, send, mss, tos, pacing, rate
 *     write N more, write N oob, write N fin, write N cork: with these flags, or with shutdown, or
 *     corked afterwards; write N then M …: one after the other, before the stack sends
 *     broken E                   write fails               empty      read gives -EAGAIN
 *     state NAME                 as sy_stack_state_name()  gone [N]   N connections are left
 *     event WORDS                what the next event says  no event   there is none
 *     scarce N                   but for N, the driver's packets are taken; 0: all are back
 *     held N                     so many of the driver's packets wait in the stack
 *     count NAME N [MAX]        a counter of the stack; with MAX: from N to that
 *     info NAME N [MAX]         cwnd, ssthresh, mss, rto, flight, unsent, wnd
 *     took N                     bytes that peers of closed connections have taken
 *     client PORT                as sy_stack_client() says, 0: nothing
 *     anew                       numbers of a connection that follows are its own
 *     keep A [PORT]              the stack's first number is A (a letter)
 *     apart A B N                B is N beyond A; unlike A B: by more than the clock is, or less
 *     reboot SECRET              another stack, which knows nothing but the time
 *     retire                     of the listener           forget     another TCP has it
 *     export SND RCV WND UNREAD MSS SCALE TIME, OPTIONS    what sy_stack_export() says, and the
 * bytes stays E                    it refuses, with this error rounds N MS [BYTES]        the
 * window is filled (by BYTES: or less); N times, MS later, each segment is acknowledged and the
 * window filled again lost MS                    the same once, but the first segment is lost, and
 * sent again gaps N                     the peer sends N times a byte, each behind one that is
 * missing +MS                        time passes; the stack sends at the end of it at the earliest
 *     ~MS                        time passes until the stack sends, at most so much
 *     < SEGMENT                  the peer sends            > SEGMENT  the stack sends
 *     >* FLAGS FIRST:END LEN     the stack sends it in segments of LEN; PSH may be set
 *     answer MS SEGMENT          time passes; whatever the stack sends, the peer answers so
 *     icmp KIND CODE SEQ [MTU]   an error about our segment with this number
 *
 * SEGMENT is flags (of SFRPAUEC, or "." for none) and FIRST or FIRST:END of its sequence numbers;
 * then ack N, win N, urg N, mss N, ws N, sackok, ts VALUE ECHO, sack A-B …, ce, ect, port N, toa
 * PORT (of a client with the peer's address, as a TCP option says).
 * Numbers count from the first of their side; timestamps of the stack from its first one. What an
 * expected segment does not name may be anything, but flags, numbers and the order are always
 * checked, and that nothing else is sent. Bytes are checked, too: byte n of a direction has one
 * value.
 */
#ifndef SCRIPT_H
#define SCRIPT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sy_stack.h"

/* A connection that a peer has opened, with segments of 1000 bytes. */
#define OPEN_WITH(options)                                                                         \
	"listen\n< S 0 win 60000 mss 1000 " options "\n> SA 0 ack 1\n"                             \
	"< A 1 ack 1 win 60000\nevent readable\naccept\nevent writable\n"
#define OPEN OPEN_WITH("")
/* The same with timestamps; the peer's begin with 1000. */
#define OPEN_TS                                                                                    \
	"listen\n< S 0 win 60000 mss 1012 ts 1000 0\n> SA 0 ack 1 ts 0 1000\n"                     \
	"< A 1 ack 1 win 60000 ts 1000 1\nevent readable\naccept\nevent writable\n"

#define TEST(group)                                                                                \
	static void test_##group(void **state)                                                     \
	{                                                                                          \
		script_play_all(group, SY_ARRAY_LEN(group));                                       \
	}

struct script {
	const char *section; /* of an RFC: what it shows */
	const char *options; /* of the stack: words nosack, nots, nows, ecn, newreno, tw MS, … */
	const char *text;
};

/* Plays it over IPv4 and IPv6. Fails the test with the line that is wrong. */
void script_play(const struct script *script);
void script_play_all(const struct script *scripts, size_t count);

/* Starts EAL and makes a pool of packets, once. And a small one, for copies. */
struct rte_mempool *tests_pool(void);
struct rte_mempool *tests_copies(void);

#endif

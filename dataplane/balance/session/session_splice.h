// SPDX-License-Identifier: Apache-2.0
/*
 * Spliced sessions (docs/design/0025-syn-defence.md): the forwarder has answered the client's SYN
 * by a cookie, and has opened the server's connection after the client's ACK. Such a session is a
 * pair. Its pair record has these two in place of a client and of the cold half.
 *
 * Writer and reader: the slot's owner.
 */
#ifndef SESSION_SPLICE_H
#define SESSION_SPLICE_H

#include "session.h"

/* In place of the pair record's client: fields of the client's SYN and ACK. Constant. */
struct splice_begin {
	uint32_t cookie; /* number of our SYN-ACK to the client */
	uint32_t number; /* of the client's SYN */
	uint32_t time;   /* the client's timestamp in its ACK */
	uint16_t window; /* of its ACK, as in the header; host order */
	uint8_t options; /* SPLICE_* */
	uint8_t scales;  /* window scales, 4 bits each: the client's, and the one announced to it;
	                    SY_TCP_NO_SCALE: none */
} __attribute__((may_alias));
_Static_assert(sizeof(struct splice_begin) == sizeof(struct sy_addr), "in place of the client");

enum { SPLICE_MSS = 3 /* sy_cookie_mss() */, SPLICE_SACK = 4, SPLICE_TIMESTAMPS = 8 };

/* The pair record's cold half. The first 8 bytes change in one store when the server answers, after
 * the fields behind them and before the session's state. */
struct session_splice {
	/* spliced: enum below; syn_number: with SPLICE_SYN_SEEN, the low bits of the number that a
	 * SYN-ACK must acknowledge. */
	uint32_t syn_number : 24, spliced : 8;
	union {
		uint32_t echo;          /* before: our timestamp, echoed by the client */
		uint32_t server_number; /* after: number of the server's SYN */
	};
	uint32_t time;               /* added to the server's timestamps */
	uint16_t commit;             /* as in struct session_cold */
	int8_t to_client, to_server; /* bits by which windows are shifted */
} __attribute__((may_alias));
_Static_assert(sizeof(struct session_splice) == sizeof(struct session_cold) &&
                       offsetof(struct session_splice, commit) ==
                               offsetof(struct session_cold, commit),
               "a cold half");
#define SPLICE_SYN_MASK 0xffffffu

enum {
	SPLICE_IDLE,     /* the server has not answered, or both ends use the same numbers */
	SPLICED,         /* the server has answered */
	SPLICE_SYN_SEEN, /* and the client has sent another SYN since */
};

/* Stores the server's number: the session is spliced. */
static inline void splice_establish(struct session_splice *splice, uint32_t server_number)
{
	typedef uint64_t __attribute__((may_alias)) word;
	const struct session_splice to = {.spliced = SPLICED, .server_number = server_number};
	word bytes;
	memcpy(&bytes, &to, sizeof(bytes));
	__atomic_store_n((word *)(void *)splice, bytes, __ATOMIC_RELEASE);
}

static inline const struct splice_begin *splice_begin_of(const struct session *s)
{
	return (const struct splice_begin *)&s[1].client;
}

/* Both take a pair's first record. */
static inline struct session_splice *splice_at(const struct session_table *t, uint32_t record)
{
	return (struct session_splice *)session_cold_at(t, record + 1);
}

#endif

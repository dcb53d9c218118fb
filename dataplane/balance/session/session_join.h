// SPDX-License-Identifier: Apache-2.0
/*
 * Joined sessions (docs/design/0025-syn-defence.md): the forwarder has answered the client's SYN
 * itself, by a cookie, and has opened the server's connection after the client's ACK. Such a
 * session is a pair. What its pair record has in place of a client, and its cold half, are these.
 *
 * Writer and reader: the owner of the slot.
 */
#ifndef SESSION_JOIN_H
#define SESSION_JOIN_H

#include "session.h"

/* In place of the pair record's client: what the client's SYN and ACK said. Never changes. */
struct join_begin {
	uint32_t cookie; /* the number of our SYN-ACK to the client */
	uint32_t number; /* of the client's SYN */
	uint32_t time;   /* the client's timestamp, in its ACK */
	uint16_t window; /* of its ACK, as in the header; host order */
	uint8_t options; /* JOIN_* */
	uint8_t scales;  /* of windows: the client's 4 bits, the one announced to it 4 bits;
	                    SY_TCP_NO_SCALE: none */
} __attribute__((may_alias));
_Static_assert(sizeof(struct join_begin) == sizeof(struct sy_addr), "in place of the client");

enum { JOIN_MSS = 3 /* sy_cookie_mss() */, JOIN_SACK = 4, JOIN_TIMESTAMPS = 8 };

/* The pair record's cold half. Fields change one store at a time, `joined` last. */
struct session_join {
	uint32_t created : 24, joined : 8; /* joined: the server has answered */
	uint32_t server_number;            /* of the server's SYN */
	/* What is added to the server's timestamps; while SESSION_OPENING the timestamp of our
	 * SYN-ACK that the client has echoed. */
	uint32_t time;
	uint16_t commit;             /* as in struct session_cold */
	int8_t to_client, to_server; /* bits by which windows are shifted */
} __attribute__((may_alias));
_Static_assert(sizeof(struct session_join) == sizeof(struct session_cold) &&
                       offsetof(struct session_join, commit) ==
                               offsetof(struct session_cold, commit),
               "a cold half");

static inline const struct join_begin *join_begin_of(const struct session *s)
{
	return (const struct join_begin *)&s[1].client;
}

/* Both of a pair's first record. */
static inline struct session_join *join_at(const struct session_table *t, uint32_t record)
{
	return (struct session_join *)session_cold_at(t, record + 1);
}

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * `sync: strict` (docs/design/0068-session-sync.md): a TCP connection's server gets its SYN when a
 * peer has acknowledged the session. Until then the client's packets wait in the opening queue.
 * While no peer is alive, nothing waits.
 *
 *     SYN ─▶ session_create() ─▶ strict_holds() ── acknowledged: strict_poll() ─▶ pipeline
 */
#ifndef STRICT_H
#define STRICT_H

#include "synced.h"

/* Sessions of a worker that wait. More are not created in vain: their packets are dropped, and
 * wait when the client repeats them. */
#define STRICT_SESSIONS 512

struct strict {
	unsigned count;
	struct strict_session {
		uint32_t record;
		uint32_t generation, number; /* of the log: see strict.c; 0: not written yet */
		uint8_t slot;
	} at[STRICT_SESSIONS];
};

/* Does packet i, which is to be forwarded, wait? Then it has left the burst. session: its own. */
bool strict_holds(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                  const struct session *session);
/* Call before a session ends: its packets are dropped. */
void strict_forget(struct sy_worker *w, uint8_t slot, uint32_t record);
/* Once after each exchange with peers: forwards what is acknowledged. */
void strict_poll(struct sy_worker *w);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * What the tests of restarts share: a harness that comes and goes with a session file and a state
 * directory that stay, and flows through it whose packets must look the same ever after.
 *
 * sy_clock_ns() is the fixture's (link with --wrap=sy_clock_ns), so time away passes as it is told.
 */
#ifndef FLOWS_H
#define FLOWS_H

#include "../../../tests/folder.h"
#include "../../../tests/soak/frame.h"
#include "harness.h"
#include "model.h"

#define FLOW_SERVICES 4 /* TCP, UDP over IPv4, the same over IPv6 */
#define FLOW_SERVERS  2 /* of each */
#define FLOW_UP       STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_UP
#define FLOW_RR       STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_RR

struct flows {
	struct harness harness;
	struct harness_options options;
	struct rng rng;
	char state[FOLDER_NAME], store[FOLDER_NAME]; /* directories */
	struct service_key service[FLOW_SERVICES];
	struct sy_addr server[FLOW_SERVICES][FLOW_SERVERS];
	struct sy_addr local[2]; /* [0]: IPv4 */
};

/* A client's connection, or its UDP packets. */
struct flow {
	unsigned service;
	uint16_t port;                  /* host order */
	struct sy_tuple client, server; /* as they come in */
	uint32_t server_id;
	struct frame in[2], out[2]; /* by enum session_direction: sent, and what became of it */
};

/* Directories and addresses, and a harness with all services. cmocka's setup and teardown. */
int flows_setup(void **state);
int flows_teardown(void **state);
void flows_open(struct flows *f);
/* Ends this process, by a crash or sealed with this ticket, and begins the next one. */
void flows_reopen(struct flows *f, unsigned workers, uint64_t ticket, bool crash);
/* The configuration as the fixture has it, in this order of services. */
void flows_configure(struct flows *f, const unsigned order[FLOW_SERVICES]);
void flows_commit(struct flows *f, struct changes *c);
/* The changes are refused as invalid, and the reason says this. */
void flows_check_refused(struct flows *f, struct changes *c, const char *why);
/* A service in this mode, with servers that are up. */
void flows_put(struct changes *c, const struct service_key *key, const char *name, enum mode mode,
               const char *const server[], unsigned servers, uint16_t port);
/* Changes the saved configuration while no forwarder runs. */
void flows_change_saved(struct flows *f, struct changes *c);
void flows_advance(struct flows *f, unsigned seconds);
/* The same with no forwarder there. */
void flows_pass(struct flows *f, unsigned seconds);

/* A TCP segment, a SYN with an MSS, or a datagram of at least 20 bytes. */
void flows_frame(struct flows *f, struct frame *out, const struct sy_tuple *t, uint8_t flags,
                 uint32_t seq, unsigned payload);
/* `out` is `in` with other addresses, ports, sums and a TTL less by one; its last 100 bytes are the
 * same. Fills its view. */
void frame_check_translated(const struct frame *in, const struct frame *out, struct sy_view *after);
/* Sends a frame into a port, and fills `out` with the one that comes out of the other; false: none
 * does. */
bool flows_through(struct flows *f, unsigned port, const struct frame *in, struct frame *out);
/* The next question or reset of the balancer's own that has left by a port; false: there is none.
 * Other frames there are lost. */
bool flows_own_segment(struct flows *f, unsigned port, struct sy_tcp *out);
/* Connects, and lets a packet through each way. */
void flow_open(struct flows *f, struct flow *flow, unsigned service, uint16_t port);
/* The first packet only. */
void flow_begin(struct flows *f, struct flow *flow, unsigned service, uint16_t port);
/* Both packets again: they come out as they did. */
void flow_check(struct flows *f, const struct flow *flow);
/* The client's packet is dropped for this reason. */
void flow_check_dropped(struct flows *f, const struct flow *flow, enum sy_drop reason);
/* The session that a client's packet belongs to. NULL: there is none. */
struct session *flows_find(struct flows *f, const struct sy_tuple *client);
struct session *flow_session(struct flows *f, const struct flow *flow);

/* Sessions that the last start found so. */
uint64_t flows_result(const struct flows *f, enum session_result v);
/* Live sessions of a server, by the answer to ListServices; all: of all of them and in totals. */
uint64_t flows_active(struct flows *f, unsigned service, const struct sy_addr *server);
void flows_check_active(struct flows *f, uint64_t all);

#endif

// SPDX-License-Identifier: Apache-2.0
/* Shared by the restart tests: a harness that is closed and reopened while its session file and
 * state directory stay, and flows through it whose packets must look the same after every restart.
 *
 * sy_clock_ns() is the fixture's (link with --wrap=sy_clock_ns), so the test also sets how long the
 * forwarder was away. */
#ifndef FLOWS_H
#define FLOWS_H

#include "../../../tests/folder.h"
#include "../../../tests/soak/soak_frame.h"
#include "harness.h"
#include "model.h"

#define FLOW_SERVICES 4 /* TCP and UDP over IPv4, then over IPv6 */
#define FLOW_SERVERS  2 /* per service */
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
	unsigned client;         /* which one flow_begin() is, of 65536 */
};

/* A client's connection, or its UDP packets. */
struct flow {
	unsigned service;
	uint16_t port;                  /* host order */
	struct sy_tuple client, server; /* tuples of packets as they arrive */
	uint32_t server_id;
	struct frame in[2],
	        out[2]; /* by enum session_direction: the frame sent, and the frame it became */
};

/* cmocka's setup and teardown: directories, addresses, and a harness with all services. */
int flows_setup(void **state);
/* EAL's memory, as in struct harness_options. A program that needs more sets it before its tests:
 * EAL starts once. */
extern unsigned flows_memory_mb;
int flows_teardown(void **state);
void flows_open(struct flows *f);
/* Ends this forwarder by a crash, or sealed with this ticket, and starts the next one. */
void flows_reopen(struct flows *f, unsigned workers, uint64_t ticket, bool crash);
/* Applies the fixture's configuration with the services in this order. */
void flows_configure(struct flows *f, const unsigned order[FLOW_SERVICES]);
void flows_commit(struct flows *f, struct changes *c);
/* Sets the minimum age of sessions that peers keep, of all services. */
void flows_sync_older_than(struct flows *f, unsigned seconds);
/* Checks that the changes are refused as invalid with this reason. */
void flows_check_refused(struct flows *f, struct changes *c, const char *why);
/* Adds a service in this mode, with servers that are up. */
void flows_put(struct changes *c, const struct service_key *key, const char *name, enum mode mode,
               const char *const server[], unsigned servers, uint16_t port);
/* Changes the saved configuration while no forwarder runs. */
void flows_change_saved(struct flows *f, struct changes *c);
void flows_advance(struct flows *f, unsigned seconds);
/* Advances the clock while no forwarder runs. */
void flows_pass(struct flows *f, unsigned seconds);

/* Makes a TCP segment (a SYN has an MSS), or a datagram of at least 20 bytes. */
void flows_frame(struct flows *f, struct frame *out, const struct sy_tuple *t, uint8_t flags,
                 uint32_t seq, unsigned payload);
/* Checks that `out` is `in` with other addresses, ports and checksums and the TTL one less, and
 * that the last 100 bytes are the same. Fills out's view. */
void frame_check_translated(const struct frame *in, const struct frame *out, struct sy_view *after);
/* Sends a frame into a port, and fills `out` with the frame that leaves the other port; false: none
 * leaves. */
bool flows_through(struct flows *f, unsigned port, const struct frame *in, struct frame *out);
/* The next originated probe or reset on a port; false: there is none. Other frames from that port
 * are dropped. */
bool flows_originated_segment(struct flows *f, unsigned port, struct sy_tcp *out);
/* Connects, and passes one packet in each direction. */
void flow_open(struct flows *f, struct flow *flow, unsigned service, uint16_t port);
/* Sends the first packet only. */
void flow_begin(struct flows *f, struct flow *flow, unsigned service, uint16_t port);
/* Sends both packets again and checks that they come out unchanged. */
void flow_check(struct flows *f, const struct flow *flow);
/* Checks that the client's packet is dropped for this reason. */
void flow_check_dropped(struct flows *f, const struct flow *flow, enum sy_drop reason);
/* The session that a client's packet belongs to; NULL: none. */
struct session *flows_find(struct flows *f, const struct sy_tuple *client);
struct session *flow_session(struct flows *f, const struct flow *flow);

/* Number of sessions that the last start gave this result. */
uint64_t flows_result(const struct flows *f, enum session_result v);
/* Returns what ListServices has of a service, or NULL. The caller frees *response, which has it. */
const Steelyard__Forwarder__V1__ServiceStats *
flows_stats(struct flows *f, const struct service_key *key, pb_response **response);

/* Live sessions of a server, from the ListServices response; all: of all servers, also in the
 * totals. */
uint64_t flows_active(struct flows *f, unsigned service, const struct sy_addr *server);
void flows_check_active(struct flows *f, uint64_t all);

#endif

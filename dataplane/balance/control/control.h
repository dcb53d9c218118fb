// SPDX-License-Identifier: Apache-2.0
/*
 * The control socket's side of the balancer: requests, replies, and transactions that run in
 * pieces. Control thread only.
 */
#ifndef CONTROL_H
#define CONTROL_H

#include <forwarder.pb-c.h>

#include "arena.h"
#include "balance.h"
#include "budget.h"
#include "job.h"
#include "saved.h"
#include "set_data.h"

typedef Steelyard__Forwarder__V1__Response pb_response;
typedef Steelyard__Forwarder__V1__Code pb_code;

/* A sender of requests: a connection, or sy_balance_request(). */
struct client {
	struct control *control;
	struct sy_control_peer *peer; /* NULL: use reply() below */
	void (*reply)(void *ctx, const uint8_t *bytes, size_t len);
	void *reply_ctx;
	/* Requests whose changes wait for a commit. */
	pb_request **staged;
	unsigned staged_count, staged_capacity;
	uint32_t staged_changes;
};

/* The transaction in progress; one at a time. Other requests wait in order. */
struct commit {
	struct client *client; /* NULL: it has disconnected */
	uint64_t request_id;
	pb_request **request;
	unsigned requests;
	unsigned request_at, change_at; /* position of the next change to apply */
	uint32_t change_index;
	enum { COMMIT_IDLE, COMMIT_APPLY, COMMIT_PROBE, COMMIT_BUILD, COMMIT_PUBLISH } phase;
};

/* The upgrade in progress; one at a time. */
struct upgrade {
	bool running;
	struct client *client; /* its sender; NULL: disconnected */
	uint64_t request_id;
};

struct waiting_request {
	struct waiting_request *next;
	struct client *client;
	size_t len;
	uint8_t bytes[];
};

/* The data of a set that a client sends. */
struct upload {
	struct client *client;
	struct set_data *data; /* NULL: none in progress */
	size_t have;           /* bytes */
	/* Once complete: checking and saving it, in a background thread. */
	struct job job;
	bool is_checking;
	uint64_t request_id;
	char directory[PATH_MAX]; /* "": none */
	int rc, saved;            /* 0, or a negative errno */
	struct sy_error err;
	struct waiting_request
	        *waiting; /* a request to begin another upload: waits for the end of this one */
};

/* Saves data that could not be saved when it came. */
struct late_save {
	struct job job;
	struct set_data *data; /* referenced; NULL: none is being saved */
	const char *directory;
	int rc;            /* 0, or a negative errno */
	uint64_t retry_ns; /* time of the next attempt */
};

struct control {
	struct sy_balance *balance;
	struct sy_control *socket;
	struct client local; /* for sy_balance_request() and the configuration file */
	struct commit commit;
	struct upgrade upgrade;
	struct upload upload;
	struct late_save late_save;
	struct waiting_request *waiting;
	struct listing *listings; /* of sessions, in progress */
	struct budget budget;     /* of unpacked requests */
};

int control_create(struct sy_balance *b, struct sy_error *err);
void control_destroy(struct sy_balance *b);
/* Frees a request that was unpacked from the budget. */
void control_free_request(struct control *k, pb_request *q);

/* Send a reply with this id. */
void control_reply(struct client *c, uint64_t id, pb_response *response);
void control_reply_error(struct client *c, uint64_t id, pb_code code, uint32_t change_index,
                         const char *text);

/* Stages an ApplyRequest and takes ownership of `request`; starts the commit if the request asks
 * for one. */
void commit_stage(struct client *c, pb_request *request);
void commit_unstage(struct client *c);
/* Receives a piece of a set's data (control_set_data.c). */
void upload_receive(struct client *c, const pb_request *q);
/* Waits for the check of data that a client has sent. */
void upload_finish(struct control *k);
/* Once a second: tries to save unsaved data, in a background thread. */
void late_save_tick(struct control *k);
/* Waits for that thread. */
void late_save_finish(struct control *k);
/* The client is gone, or its transaction was accepted: frees its data that no set refers to. */
void upload_forget(struct client *c);

/* Runs one piece of the commit, or waits for its background thread. Returns false if no commit is
 * left. */
bool commit_step(struct control *k);
/* The same from the runtime's loop; repeats until the commit is done. */
void commit_step_deferred(void *control);
/* Is a transaction in progress? */
bool control_is_busy(const struct control *k);
/* Runs the commit in progress to its end. */
void control_finish_commit(struct control *k);
/* Handles the requests that waited for the commit. */
void control_resume(struct control *k);
/* Handles a request, or queues it until the end of the transaction in progress. */
void control_accept(struct client *c, const uint8_t *bytes, size_t len);
/* Appends a request to a list; replies if there is no memory. */
void waiting_add(struct waiting_request **list, struct client *c, const uint8_t *bytes, size_t len);

/* The reply to every request after an upgrade. */
#define CONTROL_SEALED "this forwarder has handed its sessions over: ask its successor"

/* Replies with a list of sessions, possibly later (control_sessions.c). */
void control_list_sessions(struct client *c, const pb_request *q);
/* The client is gone. */
void listings_forget(struct control *k, const struct client *c);
/* Every 100 ms: ends listings whose worker has not run for too long. */
void listings_tick(struct control *k);
/* Waits for the listings of a client; NULL: of all, and without a reply. */
void listings_finish(struct control *k, const struct client *c);

/* Fill in a response from a request (control_list.c). Return 0, or a negative
 * errno with err. All memory comes from the arena. */
int control_claim(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
                  struct sy_error *err);
int list_status(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
                struct sy_error *err);
/* Lists everything that does not work, each with its remedy (warnings.c). Returns 0 or -ENOMEM. */
int list_warnings(struct sy_balance *b, struct arena *a, char ***out, size_t *count);
/* Logs the same list. */
void warnings_log(struct sy_balance *b);
int list_config(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
                struct sy_error *err);
int list_services(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
                  struct sy_error *err);
int list_drops(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
               struct sy_error *err);
int list_ports(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
               struct sy_error *err);
int list_workers(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
                 struct sy_error *err);
int list_slots(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
               struct sy_error *err);
int list_peers(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
               struct sy_error *err);
int control_set_role(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
                     struct sy_error *err);
int control_set_group(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
                      struct sy_error *err);
int list_snat(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
              struct sy_error *err);
int list_attacks(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
                 struct sy_error *err);
/* Samples of packets (control_samples.c). */
int list_samples(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
                 struct sy_error *err);
int list_access(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
                struct sy_error *err);

int list_limits(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
                struct sy_error *err);

int list_shaping(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
                 struct sy_error *err);
/* Measured shares. Changes state, as control_claim() and control_set_role() do. */
int control_set_shares(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
                       struct sy_error *err);

/* A counter that names what it counts; the texts are constants. */
int reply_drop(struct arena *a, const char *name, const char *help, uint64_t packets,
               Steelyard__Forwarder__V1__Drop **out, struct sy_error *err);
int reply_traffic(struct arena *a, const struct traffic *t, uint64_t active,
                  Steelyard__Forwarder__V1__Traffic **out, struct sy_error *err);

#endif

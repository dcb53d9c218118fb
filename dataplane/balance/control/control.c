// SPDX-License-Identifier: Apache-2.0
#include "control.h"

#include <errno.h>
#include <stdlib.h>

#include "model.h"
#include "saved.h"

typedef int (*list_function)(struct sy_balance *b, const pb_request *q, struct arena *a,
                             pb_response *out, struct sy_error *err);

static const list_function list_of[] = {
        [STEELYARD__FORWARDER__V1__REQUEST__BODY_STATUS] = list_status,
        [STEELYARD__FORWARDER__V1__REQUEST__BODY_GET_CONFIG] = list_config,
        [STEELYARD__FORWARDER__V1__REQUEST__BODY_LIST_SERVICES] = list_services,
        [STEELYARD__FORWARDER__V1__REQUEST__BODY_LIST_DROPS] = list_drops,
        [STEELYARD__FORWARDER__V1__REQUEST__BODY_LIST_PORTS] = list_ports,
        [STEELYARD__FORWARDER__V1__REQUEST__BODY_LIST_WORKERS] = list_workers,
        [STEELYARD__FORWARDER__V1__REQUEST__BODY_LIST_SLOTS] = list_slots,
        [STEELYARD__FORWARDER__V1__REQUEST__BODY_LIST_SNAT] = list_snat,
        [STEELYARD__FORWARDER__V1__REQUEST__BODY_LIST_ATTACKS] = list_attacks,
        [STEELYARD__FORWARDER__V1__REQUEST__BODY_LIST_ACCESS] = list_access,
        [STEELYARD__FORWARDER__V1__REQUEST__BODY_LIST_LIMITS] = list_limits,
        [STEELYARD__FORWARDER__V1__REQUEST__BODY_LIST_SHAPING] = list_shaping,
        [STEELYARD__FORWARDER__V1__REQUEST__BODY_FETCH_SAMPLES] = list_samples,
        [STEELYARD__FORWARDER__V1__REQUEST__BODY_SET_SHARES] = control_set_shares,
        [STEELYARD__FORWARDER__V1__REQUEST__BODY_CLAIM] = control_claim,
        [STEELYARD__FORWARDER__V1__REQUEST__BODY_SET_ROLE] = control_set_role,
        [STEELYARD__FORWARDER__V1__REQUEST__BODY_LIST_PEERS] = list_peers,
        [STEELYARD__FORWARDER__V1__REQUEST__BODY_SET_GROUP] = control_set_group,
};

/* ---- replies --------------------------------------------------------------------------------- */

static void client_send(struct client *c, const uint8_t *bytes, size_t len)
{
	if (c->peer)
		sy_control_reply(c->peer, bytes, len);
	else if (c->reply)
		c->reply(c->reply_ctx, bytes, len);
}

void control_reply(struct client *c, uint64_t id, pb_response *response)
{
	response->version = STEELYARD__FORWARDER__V1__VERSION__VERSION_CURRENT;
	response->id = id;
	size_t len = steelyard__forwarder__v1__response__get_packed_size(response);
	uint8_t *bytes = len <= SY_CONTROL_MAX ? malloc(len + 1) : NULL;
	if (!bytes) {
		control_reply_error(c, id, STEELYARD__FORWARDER__V1__CODE__CODE_TOO_LARGE, 0,
		                    "the answer does not fit one message: use a smaller limit");
		return;
	}
	steelyard__forwarder__v1__response__pack(response, bytes);
	client_send(c, bytes, len);
	free(bytes);
}

void control_reply_error(struct client *c, uint64_t id, pb_code code, uint32_t change_index,
                         const char *text)
{
	Steelyard__Forwarder__V1__Error error = STEELYARD__FORWARDER__V1__ERROR__INIT;
	pb_response response = STEELYARD__FORWARDER__V1__RESPONSE__INIT;
	error.code = code;
	error.text = (char *)(uintptr_t)text;
	error.change_index = change_index;
	response.error = &error;
	control_reply(c, id, &response);
}

/* ---- requests -------------------------------------------------------------------------------- */

static void control_list(struct client *c, const pb_request *q)
{
	list_function list = q->body_case < SY_ARRAY_LEN(list_of) ? list_of[q->body_case] : NULL;
	if (!list) {
		control_reply_error(c, q->id, STEELYARD__FORWARDER__V1__CODE__CODE_UNSUPPORTED, 0,
		                    "a request that this forwarder does not know: upgrade it");
		return;
	}
	struct arena arena = {0};
	struct sy_error err = {0};
	pb_response response = STEELYARD__FORWARDER__V1__RESPONSE__INIT;
	int rc = list(c->control->balance, q, &arena, &response, &err);
	if (rc < 0)
		control_reply_error(c, q->id,
		                    rc == -EINVAL ? STEELYARD__FORWARDER__V1__CODE__CODE_INVALID
		                                  : STEELYARD__FORWARDER__V1__CODE__CODE_INTERNAL,
		                    0, err.text);
	else
		control_reply(c, q->id, &response);
	arena_free(&arena);
}

/* sy_balance_upgrade_answer() sends the reply, possibly before this function returns. */
static void control_upgrade(struct client *c, const pb_request *q)
{
	const Steelyard__Forwarder__V1__UpgradeRequest *request = q->upgrade;
	const struct sy_balance_options *o = &c->control->balance->options;
	struct upgrade *u = &c->control->upgrade;
	struct sy_error err = {0};
	if (c->peer && !sy_control_peer_is_owner(c->peer)) {
		control_reply_error(c, q->id, STEELYARD__FORWARDER__V1__CODE__CODE_DENIED, 0,
		                    "only root, or the forwarder's own user, may upgrade it: an "
		                    "upgrade executes a program");
		return;
	}
	if (!o->upgrade) {
		control_reply_error(c, q->id, STEELYARD__FORWARDER__V1__CODE__CODE_UNSUPPORTED, 0,
		                    "this forwarder cannot be upgraded while it runs: restart it");
		return;
	}
	if (u->running) {
		control_reply_error(c, q->id, STEELYARD__FORWARDER__V1__CODE__CODE_INVALID, 0,
		                    "an upgrade is under way already: wait for its end");
		return;
	}
	const struct sy_balance_upgrade wanted = {
	        .binary = *request->binary ? request->binary : NULL,
	        .argv = request->set_args ? (const char *const *)request->args : NULL,
	        .argc = request->set_args ? (unsigned)request->n_args : 0,
	};
	*u = (struct upgrade){true, c, q->id};
	int rc = o->upgrade(o->upgrade_ctx, &wanted, &err);
	if (rc < 0)
		sy_balance_upgrade_answer(c->control->balance, NULL, &err);
}

void sy_balance_upgrade_answer(struct sy_balance *b, const struct sy_balance_upgraded *done,
                               const struct sy_error *err)
{
	struct upgrade u = b->ctl->control->upgrade;
	b->ctl->control->upgrade = (struct upgrade){0};
	if (!u.client)
		return;
	if (err) {
		pb_code code = err->code == EINVAL || err->code == ENOENT || err->code == EACCES
		                       ? STEELYARD__FORWARDER__V1__CODE__CODE_INVALID
		                       : STEELYARD__FORWARDER__V1__CODE__CODE_INTERNAL;
		control_reply_error(u.client, u.request_id, code, 0, err->text);
		return;
	}
	Steelyard__Forwarder__V1__UpgradeResult result =
	        STEELYARD__FORWARDER__V1__UPGRADE_RESULT__INIT;
	pb_response response = STEELYARD__FORWARDER__V1__RESPONSE__INIT;
	result.build = (char *)(uintptr_t)done->build;
	result.pid = (uint32_t)done->pid;
	result.gap_ns = done->gap_ns;
	result.sessions = done->sessions;
	response.body_case = STEELYARD__FORWARDER__V1__RESPONSE__BODY_UPGRADE;
	response.upgrade = &result;
	control_reply(u.client, u.request_id, &response);
}

void control_free_request(struct control *k, pb_request *q)
{
	steelyard__forwarder__v1__request__free_unpacked(q, &k->budget.allocator);
}

/* Replies to bytes that could not be unpacked. */
static void control_refuse_bytes(struct client *c)
{
	const struct budget *b = &c->control->budget;
	if (!b->refused) {
		control_reply_error(c, 0, STEELYARD__FORWARDER__V1__CODE__CODE_MALFORMED, 0,
		                    "not a steelyard.forwarder.v1.Request");
	} else if (budget_is_request_too_large(b)) {
		control_reply_error(
		        c, 0, STEELYARD__FORWARDER__V1__CODE__CODE_TOO_LARGE, 0,
		        "the request takes too much memory: send its changes in several requests");
	} else {
		commit_unstage(c);
		control_reply_error(
		        c, 0, STEELYARD__FORWARDER__V1__CODE__CODE_EXHAUSTED, 0,
		        "too many changes wait for a commit; this client's are dropped");
	}
}

static void control_dispatch(struct client *c, const uint8_t *bytes, size_t len)
{
	struct budget *budget = &c->control->budget;
	budget_begin(budget);
	pb_request *q = steelyard__forwarder__v1__request__unpack(&budget->allocator, len, bytes);
	if (!q) {
		control_refuse_bytes(c);
		return;
	}
	if (q->version > STEELYARD__FORWARDER__V1__VERSION__VERSION_CURRENT) {
		control_reply_error(c, q->id, STEELYARD__FORWARDER__V1__CODE__CODE_UNSUPPORTED, 0,
		                    "the request is of a newer version: upgrade this forwarder");
	} else if (q->version == 0) {
		control_reply_error(c, q->id, STEELYARD__FORWARDER__V1__CODE__CODE_MALFORMED, 0,
		                    "the request's version is missing");
	} else if (!c->control->balance->ctl->store) {
		control_reply_error(c, q->id, STEELYARD__FORWARDER__V1__CODE__CODE_INTERNAL, 0,
		                    CONTROL_SEALED);
	} else if (q->body_case == STEELYARD__FORWARDER__V1__REQUEST__BODY_UPGRADE) {
		control_upgrade(c, q);
	} else if (q->body_case == STEELYARD__FORWARDER__V1__REQUEST__BODY_APPLY) {
		commit_stage(c, q);
		return;
	} else if (q->body_case == STEELYARD__FORWARDER__V1__REQUEST__BODY_PUT_SET_DATA) {
		upload_receive(c, q);
	} else if (q->body_case == STEELYARD__FORWARDER__V1__REQUEST__BODY_LIST_SESSIONS) {
		control_list_sessions(c, q);
	} else {
		control_list(c, q);
	}
	control_free_request(c->control, q);
}

void waiting_add(struct waiting_request **list, struct client *c, const uint8_t *bytes, size_t len)
{
	struct waiting_request *w = malloc(sizeof(*w) + len);
	if (!w) {
		control_reply_error(c, 0, STEELYARD__FORWARDER__V1__CODE__CODE_INTERNAL, 0,
		                    "no memory for the request");
		return;
	}
	w->next = NULL;
	w->client = c;
	w->len = len;
	if (len > 0)
		memcpy(w->bytes, bytes, len);
	while (*list)
		list = &(*list)->next;
	*list = w;
}

/* Removes the requests of one client, or all. */
static void waiting_remove(struct waiting_request **list, const struct client *c)
{
	while (*list) {
		struct waiting_request *one = *list;
		if (!c || one->client == c) {
			*list = one->next;
			free(one);
		} else {
			list = &one->next;
		}
	}
}

void control_accept(struct client *c, const uint8_t *bytes, size_t len)
{
	struct control *k = c->control;
	if (control_is_busy(k))
		waiting_add(&k->waiting, c, bytes, len);
	else
		control_dispatch(c, bytes, len);
}

bool control_is_busy(const struct control *k)
{
	return k->commit.phase != COMMIT_IDLE;
}

void control_finish_commit(struct control *k)
{
	/* commit_step() waits for the table's thread: schedule what its end would have */
	if (k->commit.phase == COMMIT_BUILD)
		sy_runtime_defer(k->balance->rt, commit_step_deferred, k);
	while (commit_step(k))
		;
}

void control_resume(struct control *k)
{
	while (k->waiting && !control_is_busy(k)) {
		struct waiting_request *w = k->waiting;
		k->waiting = w->next;
		control_dispatch(w->client, w->bytes, w->len);
		free(w);
	}
}

/* ---- connections ----------------------------------------------------------------------------- */

/* The client of a connection, created at its first request. */
static struct client *client_of(struct control *k, struct sy_control_peer *peer)
{
	void **data = sy_control_peer_data(peer);
	if (!*data) {
		struct client *c = calloc(1, sizeof(*c));
		if (c) {
			c->control = k;
			c->peer = peer;
		}
		*data = c;
	}
	return *data;
}

/* Sends an error to a connection that may have no client. */
static void peer_refuse(struct control *k, struct sy_control_peer *peer, pb_code code,
                        const char *text)
{
	struct client stranger = {.control = k, .peer = peer};
	control_reply_error(&stranger, 0, code, 0, text);
}

static void on_request(void *ctx, struct sy_control_peer *peer, const uint8_t *bytes, size_t len)
{
	struct client *c = client_of(ctx, peer);
	if (c)
		control_accept(c, bytes, len);
	else
		peer_refuse(ctx, peer, STEELYARD__FORWARDER__V1__CODE__CODE_INTERNAL,
		            "no memory for the connection");
}

static void on_broken(void *ctx, struct sy_control_peer *peer, const char *text)
{
	peer_refuse(ctx, peer, STEELYARD__FORWARDER__V1__CODE__CODE_TOO_LARGE, text);
}

static void on_gone(void *ctx, struct sy_control_peer *peer)
{
	struct control *k = ctx;
	struct client *c = *sy_control_peer_data(peer);
	if (!c)
		return;
	if (k->commit.client == c)
		k->commit.client = NULL;
	if (k->upgrade.client == c)
		k->upgrade.client = NULL;
	waiting_remove(&k->waiting, c);
	waiting_remove(&k->upload.waiting, c);
	listings_forget(k, c);
	commit_unstage(c);
	upload_forget(c);
	free(c);
	*sy_control_peer_data(peer) = NULL;
}

int control_create(struct sy_balance *b, struct sy_error *err)
{
	struct control *k = calloc(1, sizeof(*k));
	if (!k)
		return sy_fail(err, ENOMEM, "no memory for the control socket");
	k->balance = b;
	k->local.control = k;
	budget_init(&k->budget, BUDGET_REQUEST_MAX, BUDGET_TOTAL_MAX);
	b->ctl->control = k;
	return 0;
}

int sy_balance_serve(struct sy_balance *b, const char *socket_path, struct sy_error *err)
{
	const struct sy_control_handler handler = {b->ctl->control, on_request, on_broken, on_gone};
	b->ctl->served = true;
	model_settle(b);
	warnings_log(b);
	int rc = sy_control_open(b->rt, socket_path, &b->options.access, &handler,
	                         &b->ctl->control->socket, err);
	if (rc == 0)
		session_store_started(b->ctl->store);
	return rc;
}

void sy_balance_leave_socket(struct sy_balance *b)
{
	if (b->ctl->control->socket)
		sy_control_leave(b->ctl->control->socket);
}

void control_destroy(struct sy_balance *b)
{
	struct control *k = b->ctl->control;
	if (!k)
		return;
	if (k->socket)
		sy_control_close(k->socket);
	listings_finish(k, NULL);
	control_finish_commit(k);
	upload_finish(k);
	late_save_finish(k);
	free(k->upload.data);
	waiting_remove(&k->waiting, NULL);
	commit_unstage(&k->local);
	config_file_flush(b, true);
	journal_close(b);
	free(k);
	b->ctl->control = NULL;
}

void sy_balance_request(struct sy_balance *b, const uint8_t *bytes, size_t len,
                        void (*reply)(void *ctx, const uint8_t *bytes, size_t len), void *ctx)
{
	struct control *k = b->ctl->control;
	k->local.reply = reply;
	k->local.reply_ctx = ctx;
	control_finish_commit(k);
	control_dispatch(&k->local, bytes, len);
	listings_finish(k, &k->local);
	control_finish_commit(k);
	upload_finish(k);
	k->local.reply = NULL;
}

// SPDX-License-Identifier: Apache-2.0
/* Data of sets that a client sends in pieces, before the transaction that names it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "access_model.h"
#include "control.h"

#define SAVE_RETRY_NS UINT64_C(10000000000)

static void upload_reply(struct client *c, uint64_t id, uint64_t next)
{
	Steelyard__Forwarder__V1__SetDataResult result =
	        STEELYARD__FORWARDER__V1__SET_DATA_RESULT__INIT;
	pb_response response = STEELYARD__FORWARDER__V1__RESPONSE__INIT;
	result.next = next;
	response.body_case = STEELYARD__FORWARDER__V1__RESPONSE__BODY_PUT_SET_DATA;
	response.put_set_data = &result;
	control_reply(c, id, &response);
}

/* ---- all pieces are here --------------------------------------------------------------------- */

/* Runs in a background thread. */
static void upload_check(void *upload)
{
	struct upload *u = upload;
	u->rc = set_data_check(u->data, &u->err);
	u->saved = u->rc == 0 && *u->directory ? set_file_write(u->directory, u->data) : 0;
}

static void upload_result(struct control *k)
{
	struct upload *u = &k->upload;
	struct client *c = u->client;
	struct set_data *d = u->data;
	u->client = NULL;
	u->data = NULL;
	u->is_checking = false;
	k->balance->ctl->access->saving--;
	if (u->rc < 0 || !c) {
		free(d); /* snapshots remove files that were written for it */
		if (c)
			control_reply_error(c, u->request_id,
			                    STEELYARD__FORWARDER__V1__CODE__CODE_INVALID, 0,
			                    u->err.text);
		return;
	}
	d->saved = u->saved == 0;
	k->late_save.retry_ns = sy_clock_ns() + SAVE_RETRY_NS;
	if (!d->saved)
		sy_log(SY_LOG_WARN, "balance",
		       "an access set of %u prefixes is not saved: %s/sets: %s; retrying",
		       set_data_prefixes(d), u->directory, strerror(-u->saved));
	set_data_add(k->balance, d, c);
	upload_reply(c, u->request_id, d->size);
}

static void upload_end(struct control *k)
{
	struct upload *u = &k->upload;
	upload_result(k);
	while (u->waiting && !u->is_checking) {
		struct waiting_request *w = u->waiting;
		u->waiting = w->next;
		control_accept(w->client, w->bytes, w->len);
		free(w);
	}
}

static void upload_is_checked(void *control)
{
	upload_end(control);
}

static void upload_check_begin(struct control *k, uint64_t request_id)
{
	struct upload *u = &k->upload;
	const char *directory = k->balance->options.state_directory;
	snprintf(u->directory, sizeof(u->directory), "%s", directory ? directory : "");
	u->request_id = request_id;
	u->err = (struct sy_error){0};
	u->is_checking = true;
	k->balance->ctl->access->saving++;
	if (job_begin(&u->job, k->balance->rt, upload_check, upload_is_checked, u, k) == 0)
		return;
	upload_check(u); /* no thread: do it here */
	upload_end(k);
}

void upload_finish(struct control *k)
{
	if (!k->upload.is_checking)
		return;
	job_wait(&k->upload.job);
	upload_end(k);
}

/* ---- saving later ---------------------------------------------------------------------------- */

/* Runs in a background thread. */
static void late_save_write(void *late_save)
{
	struct late_save *s = late_save;
	s->rc = set_file_write(s->directory, s->data);
}

static void late_save_end(void *control)
{
	struct control *k = control;
	struct late_save *s = &k->late_save;
	s->data->saved = s->rc == 0;
	if (s->rc == 0)
		sy_log(SY_LOG_INFO, "balance", "an access set of %u prefixes is saved now",
		       set_data_prefixes(s->data));
	else
		s->retry_ns = sy_clock_ns() + SAVE_RETRY_NS;
	s->data->holders--;
	s->data = NULL;
	k->balance->ctl->access->saving--;
	set_data_collect(k->balance);
}

void late_save_tick(struct control *k)
{
	struct late_save *s = &k->late_save;
	struct sy_balance *b = k->balance;
	if (s->data || !b->options.state_directory || !b->ctl->owner || sy_clock_ns() < s->retry_ns)
		return;
	struct set_data *d = b->ctl->access->data;
	while (d && (d->holders == 0 || d->saved))
		d = d->next;
	if (!d)
		return;
	s->data = d;
	s->directory = b->options.state_directory;
	if (job_begin(&s->job, b->rt, late_save_write, late_save_end, s, k) < 0) {
		s->data = NULL;
		return;
	}
	d->holders++;
	b->ctl->access->saving++;
}

void late_save_finish(struct control *k)
{
	if (!k->late_save.data)
		return;
	job_wait(&k->late_save.job);
	late_save_end(k);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static void upload_begin(struct client *c, const pb_request *q)
{
	const Steelyard__Forwarder__V1__PutSetDataRequest *request = q->put_set_data;
	struct control *k = c->control;
	struct upload *u = &k->upload;
	free(u->data);
	u->data = NULL;
	if (request->size + set_data_waiting(k->balance) > SET_WAITING_MAX)
		set_data_release_refused(k->balance, c);
	if (request->size + set_data_waiting(k->balance) > SET_WAITING_MAX) {
		control_reply_error(c, q->id, STEELYARD__FORWARDER__V1__CODE__CODE_EXHAUSTED, 0,
		                    "too much data of access sets waits for a transaction");
		return;
	}
	u->data = set_data_alloc(request->digest.data, request->size, request->crc32c);
	if (!u->data) {
		control_reply_error(c, q->id, STEELYARD__FORWARDER__V1__CODE__CODE_INTERNAL, 0,
		                    "no memory for an access set");
		return;
	}
	u->client = c;
	u->have = 0;
	upload_reply(c, q->id, 0);
}

static void upload_piece(struct client *c, const pb_request *q)
{
	const Steelyard__Forwarder__V1__PutSetDataRequest *request = q->put_set_data;
	struct upload *u = &c->control->upload;
	if (u->client != c || !u->data || u->is_checking || u->have != request->offset ||
	    u->data->size != request->size || u->data->crc32c != request->crc32c ||
	    memcmp(u->data->digest, request->digest.data, SET_DIGEST) != 0) {
		control_reply_error(c, q->id, STEELYARD__FORWARDER__V1__CODE__CODE_INVALID, 0,
		                    "not the next piece of the set that this connection sends: "
		                    "begin it anew");
		return;
	}
	memcpy(u->data->bytes + u->have, request->piece.data, request->piece.len);
	u->have += request->piece.len;
	if (u->have == u->data->size)
		upload_check_begin(c->control, q->id);
	else
		upload_reply(c, q->id, u->have);
}

/* Checking and saving a set may take seconds: queues the request, other requests go on. */
static void upload_begin_later(struct client *c, const pb_request *q)
{
	const size_t len = steelyard__forwarder__v1__request__get_packed_size(q);
	uint8_t *bytes = malloc(len);
	if (bytes) {
		steelyard__forwarder__v1__request__pack(q, bytes);
		waiting_add(&c->control->upload.waiting, c, bytes, len);
		free(bytes);
	} else {
		control_reply_error(c, q->id, STEELYARD__FORWARDER__V1__CODE__CODE_INTERNAL, 0,
		                    "no memory for the request");
	}
}

void upload_receive(struct client *c, const pb_request *q)
{
	const Steelyard__Forwarder__V1__PutSetDataRequest *request = q->put_set_data;
	if (request->digest.len != SET_DIGEST || request->size < SET_HEAD ||
	    request->size > SET_SIZE_MAX || request->offset > request->size ||
	    request->piece.len > request->size - request->offset) {
		control_reply_error(c, q->id, STEELYARD__FORWARDER__V1__CODE__CODE_INVALID, 0,
		                    "the data of an access set has a digest of 32 bytes, and a "
		                    "size within the limit in which all pieces lie");
		return;
	}
	struct set_data *known = set_data_find(c->control->balance, request->digest.data);
	if (known) {
		known->sender = c;
		known->refused = false;
		upload_reply(c, q->id, known->size);
	} else if (request->offset == 0 && request->piece.len == 0) {
		if (c->control->upload.is_checking)
			upload_begin_later(c, q);
		else
			upload_begin(c, q);
	} else {
		upload_piece(c, q);
	}
}

void upload_forget(struct client *c)
{
	struct upload *u = &c->control->upload;
	if (u->client == c) {
		u->client = NULL;
		if (!u->is_checking) {
			free(u->data);
			u->data = NULL;
		}
	}
	set_data_release(c->control->balance, c);
}

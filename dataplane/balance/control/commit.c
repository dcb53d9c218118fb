// SPDX-License-Identifier: Apache-2.0
/* Transactions: staged per client, applied and published in pieces, between which netlink is
 * served. */
#include <errno.h>
#include <stdlib.h>

#include "access_model.h"
#include "control.h"
#include "model.h"
#include "saved.h"

#define COMMIT_PIECE 256u /* max changes per loop iteration */

static void requests_free(struct control *k, pb_request **requests, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		control_free_request(k, requests[i]);
	free(requests);
}

void commit_unstage(struct client *c)
{
	requests_free(c->control, c->staged, c->staged_count);
	c->staged = NULL;
	c->staged_count = c->staged_capacity = c->staged_changes = 0;
}

static bool stage_reserve(struct client *c)
{
	if (c->staged_count < c->staged_capacity)
		return true;
	unsigned capacity = c->staged_capacity ? 2 * c->staged_capacity : 8;
	pb_request **grown = realloc(c->staged, capacity * sizeof(pb_request *));
	if (!grown)
		return false;
	c->staged = grown;
	c->staged_capacity = capacity;
	return true;
}

static void commit_begin(struct client *c, uint64_t request_id)
{
	struct control *k = c->control;
	k->commit = (struct commit){
	        .client = c,
	        .request_id = request_id,
	        .request = c->staged,
	        .requests = c->staged_count,
	        .phase = COMMIT_APPLY,
	};
	c->staged = NULL; /* now owned by the commit */
	c->staged_count = 0;
	commit_unstage(c);
	model_begin(k->balance);
	if (c->peer) /* otherwise the caller runs commit_step() */
		sy_runtime_defer(k->balance->rt, commit_step_deferred, k);
}

void commit_stage(struct client *c, pb_request *q)
{
	uint64_t id = q->id;
	bool commit = q->apply->commit;
	if (q->apply->base.n_unknown_fields > 0) { /* its changes are checked at the commit */
		control_free_request(c->control, q);
		commit_unstage(c);
		control_reply_error(c, id, STEELYARD__FORWARDER__V1__CODE__CODE_UNSUPPORTED, 0,
		                    "the request has a field that this forwarder does not support: "
		                    "upgrade it; all staged changes are discarded");
		return;
	}
	if (!stage_reserve(c)) {
		control_free_request(c->control, q);
		commit_unstage(c);
		control_reply_error(c, id, STEELYARD__FORWARDER__V1__CODE__CODE_INTERNAL, 0,
		                    "no memory for the changes; all staged changes are discarded");
		return;
	}
	c->staged[c->staged_count++] = q;
	c->staged_changes += (uint32_t)q->apply->n_changes;
	if (commit) {
		commit_begin(c, id);
		return;
	}
	Steelyard__Forwarder__V1__ApplyResult result = STEELYARD__FORWARDER__V1__APPLY_RESULT__INIT;
	pb_response response = STEELYARD__FORWARDER__V1__RESPONSE__INIT;
	result.staged = c->staged_changes;
	result.revision = c->control->balance->ctl->model->revision;
	response.body_case = STEELYARD__FORWARDER__V1__RESPONSE__BODY_APPLY;
	response.apply = &result;
	control_reply(c, id, &response);
}

static pb_code code_of(int rc)
{
	switch (-rc) {
	case ENOTSUP:
		return STEELYARD__FORWARDER__V1__CODE__CODE_UNSUPPORTED;
	case ENOSPC:
		return STEELYARD__FORWARDER__V1__CODE__CODE_EXHAUSTED;
	case ENOMEM:
		return STEELYARD__FORWARDER__V1__CODE__CODE_INTERNAL;
	default:
		return STEELYARD__FORWARDER__V1__CODE__CODE_INVALID;
	}
}

static void commit_end(struct control *k)
{
	requests_free(k, k->commit.request, k->commit.requests);
	k->commit = (struct commit){0};
}

static void commit_refuse(struct control *k, int rc, const char *text)
{
	struct commit *job = &k->commit;
	struct client *c = job->client;
	uint64_t id = job->request_id;
	uint32_t index = job->change_index;
	model_rollback(k->balance);
	commit_end(k);
	if (!c)
		return;
	set_data_refuse(k->balance, c);
	control_reply_error(c, id, code_of(rc), index, text);
}

static void commit_accept(struct control *k)
{
	struct sy_balance *b = k->balance;
	struct client *c = k->commit.client;
	uint64_t id = k->commit.request_id;

	model_finish(b);
	commit_end(k);
	if (c)
		upload_forget(c);
	b->ctl->unsaved = true;
	config_file_flush(b, false);
	if (!c)
		return;
	Steelyard__Forwarder__V1__ApplyResult result = STEELYARD__FORWARDER__V1__APPLY_RESULT__INIT;
	pb_response response = STEELYARD__FORWARDER__V1__RESPONSE__INIT;
	result.revision = b->ctl->model->revision;
	response.body_case = STEELYARD__FORWARDER__V1__RESPONSE__BODY_APPLY;
	response.apply = &result;
	control_reply(c, id, &response);
}

/* The next change of the transaction; NULL: there is none. */
static const model_change *commit_next(struct commit *job)
{
	while (job->request_at < job->requests) {
		const Steelyard__Forwarder__V1__ApplyRequest *apply =
		        job->request[job->request_at]->apply;
		if (job->change_at < apply->n_changes)
			return apply->changes[job->change_at++];
		job->request_at++;
		job->change_at = 0;
	}
	return NULL;
}

/* Called when all changes are applied. Waits for address probes and for the tables of access sets;
 * then checks the changes, and refuses or publishes them. */
static void commit_check(struct control *k)
{
	struct commit *job = &k->commit;
	struct sy_error err = {0};
	if (sy_addresses_wait(k->balance->rt, commit_step_deferred, k)) {
		job->phase = COMMIT_PROBE;
		return;
	}
	int rc = access_build_begin(k->balance, commit_step_deferred, k, &err);
	if (rc > 0) {
		job->phase = COMMIT_BUILD;
		return;
	}
	if (rc == 0)
		rc = model_check(k->balance, &err);
	if (rc < 0) {
		commit_refuse(k, rc, err.text);
		return;
	}
	journal_append(k->balance, job->request, job->requests);
	model_publish_addresses(k->balance);
	job->phase = COMMIT_PUBLISH;
}

static void commit_apply_piece(struct control *k)
{
	struct commit *job = &k->commit;
	struct sy_error err = {0};
	for (unsigned n = 0; n < COMMIT_PIECE; n++) {
		const model_change *change = commit_next(job);
		if (!change) {
			commit_check(k);
			return;
		}
		int rc = newer_refuse(&change->base, &err);
		if (rc == 0)
			rc = model_change_apply(k->balance, change, &err);
		if (rc < 0) {
			commit_refuse(k, rc, err.text);
			return;
		}
		job->change_index++;
	}
}

bool commit_step(struct control *k)
{
	struct commit *job = &k->commit;
	switch (job->phase) {
	case COMMIT_IDLE:
		return false;
	case COMMIT_APPLY:
		commit_apply_piece(k);
		break;
	case COMMIT_PROBE:
		job->phase = COMMIT_APPLY;
		break;
	case COMMIT_BUILD:
		access_build_wait(k->balance);
		job->phase = COMMIT_APPLY;
		break;
	case COMMIT_PUBLISH:
		if (model_publish(k->balance, PUBLISH_PIECE))
			commit_accept(k);
		break;
	}
	return job->phase != COMMIT_IDLE;
}

void commit_step_deferred(void *control)
{
	struct control *k = control;
	if (!commit_step(k))
		control_resume(k);
	/* In these two phases, the end of the table's thread or of the probes calls this again. */
	else if (k->commit.phase != COMMIT_BUILD && k->commit.phase != COMMIT_PROBE)
		sy_runtime_defer(k->balance->rt, commit_step_deferred, k);
}

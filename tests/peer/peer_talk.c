// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>

#include "peer.h"

/* Cookies are addresses; a listener's is its job's, and odd. */
#define LISTENER 1u

static void talk_turn(struct peer *p, struct talk *t, uint64_t now);

static struct talk *talk_new(struct peer *p, struct job *j)
{
	struct talk *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	*t = (struct talk){.next = p->talks,
	                   .job = j,
	                   .number = ++p->talk_count,
	                   .wrong_at = -1,
	                   .held = j->hold};
	p->talks = t;
	return t;
}

static int options_apply(struct peer *p, const struct job *j, sy_stack_id id, uint64_t now)
{
	int rc = 0;

	for (unsigned i = 0; i < j->options && rc == 0; i++)
		rc = sy_stack_set(p->stack, id, j->option[i].option, j->option[i].value, now);
	return rc;
}

static int talk_connect(struct peer *p, struct job *j, uint64_t round, uint64_t now)
{
	struct talk *t = talk_new(p, j);
	int rc;

	if (!t)
		return -ENOMEM;
	t->round = round;
	rc = sy_stack_connect(p->stack, &j->from, &j->to, (uintptr_t)t, now, &t->id);
	if (rc == 0)
		rc = options_apply(p, j, t->id, now);
	if (rc) {
		t->error = -rc;
		t->over = true;
		p->timed++;
	}
	return rc;
}

int job_begin(struct peer *p, struct job *j, uint64_t now)
{
	int rc = 0;

	if (!j->listens) {
		for (uint64_t i = 0; i < j->times && rc == 0; i++)
			rc = talk_connect(p, j, 1, now);
		return rc;
	}
	rc = sy_stack_listen(p->stack, &j->from, 256, (uintptr_t)j | LISTENER, &j->listener);
	return rc ? rc : options_apply(p, j, j->listener, now);
}

static void listener_accept(struct peer *p, struct job *j, uint64_t now)
{
	sy_stack_id id;

	while (sy_stack_accept(p->stack, j->listener, 0, NULL, &id) == 0) {
		struct talk *t = talk_new(p, j);
		if (!t) {
			sy_stack_abort(p->stack, id, now);
			continue;
		}
		t->id = id;
		t->connected = true;
		sy_stack_set_cookie(p->stack, id, (uintptr_t)t);
		talk_turn(p, t, now);
	}
}

/* ---- the end --------------------------------------------------------------------------------- */

static void job_count_down(struct peer *p, struct job *j, uint64_t now)
{
	if (j->listens && !j->times)
		return;
	if (--j->left > 0)
		return;
	if (j->listens)
		sy_stack_close(p->stack, j->listener, now);
	peer_job_over(p);
}

/* It is reported, its id ends; talks_turn() frees it. */
static void talk_over(struct peer *p, struct talk *t, uint64_t now)
{
	int rc = 0;

	t->over = true;
	p->timed++;
	if (t->error || t->wrong_at >= 0)
		p->failed++;
	report_talk(p, t, "done");
	if (t->reset)
		sy_stack_abort(p->stack, t->id, now);
	else
		sy_stack_close(p->stack, t->id, now);
	if (!t->job->listens && t->round < t->job->rounds && !t->error)
		rc = talk_connect(p, t->job, t->round + 1, now);
	if (rc) {
		report_error(strerror(-rc));
		p->failed++;
		t->job->left -= t->job->rounds - t->round; /* no further bytes will arrive */
	}
	job_count_down(p, t->job, now);
}

static bool talk_fails(struct talk *t, int64_t rc)
{
	if (rc >= 0 || rc == -EAGAIN || rc == -ENOTCONN)
		return false;
	/* A call's error on a reset connection is not the cause of the reset. */
	if (!t->error)
		t->error = (int)-rc;
	return true;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* The request, or the stream. */
static uint64_t talk_target(const struct talk *t)
{
	return t->job->asks ? t->asked : t->job->send;
}

static bool may_send(const struct talk *t)
{
	return t->connected && (!t->job->after_end || t->peer_ended);
}

/* The bytes of the next call; 0: none now. */
static uint64_t call_length(const struct talk *t, int *flags)
{
	const struct job *j = t->job;
	uint64_t left = talk_target(t) - t->written, n = left < j->max ? left : j->max;

	*flags = 0;
	if (j->asks) {
		/* `left` is the rest of the request. */
		uint64_t end = 0;
		unsigned i = j->parts;
		while (i > 0 && end + j->part[i - 1] < left)
			end += j->part[--i];
		n = left - end;
		*flags = j->more && end > 0 ? SY_STACK_MORE : 0;
	}
	if (j->urgent > t->written && j->urgent <= t->written + n) {
		n = j->urgent - t->written;
		*flags |= SY_STACK_OOB;
	}
	return n;
}

static void talk_pause(struct peer *p, struct talk *t, uint64_t ms, uint64_t now)
{
	p->timed += t->wake_at == 0;
	t->wake_at = now + ms * 1000000;
}

/* The next question, when the one before is answered. */
static void talk_ask(struct talk *t)
{
	const struct job *j = t->job;
	uint64_t question = 0;

	for (unsigned i = 0; i < j->parts; i++)
		question += j->part[i];
	if (j->asks && t->received == t->asked && t->asked < j->asks * question)
		t->asked += question;
}

static bool talk_write(struct peer *p, struct talk *t, uint64_t now)
{
	talk_ask(t);
	while (may_send(t) && t->written < talk_target(t)) {
		if (t->job->part_ms && now < t->wake_at)
			break;
		const uint8_t *bytes;
		int flags;
		uint64_t n = call_length(t, &flags);
		size_t there = stream_at(t->job->stream, t->written, &bytes);
		if (there < n) {
			n = there;
			flags = 0;
		}
		int64_t rc = sy_stack_send(p->stack, t->id, bytes, n, flags, now);
		if (rc < 0)
			return !talk_fails(t, rc);
		t->written += (uint64_t)rc;
		if (t->job->part_ms && t->written < talk_target(t))
			talk_pause(p, t, t->job->part_ms, now);
	}
	return true;
}

/* Consumes the bytes that were peeked at. */
static bool talk_take(struct peer *p, struct talk *t, const uint8_t *bytes, size_t len,
                      uint64_t now)
{
	if (t->job->echo) {
		int64_t rc = sy_stack_send(p->stack, t->id, bytes, len, 0, now);
		if (rc < 0) {
			talk_fails(t, rc);
			return false; /* continues when the connection is writable */
		}
		len = (size_t)rc;
		t->written += len;
	} else if (t->wrong_at < 0) {
		size_t right = stream_compare(t->job->stream, t->received, bytes, len);
		if (right < len)
			t->wrong_at = (int64_t)(t->received + right);
	}
	t->received += len;
	sy_stack_consume(p->stack, t->id, len, now);
	return true;
}

/* A request is incomplete. */
static bool waits_for_more(struct peer *p, const struct talk *t)
{
	struct sy_stack_info i;

	return t->job->answer && t->received % t->job->answer == 0 &&
	       sy_stack_info(p->stack, t->id, &i) == 0 && i.state == SY_STACK_ESTABLISHED &&
	       i.unread < t->job->answer;
}

static void talk_read(struct peer *p, struct talk *t, uint64_t now)
{
	const struct job *j = t->job;
	uint64_t max = j->read ? j->read : UINT64_MAX;
	const void *bytes;
	int64_t len = -EAGAIN;

	if (t->held || (j->read_ms && now < t->wake_at) || waits_for_more(p, t))
		return;
	while (max > 0 && (len = sy_stack_peek(p->stack, t->id, &bytes)) > 0) {
		uint64_t n = (uint64_t)len < max ? (uint64_t)len : max;
		if (!talk_take(p, t, bytes, n, now))
			return;
		max -= n;
	}
	if (j->read_ms && max < j->read)
		talk_pause(p, t, j->read_ms, now);
	if (len == 0)
		t->peer_ended = true;
	else
		talk_fails(t, len);
}

/* This side has sent all that it ever will. */
static bool talk_is_sent(const struct talk *t)
{
	const struct job *j = t->job;

	if (j->echo || (!j->send && !j->asks && !j->end_first))
		return t->peer_ended;
	if (j->asks) {
		uint64_t question = 0;
		for (unsigned i = 0; i < j->parts; i++)
			question += j->part[i];
		return t->received == j->asks * question;
	}
	return t->written == j->send;
}

static bool wants_reset(const struct talk *t)
{
	uint64_t after = t->job->reset_after;
	return after && (t->received >= after || t->written >= after);
}

static void talk_turn(struct peer *p, struct talk *t, uint64_t now)
{
	bool fine;

	if (t->over)
		return;
	talk_read(p, t, now);
	fine = talk_write(p, t, now);
	if (wants_reset(t)) {
		t->reset = true;
		talk_over(p, t, now);
		return;
	}
	if (fine && t->connected && !t->ended && talk_is_sent(t) && !t->error)
		t->ended = sy_stack_shutdown(p->stack, t->id, now) == 0;
	if (t->error || (t->ended && t->peer_ended && t->hung_up))
		talk_over(p, t, now);
}

/* ---- events ---------------------------------------------------------------------------------- */

void talk_event(struct peer *p, const struct sy_stack_event *e, uint64_t now)
{
	struct talk *t = (struct talk *)(uintptr_t)e->cookie;

	if (e->cookie & LISTENER) {
		listener_accept(p, (struct job *)(uintptr_t)(e->cookie - LISTENER), now);
		return;
	}
	if (!t || t->over)
		return;
	t->connected |= (e->what & SY_STACK_WRITABLE) != 0;
	t->urgent += (e->what & SY_STACK_URGENT) != 0;
	t->hung_up |= (e->what & SY_STACK_HANG_UP) != 0;
	if (e->what & SY_STACK_ERROR)
		talk_fails(t, -sy_stack_error(p->stack, t->id));
	talk_turn(p, t, now);
}

void talks_turn(struct peer *p, uint64_t now)
{
	struct talk **at = &p->talks;

	if (!p->timed)
		return;
	for (struct talk *t; (t = *at);) {
		if (t->wake_at && now >= t->wake_at) {
			talk_turn(p, t, now);
			t = *at; /* another connection may arrive first */
		}
		if (t->over) {
			p->timed -= 1 + (t->wake_at != 0);
			*at = t->next;
			free(t);
		} else {
			at = &t->next;
		}
	}
}

int job_close(struct peer *p, unsigned number, uint64_t now)
{
	struct job *j = p->jobs;

	while (j && j->number != number)
		j = j->next;
	if (!j)
		return -ENOENT;
	if (j->listens)
		sy_stack_close(p->stack, j->listener, now);
	for (struct talk *t = p->talks; t; t = t->next) {
		if (t->job != j || t->over)
			continue;
		sy_stack_abort(p->stack, t->id, now);
		t->over = true;
		p->timed++;
	}
	j->left = 0;
	peer_job_over(p);
	return 0;
}

void talks_resume(struct peer *p, unsigned job, uint64_t now)
{
	for (struct talk *t = p->talks; t; t = t->next) {
		if (t->job->number == job && t->held) {
			t->held = false;
			talk_turn(p, t, now);
		}
	}
}

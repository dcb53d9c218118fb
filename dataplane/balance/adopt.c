// SPDX-License-Identifier: Apache-2.0
/*
 * Restarts and upgrades: decides which sessions of an earlier process continue, and seals the
 * tables for the next process (docs/design/0007-restart.md).
 */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>

#include "away.h"
#include "control.h"
#include "loss.h"
#include "model.h"
#include "peers.h"
#include "saved.h"
#include "session_fits.h"
#include "snat.h"
#include "whole.h"

/* ---- validation ------------------------------------------------------------------------------ */

/* Several threads call this at once; it changes only the record. */
static enum session_result adopt_validate(void *ctx, uint8_t slot, struct session *s,
                                          const struct session_cold *cold, uint32_t idle_s,
                                          struct sy_tuple *client, struct sy_tuple *server)
{
	const struct sy_balance *b = ctx;
	if (s->server >= b->ctl->model->server_ids.fresh)
		return SESSION_UNKNOWN_ID;
	const struct endpoint *e = &b->endpoint[s->server];
	bool one_way = endpoint_is_one_way(e), snat = e->mode == MODE_SNAT;
	bool local = mode_is_local(e->mode) || snat;
	if (!b->ctl->dictionary.server_found[s->server] ||
	    !(local ? b->ctl->dictionary.local_found[s->local] : s->local == LOCAL_NONE))
		return SESSION_UNKNOWN_ID;
	if (!session_fits(b, s, cold))
		return SESSION_TORN;
	const struct service *service = endpoint_service(b, e);
	if (e->removed || !service)
		return SESSION_SERVER_GONE;
	if (b->local_removed[s->local])
		return SESSION_LOCAL_GONE;
	/* Of a replica its owner decides: here it may seem idle for long.
	 * a one-packet datagram without an answer by now will not get one */
	if ((idle_s > session_timeout(service, s) && !peers_is_standby(b) &&
	     s->state != SESSION_AWAY) ||
	    session_is_one_packet(s))
		return SESSION_EXPIRED;
	s->path = SY_PATH_NONE; /* path ids are valid in one process only */
	if (snat)
		session_pair_record(s)->path = SY_PATH_NONE;
	*client = session_client_tuple(s, cold, e);
	*server = one_way ? (struct sy_tuple){0} : session_server_tuple(b, s, cold, e);
	return SESSION_KEPT;
}

/* Two ids may name one endpoint. */
static bool adopt_same(void *ctx, const struct session *one, const struct session_cold *one_cold,
                       const struct session *two, const struct session_cold *two_cold,
                       enum session_direction side)
{
	const struct sy_balance *b = ctx;
	const struct endpoint *e = &b->endpoint[one->server];
	const struct sy_tuple t = side == SESSION_CLIENT
	                                  ? session_client_tuple(one, one_cold, e)
	                                  : session_server_tuple(b, one, one_cold, e);
	return session_has_tuple(b, two, two_cold, &t, side);
}

/* ---- counters -------------------------------------------------------------------------------- */

static uint64_t tables_live(const struct sy_balance *b)
{
	uint64_t live = 0;
	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		live += session_count(b->table[slot]);
	return live;
}

/* Active sessions are those created minus those ended, and the ends of adopted sessions are counted
 * later: subtract these here. If `created` grew instead, Prometheus's rate() would show all adopted
 * sessions as new. */
static void count_add(struct sy_balance *b, uint32_t server, uint32_t sessions)
{
	uint32_t service = b->endpoint[server].service;
	b->worker[0].share[server].traffic.ended -= sessions;
	b->server_active[server] += sessions;
	if (service != SERVICE_NONE)
		b->service_active[service] += sessions;
}

static void count_kept(struct sy_balance *b)
{
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		uint32_t cursor = 0, record;
		while ((record = session_next(b->table[slot], &cursor)) != SESSION_NONE)
			count_add(b, session_at(b->table[slot], record)->server, 1);
	}
}

/* The sealed totals, without a visit to every session. */
static void count_trusted(struct sy_balance *b)
{
	struct session_server_name name;
	for (uint32_t id = 0; id < b->ctl->model->server_ids.fresh; id++)
		if (session_server_named(b->ctl->store, id, &name))
			count_add(b, id, name.active);
}

/* Sessions that other nodes of an ECMP group serve do not count for limits and schedulers. */
static void count_away(struct sy_balance *b)
{
	for (unsigned slot = 0; group_is_ecmp(b) && slot < SY_SLOTS; slot++) {
		uint32_t cursor = 0, record;
		while ((record = session_next(b->table[slot], &cursor)) != SESSION_NONE)
			if (!session_counts(b, slot, record))
				load_release(b, session_at(b->table[slot], record)->server);
	}
}

/* ---- start ----------------------------------------------------------------------------------- */

static const char *const source_text[] = {
        [SESSION_SOURCE_NEW] = "new",
        [SESSION_SOURCE_CRASHED] = "crash",
        [SESSION_SOURCE_STOPPED] = "stop",
        [SESSION_SOURCE_HANDED_OVER] = "upgrade",
};

static void adopt_report(const struct sy_balance *b)
{
	const struct adoption *a = &b->ctl->adoption;
	char list[SESSION_RESULT_COUNT * 40];
	uint64_t found = 0;
	int at = 0;
	for (unsigned v = 0; v < SESSION_RESULT_COUNT; v++) {
		found += a->count[v];
		if (a->count[v] > 0 || v == SESSION_KEPT)
			at += snprintf(list + at, sizeof(list) - (size_t)at, "%s%" PRIu64 " %s",
			               at ? ", " : "", a->count[v], session_result_name(v));
	}
	sy_log(SY_LOG_INFO, "balance",
	       "%" PRIu64 " sessions found (%s, %.1f s ago): %s; %" PRIu64 " ms", found,
	       source_text[b->options.inherit ? SESSION_SOURCE_HANDED_OVER : a->found.source],
	       (double)a->found.away_ns / 1e9, list, a->duration_ns / 1000000);
	if (found > 0 && b->ctl->model->services == 0)
		sy_log(SY_LOG_WARN, "balance",
		       "no service is configured, as the saved configuration is missing or was "
		       "refused: all %" PRIu64 " sessions end",
		       found);
}

static void adopt_tables(struct sy_balance *b)
{
	b->key = *session_store_key(b->ctl->store);
	b->secret[0] = session_store_secret(b->ctl->store);
	b->secrets = 1;
	b->index = session_store_indexes(b->ctl->store);
	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		b->table[slot] = session_store_table(b->ctl->store, (uint8_t)slot);
}

int sy_balance_adopt(struct sy_balance *b, unsigned threads, struct sy_error *err)
{
	const struct session_validator validator = {b, adopt_validate, adopt_same};
	struct adoption *a = &b->ctl->adoption;
	uint64_t began = sy_clock_ns();
	int rc = 0;
	id_dictionary_claim(b);
	a->found = *session_store_found(b->ctl->store);
	switch (a->found.source) {
	case SESSION_SOURCE_NEW:
		adopt_tables(b);
		break;
	case SESSION_SOURCE_HANDED_OVER:
		adopt_tables(b);
		count_trusted(b);
		a->count[SESSION_KEPT] = tables_live(b);
		break;
	default:
		rc = session_store_adopt(b->ctl->store, &validator, threads, a->count, err);
		if (rc < 0)
			return rc;
		adopt_tables(b);
		count_kept(b);
	}
	count_away(b);
	id_dictionary_settle(b);
	peers_adopted(b);
	a->duration_ns = sy_clock_ns() - began;
	if (a->found.source != SESSION_SOURCE_NEW)
		adopt_report(b);
	return peers_open(b, err);
}

int sy_balance_acquire(struct sy_balance *b, uint64_t ticket, struct sy_error *err)
{
	int rc = session_store_acquire(b->ctl->store, ticket, err);
	if (rc < 0)
		return rc;
	b->ctl->owner = true;
	rc = saved_lock(b, err);
	if (rc == 0)
		rc = id_dictionary_reserve(b, err);
	if (rc == 0)
		rc = journal_load(b, err);
	if (rc == 0)
		peers_acquired(b);
	return rc;
}

unsigned sy_balance_path_half(const struct sy_balance *b)
{
	return session_store_path_half(b->ctl->store);
}

/* ---- stop ------------------------------------------------------------------------------------ */

void sy_balance_hold_snapshots(struct sy_balance *b, bool hold)
{
	if (hold) /* starts the upgrade with a short journal */
		config_file_flush(b, true);
	b->ctl->hold = hold;
}

/* Validated sessions have no path id of an earlier process; trusted ones may until a sweep has
 * visited them. */
bool sy_balance_is_settled(const struct sy_balance *b)
{
	return b->ctl->adoption.found.source != SESSION_SOURCE_HANDED_OVER || retire_swept(b);
}

void sy_balance_save(struct sy_balance *b)
{
	control_finish_commit(b->ctl->control);
	config_file_flush(b, true);
}

void sy_balance_seal(struct sy_balance *b, uint64_t ticket)
{
	if (!b->ctl->dictionary.settled)
		return; /* the store was not changed: leave it as it was */
	if (ticket == 0)
		peers_leave(b);
	sy_balance_save(b);
	journal_close(b);
	saved_unlock(b);
	loss_stop(b);
	peers_close(b);
	for (uint32_t id = 0; id < b->ctl->model->server_ids.fresh; id++) {
		struct traffic t = traffic_sum(b, id);
		session_server_set_active(b->ctl->store, id, (uint32_t)(t.created - t.ended));
	}
	b->ctl->sealed_live = tables_live(b);
	session_store_seal(b->ctl->store, ticket, sy_balance_is_settled(b));
	b->ctl->store = NULL;
}

void adopt_close(struct sy_balance *b)
{
	struct sy_balance_totals t = {0};
	if (!b->ctl->store)
		return;
	if (b->ctl->dictionary.settled)
		sy_balance_get_totals(b, &t);
	/* After a first start that failed or had no client, frees the memory. */
	if (b->ctl->owner && session_store_found(b->ctl->store)->source == SESSION_SOURCE_NEW &&
	    t.created == 0 && t.live == 0)
		session_store_discard(b->ctl->store);
	else
		session_store_close(b->ctl->store);
	b->ctl->store = NULL;
}

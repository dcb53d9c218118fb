// SPDX-License-Identifier: Apache-2.0
/*
 * Shaping in the configuration: one object per port. Published before services, which then set
 * their ids in the trees.
 */
#include "shaping_model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "limit.h"

#define RETRY_NS UINT64_C(1000000000)

bool shaping_is_on(const struct sy_balance *b)
{
	const struct shaping_model *m = b->ctl->shaping;
	for (unsigned i = 0; i < SHAPED_PORTS; i++)
		if (m->now[i])
			return true;
	return false;
}

unsigned shaping_port(const struct sy_balance *b, const char *name)
{
	struct sy_port_info info;
	for (unsigned i = 0; b->rt && i < sy_port_count(b->rt); i++) {
		sy_port_get_info(b->rt, i, &info);
		if (strcmp(info.name, name) == 0)
			return i;
	}
	return SY_PORT_NONE;
}

const struct sy_shape *shaping_in_force(const struct sy_balance *b, const struct model_shaping *s)
{
	const unsigned port = shaping_port(b, s->port);
	const struct sy_shape *in = port == SY_PORT_NONE ? NULL : sy_port_shape_get(b->rt, port);
	/* after a failure to publish, another configuration may be in force */
	const bool same = in && sy_shape_config(in)->services == s->config.services &&
	                  sy_shape_config(in)->classes == s->config.classes;
	return same ? in : NULL;
}

/* ---- changes --------------------------------------------------------------------------------- */

/* The entry of a port's name, otherwise a free one; SHAPED_PORTS: none. */
static unsigned place_of(const struct shaping_model *m, const char *port)
{
	unsigned place = SHAPED_PORTS;
	for (unsigned i = 0; i < SHAPED_PORTS; i++) {
		if (m->now[i] && strcmp(m->now[i]->port, port) == 0)
			return i;
		if (!m->now[i] && place == SHAPED_PORTS &&
		    (!m->before[i] || strcmp(m->before[i]->port, port) == 0))
			place = i;
	}
	return place;
}

static void position_set(struct shaping_model *m, unsigned place, struct model_shaping *s)
{
	if (m->now[place] != m->before[place])
		shaping_free(m->now[place]);
	m->now[place] = s;
}

int shaping_put(struct sy_balance *b, const pb_shaping *pb, struct sy_error *err)
{
	struct shaping_model *m = b->ctl->shaping;
	struct model_shaping *s;
	int rc = shaping_read(pb, &s, err);
	if (rc < 0)
		return rc;
	const unsigned place = place_of(m, s->port);
	if (place == SHAPED_PORTS) {
		rc = sy_fail(err, ENOSPC,
		             "shaping of port %s: a transaction has at most %u shaped ports before "
		             "and after it",
		             s->port, SHAPED_PORTS);
		shaping_free(s);
		return rc;
	}
	position_set(m, place, s);
	return 0;
}

int shaping_delete(struct sy_balance *b, const char *port, struct sy_error *err)
{
	struct shaping_model *m = b->ctl->shaping;
	const unsigned place = place_of(m, port);
	if (place == SHAPED_PORTS || !m->now[place])
		return sy_fail(err, EINVAL, "port %.31s is not shaped", port);
	position_set(m, place, NULL);
	return 0;
}

void shaping_begin(struct sy_balance *b)
{
	struct shaping_model *m = b->ctl->shaping;
	memcpy(m->before, m->now, sizeof(m->before));
	m->published = false;
}

int shaping_check(const struct sy_balance *b, struct sy_error *err)
{
	const struct shaping_model *m = b->ctl->shaping;
	unsigned ports = 0;
	for (unsigned i = 0; i < SHAPED_PORTS; i++)
		ports += m->now[i] != NULL;
	return ports > SY_MAX_PORTS
	               ? sy_fail(err, ENOSPC, "shaping of %u ports: at most %u can be shaped",
	                         ports, SY_MAX_PORTS)
	               : 0;
}

void shaping_rollback(struct sy_balance *b)
{
	struct shaping_model *m = b->ctl->shaping;
	for (unsigned i = 0; i < SHAPED_PORTS; i++)
		position_set(m, i, m->before[i]);
}

/* ---- publishing ------------------------------------------------------------------------------ */

/* Maps service ids + 1 to the port's services. */
static uint16_t *branches_make(const struct sy_balance *b, const struct model_shaping *s)
{
	const struct model *m = b->ctl->model;
	uint16_t *branch = calloc(b->options.max_services + 1, sizeof(*branch));
	for (uint32_t id = 0; branch && id < m->service_ids.fresh; id++)
		if (m->service[id] && !m->service[id]->snat)
			branch[id + 1] = shaping_branch(s, &m->service[id]->key);
	return branch;
}

static void publish_note(struct shaping_model *m, unsigned port, const struct sy_error *err)
{
	const uint32_t bit = UINT32_C(1) << port;
	char *why = m->why[port];
	if (!err) {
		if (m->failed & bit)
			sy_log(SY_LOG_INFO, "balance", "%s: it is as configured now", why);
		m->failed &= ~bit;
		return;
	}
	if (!(m->failed & bit))
		sy_log(SY_LOG_ERROR, "balance", "%s; " SHAPING_FAILED, err->text);
	snprintf(why, sizeof(m->why[port]), "%.159s", err->text);
	m->failed |= bit;
	m->retry_ns = sy_clock_ns() + RETRY_NS;
}

/* now: NULL: the port is not shaped. */
static void publish_as(struct sy_balance *b, unsigned port, const struct model_shaping *now)
{
	struct sy_error err = {0};
	int rc;
	if (now) {
		uint16_t *branch = branches_make(b, now);
		rc = branch ? sy_port_shape(b->rt, port, &now->config, branch,
		                            b->options.max_services + 1, &err)
		            : sy_fail(&err, ENOMEM, "no memory");
	} else {
		rc = sy_port_unshape(b->rt, port, &err);
	}
	publish_note(b->ctl->shaping, port, rc < 0 ? &err : NULL);
}

static void publish_port(struct sy_balance *b, const struct model_shaping *before,
                         const struct model_shaping *now)
{
	const unsigned port = shaping_port(b, now ? now->port : before->port);
	if (port != SY_PORT_NONE)
		publish_as(b, port, now);
	else if (now)
		sy_log(SY_LOG_WARN, "balance",
		       "shaping of port %s has no effect: there is no such port; see "
		       "`steelyard get ports`",
		       now->port);
}

/* Marks the servers whose packets need the id of their service. */
static void marks_publish(struct sy_balance *b, bool on)
{
	const struct model *m = b->ctl->model;
	for (uint32_t id = 0; id < m->service_ids.fresh; id++) {
		const struct model_service *s = m->service[id];
		for (unsigned i = 0; s && !s->snat && i < s->servers; i++) {
			uint8_t *limited = &b->endpoint[s->server[i].id].limited;
			const uint8_t others = *limited & (uint8_t)~LIMITED_SHAPED;
			__atomic_store_n(limited, on ? others | LIMITED_SHAPED : others,
			                 __ATOMIC_RELAXED);
		}
	}
}

void shaping_publish(struct sy_balance *b)
{
	struct shaping_model *m = b->ctl->shaping;
	bool was = false, changed = false;
	if (m->published)
		return;
	m->published = true;
	for (unsigned i = 0; i < SHAPED_PORTS; i++) {
		was |= m->before[i] != NULL;
		if (m->now[i] == m->before[i])
			continue;
		publish_port(b, m->before[i], m->now[i]);
		changed = true;
	}
	if (changed && was != shaping_is_on(b))
		marks_publish(b, !was);
}

void shaping_retry(struct sy_balance *b)
{
	struct shaping_model *m = b->ctl->shaping;
	struct sy_port_info info;
	if (!m->failed || sy_clock_ns() < m->retry_ns)
		return;
	if (memcmp(m->now, m->before, sizeof(m->now)) != 0)
		return; /* in the middle of a transaction */
	for (uint32_t left = m->failed; left; left &= left - 1) {
		const unsigned port = (unsigned)__builtin_ctz(left);
		sy_port_get_info(b->rt, port, &info);
		const unsigned place = place_of(m, info.name);
		publish_as(b, port, place < SHAPED_PORTS ? m->now[place] : NULL);
	}
}

const char *shaping_problem(const struct sy_balance *b, unsigned port)
{
	const struct shaping_model *m = b->ctl->shaping;
	return m->failed >> port & 1 ? m->why[port] : NULL;
}

void shaping_service(struct sy_balance *b, uint32_t id, const struct service_key *key)
{
	const struct shaping_model *m = b->ctl->shaping;
	for (unsigned i = 0; i < SHAPED_PORTS; i++) {
		if (!m->now[i])
			continue;
		const unsigned port = shaping_port(b, m->now[i]->port);
		/* otherwise its tree, if any, has other numbers */
		if (port != SY_PORT_NONE && !shaping_problem(b, port))
			sy_port_shape_service(b->rt, port, id + 1, shaping_branch(m->now[i], key));
	}
}

void shaping_finish(struct sy_balance *b)
{
	struct shaping_model *m = b->ctl->shaping;
	for (unsigned i = 0; i < SHAPED_PORTS; i++) {
		if (m->before[i] != m->now[i])
			shaping_free(m->before[i]);
		m->before[i] = m->now[i];
	}
}

int shaping_model_create(struct sy_balance *b, struct sy_error *err)
{
	b->ctl->shaping = calloc(1, sizeof(*b->ctl->shaping));
	return b->ctl->shaping ? 0 : sy_fail(err, ENOMEM, "no memory for shaping");
}

void shaping_model_destroy(struct sy_balance *b)
{
	struct shaping_model *m = b->ctl->shaping;
	for (unsigned i = 0; m && i < SHAPED_PORTS; i++) {
		if (m->before[i] != m->now[i])
			shaping_free(m->before[i]);
		shaping_free(m->now[i]);
	}
	free(m);
	b->ctl->shaping = NULL;
}

/* ---- messages -------------------------------------------------------------------------------- */

static void *message_alloc(void *arena, size_t size)
{
	return arena_alloc(arena, size);
}

static void arena_keep(void *arena, void *p)
{
	(void)arena;
	(void)p;
}

pb_shaping *shaping_message(const struct model_shaping *s, struct arena *a)
{
	ProtobufCAllocator allocator = {
	        .alloc = message_alloc, .free = arena_keep, .allocator_data = a};
	return steelyard__forwarder__v1__shaping__unpack(&allocator, s->packed_len, s->packed);
}

int reply_shaping(const struct sy_balance *b, struct arena *a, Steelyard__Forwarder__V1__Config *c)
{
	const struct shaping_model *m = b->ctl->shaping;
	c->shaping = arena_alloc(a, SHAPED_PORTS * sizeof(*c->shaping));
	if (!c->shaping)
		return -ENOMEM;
	for (unsigned i = 0; i < SHAPED_PORTS; i++)
		if (m->now[i] && !(c->shaping[c->n_shaping++] = shaping_message(m->now[i], a)))
			return -ENOMEM;
	return 0;
}

// SPDX-License-Identifier: Apache-2.0
#include "registry_request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "stack.pb-c.h"

#define REPORTS (2 * SY_HOOKS) /* stacks may have different hooks */

typedef Steelyard__Stack__V1__Request pb_request;
typedef Steelyard__Stack__V1__Response pb_response;
typedef Steelyard__Stack__V1__Place pb_place;
typedef Steelyard__Stack__V1__Param pb_param;
typedef Steelyard__Stack__V1__Hook pb_hook;
typedef Steelyard__Stack__V1__Listing pb_listing;
typedef Steelyard__Stack__V1__Stack pb_stack;
typedef Steelyard__Stack__V1__Number pb_number;
typedef Steelyard__Stack__V1__Connection pb_connection;

/* ---- parsing --------------------------------------------------------------------------------- */

static int name_parse(struct sy_hook_change *w, const char *name, struct sy_error *err)
{
	if (strlen(name) >= sizeof(w->name))
		return sy_fail(err, EINVAL, "a hook's name has at most %d letters: %s",
		               SY_HOOK_NAME - 1, name);
	snprintf(w->name, sizeof(w->name), "%s", name);
	return 0;
}

static int params_parse(struct sy_hook_change *w, pb_param *const *param, size_t count,
                        struct sy_error *err)
{
	for (size_t i = 0; i < count; i++) {
		if (param[i]->index >= SY_HOOK_PARAMS)
			return sy_fail(err, EINVAL, "parameter %u: there are 0 to %d",
			               param[i]->index, SY_HOOK_PARAMS - 1);
		w->params |= (uint8_t)(1u << param[i]->index);
		w->param[param[i]->index] = param[i]->value;
	}
	return 0;
}

static int places_parse(struct sy_hook_change *w, pb_place *const *place, size_t count,
                        struct sy_error *err)
{
	if (count > SY_HOOK_PLACES)
		return sy_fail(err, EINVAL, "%zu places: at most %d", count, SY_HOOK_PLACES);
	for (size_t i = 0; i < count; i++) {
		struct sy_hook_place *to = &w->place[w->places++];
		const ProtobufCBinaryData *a = &place[i]->address;
		if (place[i]->port > UINT16_MAX)
			return sy_fail(err, EINVAL, "port %u: at most 65535", place[i]->port);
		to->port = (uint16_t)place[i]->port;
		if (a->len && (!to->port || sy_addr_from_bytes(a->data, a->len, &to->addr)))
			return sy_fail(err, EINVAL, "a listener has an address and a port");
	}
	return 0;
}

static int load_execute(struct sy_hook_registry *d, const Steelyard__Stack__V1__Load *l,
                        struct sy_hook_count *count, struct sy_error *err)
{
	struct sy_hook_change w = {.object = l->object.data ? (const void *)l->object.data : "",
	                           .object_len = l->object.len,
	                           .swap = l->swap};
	int rc = name_parse(&w, l->name, err);
	if (!rc)
		rc = params_parse(&w, l->params, l->n_params, err);
	if (!rc)
		rc = places_parse(&w, l->places, l->n_places, err);
	return rc ? rc : sy_hook_registry_load(d, &w, count, err);
}

static int set_execute(struct sy_hook_registry *d, const Steelyard__Stack__V1__Set *s,
                       struct sy_hook_count *count, struct sy_error *err)
{
	struct sy_hook_change w = {0};
	int rc = name_parse(&w, s->name, err);
	if (!rc)
		rc = params_parse(&w, s->params, s->n_params, err);
	return rc ? rc : sy_hook_registry_load(d, &w, count, err);
}

/* ---- responses ------------------------------------------------------------------------------- */

static uint8_t *response_pack(const pb_response *r, size_t *len)
{
	uint8_t *out = malloc(steelyard__stack__v1__response__get_packed_size(r) + 1);
	if (out)
		*len = steelyard__stack__v1__response__pack(r, out);
	return out;
}

static uint8_t *error_pack(const struct sy_error *err, size_t *len)
{
	pb_response r = STEELYARD__STACK__V1__RESPONSE__INIT;
	Steelyard__Stack__V1__Error e = STEELYARD__STACK__V1__ERROR__INIT;
	e.text = (char *)(uintptr_t)err->text;
	r.body_case = STEELYARD__STACK__V1__RESPONSE__BODY_ERROR;
	r.error = &e;
	return response_pack(&r, len);
}

/* Encodes the zero address as no bytes. */
static void address_fill(const struct sy_addr *from, uint8_t bytes[16], ProtobufCBinaryData *to)
{
	static const struct sy_addr any;
	if (sy_addr_equal(from, &any))
		return;
	to->data = bytes;
	to->len = sy_addr_to_bytes(from, bytes);
}

static void place_fill(const struct sy_hook_place *from, pb_place *to, uint8_t address[16])
{
	steelyard__stack__v1__place__init(to);
	to->port = from->port;
	address_fill(&from->addr, address, &to->address);
}

static uint8_t *changed_pack(const struct sy_hook_count *count, size_t *len)
{
	pb_response r = STEELYARD__STACK__V1__RESPONSE__INIT;
	Steelyard__Stack__V1__Changed c = STEELYARD__STACK__V1__CHANGED__INIT;
	pb_place place[SY_HOOK_PLACES], *places[SY_HOOK_PLACES];
	uint8_t address[SY_HOOK_PLACES][16];
	c.stacks = count->stacks;
	c.silent = count->silent;
	for (unsigned i = 0; i < count->idles; i++) {
		place_fill(&count->idle[i], &place[i], address[i]);
		place[i].idle = true;
		places[i] = &place[i];
	}
	c.n_idle = count->idles;
	c.idle = places;
	r.body_case = STEELYARD__STACK__V1__RESPONSE__BODY_CHANGED;
	r.changed = &c;
	return response_pack(&r, len);
}

/* Messages of one hook, with their storage. */
struct hook_message {
	struct sy_hook_report report;
	pb_hook hook;
	pb_place place[SY_HOOK_PLACES], *places[SY_HOOK_PLACES];
	uint8_t address[SY_HOOK_PLACES][16];
};

static void places_fill(struct hook_message *h)
{
	for (unsigned i = 0; i < h->report.places; i++) {
		place_fill(&h->report.place[i], &h->place[i], h->address[i]);
		h->place[i].idle = h->report.idle >> i & 1;
		h->places[i] = &h->place[i];
	}
	h->hook.n_places = h->report.places;
	h->hook.places = h->places;
}

static void hook_fill(struct hook_message *h)
{
	struct sy_hook_info *i = &h->report.info;
	steelyard__stack__v1__hook__init(&h->hook);
	h->hook.name = i->name;
	h->hook.number = h->report.number;
	h->hook.kind = (char *)(uintptr_t)sy_hook_kind_name(i->kind);
	h->hook.native = i->native;
	h->hook.compiled = i->compiled;
	h->hook.instructions = i->instructions;
	h->hook.longest = i->longest;
	h->hook.loads = i->loads;
	h->hook.n_params = SY_HOOK_PARAMS;
	h->hook.params = i->param;
	h->hook.calls = i->calls;
	h->hook.wrong = i->wrong;
	h->hook.n_levels = SY_PRIORITIES;
	h->hook.levels = i->level;
	h->hook.timed = i->timed;
	h->hook.cycles = i->cycles;
	h->hook.stacks = h->report.stacks;
	places_fill(h);
}

static unsigned stacks_count(struct sy_hook_registry *d)
{
	unsigned count = 0;
	pthread_mutex_lock(&d->lock);
	for (unsigned i = 0; i < SY_HOOK_REGISTRY_STACKS; i++)
		count += d->stack[i].socket >= 0 && !d->stack[i].gone;
	pthread_mutex_unlock(&d->lock);
	return count;
}

/* Messages of a listing, with their storage. */
struct listing_message {
	struct sy_hook_report report[REPORTS];
	struct hook_message hook[REPORTS];
	pb_hook *hooks[REPORTS];
	struct sy_hook_stack stack[SY_HOOK_REGISTRY_STACKS];
	pb_stack each[SY_HOOK_REGISTRY_STACKS], *eachs[SY_HOOK_REGISTRY_STACKS];
	pb_number number[SY_HOOK_COUNTS], *numbers[SY_HOOK_COUNTS];
	char note[SY_HOOK_NOTES][SY_HOOK_NOTE_TEXT], *notes[SY_HOOK_NOTES];
};

static void notes_fill(struct listing_message *msg, struct sy_hook_registry *d, pb_listing *l)
{
	pthread_mutex_lock(&d->lock);
	memcpy(msg->note, d->note, sizeof(msg->note));
	pthread_mutex_unlock(&d->lock);
	for (unsigned i = 0; i < SY_HOOK_NOTES; i++)
		if (msg->note[i][0])
			msg->notes[l->n_notes++] = msg->note[i];
	l->notes = msg->notes;
}

static void numbers_fill(struct listing_message *msg, const struct sy_hook_registry_owner *o,
                         pb_listing *l)
{
	for (unsigned i = 0; i < o->numbers; i++) {
		steelyard__stack__v1__number__init(&msg->number[i]);
		msg->number[i].name = (char *)(uintptr_t)o->number[i].name;
		msg->number[i].help = (char *)(uintptr_t)o->number[i].help;
		msg->number[i].now = o->number[i].now;
		msg->numbers[i] = &msg->number[i];
	}
	l->n_numbers = o->numbers;
	l->numbers = msg->numbers;
}

static void stacks_fill(struct listing_message *msg, unsigned stacks, unsigned numbers,
                        pb_listing *l)
{
	for (unsigned i = 0; i < stacks; i++) {
		struct sy_hook_tally *t = &msg->stack[i].tally;
		pb_stack *one = &msg->each[i];
		steelyard__stack__v1__stack__init(one);
		one->number = msg->stack[i].number;
		one->pid = (uint32_t)msg->stack[i].pid;
		one->n_dropped = SY_PRIORITIES;
		one->dropped = t->dropped;
		one->unsent = t->unsent;
		one->missed = t->missed;
		one->unreachable = t->unreachable;
		one->n_counts = numbers;
		one->counts = t->count;
		msg->eachs[i] = one;
	}
	l->n_each = stacks;
	l->each = msg->eachs;
}

static void hooks_fill(struct listing_message *msg, unsigned hooks, pb_listing *l)
{
	for (unsigned i = 0; i < hooks; i++) {
		msg->hook[i].report = msg->report[i];
		hook_fill(&msg->hook[i]);
		msg->hooks[i] = &msg->hook[i].hook;
	}
	l->n_hooks = hooks;
	l->hooks = msg->hooks;
}

static uint8_t *listing_pack(struct sy_hook_registry *d, size_t *len)
{
	struct listing_message *msg = calloc(1, sizeof(*msg));
	pb_response r = STEELYARD__STACK__V1__RESPONSE__INIT;
	pb_listing l = STEELYARD__STACK__V1__LISTING__INIT;
	struct sy_hook_count count;
	if (!msg)
		return NULL;
	unsigned hooks = sy_hook_registry_report(d, msg->report, REPORTS, msg->stack, &count);
	hooks_fill(msg, hooks, &l);
	numbers_fill(msg, &d->owner, &l);
	notes_fill(msg, d, &l);
	stacks_fill(msg, count.stacks, d->owner.numbers, &l);
	l.program = (char *)(uintptr_t)d->owner.program;
	l.interfaces = (char *)(uintptr_t)d->owner.interfaces;
	l.pid = (uint32_t)getpid();
	l.stacks = stacks_count(d);
	l.n_silent = count.silent;
	l.silent = count.silent_pid;
	r.body_case = STEELYARD__STACK__V1__RESPONSE__BODY_LISTING;
	r.listing = &l;
	uint8_t *out = response_pack(&r, len);
	free(msg);
	return out;
}

/* ---- connections ----------------------------------------------------------------------------- */

#define DEFAULT_CONNECTIONS 1000
#define MAX_CONNECTIONS     30000 /* up to 130 bytes each, in a frame of 4 MiB */

struct connection_message {
	pb_connection message;
	uint8_t local[16], peer[16];
};

struct connections_message {
	const struct sy_hook_registry *d;
	struct connection_message *msg;
	pb_connection **each;
	unsigned count, max;
};

static void connection_fill(const struct sy_hook_registry *d, const struct sy_hook_stack *stack,
                            const struct sy_hook_connection *c, struct connection_message *msg)
{
	pb_connection *m = &msg->message;
	bool known = c->state < d->owner.states;
	steelyard__stack__v1__connection__init(m);
	m->pid = (uint32_t)stack->pid;
	m->stack = stack->number;
	m->state = (char *)(uintptr_t)(known ? d->owner.state[c->state] : "?");
	address_fill(&c->local, msg->local, &m->local);
	address_fill(&c->peer, msg->peer, &m->peer);
	m->local_port = c->local_port;
	m->peer_port = c->peer_port;
	m->only_v6 = *(const uint8_t *)&c->only_v6 == 1; /* workers are not trusted */
	m->unread = c->unread;
	m->unsent = c->unsent;
	m->rtt_us = c->rtt_us;
	m->window = c->window;
	m->retransmitted = c->retransmitted;
	m->sent = c->sent;
	m->received = c->received;
}

static bool connections_fill(void *ctx, const struct sy_hook_stack *stack,
                             const struct sy_hook_connection *c, unsigned count)
{
	struct connections_message *r = ctx;
	unsigned taken = count < r->max - r->count ? count : r->max - r->count;
	for (unsigned i = 0; i < taken; i++, r->count++) {
		connection_fill(r->d, stack, &c[i], &r->msg[r->count]);
		r->each[r->count] = &r->msg[r->count].message;
	}
	return taken == count;
}

static uint8_t *connections_pack(struct sy_hook_registry *d, uint32_t limit, size_t *len)
{
	pb_response r = STEELYARD__STACK__V1__RESPONSE__INIT;
	Steelyard__Stack__V1__Connections m = STEELYARD__STACK__V1__CONNECTIONS__INIT;
	struct connections_message msg = {.d = d, .max = limit ? limit : DEFAULT_CONNECTIONS};
	struct sy_hook_count count;
	uint8_t *out = NULL;
	msg.max = msg.max < MAX_CONNECTIONS ? msg.max : MAX_CONNECTIONS;
	msg.msg = calloc(msg.max, sizeof(*msg.msg));
	msg.each = calloc(msg.max, sizeof(pb_connection *));
	if (msg.msg && msg.each) {
		enum sy_hook_walk end =
		        sy_hook_registry_connections(d, connections_fill, &msg, &count);
		m.more = end == SY_HOOK_WALK_ENOUGH;
		m.late = end == SY_HOOK_WALK_LATE;
		m.n_silent = count.silent;
		m.silent = count.silent_pid;
		m.n_connections = msg.count;
		m.connections = msg.each;
		r.body_case = STEELYARD__STACK__V1__RESPONSE__BODY_CONNECTIONS;
		r.connections = &m;
		out = response_pack(&r, len);
	}
	free(msg.msg);
	free(msg.each);
	return out;
}

/* ---- dispatch -------------------------------------------------------------------------------- */

static uint8_t *request_execute(struct sy_hook_registry *d, const pb_request *q, size_t *len)
{
	struct sy_hook_count count = {0};
	struct sy_error err = {0};
	int rc;
	if (q->version == 0 || q->version > STEELYARD__STACK__V1__VERSION__VERSION_CURRENT)
		rc = sy_fail(&err, EPROTO,
		             "unknown protocol version %u; install steelyard and the programs it "
		             "controls from one build",
		             q->version);
	else if (q->body_case == STEELYARD__STACK__V1__REQUEST__BODY_LIST)
		return listing_pack(d, len);
	else if (q->body_case == STEELYARD__STACK__V1__REQUEST__BODY_CONNECTIONS)
		return connections_pack(d, q->connections->limit, len);
	else if (q->body_case == STEELYARD__STACK__V1__REQUEST__BODY_LOAD)
		rc = load_execute(d, q->load, &count, &err);
	else if (q->body_case == STEELYARD__STACK__V1__REQUEST__BODY_SET)
		rc = set_execute(d, q->set, &count, &err);
	else if (q->body_case == STEELYARD__STACK__V1__REQUEST__BODY_REMOVE)
		rc = sy_hook_registry_remove(d, q->remove->name, &count, &err);
	else
		rc = sy_fail(&err, EPROTO, "an unknown request");
	return rc < 0 ? error_pack(&err, len) : changed_pack(&count, len);
}

uint8_t *request_answer(struct sy_hook_registry *d, const uint8_t *bytes, size_t len,
                        size_t *out_len)
{
	pb_request *q = steelyard__stack__v1__request__unpack(NULL, len, bytes);
	if (!q)
		return NULL;
	uint8_t *out = request_execute(d, q, out_len);
	steelyard__stack__v1__request__free_unpacked(q, NULL);
	return out;
}

// SPDX-License-Identifier: Apache-2.0
/* Compares the adopted sessions, as control requests report them, with the plain model. */
#include <arpa/inet.h>
#include <stdlib.h>

#include "run.h"

typedef Steelyard__Forwarder__V1__Session pb_session;

struct tally {
	uint64_t listed;
	uint64_t server[PLAIN_SERVICES][PLAIN_SERVERS];
	bool seen[PLAIN_FLOWS];
};

const char *flow_text(const struct flow *f)
{
	static char text[400];
	char client[SY_ADDR_TEXT], vip[SY_ADDR_TEXT], server[SY_ADDR_TEXT], local[SY_ADDR_TEXT];
	const struct sy_addr v = plain_vip(f->service), s = plain_server(f->service, f->server),
	                     a = plain_local(f->local);
	snprintf(text, sizeof(text),
	         "%s %s:%u → %s by %s:%u → %s, %s, fins %u, seen %u–%u%s%s, flags %02x of side %u, "
	         "numbers %u and %u, first %u",
	         plain_proto(f->service) == SY_PROTO_TCP ? "tcp" : "udp",
	         sy_addr_format(&f->client, client), ntohs(f->client_port), sy_addr_format(&v, vip),
	         sy_addr_format(&a, local), ntohs(f->local_port), sy_addr_format(&s, server),
	         plain_state_name(f->state), f->fins, f->seen_first, f->seen_last,
	         f->pending ? ", a packet under way" : "",
	         f->pending && f->reopens ? ", reopens" : "", f->flags, f->side,
	         f->seq[PLAIN_CLIENT], f->seq[PLAIN_SERVER], f->first);
	return text;
}

static bool addr_is(const ProtobufCBinaryData *pb, const struct sy_addr *addr)
{
	struct sy_addr a;
	return sy_addr_from_bytes(pb->data, pb->len, &a) == 0 && sy_addr_equal(&a, addr);
}

/* ---- one session ----------------------------------------------------------------------------- */

/* The flow of a session's client; PLAIN_FLOWS: no flow. */
static unsigned flow_of(const struct chronicle *h, const pb_session *s)
{
	for (unsigned i = 0; i < PLAIN_FLOWS; i++) {
		const struct flow *f = &h->flow[i];
		if (f->certainty == FLOW_NONE || ntohs(f->client_port) != s->client_port ||
		    s->protocol != (Steelyard__Forwarder__V1__Protocol)plain_proto(f->service))
			continue;
		const struct sy_addr vip = plain_vip(f->service);
		if (addr_is(&s->client, &f->client) && addr_is(&s->vip, &vip))
			return i;
	}
	return PLAIN_FLOWS;
}

/* A session's server and local address, by the model's numbers. */
static void session_position(const struct run *l, const pb_session *s, struct flow *f)
{
	const struct plain_config *c = &l->h->config[l->h->accepted];
	unsigned server = 0, local = 0;
	for (; server < PLAIN_SERVERS; server++) {
		const struct sy_addr a = plain_server(f->service, server);
		if (addr_is(&s->server, &a))
			break;
	}
	for (; local < PLAIN_LOCALS; local++) {
		const struct sy_addr a = plain_local(local);
		if (addr_is(&s->local, &a))
			break;
	}
	MUST(server < PLAIN_SERVERS && local < PLAIN_LOCALS && c->service[f->service].state &&
	             c->server[f->service][server].state && c->local[local].state &&
	             s->server_port == ntohs(plain_server_port(f->service)) &&
	             s->vport == PLAIN_PORT && s->local_port >= 1024,
	     "a session whose server or local address is not configured: %s", flow_text(f));
	f->server = (uint8_t)server;
	f->local = (uint8_t)local;
	f->local_port = htons((uint16_t)s->local_port);
	f->server_since = c->server[f->service][server].since;
	f->local_since = c->local[local].since;
}

static bool place_equal(const struct flow *a, const struct flow *b)
{
	return a->server == b->server && a->local == b->local && a->local_port == b->local_port;
}

static bool state_is(const pb_session *s, unsigned state)
{
	return !strcmp(s->state, plain_state_name(state));
}

/* A session that the killed process was about to create, and may have created. */
static void validate_begun(struct flow *f, const struct flow *found, const pb_session *s)
{
	uint8_t state, fins;
	flow_after(f, &state, &fins);
	bool old = f->certainty == FLOW_CERTAIN && place_equal(f, found) && state_is(s, f->state);
	if (old)
		return;
	MUST(state_is(s, state), "a session that just began is %s: %s", s->state, flow_text(f));
	*f = *found;
	f->state = state;
	f->fins = fins;
	f->reopens = false;
	f->certainty = FLOW_CERTAIN; /* its packet is repeated anyway */
}

static void validate_session(struct run *l, const pb_session *s, struct tally *t)
{
	unsigned i = flow_of(l->h, s);
	MUST(i < PLAIN_FLOWS,
	     "a session that no packet created: port %u, local port %u, %s, idle %u",
	     s->client_port, s->local_port, s->state, s->idle_s);
	struct flow *f = &l->h->flow[i], found = *f;
	MUST(!t->seen[i], "two sessions of one client: %s", flow_text(f));
	MUST(flow_may_live(f, &l->h->config[l->h->accepted], plain_seconds(l->h)),
	     "a session that should have ended is there: %s", flow_text(f));
	t->seen[i] = true;
	t->listed++;
	session_position(l, s, &found);
	t->server[f->service][found.server]++;
	if (f->certainty == FLOW_DOOMED || f->certainty == FLOW_LOOSE)
		return;
	if (f->certainty == FLOW_UNCERTAIN || (f->pending && f->reopens)) {
		validate_begun(f, &found, s);
		return;
	}
	MUST(place_equal(f, &found), "another server, local address or port than before: %s",
	     flow_text(f));
	MUST(flow_may_be(f, s->state), "its state is %s: %s", s->state, flow_text(f));
}

static void validate_sessions(struct run *l, struct tally *t)
{
	Steelyard__Forwarder__V1__ListSessionsRequest list =
	        STEELYARD__FORWARDER__V1__LIST_SESSIONS_REQUEST__INIT;
	do {
		pb_request q = STEELYARD__FORWARDER__V1__REQUEST__INIT;
		q.body_case = STEELYARD__FORWARDER__V1__REQUEST__BODY_LIST_SESSIONS;
		q.list_sessions = &list;
		pb_response *r = harness_request(&l->harness, &q);
		MUST(!r->error, "sessions cannot be listed");
		for (size_t i = 0; i < r->list_sessions->n_sessions; i++)
			validate_session(l, r->list_sessions->sessions[i], t);
		list.cursor = r->list_sessions->next_cursor;
		steelyard__forwarder__v1__response__free_unpacked(r, NULL);
	} while (list.cursor);
}

static const char *results_text(const struct run *l)
{
	static char text[300];
	int at = 0;
	for (unsigned v = 0; v < SESSION_RESULT_COUNT; v++)
		at += snprintf(text + at, sizeof(text) - (size_t)at, " %lu %s",
		               inspect_adopted(l->harness.b, v),
		               session_result_name((enum session_result)v));
	return text;
}

/* A session that is not listed does not exist. */
static void validate_absent(struct run *l, const struct tally *t)
{
	const struct plain_config *c = &l->h->config[l->h->accepted];
	for (unsigned i = 0; i < PLAIN_FLOWS; i++) {
		struct flow *f = &l->h->flow[i];
		if (f->certainty == FLOW_NONE || t->seen[i])
			continue;
		MUST(!flow_must_live(f, c, plain_seconds(l->h)),
		     "a session is lost: %s; results:%s", flow_text(f), results_text(l));
		if (f->certainty == FLOW_UNCERTAIN && c->service[f->service].state) {
			l->h->uncertain++;
			continue;
		}
		f->certainty = FLOW_NONE;
	}
}

/* No two sessions have the same local address and port towards one server. */
static void validate_ports(const struct run *l, const struct tally *t)
{
	for (unsigned i = 0; i < PLAIN_FLOWS; i++) {
		const struct flow *a = &l->h->flow[i];
		if (!t->seen[i] || a->certainty != FLOW_CERTAIN || (a->pending && a->reopens))
			continue;
		for (unsigned k = 0; k < i; k++) {
			const struct flow *b = &l->h->flow[k];
			if (b->local_port != a->local_port || b->local != a->local || !t->seen[k] ||
			    b->certainty != FLOW_CERTAIN || (b->pending && b->reopens) ||
			    plain_proto(a->service) != plain_proto(b->service))
				continue;
			const struct sy_addr one = plain_server(a->service, a->server),
			                     other = plain_server(b->service, b->server);
			MUST(!sy_addr_equal(&one, &other), "two sessions hold one port: %s",
			     flow_text(a));
		}
	}
}

/* ---- totals ---------------------------------------------------------------------------------- */

static void validate_servers(struct run *l, const struct tally *t)
{
	Steelyard__Forwarder__V1__ListServicesRequest list =
	        STEELYARD__FORWARDER__V1__LIST_SERVICES_REQUEST__INIT;
	pb_request q = STEELYARD__FORWARDER__V1__REQUEST__INIT;
	q.body_case = STEELYARD__FORWARDER__V1__REQUEST__BODY_LIST_SERVICES;
	q.list_services = &list;
	pb_response *r = harness_request(&l->harness, &q);
	MUST(!r->error, "services cannot be listed");
	for (size_t i = 0; i < r->list_services->n_services; i++) {
		const Steelyard__Forwarder__V1__ServiceStats *s = r->list_services->services[i];
		unsigned service = 0;
		for (; service < PLAIN_SERVICES; service++) {
			const struct sy_addr vip = plain_vip(service);
			if (addr_is(&s->service->key->vip, &vip) &&
			    s->service->key->protocol ==
			            (Steelyard__Forwarder__V1__Protocol)plain_proto(service))
				break;
		}
		MUST(service < PLAIN_SERVICES, "an unknown service");
		for (size_t k = 0; k < s->n_servers; k++) {
			unsigned n = 0;
			for (; n < PLAIN_SERVERS; n++) {
				const struct sy_addr a = plain_server(service, n);
				if (addr_is(&s->servers[k]->server->address, &a))
					break;
			}
			MUST(n < PLAIN_SERVERS, "an unknown server");
			MUST(s->servers[k]->traffic->sessions_active == t->server[service][n],
			     "server %u of service %u has %lu sessions, and says %lu", n, service,
			     t->server[service][n], s->servers[k]->traffic->sessions_active);
		}
	}
	steelyard__forwarder__v1__response__free_unpacked(r, NULL);
}

static void validate_status(struct run *l, const struct tally *t)
{
	pb_request q = STEELYARD__FORWARDER__V1__REQUEST__INIT;
	Steelyard__Forwarder__V1__StatusRequest ask =
	        STEELYARD__FORWARDER__V1__STATUS_REQUEST__INIT;
	uint64_t sum = 0, kept = 0;
	q.body_case = STEELYARD__FORWARDER__V1__REQUEST__BODY_STATUS;
	q.status = &ask;
	pb_response *r = harness_request(&l->harness, &q);
	MUST(!r->error && r->status->adoption, "the status does not show the adoption");
	const Steelyard__Forwarder__V1__Adoption *a = r->status->adoption;
	for (size_t i = 0; i < a->n_results; i++) {
		sum += a->results[i]->sessions;
		if (!strcmp(a->results[i]->name, "kept"))
			kept = a->results[i]->sessions;
		if (i < SY_ARRAY_LEN(l->h->result))
			l->h->result[i] += a->results[i]->sessions;
	}
	MUST(r->status->sessions == t->listed, "%lu sessions are listed, and %lu counted",
	     t->listed, r->status->sessions);
	MUST(harness_totals(&l->harness).live == t->listed,
	     "%lu sessions are listed, and the totals say %lu", t->listed,
	     harness_totals(&l->harness).live);
	MUST(kept == t->listed, "%lu sessions are listed, and %lu were kept", t->listed, kept);
	MUST(sum == l->found, "%lu records were found, and %lu have a result", l->found, sum);
	MUST(!*a->refused, "the file was refused: %s", a->refused);
	steelyard__forwarder__v1__response__free_unpacked(r, NULL);
}

void validate(struct run *l)
{
	static struct tally t;
	t = (struct tally){0};
	uint64_t live = anatomy_check(l);
	if (l->h->evicting) {
		flows_loosen(l->h);
		l->h->evicting = false;
	}
	validate_sessions(l, &t);
	validate_absent(l, &t);
	validate_ports(l, &t);
	validate_servers(l, &t);
	validate_status(l, &t);
	MUST(live == t.listed, "%lu records live, and %lu are listed", live, t.listed);
	l->h->adopted += live;
}

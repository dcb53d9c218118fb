// SPDX-License-Identifier: Apache-2.0
/* Replies to read requests: status, configuration, services, drops, ports, workers, slots. */
#include <arpa/inet.h>
#include <errno.h>
#include <unistd.h>

#include <sy_phase.h>

#include "attacks.h"
#include "control.h"
#include "delay.h"
#include "event_stage.h"
#include "model_message.h"
#include "shares.h"
#include "watch.h"

#define LIST_SERVICES 1000u /* per reply, unless the request asks for fewer */

/* ---- status ---------------------------------------------------------------------------------- */

void sy_balance_get_totals(const struct sy_balance *b, struct sy_balance_totals *out)
{
	*out = b->ctl->gone;
	out->live = b->ctl->sealed_live;
	for (unsigned slot = 0; b->ctl->store && slot < SY_SLOTS; slot++)
		out->live += session_count(b->table[slot]);
	for (uint32_t id = 0; id < b->ctl->model->server_ids.fresh; id++) {
		struct traffic t = traffic_sum(b, id);
		out->created += t.created;
		out->ended += t.ended;
	}
}

static int reply_adoption(const struct sy_balance *b, struct arena *a,
                          Steelyard__Forwarder__V1__Adoption **out, struct sy_error *err)
{
	static const Steelyard__Forwarder__V1__Adoption__Source source[] = {
	        [SESSION_SOURCE_NEW] = STEELYARD__FORWARDER__V1__ADOPTION__SOURCE__SOURCE_NEW,
	        [SESSION_SOURCE_CRASHED] =
	                STEELYARD__FORWARDER__V1__ADOPTION__SOURCE__SOURCE_CRASHED,
	        [SESSION_SOURCE_STOPPED] =
	                STEELYARD__FORWARDER__V1__ADOPTION__SOURCE__SOURCE_STOPPED,
	        [SESSION_SOURCE_HANDED_OVER] =
	                STEELYARD__FORWARDER__V1__ADOPTION__SOURCE__SOURCE_HANDED_OVER,
	};
	const struct adoption *from = &b->ctl->adoption;
	Steelyard__Forwarder__V1__Adoption *ad;
	MESSAGE_NEW(a, ad, steelyard__forwarder__v1__adoption__init);
	/* Also for an upgrade whose tables were validated instead of trusted. */
	ad->source = source[b->options.inherit ? SESSION_SOURCE_HANDED_OVER : from->found.source];
	ad->refused = (char *)(uintptr_t)from->found.refused;
	ad->away_ns = from->found.away_ns;
	ad->duration_ns = from->duration_ns;
	ad->trusted = from->found.source == SESSION_SOURCE_HANDED_OVER;
	MESSAGE_NEW_LIST(a, ad->results, SESSION_RESULT_COUNT);
	for (unsigned v = 0; from->found.source != SESSION_SOURCE_NEW && v < SESSION_RESULT_COUNT;
	     v++) {
		Steelyard__Forwarder__V1__Adoption__Result *result;
		MESSAGE_NEW(a, result, steelyard__forwarder__v1__adoption__result__init);
		result->name = (char *)(uintptr_t)session_result_name(v);
		result->help = (char *)(uintptr_t)session_result_help(v);
		result->sessions = from->count[v];
		ad->results[ad->n_results++] = result;
	}
	*out = ad;
	return 0;
}

static int reply_phases(struct arena *a, Steelyard__Forwarder__V1__Status *s, struct sy_error *err)
{
	MESSAGE_NEW_LIST(a, s->phases, SY_PHASE_COUNT);
	for (unsigned i = 0; i < SY_PHASE_COUNT; i++) {
		const struct sy_phase_cost cost = sy_phase_get(i);
		Steelyard__Forwarder__V1__Phase *phase;
		if (cost.wall_ns == 0)
			continue;
		MESSAGE_NEW(a, phase, steelyard__forwarder__v1__phase__init);
		phase->name = (char *)(uintptr_t)sy_phase_name(i);
		phase->help = (char *)(uintptr_t)sy_phase_help(i);
		phase->wall_ns = cost.wall_ns;
		phase->cpu_ns = cost.cpu_ns;
		phase->queued_ns = cost.queued_ns;
		phase->faults = cost.faults;
		s->phases[s->n_phases++] = phase;
	}
	return 0;
}

static int reply_port_problems(struct sy_balance *b, struct arena *a,
                               Steelyard__Forwarder__V1__Status *s, struct sy_error *err)
{
	unsigned ports = sy_port_count(b->rt);
	MESSAGE_NEW_LIST(a, s->port_problems, ports);
	for (unsigned i = 0; i < ports; i++) {
		struct sy_port_info info;
		sy_port_get_info(b->rt, i, &info);
		if (!info.problem[0])
			continue;
		size_t cap = sizeof(info.name) + sizeof(info.problem) + 2;
		char *text = arena_alloc(a, cap);
		if (!text)
			return sy_fail(err, ENOMEM, "no memory for the answer");
		snprintf(text, cap, "%s: %s", info.name, info.problem);
		s->port_problems[s->n_port_problems++] = text;
	}
	return 0;
}

static int reply_event_device(const struct sy_balance *b, struct arena *a,
                              Steelyard__Forwarder__V1__EventDevice **out, struct sy_error *err)
{
	Steelyard__Forwarder__V1__EventDevice *pb;
	if (!b->stage)
		return 0;
	MESSAGE_NEW(a, pb, steelyard__forwarder__v1__event_device__init);
	*out = pb;
	pb->name = (char *)(uintptr_t)event_stage_device(b);
	pb->model = (char *)(uintptr_t)sy_event_model_name[b->stage->model];
	pb->waiting = sy_event_in_flight(b->stage->event);
	for (unsigned w = 0; w < b->workers; w++) {
		const struct sy_event_port *p = sy_event_port(b->stage->event, w);
		pb->packets += SY_READ(p->sent);
		pb->refused += SY_READ(p->refused);
	}
	return 0;
}

/* Sums what workers have sent for an unavailable service, or for ports without one (SERVICE_NONE).
 */
static int reply_unavailable(const struct sy_balance *b, uint32_t service, struct arena *a,
                             Steelyard__Forwarder__V1__UnavailableStats **out, struct sy_error *err)
{
	uint64_t sent[UNAVAILABLE_KINDS] = {0};
	for (unsigned w = 0; w < b->workers; w++) {
		const struct balance_worker *bw = &b->worker[w];
		const uint64_t *counts =
		        service == SERVICE_NONE ? bw->unknown_ports : bw->load[service].unavailable;
		for (unsigned kind = 0; kind < UNAVAILABLE_KINDS; kind++)
			sent[kind] += SY_READ(counts[kind]);
	}
	if (sent[UNAVAILABLE_BY_RESET] + sent[UNAVAILABLE_BY_ICMP] == 0)
		return 0;
	MESSAGE_NEW(a, *out, steelyard__forwarder__v1__unavailable_stats__init);
	(*out)->resets = sent[UNAVAILABLE_BY_RESET];
	(*out)->icmp = sent[UNAVAILABLE_BY_ICMP];
	return 0;
}

int list_status(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
                struct sy_error *err)
{
	Steelyard__Forwarder__V1__Status *s;
	MESSAGE_NEW(a, s, steelyard__forwarder__v1__status__init);
	const char *refusal = sy_runtime_refusal(b->rt), *marks = sy_check_refusal(b->rt);
	s->build = (char *)(uintptr_t)b->options.build;
	s->started_unix_s = b->ctl->started_unix_s;
	s->revision = b->ctl->model->revision;
	s->workers = b->workers;
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		s->sessions += session_count(b->table[slot]);
		s->session_capacity += session_capacity(b->table[slot]);
		s->sessions_embryonic += SY_READ(b->table[slot]->embryonic);
	}
	s->session_bytes_mapped = session_store_mapped(b->ctl->store);
	s->huge_pages = b->options.store_huge;
	if (refusal)
		s->routing_refused = (char *)(uintptr_t)refusal;
	s->marks_active = sy_check_works(b->rt);
	if (marks)
		s->marks_refused = (char *)(uintptr_t)marks;
	if (reply_port_problems(b, a, s, err) < 0)
		return -ENOMEM;
	for (unsigned n = 0; sy_runtime_problem(b->rt, n); n++)
		s->n_contested += sy_runtime_problem_is_contested(b->rt, n);
	s->contested = arena_alloc(a, (s->n_contested + 1) * sizeof(*s->contested));
	if (!s->contested)
		return sy_fail(err, ENOMEM, "no memory for the answer");
	for (unsigned n = 0, at = 0; sy_runtime_problem(b->rt, n); n++)
		if (sy_runtime_problem_is_contested(b->rt, n))
			s->contested[at++] = (char *)(uintptr_t)sy_runtime_problem(b->rt, n);
	if (list_warnings(b, a, &s->warnings, &s->n_warnings) < 0)
		return sy_fail(err, ENOMEM, "no memory for the answer");
	s->pid = (uint32_t)getpid();
	s->upgrading = b->ctl->control->upgrade.running;
	if (reply_event_device(b, a, &s->event_device, err) < 0 ||
	    reply_adoption(b, a, &s->adoption, err) < 0 || reply_phases(a, s, err) < 0 ||
	    reply_unavailable(b, SERVICE_NONE, a, &s->unknown_ports, err) < 0)
		return -ENOMEM;
	s->kernel_restored = sy_runtime_restored(b->rt);
	while (sy_runtime_problem(b->rt, s->kernel_problems))
		s->kernel_problems++;
	s->services = b->ctl->model->services;
	s->servers = b->ctl->model->servers;
	out->body_case = STEELYARD__FORWARDER__V1__RESPONSE__BODY_STATUS;
	out->status = s;
	return 0;
}

int control_claim(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
                  struct sy_error *err)
{
	const Steelyard__Forwarder__V1__ClaimRequest *request = q->claim;
	Steelyard__Forwarder__V1__ClaimResult *result;
	struct sy_addr *some;
	MESSAGE_NEW_LIST(a, some, request->n_addresses);
	for (size_t i = 0; i < request->n_addresses; i++) {
		int rc = read_addr(&request->addresses[i], "address", &some[i], err);
		if (rc < 0)
			return rc;
	}
	MESSAGE_NEW(a, result, steelyard__forwarder__v1__claim_result__init);
	result->claimed = sy_addresses_force(b->rt, some, (unsigned)request->n_addresses);
	out->body_case = STEELYARD__FORWARDER__V1__RESPONSE__BODY_CLAIM;
	out->claim = result;
	return 0;
}

/* ---- services -------------------------------------------------------------------------------- */

int reply_traffic(struct arena *a, const struct traffic *t, uint64_t active,
                  Steelyard__Forwarder__V1__Traffic **out, struct sy_error *err)
{
	Steelyard__Forwarder__V1__Traffic *pb;
	MESSAGE_NEW(a, pb, steelyard__forwarder__v1__traffic__init);
	pb->packets_in = t->packets_in;
	pb->bytes_in = t->bytes_in;
	pb->packets_out = t->packets_out;
	pb->bytes_out = t->bytes_out;
	pb->sessions_created = t->created;
	pb->sessions_active = active;
	*out = pb;
	return 0;
}

static uint32_t limit_of(uint32_t asked)
{
	return asked > 0 && asked < LIST_SERVICES ? asked : LIST_SERVICES;
}

int list_config(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
                struct sy_error *err)
{
	out->body_case = STEELYARD__FORWARDER__V1__RESPONSE__BODY_GET_CONFIG;
	return reply_config(b, q->get_config->cursor, limit_of(q->get_config->limit), a,
	                    &out->get_config, err);
}

static void fill_defence(const struct sy_balance *b, const struct model_service *s,
                         const struct service_counts *counts,
                         Steelyard__Forwarder__V1__DefenceStats *out)
{
	const struct watched *watched = &b->ctl->watch->of_service[s->id];
	out->answered = counts->answered;
	out->returned = counts->right;
	out->wrong = counts->wrong;
	out->half_open = watch_counts_of(b, s->id).half_open;
	out->on = s->policy.syn_defence == DEFENCE_ALWAYS;
	if (s->policy.syn_defence != DEFENCE_AUTO)
		return;
	out->on = watched->now.on;
	out->since_unix_ms = watched->since_ms;
	out->why = (char *)(uintptr_t)watch_reason_text(watched->now.reason);
	out->switched_on = watched->switched_on;
}

/* Omits servers without a handshake. */
static int reply_delay(const struct sy_balance *b, uint32_t server, struct arena *a,
                       Steelyard__Forwarder__V1__DelayStats **out, struct sy_error *err)
{
	const struct delay_share sum = delay_sum(b, server);
	Steelyard__Forwarder__V1__DelayStats *pb;
	size_t buckets = DELAY_BUCKETS;
	while (buckets > 0 && sum.bucket[buckets - 1] == 0)
		buckets--;
	if (buckets == 0 && sum.repeated == 0 && sum.segments == 0)
		return 0;
	MESSAGE_NEW(a, pb, steelyard__forwarder__v1__delay_stats__init);
	MESSAGE_NEW_LIST(a, pb->buckets, buckets);
	for (size_t i = 0; i < buckets; i++) {
		pb->buckets[i] = sum.bucket[i];
		pb->samples += sum.bucket[i];
	}
	pb->n_buckets = buckets;
	pb->sum_ns = sum.sum_ns;
	pb->smoothed_ns = SY_READ(b->server_delay[server]);
	pb->syn_repeated = sum.repeated;
	pb->segments = sum.segments;
	pb->segments_lost = sum.lost;
	*out = pb;
	return 0;
}

/* A service's drops by reason, without reasons that have none. */
static int reply_drops(const struct sy_balance *b, uint32_t service, struct arena *a,
                       Steelyard__Forwarder__V1__ServiceStats *st, struct sy_error *err)
{
	uint64_t sum[SY_DROP_COUNT] = {0};
	unsigned reasons = 0;
	for (unsigned reason = 0; reason < SY_DROP_COUNT; reason++) {
		for (unsigned w = 0; w < b->workers; w++)
			sum[reason] += SY_READ(b->worker[w].drops[service].packets[reason]);
		reasons += sum[reason] > 0;
	}
	if (reasons == 0)
		return 0;
	MESSAGE_NEW_LIST(a, st->drops, reasons);
	for (unsigned reason = 0; reason < SY_DROP_COUNT; reason++) {
		Steelyard__Forwarder__V1__ServiceDrop *one;
		if (sum[reason] == 0)
			continue;
		MESSAGE_NEW(a, one, steelyard__forwarder__v1__service_drop__init);
		one->name = (char *)(uintptr_t)sy_drop_name(reason);
		one->packets = sum[reason];
		st->drops[st->n_drops++] = one;
	}
	return 0;
}

static int reply_service_stats(struct sy_balance *b, const struct model_service *s, struct arena *a,
                               Steelyard__Forwarder__V1__ServiceStats **out, struct sy_error *err)
{
	Steelyard__Forwarder__V1__ServiceStats *st;
	struct traffic total = s->gone;
	MESSAGE_NEW(a, st, steelyard__forwarder__v1__service_stats__init);
	if (reply_service(b, a, s, &st->service, err) < 0)
		return -ENOMEM;
	MESSAGE_NEW_LIST(a, st->servers, s->servers);
	for (unsigned i = 0; i < s->servers; i++) {
		Steelyard__Forwarder__V1__ServerStats *one;
		struct traffic t = traffic_sum(b, s->server[i].id);
		MESSAGE_NEW(a, one, steelyard__forwarder__v1__server_stats__init);
		if (reply_server(a, &s->server[i], &one->server, err) < 0 ||
		    reply_traffic(a, &t, SY_READ(b->server_active[s->server[i].id]), &one->traffic,
		                  err) < 0)
			return -ENOMEM;
		one->share = s->server[i].reported;
		if (reply_delay(b, s->server[i].id, a, &one->delay, err) < 0)
			return -ENOMEM;
		st->servers[st->n_servers++] = one;
		traffic_add(&total, &t);
	}
	st->shares_valid_s = shares_left(b, s);
	struct service_counts counts = attacks_counts(b, s->id);
	for (unsigned why = 0; why < REFUSALS; why++)
		st->refused_packets += counts.refused[why];
	if (reply_drops(b, s->id, a, st, err) < 0)
		return -ENOMEM;
	for (unsigned w = 0; w < b->workers; w++)
		st->refused_by_client_limits += SY_READ(b->worker[w].load[s->id].client_refused);
	if (reply_unavailable(b, s->id, a, &st->unavailable, err) < 0)
		return -ENOMEM;
	if (s->policy.syn_defence != DEFENCE_OFF || counts.answered > 0) {
		MESSAGE_NEW(a, st->syn_defence, steelyard__forwarder__v1__defence_stats__init);
		fill_defence(b, s, &counts, st->syn_defence);
	}
	*out = st;
	return reply_traffic(a, &total, SY_READ(b->service_active[s->id]), &st->traffic, err);
}

int list_services(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
                  struct sy_error *err)
{
	const struct model *m = b->ctl->model;
	const Steelyard__Forwarder__V1__ListServicesRequest *request = q->list_services;
	Steelyard__Forwarder__V1__ServiceList *l;
	uint32_t limit = limit_of(request->limit), servers = 0;
	struct service_key only;

	if (request->only && read_key(request->only, &only, err) < 0)
		return -EINVAL;
	MESSAGE_NEW(a, l, steelyard__forwarder__v1__service_list__init);
	MESSAGE_NEW_LIST(a, l->services, limit);
	uint32_t id = request->cursor;
	for (; id < m->service_ids.fresh; id++) {
		const struct model_service *s = m->service[id];
		if (!s || s->snat || (request->only && memcmp(&s->key, &only, sizeof(only)) != 0))
			continue;
		if (l->n_services == limit || servers > LIST_SERVERS)
			break;
		if (reply_service_stats(b, s, a, &l->services[l->n_services++], err) < 0)
			return -ENOMEM;
		servers += s->servers;
	}
	l->next_cursor = id < m->service_ids.fresh ? id : 0;
	out->body_case = STEELYARD__FORWARDER__V1__RESPONSE__BODY_LIST_SERVICES;
	out->list_services = l;
	return 0;
}

/* ---- drops, ports, workers, slots ------------------------------------------------------------ */

int reply_drop(struct arena *a, const char *name, const char *help, uint64_t packets,
               Steelyard__Forwarder__V1__Drop **out, struct sy_error *err)
{
	MESSAGE_NEW(a, *out, steelyard__forwarder__v1__drop__init);
	(*out)->name = (char *)(uintptr_t)name;
	(*out)->help = (char *)(uintptr_t)help;
	(*out)->packets = packets;
	return 0;
}

int list_drops(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
               struct sy_error *err)
{
	Steelyard__Forwarder__V1__DropList *l;
	MESSAGE_NEW(a, l, steelyard__forwarder__v1__drop_list__init);
	MESSAGE_NEW_LIST(a, l->drops, SY_DROP_COUNT);
	for (unsigned reason = SY_DROP_NONE + 1; reason < SY_DROP_COUNT; reason++) {
		uint64_t packets = sy_port_drops(b->rt, (enum sy_drop)reason);
		for (unsigned w = 0; w < b->workers; w++)
			packets += SY_READ(sy_worker_at(b->rt, w)->counters.drop[reason]);
		int rc = reply_drop(a, sy_drop_name(reason), sy_drop_help(reason), packets,
		                    &l->drops[l->n_drops++], err);
		if (rc < 0)
			return rc;
	}
	out->body_case = STEELYARD__FORWARDER__V1__RESPONSE__BODY_LIST_DROPS;
	out->list_drops = l;
	return 0;
}

int list_ports(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
               struct sy_error *err)
{
	Steelyard__Forwarder__V1__PortList *l;
	unsigned ports = sy_port_count(b->rt);
	MESSAGE_NEW(a, l, steelyard__forwarder__v1__port_list__init);
	MESSAGE_NEW_LIST(a, l->ports, ports);
	for (unsigned i = 0; i < ports; i++) {
		Steelyard__Forwarder__V1__Port *p;
		struct sy_port_stats stats;
		struct sy_port_info *info = arena_alloc(a, sizeof(*info));
		MESSAGE_NEW(a, p, steelyard__forwarder__v1__port__init);
		if (!info)
			return sy_fail(err, ENOMEM, "no memory for the answer");
		sy_port_get_info(b->rt, i, info);
		sy_port_get_stats(b->rt, i, &stats);
		p->name = info->name;
		p->backend = (char *)(uintptr_t)info->backend;
		p->mac = (ProtobufCBinaryData){sizeof(info->mac), info->mac};
		p->mtu = info->mtu;
		p->up = info->up;
		p->queues = info->queues;
		p->rx_packets = stats.rx_packets;
		p->rx_bytes = stats.rx_bytes;
		p->tx_packets = stats.tx_packets;
		p->tx_bytes = stats.tx_bytes;
		p->rx_missed = stats.rx_missed;
		p->tx_failed = stats.tx_failed;
		p->director_steered = stats.director.steered;
		p->director_passed = stats.director.passed;
		p->director_dropped = stats.director.dropped_no_socket;
		p->problem = info->problem;
		p->if_index = (uint32_t)info->ifindex;
		l->ports[l->n_ports++] = p;
	}
	out->body_case = STEELYARD__FORWARDER__V1__RESPONSE__BODY_LIST_PORTS;
	out->list_ports = l;
	return 0;
}

int list_workers(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
                 struct sy_error *err)
{
	Steelyard__Forwarder__V1__WorkerList *l;
	MESSAGE_NEW(a, l, steelyard__forwarder__v1__worker_list__init);
	MESSAGE_NEW_LIST(a, l->workers, b->workers);
	for (unsigned i = 0; i < b->workers; i++) {
		Steelyard__Forwarder__V1__Worker *w;
		const struct sy_worker_counters *c = &sy_worker_at(b->rt, i)->counters;
		MESSAGE_NEW(a, w, steelyard__forwarder__v1__worker__init);
		w->id = i;
		w->rx_packets = SY_READ(c->rx_packets);
		w->tx_packets = SY_READ(c->tx_packets);
		w->steered_out = SY_READ(c->steered_out);
		w->steered_in = SY_READ(c->steered_in);
		w->remote = SY_READ(c->remote);
		w->busy_cycles = SY_READ(c->busy_cycles);
		w->idle_cycles = SY_READ(c->idle_cycles);
		w->sleeps = SY_READ(c->sleeps);
		for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
			if (sy_slot_worker(b->rt, (uint8_t)slot) != i)
				continue;
			w->slots++;
			w->sessions += session_count(b->table[slot]);
		}
		l->workers[l->n_workers++] = w;
	}
	out->body_case = STEELYARD__FORWARDER__V1__RESPONSE__BODY_LIST_WORKERS;
	out->list_workers = l;
	return 0;
}

int list_slots(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
               struct sy_error *err)
{
	Steelyard__Forwarder__V1__SlotList *l;
	MESSAGE_NEW(a, l, steelyard__forwarder__v1__slot_list__init);
	MESSAGE_NEW_LIST(a, l->slots, SY_SLOTS);
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		Steelyard__Forwarder__V1__Slot *s;
		MESSAGE_NEW(a, s, steelyard__forwarder__v1__slot__init);
		s->slot = slot;
		s->worker = sy_slot_worker(b->rt, (uint8_t)slot);
		s->sessions = session_count(b->table[slot]);
		s->capacity = session_capacity(b->table[slot]);
		for (unsigned w = 0; w < b->workers; w++)
			s->packets += SY_READ(b->worker[w].slot_packets[slot]);
		l->slots[l->n_slots++] = s;
	}
	out->body_case = STEELYARD__FORWARDER__V1__RESPONSE__BODY_LIST_SLOTS;
	out->list_slots = l;
	return 0;
}

// SPDX-License-Identifier: Apache-2.0
#include "balance.h"

#include <stdlib.h>
#include <time.h>

#include <rte_errno.h>
#include <rte_mbuf_dyn.h>

#include "access_model.h"
#include "address_set.h"
#include "attacks.h"
#include "client_count.h"
#include "client_rate.h"
#include "control.h"
#include "delay.h"
#include "event_stage.h"
#include "fragment_table.h"
#include "grow.h"
#include "limit_model.h"
#include "loss.h"
#include "model.h"
#include "opening_queue.h"
#include "peers.h"
#include "queued.h"
#include "remote.h"
#include "repeat.h"
#include "samples.h"
#include "saved.h"
#include "shaping_model.h"
#include "snat.h"
#include "strict.h"
#include "sync_relay.h"
#include "table_map.h"
#include "validated.h"
#include "watch.h"
#include "whole.h"

#define SECOND_NS       UINT64_C(1000000000)
#define ALIVE_PERIOD_NS SECOND_NS

struct whole {
	struct sy_balance balance;
	struct control_plane ctl;
};

/* Applies the saved group, unless options make this forwarder a node. */
static int group_resume(struct sy_balance *b, struct saved_group *group, struct sy_error *err)
{
	int rc = group_file_load(b->options.state_directory, group, err);
	if (rc < 0 || !group->peers.node)
		return rc;
	if (b->options.peers.node) {
		sy_log(SY_LOG_WARN, "peers",
		       "%s/group has no effect: this forwarder is node %u by its options",
		       b->options.state_directory, b->options.peers.node);
		return 0;
	}
	b->options.peers = group->peers;
	b->options.slot_key = &group->slot_key;
	memcpy(b->ctl->group, group->version, sizeof(b->ctl->group));
	return 0;
}

int sy_balance_create(const struct sy_balance_options *options, struct sy_balance **out,
                      struct sy_error *err)
{
	struct whole *whole = aligned_alloc(SY_PAGE, sizeof(*whole));
	if (!whole)
		return sy_fail(err, ENOMEM, "no memory for the balancer");
	memset(whole, 0, sizeof(*whole));
	struct sy_balance *b = &whole->balance;
	sy_secret_pages(&b->key, offsetof(struct sy_balance, options));
	b->ctl = &whole->ctl;
	b->options = *options;
	b->ctl->owner = !options->inherit;
	b->ctl->journal.fd = b->ctl->state_lock = -1;
	b->ctl->started_unix_s = (uint64_t)time(NULL);

	struct saved_group group;
	int rc = group_resume(b, &group, err);
	const struct session_store_options store = {
	        .sessions = options->sessions,
	        .limit = options->sessions_limit,
	        .reserved = options->memory_reserved,
	        .servers = options->max_servers,
	        .directory = options->store_directory,
	        .name = options->store_name,
	        .owner = sy_netns_cookie(), /* sessions belong to one network namespace */
	        .inherit = options->inherit,
	        .slot_key = b->options.slot_key,
	};
	if (rc == 0)
		rc = session_store_open(&store, &b->ctl->store, err);
	sy_secret_wipe(&group, sizeof(group));
	if (rc < 0) {
		sy_balance_destroy(b);
		return rc;
	}
	b->options.slot_key = NULL; /* valid until then */
	sy_slot_set_key(session_store_slot_key(b->ctl->store));
	b->endpoint = table_map(options->max_servers, sizeof(*b->endpoint));
	b->service = table_map(options->max_services, sizeof(*b->service));
	b->server_active = table_map(options->max_servers, sizeof(*b->server_active));
	b->service_active = table_map(options->max_services, sizeof(*b->service_active));
	b->server_delay = table_map(options->max_servers, sizeof(*b->server_delay));
	b->cookies_at = table_map(options->max_services, sizeof(*b->cookies_at));
	b->defends = table_map(options->max_services, sizeof(*b->defends));
	b->limits.limit = table_map(LIMITS, sizeof(*b->limits.limit));
	b->limits.bucket = table_map(LIMITS, sizeof(*b->limits.bucket));
	b->limits.chain = table_map(options->max_servers, sizeof(*b->limits.chain));
	b->ctl->dictionary.server_found = table_map(options->max_servers, sizeof(bool));
	b->ctl->table_cache = table_cache_create();
	b->persist = persist_create();
	b->validated = validated_create();
	b->client_rates = client_rates_create();
	b->address_set = address_set_build(NULL, 0);
	b->own_sources = address_set_build(NULL, 0);
	b->locals[0] = calloc(1, sizeof(struct local_set));
	b->locals[1] = calloc(1, sizeof(struct local_set));
	if (!b->endpoint || !b->service || !b->server_active || !b->service_active ||
	    !b->server_delay || !b->cookies_at || !b->defends || !b->ctl->table_cache ||
	    !b->persist || !b->validated || !b->limits.limit || !b->limits.bucket ||
	    !b->limits.chain || !b->ctl->dictionary.server_found || !b->client_rates ||
	    !b->address_set || !b->own_sources || !b->locals[0] || !b->locals[1]) {
		sy_balance_destroy(b);
		return sy_fail(err, ENOMEM, "no memory for %u services and %u servers",
		               options->max_services, options->max_servers);
	}
	*out = b;
	return 0;
}

/* Registers an mbuf flag and stores its mask. */
static int flag_register(const char *name, uint64_t *mask, struct sy_error *err)
{
	struct rte_mbuf_dynflag flag = {0};
	snprintf(flag.name, sizeof(flag.name), "%s", name);
	int bit = rte_mbuf_dynflag_register(&flag);
	if (bit < 0)
		return sy_fail(err, rte_errno, "no bit is left in packet buffers");
	*mask = UINT64_C(1) << bit;
	return 0;
}

/* Registers the mbuf flag and field of packets that other nodes have relayed. */
static int relayed_register(struct sy_balance *b, struct sy_error *err)
{
	static const struct rte_mbuf_dynfield field = {.name = "steelyard_relay",
	                                               .size = sizeof(struct sync_relay),
	                                               .align = __alignof__(struct sync_relay)};
	b->relay_field = rte_mbuf_dynfield_register(&field);
	if (b->relay_field < 0)
		return sy_fail(err, rte_errno, "no room is left in packet buffers");
	return flag_register("steelyard_relayed", &b->relayed_flag, err);
}

/* Max fragments that wait at a worker: with few packet buffers (--mbufs), a quarter of its part. */
static unsigned fragments_limit(const struct sy_balance *b)
{
	const unsigned part = sy_packet_buffers(b->rt) / (4 * b->workers);
	return part < FRAGMENT_MAX_WAITING ? part : FRAGMENT_MAX_WAITING;
}

static int workers_attach(struct sy_balance *b, struct sy_error *err)
{
	int rc = flag_register("steelyard_own", &b->originated_flag, err);
	if (rc == 0 && b->options.peers.node)
		rc = flag_register("steelyard_strict", &b->strict_flag, err);
	if (rc == 0 && b->options.peers.is_ecmp)
		rc = relayed_register(b, err);
	if (rc < 0)
		return rc;
	b->workers = sy_worker_count(b->rt);
	for (unsigned w = 0; w < b->workers; w++) {
		struct balance_worker *bw = &b->worker[w];
		bw->share = table_map(b->options.max_servers, sizeof(*bw->share));
		struct scheduler_state *s = &bw->scheduler;
		s->current = table_map(b->options.max_servers, sizeof(*s->current));
		s->position = table_map(b->options.max_servers, sizeof(*s->position));
		s->cursor = table_map(b->options.max_services, sizeof(*s->cursor));
		s->random = sy_hash_mix(sy_clock_ns(), 0xd6e8feb86659fd93 ^ w);
		bw->counts = table_map(b->options.max_services, sizeof(*bw->counts));
		bw->drops = table_map(b->options.max_services, sizeof(*bw->drops));
		bw->load = table_map(b->options.max_services, sizeof(*bw->load));
		bw->access = table_map(1, sizeof(*bw->access));
		bw->limited = table_map(LIMITS, sizeof(*bw->limited));
		bw->fragments = fragments_create(fragments_limit(b));
		bw->opening_queue = opening_queue_create();
		bw->strict = calloc(1, sizeof(*bw->strict));
		bw->repeats = repeats_create();
		bw->delays = delays_create(b->options.max_servers);
		bw->losses = losses_create();
		bw->overload.share[OVERLOAD_UNKNOWN] = bw->overload.share[OVERLOAD_REPEATED] =
		        OVERLOAD_WHOLE;
		rc = remote_create(&bw->remote, b->workers);
		if (!bw->share || !bw->counts || !bw->drops || !s->current || !s->position ||
		    !s->cursor || !bw->load || !bw->access || !bw->limited || !bw->fragments ||
		    !bw->opening_queue || !bw->strict || !bw->repeats || !bw->delays ||
		    !bw->losses || rc)
			return sy_fail(err, ENOMEM, "no memory for worker %u", w);
	}
	return 0;
}

int sy_balance_attach(struct sy_balance *b, struct sy_runtime *rt, struct sy_error *err)
{
	b->rt = rt;
	int rc = workers_attach(b, err);
	if (rc == 0 && b->options.event_at_start && b->workers > 1)
		rc = event_stage_open(b, err);
	if (rc < 0)
		return rc;
	rc = directory_create(b, err);
	if (rc == 0)
		rc = model_create(b, err);
	if (rc == 0)
		rc = peers_create(b, err);
	if (rc == 0)
		rc = control_create(b, err);
	if (rc == 0)
		rc = attacks_create(b, err);
	if (rc == 0)
		rc = watch_create(b, err);
	if (rc == 0)
		rc = id_dictionary_reserve(b, err);
	if (rc == 0 && b->ctl->owner)
		rc = saved_lock(b, err);
	b->ctl->lenient = b->ctl->owner;
	if (rc == 0)
		rc = config_file_load(b, err);
	/* A running predecessor still writes its journal; this process applies it when the
	 * predecessor has stopped. */
	if (rc == 0 && b->ctl->owner)
		rc = journal_load(b, err);
	b->ctl->lenient = false;
	if (rc == 0)
		rc = sy_runtime_every(rt, RETIRE_PERIOD_MS, balance_tick, b);
	if (rc == 0)
		rc = sy_runtime_every(rt, GROW_PERIOD_MS, grow_tick, b);
	return rc;
}

void balance_tick(void *balance)
{
	struct sy_balance *b = balance;
	uint64_t now = sy_clock_ns();
	if (!b->ctl->store) /* sealed: the successor owns it */
		return;
	retire_tick(b);
	service_tick(b);
	persist_tick(b);
	validated_tick(b->validated, (uint32_t)(balance_now(b) / SECOND_NS));
	watch_tick(b);
	peers_tick(b);
	client_rates_tick(b->client_rates, balance_now(b) / 1000);
	attacks_tick(b);
	access_tick(b);
	limits_tick(b);
	shaping_retry(b);
	if (b->ctl->control) {
		config_file_flush(b, false);
		late_save_tick(b->ctl->control);
		listings_tick(b->ctl->control);
	}
	if (now - b->ctl->alive_ns >= ALIVE_PERIOD_NS) {
		b->ctl->alive_ns = now;
		session_store_alive(b->ctl->store);
	}
}

/* Both, in each poll. */
bool sy_balance_poll(struct sy_worker *w)
{
	bool work = queued_poll(w);
	return peers_poll(w) || work;
}

bool sy_balance_is_idle(const struct sy_worker *w)
{
	return queued_is_idle(w) && peers_is_idle(w);
}

uint64_t sy_balance_wake_ns(const struct sy_worker *w)
{
	return peers_wake_ns(w);
}

void sy_balance_detach(struct sy_balance *b)
{
	control_destroy(b);
	peers_destroy(b);
	access_block_end(b);
	attacks_destroy(b);
	watch_destroy(b);
	samples_destroy(b);
	event_stage_close(b);
	for (unsigned w = 0; w < b->workers; w++) { /* while the packet buffers still exist */
		fragments_destroy(b->worker[w].fragments);
		b->worker[w].fragments = NULL;
		opening_queue_destroy(b->worker[w].opening_queue);
		b->worker[w].opening_queue = NULL;
		free(b->worker[w].strict);
		b->worker[w].strict = NULL;
		repeats_destroy(b->worker[w].repeats);
		b->worker[w].repeats = NULL;
	}
}

int sy_balance_resign(const char *state_directory)
{
	const struct saved_role role = role_file_load(state_directory);
	return role.master || role.wanted_master
	               ? role_file_save(state_directory, (struct saved_role){0})
	               : 0;
}

void sy_balance_destroy(struct sy_balance *b)
{
	if (!b)
		return;
	adopt_close(b);
	saved_unlock(b);
	retire_close(b);
	id_dictionary_close(b);
	for (uint32_t id = 0; b->ctl->model && id < b->ctl->model->service_ids.fresh; id++)
		service_free((void *)(uintptr_t)b->service[id]);
	model_destroy(b);
	directory_destroy(b);
	for (unsigned w = 0; w < b->workers; w++) {
		struct balance_worker *bw = &b->worker[w];
		table_unmap(bw->share, b->options.max_servers, sizeof(*bw->share));
		delays_destroy(bw->delays, b->options.max_servers);
		losses_destroy(bw->losses);
		struct scheduler_state *s = &bw->scheduler;
		table_unmap(s->current, b->options.max_servers, sizeof(*s->current));
		table_unmap(s->position, b->options.max_servers, sizeof(*s->position));
		table_unmap(s->cursor, b->options.max_services, sizeof(*s->cursor));
		table_unmap(bw->counts, b->options.max_services, sizeof(*bw->counts));
		table_unmap(bw->drops, b->options.max_services, sizeof(*bw->drops));
		table_unmap(bw->load, b->options.max_services, sizeof(*bw->load));
		table_unmap(bw->access, 1, sizeof(*bw->access));
		table_unmap(bw->limited, LIMITS, sizeof(*bw->limited));
		remote_destroy(bw->remote);
	}
	table_unmap(b->endpoint, b->options.max_servers, sizeof(*b->endpoint));
	table_unmap(b->service, b->options.max_services, sizeof(*b->service));
	table_unmap(b->server_active, b->options.max_servers, sizeof(*b->server_active));
	table_unmap(b->server_delay, b->options.max_servers, sizeof(*b->server_delay));
	table_unmap(b->cookies_at, b->options.max_services, sizeof(*b->cookies_at));
	table_unmap(b->defends, b->options.max_services, sizeof(*b->defends));
	table_unmap(b->service_active, b->options.max_services, sizeof(*b->service_active));
	table_unmap(b->limits.limit, LIMITS, sizeof(*b->limits.limit));
	table_unmap(b->limits.bucket, LIMITS, sizeof(*b->limits.bucket));
	table_unmap(b->limits.chain, b->options.max_servers, sizeof(*b->limits.chain));
	table_unmap(b->ctl->dictionary.server_found, b->options.max_servers, sizeof(bool));
	persist_destroy(b->persist);
	validated_destroy(b->validated);
	client_rates_destroy(b->client_rates);
	client_counts_destroy(b->client_counts);
	table_cache_destroy(b->ctl->table_cache);
	free((void *)(uintptr_t)b->address_set);
	free((void *)(uintptr_t)b->own_sources);
	snat_free((void *)(uintptr_t)b->snat);
	free((void *)(uintptr_t)b->locals[0]);
	free((void *)(uintptr_t)b->locals[1]);
	free(SY_CONTAINER_OF(b, struct whole, balance));
}

// SPDX-License-Identifier: Apache-2.0
/* Reads limits from messages. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdlib.h>

#include "access_model.h"
#include "control_plane.h"
#include "event_stage.h"
#include "limit_model.h"

#define BITS     STEELYARD__FORWARDER__V1__LIMIT_UNIT__LIMIT_UNIT_BITS
#define PACKETS  STEELYARD__FORWARDER__V1__LIMIT_UNIT__LIMIT_UNIT_PACKETS
#define SESSIONS STEELYARD__FORWARDER__V1__LIMIT_UNIT__LIMIT_UNIT_SESSIONS
#define MARK     STEELYARD__FORWARDER__V1__LIMIT_ACTION__LIMIT_ACTION_MARK

#define SECOND_NS UINT64_C(1000000000)

/* By LIMIT_LAYER_*, starting with L3: bytes added to each packet, and min size. */
static const struct {
	uint8_t header, min;
} layers[] = {{0, 0}, {14, 60}, {18, 64}, {38, 84}};

static const uint8_t engines[] = {
        [STEELYARD__FORWARDER__V1__LIMIT_ENGINE__LIMIT_ENGINE_UNSPECIFIED] = SY_LIMIT_CAS,
        [STEELYARD__FORWARDER__V1__LIMIT_ENGINE__LIMIT_ENGINE_CAS] = SY_LIMIT_CAS,
        [STEELYARD__FORWARDER__V1__LIMIT_ENGINE__LIMIT_ENGINE_LOCK] = SY_LIMIT_LOCK,
        [STEELYARD__FORWARDER__V1__LIMIT_ENGINE__LIMIT_ENGINE_LIGHT_LOCK] = SY_LIMIT_LIGHT_LOCK,
        [STEELYARD__FORWARDER__V1__LIMIT_ENGINE__LIMIT_ENGINE_ATOMIC] = SY_LIMIT_ATOMIC,
};

static int limit_fail(const pb_limit *pb, struct sy_error *err, const char *what)
{
	return sy_fail(err, EINVAL, "limit %s: %s", pb->name, what);
}

/* ---- how much -------------------------------------------------------------------------------- */

/* By enum limit_unit. */
static const struct {
	const char *name;
	uint64_t min, max, burst;
} units[] = {
        [LIMIT_BYTES] = {"bits", 8000, UINT64_C(400000000000), UINT64_C(100000000000)},
        [LIMIT_PACKETS] = {"packets", 1, 1000000000, 1000000000},
        [LIMIT_SESSIONS] = {"sessions", 1, 10000000, 1000000000},
};

static int read_amount(const pb_limit *pb, struct model_limit *l, struct sy_error *err)
{
	if (pb->unit < BITS || pb->unit > SESSIONS)
		return limit_fail(pb, err, "unknown unit; known: bits, packets, sessions");
	const unsigned unit = pb->unit == BITS      ? LIMIT_BYTES
	                      : pb->unit == PACKETS ? LIMIT_PACKETS
	                                            : LIMIT_SESSIONS;
	if (pb->per_second < units[unit].min || pb->per_second > units[unit].max)
		return sy_fail(err, EINVAL,
		               "limit %s: %" PRIu64 " %s a second are not within %" PRIu64
		               "–%" PRIu64,
		               pb->name, pb->per_second, units[unit].name, units[unit].min,
		               units[unit].max);
	if (pb->burst < 1 || pb->burst > units[unit].burst)
		return sy_fail(err, EINVAL,
		               "limit %s: a burst of %" PRIu64 " %s is not within 1–%" PRIu64,
		               pb->name, pb->burst,
		               unit == LIMIT_BYTES ? "bytes" : units[unit].name, units[unit].burst);
	l->unit = (uint8_t)unit;
	l->built->unit = (uint8_t)unit & 3;
	l->amount = pb->per_second;
	l->period_ns = unit == LIMIT_BYTES ? 8 * SECOND_NS : SECOND_NS;
	l->burst = pb->burst;
	return 0;
}

static int read_layer(const pb_limit *pb, struct limit *out, struct sy_error *err)
{
	if (pb->layer > STEELYARD__FORWARDER__V1__LIMIT_LAYER__LIMIT_LAYER_L1 || pb->layer < 0)
		return limit_fail(pb, err, "unknown layer; known: L3, L2, L2 with FCS, L1");
	if (pb->layer && pb->unit != BITS)
		return limit_fail(pb, err, "only a limit of bits has a layer: leave it out");
	const unsigned layer = pb->layer ? (unsigned)pb->layer - 1 : 0;
	out->header = layers[layer].header;
	out->min = layers[layer].min;
	return 0;
}

static int read_action(const pb_limit *pb, struct limit *out, struct sy_error *err)
{
	if (pb->direction > STEELYARD__FORWARDER__V1__LIMIT_DIRECTION__LIMIT_DIRECTION_TO_CLIENTS ||
	    pb->direction < 0)
		return limit_fail(pb, err,
		                  "unknown direction; known: both, to servers, to clients");
	if (pb->direction && pb->unit == SESSIONS)
		return limit_fail(pb, err,
		                  "a limit of new sessions has no direction: leave it out");
	if (pb->action > MARK || pb->action < 0)
		return limit_fail(pb, err, "unknown action; known: drop, mark");
	if (pb->action == MARK && pb->unit == SESSIONS)
		return limit_fail(pb, err,
		                  "sessions cannot be marked: let it drop, or limit packets");
	if (pb->dscp > 63 || (pb->dscp && pb->action != MARK))
		return limit_fail(pb, err, "a DSCP is within 0–63, and of a limit that marks");
	out->marks = pb->action == MARK;
	out->dscp = (uint8_t)pb->dscp;
	switch (pb->direction) {
	case STEELYARD__FORWARDER__V1__LIMIT_DIRECTION__LIMIT_DIRECTION_TO_SERVERS:
		out->sides = 1 << SESSION_CLIENT;
		break;
	case STEELYARD__FORWARDER__V1__LIMIT_DIRECTION__LIMIT_DIRECTION_TO_CLIENTS:
		out->sides = 1 << SESSION_SERVER;
		break;
	default:
		out->sides = 1 << SESSION_CLIENT | 1 << SESSION_SERVER;
	}
	if (pb->unit == SESSIONS)
		out->sides = 0;
	return 0;
}

static int read_engine(const pb_limit *pb, struct model_limit *l, struct sy_error *err)
{
	const bool light =
	        pb->engine == STEELYARD__FORWARDER__V1__LIMIT_ENGINE__LIMIT_ENGINE_LIGHT_LOCK;
	if ((size_t)pb->engine >= SY_ARRAY_LEN(engines))
		return limit_fail(pb, err, "unknown engine; known: cas, lock, light-lock, atomic");
	if (pb->batch && !light)
		return limit_fail(pb, err, "only the engine light-lock has a batch: leave it out");
	if (pb->batch > pb->burst)
		return limit_fail(pb, err,
		                  "a batch above the burst could never be taken: lower it");
	uint64_t batch = pb->batch ? pb->batch : pb->burst / 10;
	l->requested_engine = (uint8_t)pb->engine;
	l->batch = batch > UINT32_MAX ? UINT32_MAX : batch > 0 ? (uint32_t)batch : 1;
	if (!light)
		l->batch = 0;
	return 0;
}

/* Opens the event device if the limit would use it. At a start that must not fail, the limit does
 * without. */
static int engine_prepare(struct sy_balance *b, const struct model_limit *l, struct sy_error *err)
{
	struct sy_error why = {0};
	if (engines[l->requested_engine] != SY_LIMIT_ATOMIC || b->workers == 1 || l->max > 0 ||
	    l->unit == LIMIT_SESSIONS || l->built->marks || event_stage_open(b, &why) == 0)
		return 0;
	if (!b->ctl->lenient)
		return sy_fail(err, why.code, "limit %s: engine atomic: %s", l->name, why.text);
	sy_log(SY_LOG_ERROR, "balance", "limit %s: engine cas instead of atomic: %s", l->name,
	       why.text);
	return 0;
}

/* The engine for the requested one, by the limit's other properties. */
static uint8_t engine_of(const struct sy_balance *b, const struct model_limit *l, bool marks)
{
	const uint8_t requested = engines[l->requested_engine];
	if (l->max > 0)
		return SY_LIMIT_CAS;
	if (b->workers == 1)
		return SY_LIMIT_OWN;
	if (requested == SY_LIMIT_ATOMIC && (l->unit == LIMIT_SESSIONS || marks || !b->stage))
		return SY_LIMIT_CAS;
	return requested;
}

uint8_t limit_engine(const struct sy_balance *b, const struct model_limit *l)
{
	const uint8_t engine = engine_of(b, l, b->limits.limit[l->id]->marks);
	const struct limit_bucket *bucket = &b->limits.bucket[l->id];
	const bool shared = engine == SY_LIMIT_ATOMIC &&
	                    (!event_stage_is_alone(b->stage) || bucket->by_chains ||
	                     SY_READ(bucket->by_workers) != LIMIT_BESIDE_NONE);
	return shared ? SY_LIMIT_CAS : engine;
}

/* For a limit with the event device and several workers. */
static const char *atomic_reason(const struct sy_balance *b, const struct model_limit *l)
{
	if (l->unit == LIMIT_SESSIONS)
		return "a session begins, or not, before its packet could go through the event "
		       "device";
	if (b->limits.limit[l->id]->marks)
		return "a packet is marked before it could go through the event device";
	if (!b->stage)
		return "the event device could not be opened: see the forwarder's log";
	switch (b->stage->model) {
	case SY_EVENT_UNORDERED:
		return "the event device gives packets to any worker (--event-model unordered)";
	case SY_EVENT_ORDERED:
		return "the event device gives packets to any worker, and keeps their order "
		       "(--event-model ordered)";
	case SY_EVENT_DIRECT:
		return "the event device gives all packets to one worker (--event-model direct)";
	default:
		break;
	}
	if (b->limits.bucket[l->id].by_chains)
		return "its packets go through the event device, but some of them meet another "
		       "limit there, within which not all of them lie";
	return SY_READ(b->limits.bucket[l->id].by_workers) != LIMIT_BESIDE_NONE
	               ? "its packets go through the event device, but lately some could not: they "
	                 "waited for a neighbour, or were divided into fragments"
	               : "the event device gives its packets to one worker at a time";
}

const char *limit_engine_reason(const struct sy_balance *b, const struct model_limit *l)
{
	if (l->max > 0)
		return l->requested_engine >
		                       STEELYARD__FORWARDER__V1__LIMIT_ENGINE__LIMIT_ENGINE_CAS
		               ? "buckets of clients come and go by one compare-and-swap, so other "
		                 "engines are not possible"
		               : "buckets of clients come and go by one compare-and-swap";
	if (b->workers == 1)
		return "there is one worker, so no other worker shares the bucket";
	if (engines[l->requested_engine] == SY_LIMIT_ATOMIC)
		return atomic_reason(b, l);
	return l->requested_engine
	               ? "it is configured"
	               : "several workers share the bucket, and this engine is exact and "
	                 "needs no lock";
}

/* ---- clients --------------------------------------------------------------------------------- */

/* The mask of a family's prefixes. */
static struct sy_limit_key mask_of(bool v4, uint32_t length)
{
	struct sy_addr mask = {0};
	for (unsigned bit = 0; bit < length + (v4 ? 96 : 0); bit++)
		mask.b[bit / 8] |= (uint8_t)(0x80 >> bit % 8);
	return (struct sy_limit_key){{mask.d[0], mask.d[1]}};
}

static int read_within(const pb_limit *pb, struct limit_clients *c, struct sy_error *err)
{
	for (size_t i = 0; i < pb->clients->n_within; i++) {
		const Steelyard__Forwarder__V1__Prefix *p = pb->clients->within[i];
		struct limit_prefix *out = &c->prefix[i];
		struct sy_addr addr;
		if (!read_prefix_addr(p, &addr))
			return sy_fail(err, EINVAL, "limit %s: prefix %zu of its clients is wrong",
			               pb->name, i);
		out->v4 = sy_addr_is_v4(&addr);
		out->mask = mask_of(out->v4, p->length);
		for (unsigned n = 0; n < 2; n++) {
			out->network.d[n] = addr.d[n] & out->mask.d[n];
			if (out->network.d[n] != addr.d[n])
				return sy_fail(
				        err, EINVAL,
				        "limit %s: prefix %zu of its clients has bits behind "
				        "its length",
				        pb->name, i);
		}
		c->within++;
	}
	return 0;
}

static int read_clients(const pb_limit *pb, struct model_limit *l, struct sy_error *err)
{
	const Steelyard__Forwarder__V1__LimitClients *request = pb->clients;
	if (!request)
		return 0;
	const uint32_t prefix4 = request->prefix4 ? request->prefix4 : 32;
	const uint32_t prefix6 = request->prefix6 ? request->prefix6 : 64;
	if (prefix4 < 8 || prefix4 > 32 || prefix6 < 16 || prefix6 > 128)
		return limit_fail(pb, err,
		                  "a client is an IPv4 network of length 8–32, an IPv6 network of "
		                  "16–128");
	if (request->most > SY_LIMIT_TABLE_MAX)
		return sy_fail(err, EINVAL,
		               "limit %s: %u buckets of clients, at most %u are possible", pb->name,
		               request->most, SY_LIMIT_TABLE_MAX);
	if (request->n_within > LIMIT_WITHIN)
		return sy_fail(err, EINVAL,
		               "limit %s: %zu prefixes of clients, at most %u are possible",
		               pb->name, request->n_within, LIMIT_WITHIN);
	struct limit_clients *c = calloc(1, sizeof(*c) + request->n_within * sizeof(c->prefix[0]));
	if (!c)
		return sy_fail(err, ENOMEM, "limit %s: no memory", pb->name);
	l->built->clients = c;
	l->within = (unsigned)request->n_within;
	l->max = request->most ? request->most : 65536;
	l->prefix[0] = (uint8_t)prefix6;
	l->prefix[1] = (uint8_t)prefix4;
	c->mask[0] = mask_of(false, prefix6);
	c->mask[1] = mask_of(true, prefix4);
	return read_within(pb, c, err);
}

/* ---- its targets ----------------------------------------------------------------------------- */

static int target_compare(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct limit_target));
}

/* Sorts and removes duplicates. */
static void targets_sort(struct model_limit *l)
{
	unsigned kept = 0;
	qsort(l->target, l->targets, sizeof(*l->target), target_compare);
	for (unsigned i = 0; i < l->targets; i++)
		if (kept == 0 || target_compare(&l->target[kept - 1], &l->target[i]) != 0)
			l->target[kept++] = l->target[i];
	l->targets = kept;
}

static int read_server_key(const pb_limit *pb, const Steelyard__Forwarder__V1__ServerKey *server,
                           struct limit_target *out, struct sy_error *err)
{
	out->kind = LIMIT_OF_SERVER;
	if (server->port > UINT16_MAX)
		return limit_fail(pb, err, "a server's port is not within 0–65535");
	out->port = htons((uint16_t)server->port);
	int rc = read_key(server->service, &out->service, err);
	return rc < 0 ? rc : read_addr(&server->address, "server", &out->server, err);
}

/* Estimated number of servers per target; a tenant's limit is wider than those of its services. */
static const uint32_t width_of[] = {[LIMIT_OF_ALL] = 1u << 31,
                                    [LIMIT_OF_VIP] = 1u << 16,
                                    [LIMIT_OF_SERVICE] = 1u << 8,
                                    [LIMIT_OF_SERVER] = 1};

static int read_targets(const pb_limit *pb, struct model_limit *l, struct sy_error *err)
{
	const size_t count = pb->n_services + pb->n_vips + pb->n_servers;
	int rc = 0;
	if (count > LIMIT_CONCERNS)
		return sy_fail(err, EINVAL,
		               "limit %s names %zu services, VIPs and servers, at most %u are "
		               "possible: name VIPs instead of services, or services instead of "
		               "servers",
		               pb->name, count, LIMIT_CONCERNS);
	l->target = calloc(count + 1, sizeof(*l->target));
	if (!l->target)
		return sy_fail(err, ENOMEM, "limit %s: no memory", pb->name);
	for (size_t i = 0; rc == 0 && i < pb->n_services; i++) {
		l->target[l->targets].kind = LIMIT_OF_SERVICE;
		rc = read_key(pb->services[i], &l->target[l->targets++].service, err);
	}
	for (size_t i = 0; rc == 0 && i < pb->n_vips; i++) {
		l->target[l->targets].kind = LIMIT_OF_VIP;
		rc = read_addr(&pb->vips[i], "VIP", &l->target[l->targets++].service.vip, err);
	}
	for (size_t i = 0; rc == 0 && i < pb->n_servers; i++)
		rc = read_server_key(pb, pb->servers[i], &l->target[l->targets++], err);
	if (rc < 0)
		return sy_fail_in(err, "limit %s", pb->name);
	if (count == 0)
		l->target[l->targets++].kind = LIMIT_OF_ALL;
	targets_sort(l);
	for (unsigned i = 0; i < l->targets; i++)
		l->built->width += width_of[l->target[i].kind];
	return 0;
}

/* ---- the whole message ----------------------------------------------------------------------- */

static int limit_pack(const pb_limit *pb, struct model_limit *l, struct sy_error *err)
{
	l->packed_len = steelyard__forwarder__v1__limit__get_packed_size(pb);
	l->packed = malloc(l->packed_len + 1);
	if (!l->packed)
		return sy_fail(err, ENOMEM, "limit %s: no memory", pb->name);
	steelyard__forwarder__v1__limit__pack(pb, l->packed);
	return 0;
}

static int tenant_check(const pb_limit *pb, struct sy_error *err)
{
	return *pb->tenant ? access_name_check("a limit's tenant", pb->tenant, err) : 0;
}

int limit_read(struct sy_balance *b, const pb_limit *pb, struct model_limit **out,
               struct sy_error *err)
{
	int rc = access_name_check("a limit", pb->name, err);
	if (rc < 0 || (rc = tenant_check(pb, err)) < 0)
		return rc;
	struct model_limit *l = calloc(1, sizeof(*l));
	if (l)
		l->built = aligned_alloc(SY_CACHE_LINE, sizeof(*l->built));
	if (!l || !l->built) {
		free(l);
		return sy_fail(err, ENOMEM, "limit %s: no memory", pb->name);
	}
	memset(l->built, 0, sizeof(*l->built));
	l->built->balance = b;
	l->replaces = LIMITS;
	memcpy(l->name, pb->name, strlen(pb->name) + 1);
	if ((rc = read_amount(pb, l, err)) < 0 || (rc = read_layer(pb, l->built, err)) < 0 ||
	    (rc = read_action(pb, l->built, err)) < 0 || (rc = read_engine(pb, l, err)) < 0 ||
	    (rc = read_clients(pb, l, err)) < 0 || (rc = read_targets(pb, l, err)) < 0 ||
	    (rc = limit_pack(pb, l, err)) < 0 || (rc = engine_prepare(b, l, err)) < 0) {
		limit_free(l);
		return rc;
	}
	l->built->engine = engine_of(b, l, l->built->marks) & 7;
	*out = l;
	return 0;
}

bool limit_keeps_id(const struct model_limit *before, const struct model_limit *now)
{
	return before->unit == now->unit && before->requested_engine == now->requested_engine &&
	       before->batch == now->batch && before->max == now->max &&
	       before->prefix[0] == now->prefix[0] && before->prefix[1] == now->prefix[1];
}

void limit_built_free(struct limit *l)
{
	if (l)
		free(l->clients);
	free(l);
}

void limit_free(struct model_limit *l)
{
	if (!l)
		return;
	limit_built_free(l->built);
	free(l->packed);
	free(l->target);
	free(l);
}

static void *message_alloc(void *arena, size_t size)
{
	return arena_alloc(arena, size);
}

static void arena_keep(void *arena, void *p)
{
	(void)arena;
	(void)p;
}

pb_limit *reply_limit(const struct model_limit *l, struct arena *a)
{
	ProtobufCAllocator allocator = {
	        .alloc = message_alloc, .free = arena_keep, .allocator_data = a};
	return steelyard__forwarder__v1__limit__unpack(&allocator, l->packed_len, l->packed);
}

// SPDX-License-Identifier: Apache-2.0
/*
 * steelyard-density: how many bytes a session costs. FNAT sessions of random clients fill the
 * table until the first insertion fails; then every one is looked up in both directions. What is
 * printed as bytes per session is all that was mapped over the sessions live at that moment.
 */
#include <arpa/inet.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "session.h"

#define LOCALS_MAX 256

struct density {
	struct session_store *store;
	struct sy_hash_key key;
	uint64_t random;
	bool v6;
	uint32_t server_count;
	unsigned local_count;
	struct sy_addr locals[LOCALS_MAX];
	uint8_t local_ids[LOCALS_MAX];
	struct sy_addr *servers; /* all on SERVER_PORT over TCP */
	struct sy_addr vip;
};

#define SERVER_PORT 0x5000 /* 80, network order */
#define VIP_PORT    0x5000
#define PROTO_TCP   6

/* splitmix64 */
static uint64_t random_next(struct density *d)
{
	uint64_t z = d->random += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

/* ---- the network ----------------------------------------------------------------------------- */

static struct sy_addr address_make(const struct density *d, uint32_t v4_net, uint64_t v6_net,
                                   uint64_t host)
{
	if (!d->v6)
		return sy_addr_v4(htonl(v4_net + (uint32_t)host));
	return (struct sy_addr){.d = {htobe64(v6_net), htobe64(host)}};
}

/* As many servers as leave a third of the local ports free at the end: near exhaustion it would be
 * the search for ports that is measured. */
static void network_make(struct density *d, uint64_t sessions)
{
	const double ports = 65536.0 - 1024;

	d->local_count = sessions > 20000000 ? 64 : 8;
	d->server_count = (uint32_t)ceil((double)sessions * 1.5 / (ports * d->local_count));
	if (d->server_count < 16)
		d->server_count = 16;
	d->servers = calloc(d->server_count, sizeof(*d->servers));
	if (d->servers == NULL) {
		fprintf(stderr, "steelyard-density: out of memory\n");
		exit(1);
	}
	/* 10.0.0.0, fd00::; 192.0.2.0, 2001:db8:2:: */
	for (uint32_t i = 0; i < d->server_count; i++)
		d->servers[i] = address_make(d, 0x0a000001, 0xfd00000000000000, i + 1);
	for (unsigned i = 0; i < d->local_count; i++) {
		d->locals[i] = address_make(d, 0xc0000201, 0x20010db800020000, i + 1);
		d->local_ids[i] = (uint8_t)i;
	}
	d->vip = address_make(d, 0xc6336401, 0x20010db800010000, 1);
}

static struct sy_tuple client_tuple(struct density *d)
{
	uint64_t r = random_next(d);
	struct sy_tuple t = {.dst = d->vip, .dport = VIP_PORT, .proto = PROTO_TCP};

	t.sport = (uint16_t)(r >> 48);
	t.src = d->v6 ? (struct sy_addr){.d = {htobe64(0x2001000000000000 | (r & 0xffffffffff)),
	                                       random_next(d)}}
	              : sy_addr_v4((uint32_t)r);
	return t;
}

/* ---- verification, as a packet is verified --------------------------------------------------- */

struct client_search {
	const struct sy_tuple *tuple;
};

static bool client_match(const void *ctx, const struct session *candidate,
                         enum session_direction direction)
{
	const struct client_search *s = ctx;
	return direction == SESSION_CLIENT && candidate->client_port == s->tuple->sport &&
	       sy_addr_equal(&candidate->client, &s->tuple->src);
}

struct port_search {
	struct session_port_search search;
	const struct density *d;
};

static bool server_match(const void *ctx, const struct session *candidate,
                         enum session_direction direction)
{
	const struct port_search *s = SY_CONTAINER_OF(ctx, struct port_search, search);
	return direction == SESSION_SERVER && candidate->local_port == s->search.reply.dport &&
	       candidate->local == s->search.local &&
	       sy_addr_equal(&s->d->servers[candidate->server], &s->search.reply.src);
}

/* ---- fill, verify ---------------------------------------------------------------------------- */

enum outcome { INSERTED, KNOWN, FULL, NO_PORT };

static enum outcome session_create(struct density *d)
{
	struct sy_tuple tuple = client_tuple(d);
	uint8_t slot = sy_slot_of(&tuple.src, tuple.sport);
	struct session_table *t = session_store_table(d->store, slot);
	uint64_t client_hash = sy_hash_tuple(&d->key, &tuple);
	struct client_search client = {&tuple};
	enum session_direction direction;

	if (session_find(t, client_hash, client_match, &client, &direction) != SESSION_NONE)
		return KNOWN;
	uint32_t server = (uint32_t)(random_next(d) % d->server_count);
	struct port_search port = {.search = {.locals = d->locals,
	                                      .local_ids = d->local_ids,
	                                      .local_count = d->local_count,
	                                      .server = server,
	                                      .reply = {.src = d->servers[server],
	                                                .sport = SERVER_PORT,
	                                                .proto = PROTO_TCP}},
	                           .d = d};
	if (!session_find_port(t, &d->key, &port.search, server_match))
		return NO_PORT;
	struct session hot = {
	        .client = tuple.src,
	        .client_port = tuple.sport,
	        .local_port = port.search.reply.dport,
	        .server = server & 0xffffff,
	        .local = port.search.local,
	        .state = SESSION_ESTABLISHED,
	};
	return session_insert(t, &hot, 0, client_hash, port.search.server_hash) == SESSION_NONE
	               ? FULL
	               : INSERTED;
}

/* Looks a session up by both its tuples; returns whether each finds it and says its direction. */
static bool session_verify(const struct density *d, const struct session_table *t, uint32_t record)
{
	const struct session *hot = session_at(t, record);
	struct sy_tuple tuple = {.src = hot->client,
	                         .dst = d->vip,
	                         .sport = hot->client_port,
	                         .dport = VIP_PORT,
	                         .proto = PROTO_TCP};
	struct client_search client = {&tuple};
	struct port_search server = {.search = {.local = hot->local,
	                                        .reply = {.src = d->servers[hot->server],
	                                                  .dst = d->locals[hot->local],
	                                                  .sport = SERVER_PORT,
	                                                  .dport = hot->local_port,
	                                                  .proto = PROTO_TCP}},
	                             .d = d};
	uint64_t client_hash = sy_hash_tuple(&d->key, &tuple);
	uint64_t server_hash = sy_hash_tuple(&d->key, &server.search.reply);
	enum session_direction direction;

	return session_find(t, client_hash, client_match, &client, &direction) == record &&
	       direction == SESSION_CLIENT &&
	       session_find(t, server_hash, server_match, &server.search, &direction) == record &&
	       direction == SESSION_SERVER;
}

/* The sessions of all slots that cannot be found as they should. */
static uint64_t sessions_lost(const struct density *d, uint64_t *seen)
{
	uint64_t lost = 0;

	*seen = 0;
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		const struct session_table *t = session_store_table(d->store, (uint8_t)slot);
		uint32_t cursor = 0;
		for (uint32_t record; (record = session_next(t, &cursor)) != SESSION_NONE; ++*seen)
			lost += !session_verify(d, t, record);
	}
	return lost;
}

/* ---- the command ----------------------------------------------------------------------------- */

struct arguments {
	struct session_store_options store;
	unsigned family;
	uint64_t seed;
	double limit; /* bytes a session; 0: none */
};

static void usage(FILE *out)
{
	fprintf(out, "usage: steelyard-density [--sessions N] [--family 4|6] [--seed S]\n"
	             "                         [--directory DIR] [--limit BYTES]\n"
	             "\n"
	             "Fills a session table with random FNAT sessions until the first insertion\n"
	             "fails, looks all of them up in both directions, prints what one costs.\n"
	             "\n"
	             "  --sessions N     capacity of the table (4194304)\n"
	             "  --family 4|6     of clients, servers and local addresses (4)\n"
	             "  --seed S         of the random tuples (1)\n"
	             "  --directory DIR  map the table's file there: hugetlbfs for huge pages\n"
	             "  --limit BYTES    fail if a session costs more\n");
}

static struct arguments arguments_parse(int argc, char **argv)
{
	static const struct option options[] = {
	        {"sessions", required_argument, NULL, 'n'},
	        {"family", required_argument, NULL, 'f'},
	        {"seed", required_argument, NULL, 's'},
	        {"directory", required_argument, NULL, 'd'},
	        {"limit", required_argument, NULL, 'l'},
	        {"help", no_argument, NULL, 'h'},
	        {NULL, 0, NULL, 0},
	};
	struct arguments a = {.store = {.sessions = 4 << 20, .name = "steelyard-density"},
	                      .family = 4,
	                      .seed = 1};

	for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
		char *end = "";
		switch (c) {
		case 'n':
			a.store.sessions = strtoull(optarg, &end, 10);
			break;
		case 'f':
			a.family = (unsigned)strtoul(optarg, &end, 10);
			break;
		case 's':
			a.seed = strtoull(optarg, &end, 10);
			break;
		case 'd':
			a.store.directory = optarg;
			break;
		case 'l':
			a.limit = strtod(optarg, &end);
			break;
		case 'h':
			usage(stdout);
			exit(0);
		default:
			usage(stderr);
			exit(2);
		}
		if (*end != '\0' || (a.family != 4 && a.family != 6)) {
			usage(stderr);
			exit(2);
		}
	}
	return a;
}

int main(int argc, char **argv)
{
	struct arguments a = arguments_parse(argc, argv);
	struct density d = {.random = a.seed, .v6 = a.family == 6};
	struct sy_error err;
	enum outcome outcome;

	sy_slot_init();
	network_make(&d, a.store.sessions);
	a.store.servers = d.server_count;
	if (session_store_open(&a.store, &d.store, &err) != 0) {
		fprintf(stderr, "steelyard-density: %s\n", err.text);
		return 1;
	}
	d.key = *session_store_key(d.store);

	uint64_t attempts = 0, live = 0, seen, capacity = 0, start = sy_clock_ns();
	for (; (outcome = session_create(&d)) == INSERTED || outcome == KNOWN; attempts++)
		live += outcome == INSERTED;
	double fill_ns = (double)(sy_clock_ns() - start) / (double)(attempts + 1);
	start = sy_clock_ns();
	uint64_t lost = sessions_lost(&d, &seen);
	double find_ns = (double)(sy_clock_ns() - start) / (2.0 * (double)live);

	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		capacity += session_capacity(session_store_table(d.store, (uint8_t)slot));
	double mapped = (double)session_store_mapped(d.store), bytes = mapped / (double)live;
	printf("family             IPv%u\n"
	       "servers            %" PRIu32 ", local addresses %u\n"
	       "sessions           %" PRIu64 " live at the first failure (%s)\n"
	       "capacity           %" PRIu64 " records, %.2f %% in use\n"
	       "mapped             %.0f bytes\n"
	       "bytes per session  %.2f\n"
	       "create             %.0f ns (look-up, local port, insertion)\n"
	       "find               %.0f ns (in the order of records)\n"
	       "lost               %" PRIu64 "\n",
	       a.family, d.server_count, d.local_count, live,
	       outcome == FULL ? "table-full" : "no-local-port", capacity,
	       100.0 * (double)live / (double)capacity, mapped, bytes, fill_ns, find_ns, lost);
	session_store_discard(d.store);
	free(d.servers);
	if (lost != 0 || seen != live || outcome != FULL) {
		fprintf(stderr, "steelyard-density: the table did not hold what was put into it\n");
		return 1;
	}
	if (a.limit > 0 && bytes > a.limit) {
		fprintf(stderr, "steelyard-density: a session costs more than %.2f bytes\n",
		        a.limit);
		return 1;
	}
	return 0;
}

// SPDX-License-Identifier: Apache-2.0
/* What benchmarks measure the packet path with: a forwarder between two injected ports, a service,
 * and sessions created in the ordinary way, by their clients' first packets. */
#ifndef BENCH_FIXTURE_H
#define BENCH_FIXTURE_H

#include "injector.h"
#include "session.h"

struct fixture_options {
	enum mode mode;
	bool client_v6, server_v6;
	bool tcp; /* else UDP */
	uint64_t sessions;
	uint64_t room;            /* for more sessions that the table holds */
	double fill;              /* share of the session table */
	unsigned servers, locals; /* at most FIXTURE_SERVERS, FIXTURE_LOCALS */
	unsigned workers;         /* 0: 1 */
	uint32_t frame_len;       /* without FCS; if less than the headers, their length */
	const char *store; /* directory on hugetlbfs for the table, with all memory on huge pages;
	                      NULL: no huge pages */
	bool defended;     /* SYNs are answered by cookies, or by challenges; no sessions then */
	bool listed;       /* an access list refuses members of a set, which is empty but for one */
	bool list_ports;   /* its rule names ports, too: rte_acl decides */
	unsigned list_rules; /* before it, each of a prefix and a port: rte_acl decides */
	unsigned limits;  /* on the service, which all packets pass: of bits and packets in turn */
	unsigned clients; /* the first limit is per client, with this many clients; 0: none */
	bool shaped; /* both ports, with the service as a tenant's, by rates that delay nothing */
	bool brief;  /* adds a service whose sessions expire after a second of silence */
	uint64_t seed;
	/* Of the limits: "cas", "lock", "light-lock" or "atomic", NULL: the default; and with
	 * "atomic" the device and the model of its queue, as in struct sy_balance_options. */
	const char *engine, *device, *model;
};
#define FIXTURE_SERVERS  256
#define FIXTURE_LOCALS   64
#define FIXTURE_RULES    1000
#define FIXTURE_SESSIONS (1u << 29) /* number of clients */
#define FIXTURE_FRAMES   (1u << 24) /* per direction: a few GB */

/* An entry of bench_options.h: the directory of the fixture's session table. */
#define FIXTURE_DIRECTORY(options)                                                                 \
	{                                                                                          \
		"directory", "DIR", OPTION_WORD, &(options).store, 0, 0, OPTIONS_DIRECTORY         \
	}

/* FNAT over IPv4, UDP, a table that is 85 % full, one worker. */
struct fixture_options fixture_defaults(uint64_t sessions);

struct fixture {
	struct fixture_options options;
	struct harness harness;
	struct injector injector;
	/* The sessions' packets by enum session_direction, in the order of creation; empty for the
	 * servers of a one-way mode. With more than FIXTURE_FRAMES sessions, one in `every` has a
	 * packet. */
	struct injector_stream stream[2];
	uint64_t every;
	unsigned port[2];           /* arrival ports */
	struct service_key service; /* the sessions' service; not used for SNAT */
	uint64_t clients;           /* used so far */
	uint64_t random;
};

/* Creates the fixture; a process has one. Reports errors on stderr. */
bool fixture_open(struct fixture *s, const struct fixture_options *o);
void fixture_close(struct fixture *s);
static inline bool fixture_is_one_way(const struct fixture *s)
{
	return s->options.mode == MODE_DR || s->options.mode == MODE_IPIP;
}
/* Returns the address of server n; beyond the last one, of a reachable server that is not
 * configured. Port FIXTURE_PORT. */
struct sy_addr fixture_server(const struct fixture *s, unsigned n);
#define FIXTURE_PORT 80
/* Packets of this many new clients to the brief service; false: no memory. */
bool fixture_brief(struct fixture *s, struct injector_stream *to, uint64_t count);
/* Shuffles a direction's packets. */
void fixture_shuffle(struct fixture *s, enum session_direction from);
/* Replaces them by this many packets of sessions whose n-th most popular one has a share of 1/n
 * (Zipf's law); false: no memory. */
bool fixture_draw_zipf(struct fixture *s, enum session_direction from, uint64_t count);
/* Sends n packets of each of these directions through. False, with a report on stderr: not all came
 * out, or not all by the fast path. */
bool fixture_check(struct fixture *s, uint64_t n);
/* Packets dropped so far, for any reason. */
uint64_t fixture_drops(const struct fixture *s);

#endif

// SPDX-License-Identifier: Apache-2.0
/* All stages, with frames that the input describes. The input is a list of commands, each a byte
 * followed by its arguments:
 *
 *     raw:    port, length (2), the frame
 *     client: service, flags, variation, the bytes to lay over the frame: count, (offset, value)…
 *     answer: flags, variation, overlay bytes as above: an answer to the last frame sent
 *     time:   seconds
 *     error:  type, code, its fourth header word in 8 bits, bytes quoted, variation, overlay bytes:
 *             an ICMP error about the last frame sent */
#include <arpa/inet.h>
#include <stdlib.h>

#include <rte_mempool.h>
#include <sanitizer/lsan_interface.h>

#include "../soak/soak_topology.h"
#include "fuzz.h"
#include "model.h"

#define SECOND_NS UINT64_C(1000000000)
#define COMMANDS  64 /* maximum per input: no queue fills up */

struct input {
	const uint8_t *at, *end;
};

static uint8_t take(struct input *in)
{
	return in->at < in->end ? *in->at++ : 0;
}

static struct topology topology;
static struct rng rng;
static struct sy_tuple last; /* of the last frame sent, reversed */
static uint8_t last_port;
static uint32_t last_seq, last_ack;
static struct frame last_frame; /* the last frame as it was sent */

/* Remembers the frames that the forwarder has sent; returns whether each is valid. */
static bool sent_frames_are_valid(void)
{
	for (unsigned port = 0; port < HARNESS_PORTS; port++) {
		struct rte_mbuf *m;
		while ((m = harness_collect(&topology.harness, port))) {
			struct sy_view v;
			HOLDS(topology_sent_is_right(m, port, m->hash.usr, &v));
			last = (struct sy_tuple){v.tuple.dst, v.tuple.src, v.tuple.dport,
			                         v.tuple.sport, v.tuple.proto};
			last_port = (uint8_t)port;
			last_frame.len = m->data_len;
			memcpy(last_frame.bytes, rte_pktmbuf_mtod(m, void *), m->data_len);
			if (v.proto == SY_PROTO_TCP) {
				const struct sy_tcp *tcp =
				        sy_packet_tcp(rte_pktmbuf_mtod(m, uint8_t *), &v);
				last_seq = ntohl(tcp->seq);
				last_ack = ntohl(tcp->ack);
			}
			rte_pktmbuf_free(m);
		}
	}
	return true;
}

static void frame_send(const struct frame *f)
{
	struct sy_view v;
	struct rte_mbuf *m = rte_pktmbuf_alloc(topology.harness.rt->pool);
	CHECK(m);
	memcpy(rte_pktmbuf_append(m, f->len), f->bytes, f->len);
	m->hash.usr = sy_packet_parse(f->bytes, f->len, &v) == SY_DROP_NONE &&
	              sy_packet_check_l4(f->bytes, &v) == SY_CSUM_OK;
	CHECK(rte_ring_enqueue(topology.harness.rx[f->port], m) == 0);
	harness_poll(&topology.harness);
	harness_attend(&topology.harness);
}

static void send_raw(struct input *in)
{
	struct frame f = {.port = take(in) % HARNESS_PORTS};
	unsigned len = (unsigned)take(in) << 8;
	len = (len | take(in)) % 1600;
	if (len > (size_t)(in->end - in->at))
		len = (unsigned)(in->end - in->at);
	memcpy(f.bytes, in->at, len);
	f.len = (uint16_t)len;
	in->at += len;
	frame_send(&f);
}

/* Lays bytes of the input over the frame. */
static void frame_vary(struct input *in, struct frame *f, uint8_t variation)
{
	for (unsigned n = take(in) % 16; n; n--) {
		unsigned offset = take(in);
		f->bytes[offset % f->len] = take(in);
	}
	if (variation & 4)
		frame_fix_ip(f);
	if (variation & 8)
		frame_fix_l4(f);
	if (variation & 16)
		f->len = (uint16_t)(f->len - take(in) % f->len);
}

/* Sends a valid frame, with bytes of the input laid over it. */
static void send_made(struct input *in, const struct sy_tuple *t, uint8_t port, uint32_t seq,
                      uint32_t ack)
{
	struct frame f = {.port = port};
	uint8_t flags = take(in), variation = take(in);
	const struct segment s = {flags, seq, ack, flags & SY_TCP_SYN ? 1460 : 0};
	unsigned payload = variation & 1 ? (variation & 2 ? 1400 : 33) : 0;
	if (t->proto == SY_PROTO_TCP)
		frame_tcp(&f, &rng, t, &s, payload);
	else if (t->proto == SY_PROTO_UDP)
		frame_udp(&f, &rng, t, payload);
	else
		frame_icmp(&f, &rng, t, flags, variation & 3, payload);
	frame_vary(in, &f, variation);
	frame_send(&f);
}

static void send_error(struct input *in)
{
	struct frame f = {.port = last_port};
	const uint8_t type[2] = {take(in), take(in)};
	uint32_t rest = take(in) * 8u;
	unsigned quoted = take(in), variation = take(in),
	         all = (unsigned)(last_frame.len - SY_ETH_LEN);
	const struct sy_addr router =
	        harness_addr(last_frame.bytes[12] == 8 ? "203.0.113.9" : "2001:db8:99::9");
	if (last_frame.len == 0)
		return;
	frame_error(&f, &rng, &router, type, rest, last_frame.bytes, quoted < all ? quoted : all);
	frame_vary(in, &f, (uint8_t)variation);
	frame_send(&f);
}

static void send_client(struct input *in)
{
	uint8_t service = take(in);
	struct service_key key = service & 64 ? topology_special_service((enum topology_special)(
	                                                service % SPECIAL_SERVICES))
	                                      : topology_service(service % TOPOLOGY_SERVICES);
	struct sy_tuple t = {
	        .src = harness_addr(sy_addr_is_v4(&key.vip) ? "198.18.0.1" : "2001:db8:c::1"),
	        .dst = key.vip,
	        .sport = htons(1024 + service),
	        .dport = key.vport,
	        .proto = key.proto};
	if (service & 128)
		t.proto = sy_addr_is_v4(&key.vip) ? SY_PROTO_ICMP : SY_PROTO_ICMPV6;
	send_made(in, &t, HARNESS_WAN, 100, 0);
}

/* Installs an access list that resets, drops and counts, a limit that few packets of an input
 * reach, and a service whose defence counts its handshakes. */
static void put_guards(void)
{
	struct changes c = {0};
	const struct service_key watched = topology_special_service(SPECIAL_UNIFORM),
	                         limited = topology_service(0);
	Steelyard__Forwarder__V1__AccessSet *set = put_access_set(&c, "bad");
	add_access_prefix(&c, set, "198.18.0.128", 25);
	add_access_prefix(&c, set, "2001:db8:c::8000", 113);
	Steelyard__Forwarder__V1__AccessList *l = put_access_list(
	        &c, "edge", STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_ALLOW);
	add_access_from_set(
	        &c,
	        add_access_rule(&c, l, STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_DROP,
	                        NULL, 0),
	        "bad");
	add_access_rule(&c, l, STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_RESET,
	                "198.18.0.64", 26);
	add_access_rule(&c, l, STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_COUNT,
	                "198.18.0.0", 16);
	put_global_access(&c, "edge");
	add_limit_service(&c,
	                  put_limit(&c, "packets",
	                            STEELYARD__FORWARDER__V1__LIMIT_UNIT__LIMIT_UNIT_PACKETS, 1, 5),
	                  &limited);
	put_service(&c, &watched, "watched", STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_RR,
	            NULL)
	        ->syn_defence = STEELYARD__FORWARDER__V1__SYN_DEFENCE__SYN_DEFENCE_AUTO;
	CHECK(harness_commit(&topology.harness, &c));
}

static void open_once(void)
{
	static bool opened;
	if (opened)
		return;
	rng.state = 1;
	/* Never freed, and in memory that the leak detector cannot inspect. */
	__lsan_disable();
	CHECK(topology_open(&topology, &rng, 1, NULL));
	put_guards();
	__lsan_enable();
	opened = true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, data + size};
	open_once();
	rng.state = 1;
	last = (struct sy_tuple){.src = harness_addr("198.18.0.1"),
	                         .dst = harness_addr("192.0.2.100"),
	                         .proto = SY_PROTO_TCP};
	last_port = HARNESS_WAN;
	last_frame.len = 0;
	for (unsigned n = 0; n < COMMANDS && in.at < in.end; n++) {
		switch (take(&in) % 5) {
		case 0:
			send_raw(&in);
			break;
		case 1:
			send_client(&in);
			break;
		case 2:
			send_made(&in, &last, last_port, last_ack, last_seq + 1);
			break;
		case 3:
			harness_advance(&topology.harness, take(&in) % 8 * SECOND_NS);
			break;
		default:
			send_error(&in);
		}
		CHECK(sent_frames_are_valid());
	}
	/* All sessions and clients expire. */
	topology.harness.now_ns += 700 * SECOND_NS;
	harness_advance(&topology.harness, 2 * SECOND_NS);
	CHECK(sent_frames_are_valid());
	const struct sy_balance_totals totals = harness_totals(&topology.harness);
	CHECK(totals.live == 0 && totals.created == totals.ended);
	CHECK(rte_mempool_in_use_count(topology.harness.rt->pool) == 0);
	return 0;
}

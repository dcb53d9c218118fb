// SPDX-License-Identifier: Apache-2.0
/*
 * Fragments are copied into a table of datagrams, so that they do not occupy the driver's buffers.
 * The whole packet is written into the buffer of its last fragment.
 *
 *     frame:  Ethernet │ IP header, extension headers but the fragment header │ data
 *                       └───────────────── head ─────────────────┘             └ by offset
 */
#include "reassembly.h"

#include <arpa/inet.h>
#include <stddef.h>
#include <stdlib.h>

#define DATAGRAMS  64 /* pending */
#define SHARE      8  /* per source: an IPv4 address or an IPv6 /64 */
#define TIMEOUT_MS 2000
#define UNIT       8    /* of fragment offsets, bytes */
#define DATA_MAX   3584 /* bytes: above the MTU of any interface that AF_XDP supports */
#define HEAD_MAX   256
#define CE         3 /* ECN: congestion experienced */

struct key {
	struct sy_addr src, dst;
	uint32_t id;
	uint32_t begun_ms;
	bool used, spoilt; /* spoilt: discard all its fragments */
};

struct datagram {
	uint64_t unit[DATA_MAX / UNIT / 64]; /* bitmap of units received */
	uint16_t seen, total;                /* units; total 0: unknown */
	uint16_t len;                        /* bytes; known after the last fragment */
	uint16_t head;                       /* bytes; 0: first fragment missing */
	uint8_t ecn;                         /* bitmap of ECN codepoints received */
	uint8_t frame[HEAD_MAX];
	uint8_t data[DATA_MAX];
};

struct reassembly {
	struct key key[DATAGRAMS];
	struct datagram datagram[DATAGRAMS];
};

/* A parsed fragment. */
struct part {
	const uint8_t *data;
	uint16_t head, offset, len;
	bool last;
};

/* ---- the table ------------------------------------------------------------------------------- */

static bool same_source(const struct sy_addr *a, const struct sy_addr *b)
{
	return a->d[0] == b->d[0] && (a->d[1] == b->d[1] || !sy_addr_is_v4(a));
}

static void datagrams_expire(struct sy_stack *s)
{
	for (unsigned i = 0; i < DATAGRAMS; i++) {
		struct key *k = &s->reassembly->key[i];
		if (!k->used || s->now_ms - k->begun_ms < TIMEOUT_MS)
			continue;
		s->counters.fragments_timeout += !k->spoilt;
		k->used = false;
	}
}

static struct key *key_find(struct reassembly *r, const struct sy_view *v)
{
	for (unsigned i = 0; i < DATAGRAMS; i++) {
		struct key *k = &r->key[i];
		if (k->used && k->id == v->fragment_id && sy_addr_equal(&k->src, &v->tuple.src) &&
		    sy_addr_equal(&k->dst, &v->tuple.dst))
			return k;
	}
	return NULL;
}

/* Returns a slot for a new datagram: a free one, or the oldest of its source if that has used up
 * its share, or the oldest of all. */
static struct key *key_slot(struct sy_stack *s, const struct sy_addr *src)
{
	struct key *oldest[2] = {NULL}, *free = NULL;
	unsigned count = 0;

	for (unsigned i = 0; i < DATAGRAMS; i++) {
		struct key *k = &s->reassembly->key[i];
		if (!k->used) {
			free = k;
			continue;
		}
		bool own = same_source(&k->src, src);
		count += own;
		for (unsigned of = 0; of <= own; of++)
			if (!oldest[of] || (int32_t)(k->begun_ms - oldest[of]->begun_ms) < 0)
				oldest[of] = k;
	}
	if (free && count < SHARE)
		return free;
	s->counters.fragments_evicted++;
	return count >= SHARE ? oldest[1] : oldest[0];
}

static struct key *key_get(struct sy_stack *s, const struct sy_view *v)
{
	struct reassembly *r = s->reassembly;
	struct key *k = key_find(r, v);

	if (k)
		return k;
	k = key_slot(s, &v->tuple.src);
	*k = (struct key){v->tuple.src, v->tuple.dst, v->fragment_id, s->now_ms, true, false};
	memset(&r->datagram[k - r->key], 0, offsetof(struct datagram, frame));
	return k;
}

/* ---- one datagram ---------------------------------------------------------------------------- */

static bool unit_is(const struct datagram *d, unsigned unit)
{
	return d->unit[unit / 64] >> unit % 64 & 1;
}

/* Marks units as received. A full duplicate is ignored: the first copy counts. A partial overlap,
 * or one that contradicts the end, spoils the datagram (RFC 5722; for IPv4 as Linux does). */
static bool units_add(struct sy_stack *s, struct datagram *d, const struct part *p, struct key *k)
{
	unsigned from = p->offset / UNIT, to = (p->offset + p->len + UNIT - 1u) / UNIT, seen = 0;
	unsigned end = 0;

	for (unsigned i = from; i < to; i++)
		seen += unit_is(d, i);
	for (unsigned i = p->last ? to : DATA_MAX / UNIT; i < DATA_MAX / UNIT; i++)
		end |= unit_is(d, i);
	bool contradicts = end || (d->total && (to > d->total || (p->last && to != d->total)));
	if (!contradicts && seen == to - from) {
		s->counters.fragments_duplicate++;
		return false;
	}
	if (contradicts || seen > 0) {
		s->counters.fragments_overlap++;
		k->spoilt = true;
		return false;
	}
	for (unsigned i = from; i < to; i++)
		d->unit[i / 64] |= UINT64_C(1) << i % 64;
	d->seen = (uint16_t)(d->seen + to - from);
	if (p->last) {
		d->total = (uint16_t)to;
		d->len = (uint16_t)(p->offset + p->len);
	}
	return true;
}

static void head_copy(struct datagram *d, const uint8_t *frame, const struct sy_view *v,
                      const struct part *p)
{
	unsigned at = v->l3 + (unsigned)sizeof(struct sy_ipv6), next;

	d->head = p->head;
	memcpy(d->frame, frame, p->head);
	if (v->v4)
		return;
	for (next = v->l3 + offsetof(struct sy_ipv6, next_header);
	     frame[next] != IPPROTO_FRAGMENT && at + UNIT < p->head;
	     at += (frame[at + 1] + 1u) * UNIT)
		next = at;
	d->frame[next] = frame[at];
	d->head = (uint16_t)(p->head - UNIT);
	memmove(d->frame + at, d->frame + at + UNIT, d->head - at);
}

/* RFC 3168 5.3: CE on one fragment marks the packet. Returns false if CE is combined with not-ECT.
 */
static bool ecn_join(const struct datagram *d, struct sy_ipv4 *v4, struct sy_ipv6 *v6)
{
	if (!(d->ecn & 1 << CE))
		return true;
	if (v4)
		v4->tos |= CE;
	else
		v6->version_class_flow |= htonl(CE << 20);
	return !(d->ecn & 1);
}

static bool datagram_write(const struct datagram *d, struct rte_mbuf *m, const struct sy_view *v)
{
	unsigned len = (unsigned)d->head + d->len;

	if (RTE_PKTMBUF_HEADROOM + len > m->buf_len)
		return false;
	m->data_off = RTE_PKTMBUF_HEADROOM;
	m->data_len = (uint16_t)len;
	m->pkt_len = len;
	m->ol_flags &= ~RTE_MBUF_F_RX_L4_CKSUM_MASK;
	uint8_t *frame = rte_pktmbuf_mtod(m, uint8_t *);
	memcpy(frame, d->frame, d->head);
	memcpy(frame + d->head, d->data, d->len);
	struct sy_ipv4 *v4 = (struct sy_ipv4 *)(frame + v->l3);
	struct sy_ipv6 *v6 = (struct sy_ipv6 *)(frame + v->l3);
	bool good = ecn_join(d, v->v4 ? v4 : NULL, v6);
	if (v->v4) {
		v4->total_length = htons((uint16_t)(len - v->l3));
		v4->fragment = 0;
		v4->checksum = 0;
		v4->checksum = (uint16_t)~sy_csum_fold(
		        sy_csum_sum(v4, (size_t)(v4->version_ihl & 15) * 4));
	} else {
		v6->payload_length = htons((uint16_t)(len - v->l3 - sizeof(*v6)));
	}
	return good;
}

/* ---- fragments ------------------------------------------------------------------------------- */

static struct part part_of(const uint8_t *frame, const struct sy_view *v)
{
	uint16_t len = sy_packet_fragment_len(frame, v);

	return (struct part){frame + v->frame_len - len, (uint16_t)(v->frame_len - len),
	                     v->fragment_offset, len, v->fragment == SY_FRAGMENT_LAST};
}

static uint8_t ecn_of(const uint8_t *frame, const struct sy_view *v)
{
	return v->v4 ? frame[v->l3 + 1] & 3 : frame[v->l3 + 1] >> 4 & 3;
}

/* Accepts TCP, and IPv6 destination options, which TCP may follow. */
static bool may_be_tcp(const struct sy_view *v)
{
	return v->proto == SY_PROTO_TCP || (!v->v4 && v->proto == IPPROTO_DSTOPTS);
}

static bool part_add(struct sy_stack *s, struct rte_mbuf *m, const struct sy_view *v)
{
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);
	struct part p = part_of(frame, v);

	if (p.offset + p.len > DATA_MAX || p.head > HEAD_MAX ||
	    p.head + p.offset + p.len > SY_ETH_LEN + s->options.mtu + UNIT) {
		s->counters.fragments_too_long++;
		return false;
	}
	datagrams_expire(s);
	struct key *k = key_get(s, v);
	struct datagram *d = &s->reassembly->datagram[k - s->reassembly->key];
	if (k->spoilt) {
		s->counters.fragments_overlap++;
		return false;
	}
	if (!units_add(s, d, &p, k))
		return false;
	memcpy(d->data + p.offset, p.data, p.len);
	d->ecn |= (uint8_t)(1 << ecn_of(frame, v));
	if (p.offset == 0)
		head_copy(d, frame, v, &p);
	if (!d->total || d->seen < d->total)
		return false;
	k->used = false;
	bool written = datagram_write(d, m, v);
	s->counters.reassembled += written;
	s->counters.malformed += !written;
	return written;
}

struct rte_mbuf *reassembly_add(struct sy_stack *s, struct rte_mbuf *m, const struct sy_view *v)
{
	s->counters.fragments++;
	if (!s->reassembly)
		s->reassembly = calloc(1, sizeof(*s->reassembly));
	if (!may_be_tcp(v) || m->nb_segs != 1)
		s->counters.malformed++;
	else if (!s->reassembly)
		s->counters.refused_memory++;
	else if (part_add(s, m, v))
		return m;
	spent_add(&s->spent, m);
	return NULL;
}

struct rte_mbuf *sy_stack_reassemble(struct sy_stack *s, struct rte_mbuf *m, uint64_t now_ns)
{
	struct sy_view v;

	stack_time(s, now_ns);
	if (sy_stack_parse(m, &v) && v.fragment != SY_FRAGMENT_NONE)
		return reassembly_add(s, m, &v);
	s->counters.malformed++;
	spent_add(&s->spent, m);
	return NULL;
}

// SPDX-License-Identifier: Apache-2.0
/* ICMP errors from others: what becomes of the packet that they quote. */
#include "packet_properties.h"

#include <arpa/inet.h>

static bool error_quotes_the_packet(const uint8_t *frame, uint32_t len, const struct sy_addr *src,
                                    const struct sy_addr *dst, struct sy_quote *q)
{
	struct sy_view v;

	if (sy_packet_parse(frame, len, &v) != SY_DROP_NONE)
		return true; /* to or from itself, or multicast */
	HOLDS(v.frame_len == len || v.vlans);
	HOLDS(sy_addr_equal(&v.tuple.src, src) && sy_addr_equal(&v.tuple.dst, dst));
	HOLDS(sy_packet_parse_quote(frame, &v, q) == SY_DROP_NONE);
	return true;
}

static struct sy_tuple tuple_for(const struct sy_quote *q, bool v4)
{
	bool ports = q->tuple.sport || q->tuple.dport;
	return (struct sy_tuple){
	        .src = addr_of(v4 ? "10.1.2.3" : "2001:db8::1:2:3"),
	        .dst = addr_of(v4 ? "10.250.0.1" : "fd00::ffff:1"),
	        .sport = ports ? htons(40001) : 0,
	        .dport = ports && q->tuple.dport ? htons(443) : 0,
	        .proto = q->tuple.proto,
	};
}

/* A number shifted and shifted back is the same again; the checksum stays as valid as before. */
static bool quote_shift_is_reversible(const uint8_t *data, size_t size, const struct sy_view *v,
                                      const struct sy_quote *q)
{
	uint8_t *frame = copy_make(data, size);
	bool ok = sy_packet_check_l4(data, v) == SY_CSUM_OK;

	sy_packet_shift_quote(frame, v, q, 0x89abcdef);
	HOLDS((sy_packet_check_l4(frame, v) == SY_CSUM_OK) == ok);
	HOLDS((memcmp(frame, data, size) != 0) ==
	      (q->proto == SY_PROTO_TCP && q->fragment != SY_FRAGMENT_LATER));
	sy_packet_shift_quote(frame, v, q, -0x89abcdef);
	HOLDS((sy_packet_check_l4(frame, v) == SY_CSUM_OK) == ok);
	HOLDS(memcmp(frame + q->l4, data + q->l4, 8) == 0);
	free(frame);
	return true;
}

/* Translating in place and back restores the frame, except for TTLs and a checksum's two forms of
 * zero. */
static bool error_translation_is_reversible(const uint8_t *data, size_t size,
                                            const struct sy_view *v, const struct sy_quote *q)
{
	uint8_t *frame = copy_make(data, size);
	bool ok = sy_packet_check_l4(data, v) == SY_CSUM_OK;
	struct sy_addr src = addr_of(v->v4 ? "198.51.100.7" : "2001:db8:7::7");
	struct sy_tuple to = tuple_for(q, q->v4);
	struct sy_view again;
	struct sy_quote back;
	struct sy_rewrite r;

	sy_rewrite_prepare(&q->tuple, &to, &r);
	sy_packet_translate_error(frame, v, q, &r, &src);
	if (sy_packet_parse(frame, (uint32_t)size, &again) == SY_DROP_NONE) {
		HOLDS((sy_packet_check_l4(frame, &again) == SY_CSUM_OK) == ok);
		HOLDS(sy_packet_parse_quote(frame, &again, &back) == SY_DROP_NONE);
		if (q->fragment != SY_FRAGMENT_LATER && q->proto != SY_PROTO_IPV4 &&
		    q->proto != SY_PROTO_IPV6)
			HOLDS(memcmp(&back.tuple, &to, sizeof(to)) == 0);
		HOLDS(back.l4 == q->l4 && back.mtu == q->mtu && back.kind == q->kind);
		sy_rewrite_prepare(&back.tuple, &q->tuple, &r);
		sy_packet_translate_error(frame, &again, &back, &r, &v->tuple.src);
		HOLDS(sy_packet_parse_quote(frame, v, &back) == SY_DROP_NONE);
		HOLDS(memcmp(&back.tuple, &q->tuple, sizeof(back.tuple)) == 0);
		HOLDS(memcmp(frame + v->frame_len, data + v->frame_len, size - v->frame_len) == 0);
	}
	free(frame);
	return true;
}

static bool rebuilt_error_is_valid(const uint8_t *data, const struct sy_view *v,
                                   const struct sy_quote *q, bool v4, uint32_t cap)
{
	uint8_t *out = malloc(cap);
	struct sy_addr src = addr_of(v4 ? "198.51.100.7" : "2001:db8:7::7");
	struct sy_tuple to = tuple_for(q, v4);
	struct sy_quote again;
	struct sy_view view;
	uint32_t len;

	CHECK(out);
	len = sy_packet_rebuild_error(out, cap, data, v, q, &to, &src);
	HOLDS(len <= cap);
	if (len > 0) {
		HOLDS(sy_packet_parse(out, len, &view) == SY_DROP_NONE && view.v4 == v4);
		HOLDS(sy_packet_check_l4(out, &view) == SY_CSUM_OK);
		HOLDS(error_quotes_the_packet(out, len, &src, &to.src, &again));
		HOLDS(again.v4 == v4);
		if (q->proto != SY_PROTO_IPV4 && q->proto != SY_PROTO_IPV6 && !again.fragment)
			HOLDS(memcmp(&again.tuple, &to, sizeof(to)) == 0);
	}
	free(out);
	return true;
}

bool quote_is_translated(const uint8_t *data, size_t size, const struct sy_view *v)
{
	struct sy_quote q, inner;

	if (sy_packet_parse_quote(data, v, &q) != SY_DROP_NONE)
		return true;
	HOLDS(q.l3 == v->l4 + 8 && q.l4 > q.l3 && q.l4_len >= 8 && q.l4 + q.l4_len <= v->frame_len);
	if (sy_packet_ttl(data, v) > 1)
		HOLDS(error_translation_is_reversible(data, size, v, &q));
	HOLDS(quote_shift_is_reversible(data, size, v, &q));
	for (unsigned n = 0; n < 4; n++)
		HOLDS(rebuilt_error_is_valid(data, v, &q, n & 1, n & 2 ? 1500 : 150));
	if (sy_packet_parse_tunnelled(data, &q, &inner) != SY_DROP_NONE)
		return true;
	HOLDS(inner.l3 == q.l4 && inner.l4 + inner.l4_len <= v->frame_len);
	HOLDS(quote_shift_is_reversible(data, size, v, &inner));
	for (unsigned n = 0; n < 4; n++)
		HOLDS(rebuilt_error_is_valid(data, v, &inner, n & 1, n & 2 ? 1500 : 150));
	return true;
}

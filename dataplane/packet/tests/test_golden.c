// SPDX-License-Identifier: Apache-2.0
/* Input frames and expected output frames are built by scapy; the output must be equal. */
#include <stdio.h>

#include <sy_tcp_segment.h>

#include "frame.h"

#define LINE_MAX 16384

/* Builds the output frame in out from the parsed frame in. Returns its length. */
typedef uint32_t (*operation)(struct frame *in, struct sy_view *v, uint8_t *out);

static struct sy_addr addr(const char *v4, const char *v6, bool is_v4)
{
	struct sy_addr a;
	assert_int_equal(sy_addr_parse(is_v4 ? v4 : v6, &a), 0);
	return a;
}

static struct sy_addr vip(bool v4)
{
	return addr("192.0.2.80", "2001:db8::80", v4);
}

static struct sy_tuple client_side(bool v4, uint32_t proto)
{
	return (struct sy_tuple){.src = addr("10.0.0.10", "2001:db8::10", v4),
	                         .dst = vip(v4),
	                         .sport = htons(40000),
	                         .dport = htons(80),
	                         .proto = proto};
}

static struct sy_tuple server_side(bool v4, uint32_t proto)
{
	return (struct sy_tuple){.src = addr("10.1.0.200", "fd00:1::200", v4),
	                         .dst = addr("10.1.0.11", "fd00:1::11", v4),
	                         .sport = htons(1234),
	                         .dport = htons(8080),
	                         .proto = proto};
}

/* A frame after the space for new headers, in one heap block that ASan watches. */
struct padded {
	uint8_t *block, *frame;
};

static struct padded padded_copy(const struct frame *f)
{
	struct padded r = {.block = malloc(SY_PACKET_HEADROOM + f->len)};
	assert_non_null(r.block);
	r.frame = memcpy(r.block + SY_PACKET_HEADROOM, f->bytes, f->len);
	return r;
}

static uint32_t padded_read(struct padded r, const uint8_t *at, uint32_t len, uint8_t *out)
{
	assert_non_null(at);
	memcpy(out, at, len);
	free(r.block);
	return len;
}

static uint32_t encapsulate(struct frame *in, struct sy_view *v, uint8_t *out, bool v4)
{
	struct sy_tuple t = server_side(v4, 0);
	struct padded r = padded_copy(in);
	uint8_t *at = sy_packet_encapsulate(r.frame, v, &t.src, &t.dst, 7, 0xdeadbeef);
	return padded_read(r, at, 14u + v->frame_len - v->l3 + sy_tunnel_overhead(&t.dst), out);
}

static uint32_t encapsulate_4(struct frame *in, struct sy_view *v, uint8_t *out)
{
	return encapsulate(in, v, out, true);
}

static uint32_t encapsulate_6(struct frame *in, struct sy_view *v, uint8_t *out)
{
	return encapsulate(in, v, out, false);
}

static uint32_t translate(struct frame *in, struct sy_view *v, uint8_t *out)
{
	struct sy_tuple to = server_side(!v->v4, v->proto);
	struct padded capacity = padded_copy(in);
	struct sy_rewrite r;
	uint8_t *at;

	sy_rewrite_prepare(&v->tuple, &to, &r);
	at = sy_packet_translate(capacity.frame, v, &r, 99);
	return padded_read(capacity, at, v->frame_len, out);
}

static uint32_t toa(struct frame *in, struct sy_view *v, uint8_t *out, bool v4)
{
	struct sy_addr a = addr("203.0.113.5", "2001:db8::5", v4);
	struct padded r = padded_copy(in);
	uint8_t *at = sy_tcp_insert_toa(r.frame, v, v4 ? SY_TOA : SY_TOA_IPV6, &a, htons(40000));
	return padded_read(r, at, v->frame_len, out);
}

static uint32_t toa_4(struct frame *in, struct sy_view *v, uint8_t *out)
{
	return toa(in, v, out, true);
}

static uint32_t toa_6(struct frame *in, struct sy_view *v, uint8_t *out)
{
	return toa(in, v, out, false);
}

static uint32_t prepend(struct frame *in, struct sy_view *v, uint8_t *out)
{
	static const char line[] = "PROXY UNKNOWN a b c d\r\n"; /* of odd length */
	struct padded r = padded_copy(in);
	uint8_t *at = sy_tcp_prepend(r.frame, v, line, sizeof(line) - 1);
	return padded_read(r, at, v->frame_len, out);
}

static uint32_t strip(struct frame *in, struct sy_view *v, uint8_t *out)
{
	sy_tcp_strip(in->bytes, v, SY_TCP_ACK);
	memcpy(out, in->bytes, v->frame_len);
	return v->frame_len;
}

static uint32_t same_length(const struct frame *f, uint8_t *out)
{
	memcpy(out, f->bytes, f->len);
	return f->len;
}

static uint32_t shift_seq(struct frame *in, struct sy_view *v, uint8_t *out)
{
	sy_tcp_shift_seq(in->bytes, v, 0x89abcdef);
	return same_length(in, out);
}

static uint32_t shift_ack(struct frame *in, struct sy_view *v, uint8_t *out)
{
	sy_tcp_shift_ack(in->bytes, v, 0x12345677);
	return same_length(in, out);
}

static uint32_t reset_answer(struct frame *in, struct sy_view *v, uint8_t *out)
{
	return sy_tcp_reset_answer(out, FRAME_MAX, in->bytes, v);
}

static uint32_t reset_make(struct frame *in, struct sy_view *v, uint8_t *out)
{
	return sy_tcp_reset_make(out, FRAME_MAX, &v->tuple, 0x01020304, 0x05060708, true);
}

static uint32_t unreachable(struct frame *in, struct sy_view *v, uint8_t *out,
                            enum sy_icmp_error kind)
{
	return sy_packet_icmp_error(out, FRAME_MAX, in->bytes, v, kind, &v->tuple.dst, 0);
}

static uint32_t unreachable_port(struct frame *in, struct sy_view *v, uint8_t *out)
{
	return unreachable(in, v, out, SY_ICMP_PORT_UNREACHABLE);
}

static uint32_t unreachable_host(struct frame *in, struct sy_view *v, uint8_t *out)
{
	return unreachable(in, v, out, SY_ICMP_HOST_UNREACHABLE);
}

static uint32_t unreachable_prohibited(struct frame *in, struct sy_view *v, uint8_t *out)
{
	return unreachable(in, v, out, SY_ICMP_PROHIBITED);
}

static struct sy_quote quote_of(const struct frame *f, const struct sy_view *v)
{
	struct sy_quote q;
	assert_int_equal(sy_packet_check_l4(f->bytes, v), SY_CSUM_OK);
	assert_int_equal(sy_packet_parse_quote(f->bytes, v, &q), SY_DROP_NONE);
	return q;
}

static uint32_t error_translate(struct frame *in, struct sy_view *v, uint8_t *out)
{
	struct sy_quote q = quote_of(in, v);
	struct sy_tuple server = server_side(v->v4, q.proto), to = client_side(v->v4, q.proto);
	struct sy_addr src = vip(v->v4);
	struct sy_rewrite r;

	assert_memory_equal(&q.tuple, &server, sizeof(server));
	sy_rewrite_prepare(&q.tuple, &to, &r);
	sy_packet_translate_error(in->bytes, v, &q, &r, &src);
	return same_length(in, out);
}

static uint32_t error_tunnelled(struct frame *in, struct sy_view *v, uint8_t *out)
{
	struct sy_quote q = quote_of(in, v), inner;
	struct sy_addr src;

	assert_int_equal(sy_packet_parse_tunnelled(in->bytes, &q, &inner), SY_DROP_NONE);
	src = vip(inner.v4);
	return sy_packet_rebuild_error(out, FRAME_MAX, in->bytes, v, &inner, &inner.tuple, &src);
}

static uint32_t error_other(struct frame *in, struct sy_view *v, uint8_t *out)
{
	struct sy_quote q = quote_of(in, v);
	struct sy_tuple to = client_side(!v->v4, q.proto);
	struct sy_addr src = vip(!v->v4);

	return sy_packet_rebuild_error(out, FRAME_MAX, in->bytes, v, &q, &to, &src);
}

static uint32_t echo(struct frame *in, struct sy_view *v, uint8_t *out)
{
	struct sy_tuple to = server_side(v->v4, v->proto);
	const struct sy_rewrite r = {.src = to.src, .dst = to.dst, .sport = to.sport};

	sy_packet_rewrite_echo(in->bytes, v, &r);
	return same_length(in, out);
}

static struct {
	const char *name;
	operation run;
	unsigned lines;
} operations[] = {
        {"echo", echo, 0},
        {"encapsulate-4", encapsulate_4, 0},
        {"encapsulate-6", encapsulate_6, 0},
        {"error-4", error_other, 0},
        {"error-6", error_other, 0},
        {"error-translate", error_translate, 0},
        {"error-tunnelled", error_tunnelled, 0},
        {"prepend", prepend, 0},
        {"reset-answer", reset_answer, 0},
        {"reset-make", reset_make, 0},
        {"shift-ack", shift_ack, 0},
        {"shift-seq", shift_seq, 0},
        {"strip", strip, 0},
        {"toa-4", toa_4, 0},
        {"toa-6", toa_6, 0},
        {"translate", translate, 0},
        {"unreachable-host", unreachable_host, 0},
        {"unreachable-port", unreachable_port, 0},
        {"unreachable-prohibited", unreachable_prohibited, 0},
};

static struct frame frame_read(const char *hex)
{
	struct frame f = {.len = (uint32_t)strlen(hex) / 2};

	assert_in_range(f.len, 1, FRAME_MAX);
	for (uint32_t i = 0; i < f.len; i++)
		assert_int_equal(sscanf(hex + 2 * i, "%2hhx", &f.bytes[i]), 1);
	return f;
}

static void frames_compare(const char *name, unsigned line, const struct frame *got,
                           const struct frame *want)
{
	for (uint32_t i = 0; i < got->len || i < want->len; i++)
		if (i >= got->len || i >= want->len || got->bytes[i] != want->bytes[i])
			fail_msg("line %u, %s: byte %u is %02x instead of %02x, %u bytes instead "
			         "of %u",
			         line, name, i, got->bytes[i], want->bytes[i], got->len, want->len);
}

static const char *path;

static void test_golden(void **state)
{
	static char name[64], in_hex[LINE_MAX], out_hex[LINE_MAX];
	FILE *file = fopen(path, "r");

	assert_non_null(file);
	for (unsigned line = 1; fscanf(file, "%63s %16383s %16383s", name, in_hex, out_hex) == 3;
	     line++) {
		struct frame in = frame_read(in_hex), want = frame_read(out_hex), got = {0};
		struct sy_view v = frame_view(&in);
		size_t i = 0;
		while (i < SY_ARRAY_LEN(operations) && strcmp(operations[i].name, name) != 0)
			i++;
		assert_true(i < SY_ARRAY_LEN(operations));
		operations[i].lines++;
		got.len = operations[i].run(&in, &v, got.bytes);
		frames_compare(name, line, &got, &want);
	}
	assert_true(feof(file));
	fclose(file);
	for (size_t i = 0; i < SY_ARRAY_LEN(operations); i++)
		if (operations[i].lines == 0)
			fail_msg("%s has no line", operations[i].name);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden)};

	path = argc > 1 ? argv[1] : "packets.golden";
	return cmocka_run_group_tests_name("golden", tests, NULL, NULL);
}

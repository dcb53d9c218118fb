// SPDX-License-Identifier: Apache-2.0
/* Programs that are refused, with the reason; and the equivalence of compiled and interpreted code.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "program.h"
#include "views.h"

static void refused(const char *file, const char *why)
{
	struct sy_error err = {0};
	uint64_t param[SY_HOOK_PARAMS] = {0};
	struct program p;
	int rc = program_load(&p, &(struct sy_hook_source){.file = file}, param, &err);
	if (rc != -EINVAL || !strstr(err.text, why) || !strstr(err.text, file))
		fail_msg("%s: %d, %s", file, rc, err.text);
	program_unload(&p);
}

static void test_refused(void **state)
{
	refused(REFUSED "/loop.bpf.o", "a hook must not loop");
	refused(REFUSED "/beyond.bpf.o", "of what it sees, which has 0 to");
	refused(REFUSED "/beyond_own.bpf.o", "of what it sees, which has 0 to");
	refused(REFUSED "/pointer.bpf.o", "uses a number as an address");
	refused(REFUSED "/call.bpf.o", "uses system, which");
	refused(REFUSED "/data.bpf.o", "uses data of its own: seen");
	refused(REFUSED "/two.bpf.o", "2 functions are in section packet");
	refused(REFUSED "/function.bpf.o", "always_inline");
	refused(REFUSED "/ways.bpf.o", "branches make too many paths");
	refused(REFUSED "/ways.bpf.o", ".bpf.o: from instruction ");
	refused(REFUSED "/ways.bpf.o", "docs/hooks.md");
	refused(REFUSED "/longest.bpf.o", "the maximum is 4096");
	refused(REFUSED "/none.bpf.o", "it has no hook");
}

static void test_no_object(void **state)
{
	struct sy_error err = {0};
	struct program p;
	const struct sy_hook_source none = {.file = "/nonexistent.bpf.o"};
	uint64_t param[SY_HOOK_PARAMS] = {0};
	refused("/proc/self/exe", "no object of eBPF");
	refused("/dev/null", "no object of eBPF");
	assert_int_equal(program_load(&p, &none, param, &err), -ENOENT);
	assert_non_null(strstr(err.text, "/nonexistent.bpf.o"));
}

/* Truncated and corrupted objects are refused or loaded, without a crash. */
static void test_damaged(void **state)
{
	static uint8_t whole[65536];
	uint64_t param[SY_HOOK_PARAMS] = {0}, seed = 1;
	struct sy_error err;
	struct program p;
	FILE *f = fopen(READY "/length.bpf.o", "rb");
	assert_non_null(f);
	size_t len = fread(whole, 1, sizeof(whole), f);
	fclose(f);
	assert_in_range(len, 1000, sizeof(whole) - 1);
	char path[] = "/tmp/steelyard-hook-XXXXXX";
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	for (unsigned round = 0; round < 600; round++) {
		size_t cut = round < 300 ? len * round / 300 : len, at;
		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(pwrite(fd, whole, cut, 0), (ssize_t)cut);
		for (unsigned n = 0; round >= 300 && n < 3; n++) {
			seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
			at = (seed >> 33) % len;
			uint8_t byte = (uint8_t)(seed >> 25);
			assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
		}
		if (program_load(&p, &(struct sy_hook_source){.file = path}, param, &err) == 0) {
			struct sy_hook_segment view = {0};
			program_payload((const uint8_t *)"GET", 3);
			program_run(&p, &view);
		}
		program_unload(&p);
	}
	close(fd);
	unlink(path);
}

static const char *const ready[] = {"bytes",    "dscp",        "http_path", "label",
                                    "length",   "link",        "pattern",   "redis_command",
                                    "requests", "service_time"};

static void bytes_draw(uint64_t *seed, uint8_t *at, size_t len)
{
	static const char *const words[] = {"GET /api/ ", "*2\r\n$4\r\nKEYS\r\n", "POST /x ", ""};
	for (size_t i = 0; i < len; i++) {
		*seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
		at[i] = (uint8_t)(*seed >> 56);
	}
	const char *word = words[*seed >> 33 & 3];
	memcpy(at, word, strlen(word) < len ? strlen(word) : len);
}

/* Compiled and interpreted code return the same results and leave the same context. */
static void test_same_answers(void **state)
{
	uint64_t seed = 7;
	for (unsigned i = 0; i < SY_ARRAY_LEN(ready); i++) {
		char file[300];
		uint64_t param[SY_HOOK_PARAMS];
		struct sy_error err = {0};
		struct program p;
		snprintf(file, sizeof(file), READY "/%s.bpf.o", ready[i]);
		assert_int_equal(
		        program_load(&p, &(struct sy_hook_source){.file = file}, param, &err), 0);
#ifdef __x86_64__
		assert_non_null(p.compiled);
#endif
		for (unsigned round = 0; round < 20000; round++) {
			struct sy_hook_segment a, b;
			uint8_t payload[200];
			bytes_draw(&seed, (uint8_t *)&a, sizeof(a));
			bytes_draw(&seed, payload, sizeof(payload));
			for (unsigned k = 0; k < SY_HOOK_PARAMS; k++)
				param[k] = (seed >> 20) % (k + 9);
			a.packet.payload_len = (uint16_t)((seed >> 40) % sizeof(payload));
			program_payload(payload, a.packet.payload_len);
			b = a;
			assert_int_equal(program_run(&p, &a), program_interpret(&p, &b));
			assert_memory_equal(&a, &b, sizeof(a));
		}
		program_unload(&p);
	}
}

/* The longest path and the instruction count of a program with branches. */
static void test_shape(void **state)
{
	/* r2 = 5; if (r2 == 0) goto 4; r0 = 1; goto 5; 4: r0 = 2; 5: exit */
	const struct ebpf_insn code[] = {
	        {.code = EBPF_ALU64 | EBPF_MOV, .dst_reg = 2, .imm = 5},
	        {.code = BPF_JMP | BPF_JEQ, .dst_reg = 2, .off = 2},
	        {.code = EBPF_ALU64 | EBPF_MOV, .imm = 1},
	        {.code = BPF_JMP | BPF_JA, .off = 1},
	        {.code = EBPF_ALU64 | EBPF_MOV, .imm = 2},
	        {.code = BPF_JMP | EBPF_EXIT},
	};
	struct program_shape shape;
	struct sy_error err;
	assert_int_equal(program_check(code, SY_ARRAY_LEN(code), &shape, &err), 0);
	assert_int_equal(shape.instructions, 6);
	assert_int_equal(shape.longest, 5);
	assert_int_equal(program_check(code, 0, &shape, &err), -EINVAL);
	assert_int_equal(program_check(code, 4, &shape, &err), -EINVAL); /* jumps out */
	/* A wide instruction without its second half; a jump into one. */
	const struct ebpf_insn half[] = {
	        {.code = BPF_JMP | BPF_JA, .off = 1},
	        {.code = BPF_LD | BPF_IMM | EBPF_DW},
	        {.code = BPF_JMP | BPF_JA, .off = 30000},
	        {.code = BPF_JMP | EBPF_EXIT},
	};
	assert_int_equal(program_check(half, SY_ARRAY_LEN(half), &shape, &err), -EINVAL);
	assert_int_equal(program_check(half + 1, 1, &shape, &err), -EINVAL);
	assert_int_equal(program_check(half + 1, 3, &shape, &err), 0);
	assert_int_equal(shape.longest, 2);
}

static struct ebpf_insn *code_copy(const struct ebpf_insn *from, uint32_t count)
{
	struct ebpf_insn *to = calloc(count, sizeof(*to));
	memcpy(to, from, count * sizeof(*to));
	return to;
}

/* A program with backward jumps but no loop is reordered, and computes the same. */
static void test_order(void **state)
{
	/* goto 3; 1: r0 = 5; exit; 3: r2 = payload_len; if (r2 == 7) goto 1; r0 = 6;
	 * if (r2 != 8) goto 8; r0 = 0x1_0000_0003; 8: goto 2 */
	const struct ebpf_insn from[] = {
	        {.code = BPF_JMP | BPF_JA, .off = 2},
	        {.code = EBPF_ALU64 | EBPF_MOV, .imm = 5},
	        {.code = BPF_JMP | EBPF_EXIT},
	        {.code = BPF_LDX | BPF_MEM | BPF_H, .dst_reg = 2, .src_reg = 1, .off = 2},
	        {.code = BPF_JMP | BPF_JEQ, .dst_reg = 2, .imm = 7, .off = -4},
	        {.code = EBPF_ALU64 | EBPF_MOV, .imm = 6},
	        {.code = BPF_JMP | EBPF_JNE, .dst_reg = 2, .imm = 8, .off = 2},
	        {.code = BPF_LD | BPF_IMM | EBPF_DW, .imm = 3},
	        {.imm = 1},
	        {.code = BPF_JMP | BPF_JA, .off = -8},
	};
	const struct ebpf_insn loop[] = {
	        {.code = EBPF_ALU64 | EBPF_MOV, .imm = 5},
	        {.code = BPF_JMP | BPF_JEQ, .dst_reg = 0, .imm = 7, .off = 1},
	        {.code = BPF_JMP | BPF_JA, .off = -3},
	        {.code = BPF_JMP | EBPF_EXIT},
	};
	const uint64_t want[] = {[6] = 6, [7] = 5, [8] = 0x100000003};
	uint32_t count = SY_ARRAY_LEN(from);
	struct ebpf_insn *code = code_copy(from, count);
	uint64_t param[SY_HOOK_PARAMS] = {0};
	struct sy_error err = {0};
	struct program p;
	bool sorted;
	assert_int_equal(program_order(&code, &count, &sorted, &err), 0);
	assert_true(sorted);
	if (program_load_code(&p, SY_HOOK_PACKET, code, count, param, &err) < 0)
		fail_msg("%s", err.text);
	for (uint16_t len = 6; len <= 8; len++) {
		struct sy_hook_packet view = {.payload_len = len};
		assert_int_equal(program_interpret(&p, &view), want[len]);
		assert_int_equal(program_run(&p, &view), want[len]);
	}
	program_unload(&p);
	free(code);
	count = SY_ARRAY_LEN(loop);
	code = code_copy(loop, count);
	assert_int_equal(program_order(&code, &count, &sorted, &err), -EINVAL);
	assert_non_null(strstr(err.text, "instruction 2 jumps back to 0"));
	free(code);
}

static void test_shared_end(void **state)
{
	struct one o = one_load("shared", REFUSED "/shared_end.bpf.o");
	assert_int_equal(one_ask(&o, "*2\r\n$3\r\nGET", 11), 0);
	assert_int_equal(one_ask(&o, "*2\r\n$4\r\nkeys", 12), 6);
	assert_int_equal(one_ask(&o, "*2\r\n$4\r\nPING", 12), SY_KEEP);
	assert_int_equal(one_ask(&o, "", 0), SY_KEEP);
	sy_hooks_destroy(o.hs);
}

#define LOAD(to, at)                                                                               \
	{                                                                                          \
		.code = BPF_LDX | BPF_MEM | EBPF_DW, .dst_reg = to, .src_reg = 1, .off = at        \
	}
#define MOVE(to, n)                                                                                \
	{                                                                                          \
		.code = EBPF_ALU64 | EBPF_MOV, .dst_reg = to, .imm = n                             \
	}
#define RIGHT(to, n)                                                                               \
	{                                                                                          \
		.code = EBPF_ALU64 | BPF_RSH, .dst_reg = to, .imm = n                              \
	}
#define IF_NOT_0(r, n)                                                                             \
	{                                                                                          \
		.code = BPF_JMP | EBPF_JNE, .dst_reg = r, .off = n                                 \
	}
#define END                                                                                        \
	{                                                                                          \
		.code = BPF_JMP | EBPF_EXIT                                                        \
	}
/* Dereferences address 16: refused wherever it is reachable. */
#define READ_AT_16                                                                                 \
	{.code = EBPF_ALU64 | EBPF_MOV | BPF_X, .dst_reg = 6, .src_reg = 1},                       \
	        {.code = EBPF_ALU64 | BPF_MUL, .dst_reg = 6},                                      \
	        {.code = BPF_LDX | BPF_MEM | EBPF_DW, .dst_reg = 0, .src_reg = 6, .off = 16}, END

/* 32- and 64-bit operations as the CPU executes them: no reachable path is pruned. */
static void test_bits(void **state)
{
	struct ebpf_insn swapped[] = {
	        LOAD(2, 16),    {.code = BPF_ALU | EBPF_END | EBPF_TO_BE, .dst_reg = 2, .imm = 64},
	        RIGHT(2, 32),   MOVE(0, 0),
	        IF_NOT_0(2, 1), END,
	        READ_AT_16};
	struct ebpf_insn little[] = {
	        LOAD(2, 16),    {.code = BPF_ALU | EBPF_END | EBPF_TO_LE, .dst_reg = 2, .imm = 16},
	        RIGHT(2, 16),   MOVE(0, 0),
	        IF_NOT_0(2, 1), END,
	        READ_AT_16};
	struct ebpf_insn shifted[] = {
	        LOAD(2, 16),
	        MOVE(3, 32),
	        {.code = BPF_ALU | BPF_RSH | BPF_X, .dst_reg = 2, .src_reg = 3},
	        MOVE(0, 0),
	        IF_NOT_0(2, 1),
	        END,
	        READ_AT_16};
	struct ebpf_insn sound[] = {LOAD(0, 16), RIGHT(0, 61), END};
	const struct {
		struct ebpf_insn *at;
		uint32_t count;
		int rc;
	} rows[] = {{swapped, SY_ARRAY_LEN(swapped), -EINVAL},
	            {little, SY_ARRAY_LEN(little), -EINVAL},
	            {shifted, SY_ARRAY_LEN(shifted), -EINVAL},
	            {sound, SY_ARRAY_LEN(sound), 0}};
	for (unsigned i = 0; i < SY_ARRAY_LEN(rows); i++) {
		uint64_t param[SY_HOOK_PARAMS] = {0};
		struct sy_error err = {0};
		struct program p;
		assert_int_equal(program_load_code(&p, SY_HOOK_PACKET, rows[i].at, rows[i].count,
		                                   param, &err),
		                 rows[i].rc);
		if (rows[i].rc)
			assert_non_null(strstr(err.text, "instruction 7 "));
		program_unload(&p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_refused), cmocka_unit_test(test_no_object),
	        cmocka_unit_test(test_damaged), cmocka_unit_test(test_same_answers),
	        cmocka_unit_test(test_order),   cmocka_unit_test(test_shared_end),
	        cmocka_unit_test(test_shape),   cmocka_unit_test(test_bits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

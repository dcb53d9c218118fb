// SPDX-License-Identifier: Apache-2.0
/* Input: eBPF programs. Each is refused, or it ends, accesses only its view, and machine code and
 * interpreter agree. Inaccessible pages surround the view's page, at whose start or end the view
 * lies. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fuzz.h"
#include "program.h"

#define MAX_INSTRUCTIONS 64
#define PAGE             4096u

/* [inaccessible page][page][inaccessible page] */
static uint8_t *page_guarded(void)
{
	uint8_t *p = mmap(NULL, 3 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED || mprotect(p + PAGE, PAGE, PROT_READ | PROT_WRITE) != 0)
		abort();
	return p + PAGE;
}

static uint8_t *page;

int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	page = page_guarded();
	return 0;
}

#define ALU(op)                                                                                    \
	EBPF_ALU64 | op | BPF_K, EBPF_ALU64 | op | BPF_X, BPF_ALU | op | BPF_K, BPF_ALU | op | BPF_X
#define JUMP(op) BPF_JMP | op | BPF_K, BPF_JMP | op | BPF_X
#define MEMORY(mode, class)                                                                        \
	class | mode | BPF_B, class | mode | BPF_H, class | mode | BPF_W, class | mode | EBPF_DW
static const uint8_t codes[] = {
        ALU(BPF_ADD),
        ALU(BPF_SUB),
        ALU(BPF_MUL),
        ALU(BPF_DIV),
        ALU(BPF_OR),
        ALU(BPF_AND),
        ALU(BPF_LSH),
        ALU(BPF_RSH),
        ALU(BPF_MOD),
        ALU(BPF_XOR),
        ALU(EBPF_MOV),
        ALU(EBPF_ARSH),
        EBPF_ALU64 | BPF_NEG,
        BPF_ALU | BPF_NEG,
        BPF_ALU | EBPF_END | EBPF_TO_LE,
        BPF_ALU | EBPF_END | EBPF_TO_BE,
        JUMP(BPF_JEQ),
        JUMP(BPF_JGT),
        JUMP(BPF_JGE),
        JUMP(BPF_JSET),
        JUMP(EBPF_JNE),
        JUMP(EBPF_JSGT),
        JUMP(EBPF_JSGE),
        JUMP(EBPF_JLT),
        JUMP(EBPF_JLE),
        JUMP(EBPF_JSLT),
        JUMP(EBPF_JSLE),
        BPF_JMP | BPF_JA,
        BPF_JMP | EBPF_EXIT,
        MEMORY(BPF_MEM, BPF_LDX),
        MEMORY(BPF_MEM, BPF_STX),
        MEMORY(BPF_MEM, BPF_ST),
        BPF_STX | EBPF_XADD | BPF_W,
        BPF_STX | EBPF_XADD | EBPF_DW,
};

/* Initial registers: numbers, the view in 1 and 6, the stack in 10. */
static const struct ebpf_insn first[] = {
        {EBPF_ALU64 | EBPF_MOV, 0, 0, 0, 1},        {EBPF_ALU64 | EBPF_MOV, 2, 0, 0, 200},
        {EBPF_ALU64 | EBPF_MOV, 3, 0, 0, -1},       {EBPF_ALU64 | EBPF_MOV | BPF_X, 6, 1, 0, 0},
        {BPF_LDX | BPF_MEM | BPF_B, 4, 1, 0, 0},    {BPF_LDX | BPF_MEM | BPF_H, 5, 1, 2, 0},
        {BPF_ST | BPF_MEM | EBPF_DW, 10, 0, -8, 5},
};

/* Makes an instruction of five bytes. It is nearly valid, so that most programs pass the checks. */
static struct ebpf_insn insn_make(const uint8_t *data)
{
	static const uint8_t pointers[] = {1, 6, 10, 1};
	uint8_t code = codes[data[0] % sizeof(codes)], class = BPF_CLASS(code);
	struct ebpf_insn one = {.code = code,
	                        .dst_reg = data[1] % 7,
	                        .src_reg = data[1] / 16 % 7,
	                        .imm = (int8_t)data[2] * (1 << data[3] % 25)};
	if (class == BPF_JMP)
		one.off = data[4] % 8;
	else if (class == BPF_LDX && data[3] % 8)
		one.src_reg = pointers[data[3] % 4];
	else if ((class == BPF_STX || class == BPF_ST) && data[3] % 8)
		one.dst_reg = pointers[data[3] % 4];
	if (class == BPF_LDX || class == BPF_STX || class == BPF_ST)
		one.off = one.dst_reg == 10 || one.src_reg == 10 ? (int16_t)-data[4] : data[4];
	if (BPF_OP(code) == EBPF_END && class == BPF_ALU)
		one.imm = 16 << data[2] % 3;
	else if ((class == BPF_ALU || class == EBPF_ALU64) && data[3] & 32)
		one.imm &= 63;
	if (code == (BPF_JMP | BPF_JA) || code == (BPF_JMP | EBPF_EXIT))
		one.dst_reg = one.src_reg = one.imm = 0;
	if (!(code & BPF_X) || class == BPF_LDX || class == BPF_ST)
		one.src_reg = class == BPF_LDX || class == BPF_STX ? one.src_reg : 0;
	if (class == BPF_LDX || class == BPF_STX || code & BPF_X)
		one.imm = BPF_OP(code) == EBPF_END && class == BPF_ALU ? one.imm : 0;
	return one;
}

static uint32_t code_make(const uint8_t *data, size_t len, struct ebpf_insn *code)
{
	uint32_t n = SY_ARRAY_LEN(first);
	memcpy(code, first, sizeof(first));
	for (; n < MAX_INSTRUCTIONS - 1 && len >= 5; data += 5, len -= 5)
		code[n++] = insn_make(data);
	code[n++] = (struct ebpf_insn){.code = BPF_JMP | EBPF_EXIT};
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct ebpf_insn code[MAX_INSTRUCTIONS];
	struct program p;
	if (len < 2)
		return 0;
	enum sy_hook_kind kind = data[0] % SY_HOOK_KINDS;
	size_t size = kind == SY_HOOK_PACKET ? sizeof(struct sy_hook_packet)
	                                     : sizeof(struct sy_hook_segment);
	size_t at = data[0] & 16 ? 0 : PAGE - size;
	uint32_t count = code_make(data + 2, len - 2, code);
	static uint64_t param[SY_HOOK_PARAMS];
	if (program_load_code(&p, kind, code, count, param, NULL) < 0)
		return 0;
	uint8_t compiled[sizeof(struct sy_hook_segment)];
	memset(page + at, data[1], size);
	uint64_t answer = program_run(&p, page + at);
	memcpy(compiled, page + at, size);
	memset(page + at, data[1], size);
	CHECK(answer == program_interpret(&p, page + at));
	CHECK(!memcmp(compiled, page + at, size));
	program_unload(&p);
	return 0;
}

// SPDX-License-Identifier: Apache-2.0
#include "program.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_bpf.h>
#include <rte_byteorder.h>
#include <rte_errno.h>
#include <rte_log.h>

#include "object.h"

#define MAX_FIND   1500u
#define PARAM_NAME "sy_param"
/* DPDK logs each call of a program, valid or not, with this text. */
#define CALL_LINE "EBPF_PSEUDO_CALL"

/* ---- functions for programs ------------------------------------------------------------------ */

/* The payload of the running program. Programs read it by calls only, never by a pointer. */
static _Thread_local struct {
	const uint8_t *at;
	uint32_t len;
} payload;

void program_payload(const uint8_t *at, uint32_t len)
{
	payload.at = at;
	payload.len = len;
}

static uint64_t payload_number(uint64_t offset, unsigned size)
{
	uint64_t number = 0;
	if (SY_LIKELY(offset <= payload.len && payload.len - offset >= 8)) {
		memcpy(&number, payload.at + offset, 8);
		return rte_be_to_cpu_64(number) >> (64 - 8 * size);
	}
	for (unsigned i = 0; i < size; i++) {
		bool there = offset < payload.len && i < payload.len - offset;
		number = number << 8 | (there ? payload.at[offset + i] : 0);
	}
	return number;
}

#define UNUSED_3 uint64_t b, uint64_t c, uint64_t d
static uint64_t call_u8(uint64_t offset, uint64_t a, UNUSED_3)
{
	return payload_number(offset, 1);
}

static uint64_t call_u16(uint64_t offset, uint64_t a, UNUSED_3)
{
	return payload_number(offset, 2);
}

static uint64_t call_u32(uint64_t offset, uint64_t a, UNUSED_3)
{
	return payload_number(offset, 4);
}

static uint64_t call_u64(uint64_t offset, uint64_t a, UNUSED_3)
{
	return payload_number(offset, 8);
}

static uint64_t call_find(uint64_t offset, uint64_t byte, uint64_t max, uint64_t a, uint64_t b)
{
	if (offset >= payload.len)
		return UINT64_MAX;
	size_t len = payload.len - offset;
	max = max < MAX_FIND ? max : MAX_FIND;
	const uint8_t *at = payload.at + offset,
	              *found = memchr(at, (int)(uint8_t)byte, len < max ? len : max);
	return found ? offset + (uint64_t)(found - at) : UINT64_MAX;
}

#define NUMBER                                                                                     \
	{                                                                                          \
		.type = RTE_BPF_ARG_RAW, .size = sizeof(uint64_t)                                  \
	}
#define READS(title, fn)                                                                           \
	{                                                                                          \
		.name = title, .type = RTE_BPF_XTYPE_FUNC, .func = {                               \
			.val = fn,                                                                 \
			.nb_args = 1,                                                              \
			.args = {NUMBER},                                                          \
			.ret = NUMBER                                                              \
		}                                                                                  \
	}
static const struct rte_bpf_xsym calls[] = {
        READS("sy_u8", call_u8),
        READS("sy_u16", call_u16),
        READS("sy_u32", call_u32),
        READS("sy_u64", call_u64),
        {.name = "sy_find",
         .type = RTE_BPF_XTYPE_FUNC,
         .func = {.val = call_find, .nb_args = 3, .args = {NUMBER, NUMBER, NUMBER}, .ret = NUMBER}},
};
#define CALLS   SY_ARRAY_LEN(calls)
#define SYMBOLS (CALLS + 1)

/* ---- loading --------------------------------------------------------------------------------- */

/* Captures DPDK's log during verification: DPDK reports the reason of a refusal nowhere else. */
struct log_capture {
	char *text;
	size_t len;
	FILE *file, *usual;
};

/* DPDK's log stream is global, and any thread may load a program. */
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static void log_capture_begin(struct log_capture *h)
{
	*h = (struct log_capture){.usual = rte_log_get_stream()};
	h->file = open_memstream(&h->text, &h->len);
	if (h->file)
		rte_openlog_stream(h->file);
}

static void log_capture_end(struct log_capture *h)
{
	rte_openlog_stream(h->usual);
	if (h->file)
		fclose(h->file);
}

/* Returns the first line that names the fault. */
static const char *log_capture_line(struct log_capture *h)
{
	char *save = NULL, *line = h->text ? strtok_r(h->text, "\n;", &save) : NULL;
	while (line && strstr(line, CALL_LINE))
		line = strtok_r(NULL, "\n;", &save);
	const char *words = line ? strstr(line, "): ") : NULL;
	return words ? words + 3 : line ? line : "";
}

static size_t view_size(enum sy_hook_kind kind)
{
	return kind == SY_HOOK_PACKET ? sizeof(struct sy_hook_packet)
	                              : sizeof(struct sy_hook_segment);
}

static int program_refuse(struct log_capture *h, struct sy_error *err)
{
	const char *why = log_capture_line(h);
	int rc = sy_fail(err, EINVAL, "DPDK's verifier refuses it: %s",
	                 *why ? why : strerror(rte_errno));
	free(h->text);
	return rc;
}

static int program_compile(struct program *p, struct rte_bpf *bpf, struct log_capture *h,
                           struct sy_error *err)
{
	struct rte_bpf_jit jit = {0};
	if (!bpf)
		return program_refuse(h, err);
	free(h->text);
	p->bpf = bpf;
	if (p->shape.compiles && rte_bpf_get_jit(bpf, &jit) == 0)
		p->compiled = jit.func;
	return 0;
}

/* Lists external symbols by index: functions, then sy_param. */
static void symbols_list(struct rte_bpf_xsym *symbol, uint64_t *param)
{
	memcpy(symbol, calls, sizeof(calls));
	symbol[CALLS] =
	        (struct rte_bpf_xsym){.name = PARAM_NAME,
	                              .type = RTE_BPF_XTYPE_VAR,
	                              .var = {.val = param,
	                                      .desc = {.type = RTE_BPF_ARG_PTR,
	                                               .size = SY_HOOK_PARAMS * sizeof(*param)}}};
}

static void addresses_fill(struct ebpf_insn *code, uint32_t count, const uint64_t *param)
{
	for (uint32_t i = 0; i + 1 < count; i++) {
		if (code[i].code != (BPF_LD | BPF_IMM | EBPF_DW))
			continue;
		if (code[i].src_reg == OBJECT_ADDRESS) {
			code[i].src_reg = 0;
			code[i].imm = (int32_t)(uintptr_t)param;
			code[i + 1].imm = (int32_t)((uintptr_t)param >> 32);
		}
		i++;
	}
}

int program_load_code(struct program *p, enum sy_hook_kind kind, struct ebpf_insn *code,
                      uint32_t count, uint64_t *param, struct sy_error *err)
{
	struct rte_bpf_xsym symbol[SYMBOLS];
	struct rte_bpf_prm prm = {
	        .prog_arg = {.type = RTE_BPF_ARG_PTR, .size = view_size(kind)},
	        .ins = code,
	        .nb_ins = count,
	        .xsym = symbol,
	        .nb_xsym = SYMBOLS,
	};
	struct log_capture h;
	*p = (struct program){.kind = kind};
	int rc = program_check(code, count, &p->shape, err);
	if (rc == 0)
		rc = program_values_check(code, count, view_size(kind), err);
	if (rc < 0)
		return rc;
	symbols_list(symbol, param);
	addresses_fill(code, count, param);
	pthread_mutex_lock(&log_lock);
	log_capture_begin(&h);
	struct rte_bpf *bpf = rte_bpf_load(&prm);
	log_capture_end(&h);
	pthread_mutex_unlock(&log_lock);
	return program_compile(p, bpf, &h, err);
}

int program_load(struct program *p, const struct sy_hook_source *source, uint64_t *param,
                 struct sy_error *err)
{
	const char *names[CALLS];
	for (unsigned i = 0; i < CALLS; i++)
		names[i] = calls[i].name;
	const struct object_names known = {names, CALLS, PARAM_NAME};
	struct ebpf_insn *code;
	enum sy_hook_kind kind;
	uint32_t count = 0;
	bool sorted = false;
	*p = (struct program){0};
	int rc = object_read(source, &known, &kind, &code, &count, err);
	if (rc == 0)
		rc = program_order(&code, &count, &sorted, err);
	if (rc == 0)
		rc = program_load_code(p, kind, code, count, param, err);
	if (rc == -EINVAL && sorted)
		sy_fail_in(err, "counted after its blocks were sorted");
	free(code);
	return rc < 0 && source->file ? sy_fail_in(err, "%s", source->file) : rc;
}

void program_unload(struct program *p)
{
	if (p->bpf)
		rte_bpf_destroy(p->bpf);
	*p = (struct program){0};
}

/* ---- running --------------------------------------------------------------------------------- */

uint64_t program_interpret(const struct program *p, void *view)
{
	return rte_bpf_exec(p->bpf, view);
}

uint64_t program_run(const struct program *p, void *view)
{
	return SY_LIKELY(p->compiled != NULL) ? p->compiled(view) : rte_bpf_exec(p->bpf, view);
}

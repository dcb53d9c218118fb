// SPDX-License-Identifier: Apache-2.0
/* The journal: the input is a journal after its first byte. If that byte is even, the rest is a
 * list of messages, each after a length of two bytes; they are entered in order with right
 * checksums, so that their changes are reached. Whatever the input is, the replay ends with a
 * reported reason, and the configuration stays consistent. */
#include <stdlib.h>

#include "saved.h"
#include "sound.h"

#define SECOND_NS UINT64_C(1000000000)

static struct topology topology;

static uint8_t *put(uint8_t *at, const void *bytes, size_t len)
{
	memcpy(at, bytes, len);
	return at + len;
}

/* Makes a valid journal from the input's messages; returns its length. */
static size_t journal_make(uint8_t *out, const uint8_t *data, size_t size)
{
	const uint32_t version[2] = {1, 0};
	uint8_t *end = put(put(out, "STLYARDJ", 8), version, sizeof(version));
	uint64_t revision = 0;
	for (size_t at = 0; at + 2 <= size;) {
		uint32_t len = (uint32_t)data[at] << 8 | data[at + 1];
		at += 2;
		len = len < size - at ? len : (uint32_t)(size - at);
		revision++;
		uint32_t crc = journal_crc(revision, data + at, len);
		end = put(put(put(end, &len, 4), &crc, 4), &revision, 8);
		end = put(end, data + at, len);
		at += len;
	}
	return (size_t)(end - out);
}

static void replay(const uint8_t *bytes, size_t len)
{
	struct sy_error err = {0};
	size_t at = 0;
	/* On the heap with its exact size, so sanitizers detect any access beyond it. */
	uint8_t *copy = malloc(len ? len : 1);
	CHECK(copy);
	if (len > 0)
		memcpy(copy, bytes, len);
	inspect_model(topology.harness.b)->revision = 0;
	enum journal_stop stop = journal_replay(topology.harness.b, copy, len, &at, &err);
	free(copy);
	CHECK(at <= len);
	CHECK((stop == JOURNAL_END) == (at == len && len > 0));
	CHECK((stop == JOURNAL_END || stop == JOURNAL_TORN) == (err.code == 0));
	CHECK(stop != JOURNAL_FAILED);
	model_is_sound(topology.harness.b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	topology_open_once(&topology);
	if (size > 0 && data[0] % 2 == 0) {
		uint8_t *made = malloc(16 + size * 16); /* two input bytes make an empty entry */
		CHECK(made);
		replay(made, journal_make(made, data + 1, size - 1));
		free(made);
	} else if (size > 0) {
		replay(data + 1, size - 1);
	}
	/* Resets the state, so that an input has the same effect each time. */
	topology_clear(&topology);
	do
		harness_advance(&topology.harness, SECOND_NS);
	while (inspect_retired(topology.harness.b));
	const struct model *m = inspect_model(topology.harness.b);
	CHECK(m->services == 0 && m->servers == 0 && rte_hash_count(m->address) == 0);
	CHECK(m->server_ids.count == m->server_ids.fresh);
	return 0;
}

// SPDX-License-Identifier: Apache-2.0
/* Input: a journal after the first byte. If that byte is even, the rest is a list of messages, each
 * after a length of two bytes; they become a journal with valid checksums, so that their changes
 * are reached. The replay ends with a reason, and the configuration stays consistent. */
#include <stdlib.h>

#include "consistent.h"
#include "saved.h"

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

static bool replay_ends_with_a_reason(const uint8_t *bytes, size_t len)
{
	struct sy_error err = {0};
	size_t at = 0;
	uint8_t *copy = copy_make(bytes, len);
	inspect_model(topology.harness.b)->revision = 0;
	enum journal_stop stop = journal_replay(topology.harness.b, copy, len, &at, &err);
	free(copy);
	HOLDS(at <= len);
	HOLDS((stop == JOURNAL_END) == (at == len && len > 0));
	HOLDS((stop == JOURNAL_END || stop == JOURNAL_TORN) == (err.code == 0));
	return stop != JOURNAL_FAILED;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	topology_open_once(&topology);
	if (size > 0 && data[0] % 2 == 0) {
		uint8_t *made = malloc(16 + size * 16); /* two input bytes make an empty entry */
		CHECK(made);
		CHECK(replay_ends_with_a_reason(made, journal_make(made, data + 1, size - 1)));
		free(made);
	} else if (size > 0) {
		CHECK(replay_ends_with_a_reason(data + 1, size - 1));
	}
	CHECK(configuration_is_consistent(topology.harness.b));
	CHECK(topology_is_cleared(&topology));
	return 0;
}

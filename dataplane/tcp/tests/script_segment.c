// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "script_segment.h"

static uint32_t number(char **at)
{
	const char *word = strtok_r(NULL, " ", at);
	assert_non_null(word);
	return (uint32_t)strtoul(word, NULL, 0);
}

static uint8_t flags_read(const char *word)
{
	static const char letters[] = "FSRPAUEC";
	uint8_t flags = 0;

	for (; *word && *word != '.'; word++) {
		const char *letter = strchr(letters, *word);
		if (!letter)
			fail_msg("no flag %c", *word);
		flags |= (uint8_t)(1u << (letter - letters));
	}
	return flags;
}

static void block_read(struct script_segment *seg, const char *word)
{
	char *to;

	assert_true(seg->blocks < SACK_BLOCKS);
	seg->block[seg->blocks].from = (uint32_t)strtoul(word, &to, 0);
	assert_int_equal(*to, '-');
	seg->block[seg->blocks++].to = (uint32_t)strtoul(to + 1, NULL, 0);
	seg->has.blocks = true;
}

static void option_read(struct script_segment *seg, const char *word, char **at)
{
	if (strchr("0123456789", *word)) {
		block_read(seg, word); /* after "sack" */
	} else if (strcmp(word, "ack") == 0) {
		seg->has.ack = true;
		seg->ack = number(at);
	} else if (strcmp(word, "win") == 0) {
		seg->has.window = true;
		seg->window = number(at);
	} else if (strcmp(word, "urg") == 0) {
		seg->has.urgent = true;
		seg->urgent = number(at);
	} else if (strcmp(word, "mss") == 0) {
		seg->has.mss = true;
		seg->mss = number(at);
	} else if (strcmp(word, "ws") == 0) {
		seg->has.scale = true;
		seg->scale = number(at);
	} else if (strcmp(word, "port") == 0) {
		seg->has.port = true;
		seg->port = number(at);
	} else if (strcmp(word, "toa") == 0) {
		seg->toa = number(at);
	} else if (strcmp(word, "ts") == 0) {
		seg->has.ts = true;
		seg->time = number(at);
		seg->echo = number(at);
	} else if (strcmp(word, "sackok") == 0) {
		seg->has.sackok = seg->sackok = true;
	} else if (strcmp(word, "sack") == 0) {
		seg->has.blocks = true;
	} else if (strcmp(word, "ce") == 0 || strcmp(word, "ect") == 0 ||
	           strcmp(word, "notect") == 0) {
		seg->has.tos = true;
		seg->tos = *word == 'c' ? IP_CE : *word == 'e' ? IP_ECT0 : 0;
	} else {
		fail_msg("no word \"%s\"", word);
	}
}

void script_segment_read(struct script_segment *seg, char *words)
{
	char *at, *word = strtok_r(words, " ", &at), *end;

	*seg = (struct script_segment){.window = 60000, .scale = SY_TCP_NO_SCALE};
	assert_non_null(word);
	seg->flags = flags_read(word);
	word = strtok_r(NULL, " ", &at);
	assert_non_null(word);
	seg->seq = (uint32_t)strtoul(word, &end, 0);
	if (*end == ':')
		seg->len = (uint32_t)strtoul(end + 1, NULL, 0) - seg->seq;
	while ((word = strtok_r(NULL, " ", &at)) != NULL)
		option_read(seg, word, &at);
}

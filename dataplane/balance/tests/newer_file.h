// SPDX-License-Identifier: Apache-2.0
/* Saved configurations as a newer forwarder would write them. Include after cmocka.h and file.h. */
#ifndef NEWER_FILE_H
#define NEWER_FILE_H

#include <rte_hash_crc.h>

#include <forwarder.pb-c.h>

#include "saved.h"

#define NEWER_TAG    900
#define NEWER_HEADER 20 /* of the snapshot; its CRC is at 12, its length at 16 */

static uint8_t newer_value[] = {1};
static ProtobufCMessageUnknownField newer_field = {
        .tag = NEWER_TAG, .wire_type = 0, .len = sizeof(newer_value), .data = newer_value};

static inline void newer_add(ProtobufCMessage *m)
{
	m->n_unknown_fields = 1;
	m->unknown_fields = &newer_field;
}

static inline void newer_remove(ProtobufCMessage *m)
{
	m->n_unknown_fields = 0;
	m->unknown_fields = NULL;
}

/* Gives the snapshot's first service, and the whole, a setting that this build does not know. */
static inline void newer_config(const char *path)
{
	size_t len;
	uint8_t *bytes = file_read(path, &len);
	Steelyard__Forwarder__V1__Config *c = steelyard__forwarder__v1__config__unpack(
	        NULL, len - NEWER_HEADER, bytes + NEWER_HEADER);
	assert_non_null(c);
	newer_add(&c->base);
	newer_add(&c->entries[0]->service->base);
	uint32_t size = (uint32_t)steelyard__forwarder__v1__config__get_packed_size(c);
	uint8_t *body = malloc(size); /* aligned, as the sum wants it */
	uint8_t *file = malloc(NEWER_HEADER + size);
	assert_true(body && file);
	steelyard__forwarder__v1__config__pack(c, body);
	newer_remove(&c->base);
	newer_remove(&c->entries[0]->service->base);
	steelyard__forwarder__v1__config__free_unpacked(c, NULL);
	uint32_t crc = rte_hash_crc(body, size, 0);
	memcpy(bytes + 12, &crc, sizeof(crc));
	memcpy(bytes + 16, &size, sizeof(size));
	memcpy(file, bytes, NEWER_HEADER);
	memcpy(file + NEWER_HEADER, body, size);
	file_write(path, file, NEWER_HEADER + size);
	free(file);
	free(body);
	free(bytes);
}

/* Appends a transaction to a journal: a change of a kind that this build does not know. */
static inline void newer_journal(const char *path, uint64_t revision)
{
	Steelyard__Forwarder__V1__ApplyRequest apply =
	        STEELYARD__FORWARDER__V1__APPLY_REQUEST__INIT;
	Steelyard__Forwarder__V1__Change change = STEELYARD__FORWARDER__V1__CHANGE__INIT;
	Steelyard__Forwarder__V1__Change *list[] = {&change};
	uint8_t message[64];
	size_t len;
	uint8_t *bytes = file_read(path, &len);
	newer_add(&change.base);
	apply.changes = list;
	apply.n_changes = 1;
	uint32_t size = (uint32_t)steelyard__forwarder__v1__apply_request__pack(&apply, message);
	uint32_t crc = journal_crc(revision, message, size);
	memcpy(bytes + len, &size, 4);
	memcpy(bytes + len + 4, &crc, 4);
	memcpy(bytes + len + 8, &revision, 8);
	memcpy(bytes + len + 16, message, size);
	file_write(path, bytes, len + 16 + size);
	free(bytes);
}

#endif

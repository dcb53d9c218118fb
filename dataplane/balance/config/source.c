// SPDX-License-Identifier: Apache-2.0
/* Sources whose packets the forwarder diverts: NAT servers, reference-counted by services, and the
 * inside networks of SNAT. */
#include <arpa/inet.h>

#include <rte_hash.h>

#include "model.h"

/* The hash's data word: references in the lower half, and a flag: diverted. */
#define SOURCE_DIVERTED   ((uintptr_t)1 << 32)
#define SOURCE_REFS(data) ((uint32_t)(uintptr_t)(data))

static uintptr_t source_data(const struct model *m, const struct sy_source *source)
{
	void *data = NULL;
	rte_hash_lookup_data(m->source, source, &data);
	return (uintptr_t)data;
}

uint32_t source_refs(const struct model *m, const struct sy_source *source)
{
	return SOURCE_REFS(source_data(m, source));
}

void source_count(struct model *m, const struct sy_source *source, int sign)
{
	uintptr_t data = source_data(m, source) + (uintptr_t)(intptr_t)sign;
	m->source_touched |= SOURCE_REFS(data) == (sign > 0 ? 1 : 0);
	rte_hash_add_key_data(m->source, source, (void *)data);
}

void source_divert(struct sy_balance *b)
{
	struct sy_error err;
	const void *key;
	void *data;
	uint32_t next = 0;
	while (rte_hash_iterate(b->ctl->model->source, &key, &data, &next) >= 0) {
		if (SOURCE_REFS(data) == 0 || (uintptr_t)data & SOURCE_DIVERTED)
			continue;
		if (sy_source_divert(b->rt, key, &err) < 0) {
			sy_log(SY_LOG_ERROR, "balance", "%s", err.text);
			continue;
		}
		rte_hash_add_key_data(b->ctl->model->source, key,
		                      (void *)((uintptr_t)data | SOURCE_DIVERTED));
	}
}

void source_collect(struct sy_balance *b)
{
	const void *key;
	void *data;
	uint32_t next = 0;
	while (rte_hash_iterate(b->ctl->model->source, &key, &data, &next) >= 0) {
		if (SOURCE_REFS(data) > 0)
			continue;
		struct sy_source source = *(const struct sy_source *)key;
		if ((uintptr_t)data & SOURCE_DIVERTED)
			sy_source_release(b->rt, &source);
		rte_hash_del_key(b->ctl->model->source, &source);
	}
}

unsigned source_list(const struct sy_balance *b, bool include_unreferenced,
                     struct address_set_entry *entries)
{
	const void *key;
	void *data;
	uint32_t next = 0;
	unsigned n = 0;
	while (rte_hash_iterate(b->ctl->model->source, &key, &data, &next) >= 0)
		if (!((const struct sy_source *)key)->bits &&
		    (include_unreferenced || SOURCE_REFS(data) > 0))
			entries[n++] = (struct address_set_entry){
			        ((const struct sy_source *)key)->addr, ADDRESS_SET_SERVER};
	return n;
}

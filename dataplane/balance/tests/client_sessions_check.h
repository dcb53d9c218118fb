// SPDX-License-Identifier: Apache-2.0
/* Do the counts of clients' sessions match a count of all sessions? They do from the sweep's first
 * pass after a start or a change of limits on. */
#ifndef CLIENT_SESSIONS_CHECK_H
#define CLIENT_SESSIONS_CHECK_H

#include <stdlib.h>

#include "client_count.h"
#include "client_sessions.h"
#include "inspect.h"

static inline int client_sessions_compare(const void *a, const void *b)
{
	uint64_t one, two;
	memcpy(&one, a, sizeof(one));
	memcpy(&two, b, sizeof(two));
	return (one > two) - (one < two);
}

/* The keys of the sessions that count; *count: how many. Freed by the caller. */
static inline uint64_t *client_sessions_all(const struct sy_balance *b, size_t *count)
{
	uint64_t *key = NULL;
	size_t capacity = 0;
	*count = 0;
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		const struct session_table *t = inspect_table(b, (uint8_t)slot);
		uint32_t cursor = 0, record;
		while ((record = session_next(t, &cursor)) != SESSION_NONE) {
			const struct session *s = session_at(t, record);
			const struct endpoint *e = inspect_endpoint(b, s->server);
			const struct service *service = endpoint_service(b, e);
			if (!service || !service->policy.client_sessions || !session_is_had(s, e))
				continue;
			if (*count == capacity) {
				capacity = capacity ? 2 * capacity : 64;
				key = realloc(key, capacity * sizeof(*key));
				if (!key)
					abort();
			}
			key[(*count)++] = client_sessions_key(b, e->service, &s->client);
		}
	}
	return key;
}

/* all: nothing else is counted either, which takes milliseconds. */
static inline bool client_sessions_are_right(const struct sy_balance *b, bool all)
{
	size_t count;
	uint64_t *key = client_sessions_all(b, &count);
	bool right = !all || client_counts_sum(b->client_counts) == count;
	right &= client_counts_lost(b->client_counts) == 0;
	if (count > 0)
		qsort(key, count, sizeof(*key), client_sessions_compare);
	for (size_t i = 0, n; i < count; i += n) {
		for (n = 1; i + n < count && key[i + n] == key[i];)
			n++;
		right &= client_count_read(b->client_counts, key[i]) == n;
	}
	free(key);
	return right;
}

#endif

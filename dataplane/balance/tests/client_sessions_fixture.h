// SPDX-License-Identifier: Apache-2.0
/* Services that limit the sessions of each client, and checks of the counts. */
#ifndef CLIENT_SESSIONS_FIXTURE_H
#define CLIENT_SESSIONS_FIXTURE_H

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "client_sessions_check.h"
#include "flows.h"

#define LIMIT 3

/* 0: no limit. */
static inline void limit_all(struct flows *f, uint32_t sessions)
{
	struct changes c = {0};
	for (unsigned s = 0; s < FLOW_SERVICES; s++) {
		pb_service *service = put_service(&c, &f->service[s], "service", FLOW_RR, NULL);
		if (sessions)
			set_client_sessions(&c, service, sessions);
	}
	flows_commit(f, &c);
}

static inline int client_sessions_setup(void **state)
{
	flows_setup(state);
	struct flows *f = *state;
	f->options.sessions = SY_SLOTS * 64;
	flows_reopen(f, 2, 0, false);
	assert_null(f->harness.b->client_counts); /* allocated with the first limit */
	limit_all(f, LIMIT);
	return 0;
}

static inline uint64_t dropped(struct flows *f)
{
	return harness_drops(&f->harness, SY_DROP_CLIENT_SESSIONS);
}

static inline void check(struct flows *f)
{
	assert_true(client_sessions_are_right(f->harness.b, false));
}

static inline void check_sum(struct flows *f)
{
	assert_true(client_sessions_are_right(f->harness.b, true));
}

#endif

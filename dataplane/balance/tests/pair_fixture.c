// SPDX-License-Identifier: Apache-2.0
#include "pair_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static struct sy_peers_options options;
uint8_t pair_ecmp;
struct sy_peers_secret pair_secret[SY_PEERS_SECRETS] = {{.id = 1, .len = SYNC_SECRET}};

void pair_begin(struct flows *f, uint8_t node)
{
	char path[FOLDER_NAME + 32];
	harness_discard(&f->harness);
	for (unsigned i = 0; i < 3; i++) {
		static const char *const name[] = {"config", "journal", "role"};
		snprintf(path, sizeof(path), "%s/%s", f->state, name[i]);
		unlink(path);
	}
	options = mirror_options(node);
	options.is_ecmp = node == pair_ecmp;
	memcpy(options.secret, pair_secret, sizeof(options.secret));
	f->options.peers = &options;
	f->options.ticket = 0;
	flows_open(f);
}

void pair_become(struct flows *f, uint8_t node, unsigned workers, enum sync_role role)
{
	static const unsigned order[] = {0, 1, 2, 3}, reverse[] = {3, 2, 1, 0};
	f->options.workers = workers;
	pair_begin(f, node);
	flows_configure(f, node == 1 ? order : reverse);
	if (!options.is_ecmp)
		peers_set_role(f->harness.b, role, true);
}

int pair_teardown(void **state)
{
	struct flows *f = *state;
	char path[FOLDER_NAME + 32];
	snprintf(path, sizeof(path), "%s/role", f->state);
	unlink(path);
	return flows_teardown(state);
}

void pair_open(struct flows *f, struct flow flow[FLOWS])
{
	for (unsigned i = 0; i < FLOWS; i++)
		flow_open(f, &flow[i], i % FLOW_SERVICES, (uint16_t)(1000 + i));
}

void pair_check(struct flows *f, struct flow flow[FLOWS])
{
	for (unsigned i = 0; i < FLOWS; i++) {
		struct session *s = flow_session(f, &flow[i]);
		assert_non_null(s);
		flow[i].server_id = s->server;
		flow_check(f, &flow[i]);
	}
	flows_check_active(f, FLOWS);
}

void pair_settle(struct mirror *m)
{
	for (unsigned ms = 0; ms < 60000 && !mirror_is_complete(m); ms += 100)
		mirror_run(m, 100);
	assert_true(mirror_is_complete(m));
}

void pair_depart(struct flows *f, struct mirror *m, struct flow flow[FLOWS], unsigned workers,
                 unsigned standby_workers)
{
	pair_become(f, 1, workers, MASTER);
	mirror_open(m, f, 2);
	pair_open(f, flow);
	pair_check(f, flow);
	pair_settle(m);
	assert_int_equal(mirror_count(m), FLOWS);
	mirror_close(m);
	pair_become(f, 2, standby_workers, BACKUP);
}

void pair_return(struct mirror *m, struct flows *f)
{
	mirror_open(m, f, 1);
	mirror_offer(m);
}

void pair_move(struct flows *f, struct mirror *m, struct flow flow[FLOWS], unsigned workers,
               unsigned standby_workers)
{
	pair_depart(f, m, flow, workers, standby_workers);
	pair_return(m, f);
	pair_settle(m);
	assert_int_equal(harness_totals(&f->harness).live, FLOWS);
}

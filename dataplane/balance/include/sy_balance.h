// SPDX-License-Identifier: Apache-2.0
/*
 * balance: services, servers, schedulers, sessions, and the stages that use them.
 *
 * Order of calls: sy_balance_create(), sy_runtime_open() with it as `app`, sy_balance_attach(),
 * sy_runtime_start(), sy_balance_serve(), sy_runtime_run(), sy_runtime_close(),
 * sy_balance_destroy().
 */
#ifndef SY_BALANCE_H
#define SY_BALANCE_H

#include <sy_runtime.h>

struct sy_balance;

struct sy_balance_options {
	uint64_t sessions;           /* capacity of all session tables together */
	const char *huge_directory;  /* a hugetlbfs mount for the tables, NULL: ordinary memory */
	const char *store_name;      /* the tables' file there */
	const char *state_directory; /* where the accepted configuration is kept, NULL: nowhere */
	const char *build;           /* version shown by status */
	uint32_t max_services;       /* ≤ 2^24 */
	uint32_t max_servers;        /* ≤ 2^24 */
};

int sy_balance_create(const struct sy_balance_options *options, struct sy_balance **out,
                      struct sy_error *err);
/* Workers' state, and the configuration that was accepted last, if there is a state directory. */
int sy_balance_attach(struct sy_balance *b, struct sy_runtime *rt, struct sy_error *err);
/* Opens the control socket. */
int sy_balance_serve(struct sy_balance *b, const char *socket_path, struct sy_error *err);
/* Closes the control socket; before sy_runtime_close(). */
void sy_balance_detach(struct sy_balance *b);
/* After sy_runtime_close(). */
void sy_balance_destroy(struct sy_balance *b);

/* The stages, in their order; see forwarder/pipeline.c. */
void sy_classify_stage(struct sy_worker *w, struct sy_burst *burst);
void sy_lookup_stage(struct sy_worker *w, struct sy_burst *burst);
void sy_fast_stage(struct sy_worker *w, struct sy_burst *burst);
void sy_slow_stage(struct sy_worker *w, struct sy_burst *burst);
/* The workers' round: expiry. */
void sy_balance_round(struct sy_worker *w);

/*
 * One control request (a serialized steelyard.forwarder.v1.Request) as the socket would hand it in;
 * the reply, serialized, goes to reply(ctx, …) before this returns. For tests and fuzzing. A commit
 * runs in one piece.
 */
void sy_balance_request(struct sy_balance *b, const uint8_t *bytes, size_t len,
                        void (*reply)(void *ctx, const uint8_t *bytes, size_t len), void *ctx);

/* Live sessions of all tables, and those created and ended since the start. */
struct sy_balance_totals {
	uint64_t live, created, ended;
};
void sy_balance_get_totals(const struct sy_balance *b, struct sy_balance_totals *out);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * balance: services, servers, schedulers, sessions, and the stages that use them.
 *
 * Order of calls: sy_balance_create(), sy_runtime_open() with it as `app`, sy_balance_attach(),
 * sy_balance_adopt(), sy_runtime_bind(), sy_runtime_start(), sy_balance_serve(), sy_runtime_run(),
 * sy_runtime_quiesce(), sy_balance_seal(), sy_balance_detach(), sy_runtime_close(),
 * sy_balance_destroy(). A successor calls sy_balance_take() before sy_balance_adopt(). See
 * docs/design/0007-restart.md.
 */
#ifndef SY_BALANCE_H
#define SY_BALANCE_H

#include <sy_runtime.h>

struct sy_balance;

/* What a client asks for by an upgrade request; valid during the call. */
struct sy_balance_upgrade {
	const char *binary;      /* NULL: the one that runs, or what has taken its path */
	const char *const *argv; /* NULL: as now; else the words after the binary's name */
	unsigned argc;
};

struct sy_balance_options {
	uint64_t sessions;           /* capacity of all session tables together, to begin with; 0:
	                                as found, or by the memory that there is */
	uint64_t sessions_limit;     /* that they grow to hold; 0: by memory */
	uint64_t memory_reserved;    /* bytes of that memory that others will take */
	const char *store_directory; /* for the tables' file: hugetlbfs, or ordinary; NULL: no file,
	                                sessions end with the process */
	bool store_huge;             /* that is hugetlbfs */
	const char *store_name;      /* the tables' file there */
	bool inherit;                /* a running forwarder has it still */
	const struct sy_slot_key *slot_key; /* that a cluster shares; NULL: the tables', or random
	                                       if they are new */
	const char *state_directory; /* where the accepted configuration is kept, NULL: nowhere */
	const char *build;           /* version shown by status */
	uint32_t max_services;       /* ≤ 2^24 */
	uint32_t max_servers;        /* ≤ 2^24 */
	/* Begins an upgrade, answered later by sy_balance_upgrade_answer(); or returns a negative
	 * errno with err. NULL: refused. */
	int (*upgrade)(void *ctx, const struct sy_balance_upgrade *wanted, struct sy_error *err);
	void *upgrade_ctx;
};

int sy_balance_create(const struct sy_balance_options *options, struct sy_balance **out,
                      struct sy_error *err);
/* For sy_runtime_options.path_half. */
unsigned sy_balance_path_half(const struct sy_balance *b);
/* Workers' state, and the configuration that was accepted last, if there is a state directory. With
 * inherit what the predecessor's snapshot holds of it; an error if that cannot be read. */
int sy_balance_attach(struct sy_balance *b, struct sy_runtime *rt, struct sy_error *err);
/* inherit: the predecessor has sealed its tables with this ticket. Applies what was configured
 * since sy_balance_attach() and takes the tables over. */
int sy_balance_take(struct sy_balance *b, uint64_t ticket, struct sy_error *err);
/* Adopts the sessions that an earlier process left, with up to `threads` threads; workers do not
 * run yet. Says in the log what became of them. */
int sy_balance_adopt(struct sy_balance *b, unsigned threads, struct sy_error *err);
/* After sy_runtime_quiesce(): the configuration is saved, the tables are sealed and let go of, for
 * the next process. ticket: 0 for a clean stop, else for whoever is told it. */
void sy_balance_seal(struct sy_balance *b, uint64_t ticket);
/* While an upgrade is prepared, configuration goes to the journal only, and no id is freed. */
void sy_balance_hold_snapshots(struct sy_balance *b, bool hold);
/* Whether a successor may trust the tables as they stand, at once after a seal. False for some
 * seconds after an upgrade, until expiry has visited every session twice. */
bool sy_balance_is_settled(const struct sy_balance *b);
/* Saves what was accepted, so that sy_balance_seal() need not wait for the disk. Workers may run.
 */
void sy_balance_save(struct sy_balance *b);
/* Stops to listen on the control socket; who is connected stays. */
void sy_balance_leave_socket(struct sy_balance *b);

struct sy_balance_upgraded {
	const char *build; /* of the new forwarder */
	int pid;
	uint64_t gap_ns;   /* from the last packet taken here to the first turn there */
	uint64_t sessions; /* that went on */
};
/* Answers the upgrade request under way: err NULL: it succeeded. */
void sy_balance_upgrade_answer(struct sy_balance *b, const struct sy_balance_upgraded *done,
                               const struct sy_error *err);
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

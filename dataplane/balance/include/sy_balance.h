// SPDX-License-Identifier: Apache-2.0
/*
 * balance: services, servers, schedulers, sessions, and the pipeline stages that use them.
 *
 * The forwarder calls, in this order: sy_balance_create(), sy_runtime_open() with the result as
 * `app`, sy_balance_attach(), sy_balance_adopt(), sy_runtime_bind(), sy_runtime_start(),
 * sy_balance_serve(), sy_runtime_run(), sy_runtime_quiesce(), sy_balance_seal(),
 * sy_balance_detach(), sy_runtime_close(), sy_balance_destroy(). A successor calls
 * sy_balance_acquire() before sy_balance_adopt(). See docs/design/0007-restart.md.
 */
#ifndef SY_BALANCE_H
#define SY_BALANCE_H

#include <sy_runtime.h>

struct sy_balance;

/* Default capacity of the event device in packets. A port of event_dsw may keep 256 of it for
 * itself. */
#define SY_BALANCE_EVENTS(workers) (2048u + 512u * (workers))

/* Max packet buffers of fragments of incomplete datagrams. */
#define SY_BALANCE_FRAGMENTS(workers) (2048u * (workers))

/* An upgrade request of a client; valid during the call. */
struct sy_balance_upgrade {
	bool restart; /* no upgrade: end, and execute the own binary again. No reply follows */
	const char *binary;      /* NULL: the running one, or its replacement at that path */
	const char *const *argv; /* NULL: as now; otherwise the arguments after the name */
	unsigned argc;
};

/* What happens to a packet for a service that is unavailable, or for a port without a service. */
enum sy_unavailable {
	SY_UNAVAILABLE_DROP,
	SY_UNAVAILABLE_RESET, /* TCP: a reset; UDP: as ICMP */
	SY_UNAVAILABLE_ICMP,  /* ICMP port unreachable */
};

#define SY_PEERS_NODES   32 /* numbers 1 to 31 */
#define SY_PEERS_SECRETS 2

/* Session synchronisation (docs/design/0068-session-sync.md). Ports in host order. */
struct sy_peers_options {
	uint8_t node; /* this node's number, 1 to 31; 0: no peers */
	/* All nodes serve, and routers spread flows over them (docs/design/0071-ecmp.md); otherwise
	 * the master of a pair does */
	bool is_ecmp;
	struct sy_addr address;
	uint16_t port; /* UDP */
	struct {
		struct sy_addr addr;
		uint16_t port; /* 0: no peer has this number */
	} peer[SY_PEERS_NODES];
	/* Pre-shared. The first one seals; peers may still use the second one. */
	struct sy_peers_secret {
		uint8_t id;
		uint16_t len; /* 0: none */
		uint8_t bytes[256];
	} secret[SY_PEERS_SECRETS];
};

struct sy_balance_options {
	uint64_t sessions; /* initial capacity of all session tables; 0: that of the existing store,
	                      or chosen by the available memory */
	uint64_t sessions_limit;     /* max capacity of the tables; 0: by memory */
	uint64_t memory_reserved;    /* bytes of that memory for other uses */
	const char *store_directory; /* directory of the tables' file: hugetlbfs or ordinary; NULL:
	                                no file, sessions end with the process */
	bool store_huge;             /* store_directory is hugetlbfs */
	const char *store_name;      /* name of the tables' file */
	bool inherit;                /* a running forwarder still owns the file */
	const struct sy_slot_key *slot_key; /* the key to use; NULL: the key in the tables, or a
	                                       random one for new tables */
	const char *state_directory;        /* for the accepted configuration; NULL: not saved */
	const char *build;                  /* version shown by status */
	const char *event_device;           /* NULL: event_dsw */
	const char *event_model;            /* as in sy_event_model_name[]; NULL: atomic */
	unsigned event_capacity;            /* max packets in it; 0: SY_BALANCE_EVENTS */
	bool event_at_start;                /* open it at the start, not when a limit needs it */
	uint32_t max_services;              /* ≤ 2^24 */
	uint32_t max_servers;               /* ≤ 2^24 */
	enum sy_unavailable unknown_ports;  /* for ports of a VIP that have no service */
	struct sy_peers_options peers;      /* with slot_key */
	struct sy_control_access access;    /* access to the control socket */
	/* Begins an upgrade; sy_balance_upgrade_answer() replies later. Or fails with a negative
	 * errno and err. NULL: upgrades are refused. */
	int (*upgrade)(void *ctx, const struct sy_balance_upgrade *wanted, struct sy_error *err);
	void *upgrade_ctx;
};

int sy_balance_create(const struct sy_balance_options *options, struct sy_balance **out,
                      struct sy_error *err);
/* For sy_runtime_options.path_half. */
unsigned sy_balance_path_half(const struct sy_balance *b);
/* Creates the workers' state and, with a state directory, loads the configuration accepted last.
 * With `inherit` it loads the predecessor's snapshot, and fails if that cannot be read. */
int sy_balance_attach(struct sy_balance *b, struct sy_runtime *rt, struct sy_error *err);
/* With `inherit`, after the predecessor has sealed its tables with this ticket: applies the
 * configuration changes since sy_balance_attach() and acquires the tables. */
int sy_balance_acquire(struct sy_balance *b, uint64_t ticket, struct sy_error *err);
/* Adopts the sessions of an earlier process, with up to `threads` threads, and logs the result. The
 * workers do not run yet. */
int sy_balance_adopt(struct sy_balance *b, unsigned threads, struct sy_error *err);
/* After sy_runtime_quiesce(): saves the configuration, then seals and releases the tables for the
 * next process. ticket: 0 for a clean stop, otherwise the number that the successor passes to
 * sy_balance_acquire(). */
void sy_balance_seal(struct sy_balance *b, uint64_t ticket);
/* While an upgrade is prepared, writes configuration to the journal only, and frees no ids. */
void sy_balance_hold_snapshots(struct sy_balance *b, bool hold);
/* Could a successor trust the tables if they were sealed now? False for some seconds after an
 * upgrade, until expiry has visited every session twice. */
bool sy_balance_is_settled(const struct sy_balance *b);
/* Saves the accepted configuration in advance, so sy_balance_seal() does not wait for the disk.
 * Workers may run. */
void sy_balance_save(struct sy_balance *b);
/* Stops listening on the control socket; connected clients stay connected. */
void sy_balance_leave_socket(struct sy_balance *b);

struct sy_balance_upgraded {
	const char *build; /* of the new forwarder */
	int pid;
	uint64_t gap_ns; /* from the last packet received here to the first loop iteration there */
	uint64_t sessions; /* sessions that continued */
};
/* Replies to the upgrade request in progress. err NULL: the upgrade succeeded. */
void sy_balance_upgrade_answer(struct sy_balance *b, const struct sy_balance_upgraded *done,
                               const struct sy_error *err);
/* Opens the control socket. */
int sy_balance_serve(struct sy_balance *b, const char *socket_path, struct sy_error *err);
/* Closes the control socket; before sy_runtime_close(). */
void sy_balance_detach(struct sy_balance *b);
/* While no forwarder has this state directory: another node is the master from now on, and the next
 * start is a backup. Without peers it does nothing. Returns 0 or a negative errno. */
int sy_balance_resign(const char *state_directory);
/* After sy_runtime_close(). */
void sy_balance_destroy(struct sy_balance *b);

/* The pipeline stages, in order; see forwarder/pipeline.c. */
void sy_classify_stage(struct sy_worker *w, struct sy_burst *burst);
void sy_lookup_stage(struct sy_worker *w, struct sy_burst *burst);
void sy_fast_stage(struct sy_worker *w, struct sy_burst *burst);
void sy_slow_stage(struct sy_worker *w, struct sy_burst *burst);
void sy_event_stage(struct sy_worker *w, struct sy_burst *burst);
/* Periodic work of each worker: expiry. */
void sy_balance_round(struct sy_worker *w);
/* For sy_runtime_options.poll, is_idle and wake_ns: packets in the event device, peers. */
bool sy_balance_poll(struct sy_worker *w);
bool sy_balance_is_idle(const struct sy_worker *w);
uint64_t sy_balance_wake_ns(const struct sy_worker *w);
/* For sy_runtime_options.refused: counts the packet under its service. */
void sy_balance_refused(struct sy_worker *w, uint32_t service, enum sy_drop reason);

/*
 * Handles one control request (a serialized steelyard.forwarder.v1.Request) as the socket would.
 * reply(ctx, …) gets the serialized reply before this function returns. For tests and fuzzing. A
 * commit runs in one piece.
 */
void sy_balance_request(struct sy_balance *b, const uint8_t *bytes, size_t len,
                        void (*reply)(void *ctx, const uint8_t *bytes, size_t len), void *ctx);

/* Live sessions in all tables, and sessions created and ended since the start. */
struct sy_balance_totals {
	uint64_t live, created, ended;
};
void sy_balance_get_totals(const struct sy_balance *b, struct sy_balance_totals *out);

#endif

// SPDX-License-Identifier: Apache-2.0
/* State private to the control thread. Workers do not include this header. */
#ifndef CONTROL_PLANE_H
#define CONTROL_PLANE_H

#include "balance.h"
#include "newer.h"

struct model;         /* the accepted configuration: model.h */
struct early;         /* ports of VIPs that XDP redirects to the forwarder: early.h */
struct control;       /* the control socket: control.h */
struct retired;       /* retire.c */
struct attacks;       /* attacks.h */
struct samples;       /* control_samples.c */
struct watch;         /* watch.h */
struct access_model;  /* access_model.h */
struct limit_model;   /* limit_model.h */
struct shaping_model; /* shaping_model.h */

#define GROUP_VERSION 64 /* bytes, with the NUL */

/* See journal.c. */
struct journal {
	int fd;          /* −1: none */
	uint64_t size;   /* of complete entries, header included */
	bool broken;     /* an entry is missing: nothing is appended until the next snapshot */
	bool complained; /* a write error has been logged */
};

/* See id_dictionary.c. */
struct id_dictionary {
	bool settled;        /* the dictionary follows the configuration from now on */
	uint32_t *claimable; /* reserved server ids by meaning; until id_dictionary_settle() */
	uint32_t claimables;
	/* By id: sessions of an earlier process use it with its current meaning. Readers: also
	 * adoption threads. */
	bool *server_found;
	bool local_found[SESSION_LOCALS];
};

/* The result of adopting an earlier process's sessions. */
struct adoption {
	struct session_found found;
	uint64_t duration_ns;
	uint64_t count[SESSION_RESULT_COUNT];
};

/* A host that answered for an address when the forwarder claimed it. */
struct neighbour_found {
	struct sy_addr addr;
	uint8_t mac[6];
	uint64_t at_ns; /* 0: none yet */
};
/* A printf format and its arguments; text: buffer for an address. */
#define NEIGHBOUR_FOUND                                                                            \
	"%s: another host (%02x:%02x:%02x:%02x:%02x:%02x) answered for it when this forwarder "    \
	"claimed it: two hosts with one address receive each other's packets; remove it from the " \
	"other host"
#define NEIGHBOUR_FOUND_VALUES(f, text)                                                            \
	sy_addr_format(&(f)->addr, text), (f)->mac[0], (f)->mac[1], (f)->mac[2], (f)->mac[3],      \
	        (f)->mac[4], (f)->mac[5]

struct control_plane {
	struct session_store *store; /* NULL once sealed: owned by a successor */
	struct model *model;
	struct early *early;
	struct access_model *access;
	struct limit_model *limits;
	struct shaping_model *shaping;
	struct control *control;
	struct table_cache *table_cache; /* tables shared by services */
	struct retired *retired;         /* ids that sessions may still refer to, oldest first */
	struct attacks *attacks;
	struct watch *watch;
	struct samples *samples; /* NULL: not requested yet */
	bool owner;       /* this process, not a predecessor, owns store and state directory */
	bool served;      /* the control socket has been opened */
	bool standby;     /* a peer serves: addresses are left alone. addresses_serve() */
	bool unsaved;     /* the accepted configuration is newer than the last snapshot */
	bool save_failed; /* the last attempt to save it failed */
	struct sy_error save_error;             /* the reason */
	struct neighbour_found neighbour_found; /* the latest one */
	bool hold;                              /* suspend snapshots */
	/* Start without a predecessor: newer settings in the saved configuration are ignored.
	 * Otherwise they are refused. */
	bool lenient;
	struct newer newer; /* those found */
	uint64_t saved_ns;  /* time of the last snapshot */
	struct journal journal;
	int state_lock; /* lock on the state directory; −1: none */
	struct id_dictionary dictionary;
	struct adoption adoption;
	uint64_t alive_ns;             /* when session_store_alive() was last called */
	uint64_t sealed_live;          /* number of sessions when the store was sealed */
	struct sy_balance_totals gone; /* totals of servers whose ids are free again */
	uint32_t own_version;          /* sy_own_sources_version() of the published set */
	uint32_t path_generation;      /* route generation that the endpoints' paths are from */
	struct {
		uint8_t at; /* next slot to check */
		unsigned left,
		        leaving; /* regions that tables have left; those waiting for passes */
		uint64_t passes[SY_MAX_WORKERS];
		uint64_t retry_ns; /* earliest next attempt after a lack of memory */
		uint64_t grown;    /* tables grown so far */
	} growth;                  /* see grow.c */
	struct {
		bool pending;
		bool renewed; /* no session holds a path older than generation */
		uint32_t generation;
		uint64_t passes[SY_MAX_WORKERS];
	} path_sweep; /* see retire.c */
	uint64_t started_unix_s;
	char group[GROUP_VERSION]; /* version of the saved group that applies; "": none */
};

#endif

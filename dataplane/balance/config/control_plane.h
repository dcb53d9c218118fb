// SPDX-License-Identifier: Apache-2.0
/* What the control thread alone reads and writes; workers cannot even name it. */
#ifndef CONTROL_PLANE_H
#define CONTROL_PLANE_H

#include "balance.h"

struct model;   /* the configuration as accepted: model.h */
struct control; /* the control socket's side: control.h */
struct retired; /* retire.c */

/* See journal.c. */
struct journal {
	int fd;          /* −1: none */
	uint64_t size;   /* of whole entries, with its header */
	bool broken;     /* an entry is missing: nothing is added until the next snapshot */
	bool complained; /* about what could not be written */
};

/* See names.c. */
struct id_dictionary {
	bool settled;        /* the dictionary follows the configuration from now on */
	uint32_t *claimable; /* servers' ids with a meaning, by meaning; until
	                        id_dictionary_settle() */
	uint32_t claimables;
	bool local_found[SESSION_LOCALS]; /* as in struct endpoint */
};

/* What became of an earlier process's sessions. */
struct adoption {
	struct session_found found;
	uint64_t duration_ns;
	uint64_t count[SESSION_RESULT_COUNT];
};

/* A host that answered for an address when it was taken. */
struct neighbour_found {
	struct sy_addr addr;
	uint8_t mac[6];
	uint64_t at_ns; /* 0: none yet */
};
/* A format and its values; text: room for an address. */
#define NEIGHBOUR_FOUND                                                                            \
	"%s was answered for by another host (%02x:%02x:%02x:%02x:%02x:%02x) when it was taken: "  \
	"two hosts that have it take each other's packets; make sure that the other one lets go "  \
	"of it"
#define NEIGHBOUR_FOUND_VALUES(f, text)                                                            \
	sy_addr_format(&(f)->addr, text), (f)->mac[0], (f)->mac[1], (f)->mac[2], (f)->mac[3],      \
	        (f)->mac[4], (f)->mac[5]

struct control_plane {
	struct session_store *store; /* NULL once it is sealed: for a successor */
	struct model *model;
	struct control *control;
	struct table_cache *table_cache; /* tables that services share */
	struct retired *retired;         /* ids that sessions may still name, oldest first */
	bool owner;                 /* store and state directory are ours, not a predecessor's */
	bool served;                /* the control socket has been opened */
	bool unsaved;               /* the last snapshot is not of the accepted configuration */
	bool save_failed;           /* the last attempt at one */
	struct sy_error save_error; /* why */
	struct neighbour_found neighbour_found; /* the last one */
	bool hold;                              /* none is made */
	uint64_t saved_ns;                      /* when one last was */
	struct journal journal;
	int state_lock; /* on the state directory, −1: not ours */
	struct id_dictionary names;
	struct adoption adoption;
	uint64_t alive_ns;             /* when the store was told last that we live */
	uint64_t sealed_live;          /* sessions when the store was sealed */
	struct sy_balance_totals gone; /* of servers whose ids are free again */
	uint32_t path_generation;      /* of the routes that endpoints' paths stand for */
	struct {
		uint8_t at;             /* the slot that is looked at next */
		unsigned left, leaving; /* regions that tables left; of which until passes */
		uint64_t passes[SY_MAX_WORKERS];
		uint64_t again_ns; /* not before: memory was missing */
		uint64_t grown;    /* tables so far */
	} growth;                  /* see grow.c */
	struct {
		bool pending;
		bool renewed; /* no session names a path that is older than generation */
		uint32_t generation;
		uint64_t passes[SY_MAX_WORKERS];
	} path_sweep; /* see retire.c */
	uint64_t started_unix_s;
};

#endif

// SPDX-License-Identifier: Apache-2.0
/* A harness that is one node of a pair, whose other node is a mirror, with flows through it. */
#ifndef PAIR_FIXTURE_H
#define PAIR_FIXTURE_H

#include "peers_fixture.h"

#define FLOWS  40
#define MASTER SYNC_ROLE_MASTER
#define BACKUP SYNC_ROLE_BACKUP

/* The secrets of nodes that pair_begin() opens; at first the mirror's. */
extern struct sy_peers_secret pair_secret[SY_PEERS_SECRETS];

/* The number of a node that is in an ECMP group, and has no role; 0: none. */
extern uint8_t pair_ecmp;
/* Ends the harness, with its sessions, configuration and role, and opens one that is this node. */
void pair_begin(struct flows *f, uint8_t node);
/* The same, with its services: those of node 2 in the other order, so that ids differ. */
void pair_become(struct flows *f, uint8_t node, unsigned workers, enum sync_role role);
/* cmocka's teardown. */
int pair_teardown(void **state);

void pair_open(struct flows *f, struct flow flow[FLOWS]);
/* Checks that all flows continue, and that there are no other sessions. */
void pair_check(struct flows *f, struct flow flow[FLOWS]);
/* Waits until both have what the other one offers. */
void pair_settle(struct mirror *m);
/* The mirror gets the sessions of FLOWS flows from node 1, whose harness ends. Afterwards the
 * harness is node 2, a backup without sessions, and the mirror is a closed node 1. */
void pair_depart(struct flows *f, struct mirror *m, struct flow flow[FLOWS], unsigned workers,
                 unsigned standby_workers);
/* The mirror is node 1 again, and offers its sessions to the harness. */
void pair_return(struct mirror *m, struct flows *f);
/* As pair_depart(), and the harness gets them from the mirror. */
void pair_move(struct flows *f, struct mirror *m, struct flow flow[FLOWS], unsigned workers,
               unsigned standby_workers);

#endif

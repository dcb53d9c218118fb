// SPDX-License-Identifier: Apache-2.0
/* Shared by the soak test's scenarios. */
#ifndef SCENARIO_H
#define SCENARIO_H

#include "fuzz_traffic.h"

#define SECOND_NS UINT64_C(1000000000)

/* ---- scenario.c ------------------------------------------------------------------------------ */
/* Sends first frames of clients to this service, or to all ordinary ones in turn (NULL). */
void scenario_greet(struct fuzz_traffic *w, unsigned count, const struct service_key *key);
/* Counts sessions of services that have not ended, and that match. */
uint64_t scenario_count_sessions(struct fuzz_traffic *w, unsigned kind,
                                 bool (*match)(const struct session *s, const struct endpoint *e,
                                               unsigned kind));

/* ---- scenario_attack.c ----------------------------------------------------------------------- */
void scenario_floods(struct fuzz_traffic *w);
void scenario_access(struct fuzz_traffic *w);
void scenario_defence(struct fuzz_traffic *w);
void scenario_client_rate(struct fuzz_traffic *w);
void scenario_client_sessions(struct fuzz_traffic *w);
void scenario_overload(struct fuzz_traffic *w);
void scenario_echo_rate(struct fuzz_traffic *w);
void scenario_full_queue(struct fuzz_traffic *w);
/* Sends valid echo requests, which only the balancer answers, over so many poll iterations. */
void scenario_send_echoes(struct fuzz_traffic *w, unsigned count, unsigned turns);

/* ---- scenario_sets.c ------------------------------------------------------------------------- */
void scenario_sets(struct fuzz_traffic *w);

#endif

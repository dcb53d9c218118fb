// SPDX-License-Identifier: Apache-2.0
/* What the files of the soak test's scenarios share. */
#ifndef SCENARIO_H
#define SCENARIO_H

#include "fuzz_traffic.h"

#define SECOND_NS UINT64_C(1000000000)

/* ---- scenario_attack.c ----------------------------------------------------------------------- */
void scenario_floods(struct fuzz_traffic *w);
void scenario_access(struct fuzz_traffic *w);
void scenario_defence(struct fuzz_traffic *w);
void scenario_client_rate(struct fuzz_traffic *w);
void scenario_client_sessions(struct fuzz_traffic *w);
void scenario_overload(struct fuzz_traffic *w);
void scenario_echo_rate(struct fuzz_traffic *w);
void scenario_full_queue(struct fuzz_traffic *w);
/* Valid echo requests, to which only the balancer's answer is sent; as many workers take turns. */
void scenario_send_echoes(struct fuzz_traffic *w, unsigned count, unsigned turns);

/* ---- scenario_sets.c ------------------------------------------------------------------------- */
void scenario_sets(struct fuzz_traffic *w);

#endif

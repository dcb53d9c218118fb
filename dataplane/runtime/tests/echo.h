// SPDX-License-Identifier: Apache-2.0
/* A pipeline that echoes UDP, and clients on the other end of a veth. */
#ifndef ECHO_H
#define ECHO_H

#include "runtime_fixture.h"

#define SERVER_V4 "10.77.0.100"
#define SERVER_V6 "2001:db8:77::100"

extern const struct sy_stage echo_pipeline[];
/* Packets that were steered to a worker which does not own their slot. */
extern uint32_t echo_wrong_worker;

/* For child processes: these functions end the process if they fail. */
void shell(const char *command);
/* Computes checksums in software: a veth peer leaves them to hardware that does not exist. */
void checksums_on(const char *ifname);

#endif

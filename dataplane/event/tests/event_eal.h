// SPDX-License-Identifier: Apache-2.0
/* EAL for programs that use event devices and no ports. */
#ifndef EVENT_EAL_H
#define EVENT_EAL_H

/* Starts EAL once, on ordinary memory and on the CPUs that the process has; the calling thread is
 * its main one. Exits with a message if that fails. */
void event_eal_start(void);

#endif

// SPDX-License-Identifier: Apache-2.0
/* Inside of the module. */
#ifndef EVENT_H
#define EVENT_H

#include "sy_event.h"

#define QUEUE_MAIN 0
#define QUEUE_EXIT 1

struct sy_event {
	uint8_t device;
	enum sy_event_model model;
	unsigned ports, exit; /* exit: SY_EVENT_ORDERED only */
	bool maintained;      /* its ports have to be called all the time */
	bool scheduled;       /* it works while a thread calls its service */
	bool relinks;         /* ports may be unlinked while it runs */
	uint32_t service;
	char made[64];       /* the virtual device that was made; "": none */
	rte_spinlock_t lock; /* by the one thread that runs the service */
	struct sy_event_port port[];
};

/* A number that only one thread changes. */
#define COUNT(counter, n) __atomic_store_n(&(counter), (counter) + (n), __ATOMIC_RELEASE)

/* Lets the device do its part; skips it if another port does so now. */
void device_work(struct sy_event *event);

#endif

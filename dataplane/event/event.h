// SPDX-License-Identifier: Apache-2.0
/* Private to the module. */
#ifndef EVENT_H
#define EVENT_H

#include "sy_event.h"

#define QUEUE_MAIN 0
#define QUEUE_EXIT 1

struct sy_event {
	uint8_t device;
	enum sy_event_model model;
	unsigned ports, exit; /* exit: SY_EVENT_ORDERED only */
	bool maintained;      /* its ports need periodic rte_event_maintain() */
	bool scheduled;       /* a thread must run its service */
	bool relinks;         /* ports can be unlinked while it runs */
	uint32_t service;
	char made[64];       /* the virtual device that was created; "": none */
	rte_spinlock_t lock; /* held by the thread that runs the service */
	struct sy_event_port port[];
};

/* A counter with a single writer. */
#define COUNT(counter, n) __atomic_store_n(&(counter), (counter) + (n), __ATOMIC_RELEASE)

/* Runs the device's service, unless another port does so now. */
void device_work(struct sy_event *event);

#endif

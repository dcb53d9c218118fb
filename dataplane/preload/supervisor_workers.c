// SPDX-License-Identifier: Apache-2.0
/* Workers: which process of the program has which queues. */
#include <errno.h>
#include <stdio.h>

#include "supervisor.h"

#define BIND_NS      UINT64_C(2000000000) /* Linux frees a queue after its socket is closed */
#define BIND_STEP_NS UINT64_C(10000000)   /* an attempt and the pause after it */

static bool worker_is_free(unsigned worker)
{
	for (unsigned i = 0; i < SUPERVISOR_PEERS; i++)
		if (peer[i].fd && peer[i].worker == (int)worker)
			return false;
	return true;
}

int worker_bind(struct supervisor *sv, struct peer *p)
{
	int rc = packets_bind(&p->packets, &p->answer);

	p->binds = rc == -EBUSY && sy_patience_left(&p->patience) > 0;
	if (p->binds)
		return -EINPROGRESS;
	if (!rc) {
		p->registry = sy_hook_registry_join(sv->hooks, p->pid, &p->channel);
		rc = p->registry < 0 ? p->registry : 0;
	}
	if (!rc)
		return 0;
	packets_release(&p->packets);
	p->worker = -1;
	return rc == -EBUSY ? -EADDRINUSE
	                    : rc; /* EBUSY would mean: all workers have their queues */
}

int worker_start(struct supervisor *sv, struct peer *p)
{
	struct message_answer *a = &p->answer;
	unsigned workers = sv->options.config.workers, worker = 0;

	if (p->worker >= 0)
		return -EALREADY;
	while (worker < workers && !worker_is_free(worker))
		worker++;
	if (worker == workers)
		return -EBUSY;
	*a = sv->options.config;
	a->worker = worker;
	for (unsigned q = worker; q < sv->options.queues; q += workers)
		a->queue[a->queues++] = q;
	int rc = packets_open(&p->packets, a);
	if (rc)
		return rc;
	p->worker = (int)worker;
	p->patience = sy_patience_begin(BIND_NS, BIND_STEP_NS);
	return worker_bind(sv, p);
}

void workers_note(struct supervisor *sv)
{
	unsigned workers = sv->options.config.workers, started = 0, waiting = 0;
	char text[SY_HOOK_NOTE_TEXT] = "";

	for (unsigned i = 0; i < SUPERVISOR_PEERS; i++) {
		started += peer[i].fd && peer[i].worker >= 0;
		waiting += peer[i].fd && peer[i].waits;
	}
	if (started > 0 && started < workers)
		snprintf(text, sizeof(text),
		         "%u of %u workers (--workers) have a stack: Linux accepts the new "
		         "connections that come by the receive queues of the others",
		         started, workers);
	sy_hook_registry_note(sv->hooks, 0, text);
	text[0] = '\0';
	if (waiting > 0)
		snprintf(text, sizeof(text),
		         "beside its workers (--workers), %u more of its processes wait for a "
		         "queue: until a worker ends, Linux accepts the new connections to the "
		         "ports where they wait",
		         waiting);
	sy_hook_registry_note(sv->hooks, 1, text);
}

int worker_bound(struct supervisor *sv, struct peer *p)
{
	unsigned queue = (unsigned)p->worker;
	int rc = p->worker < 0 ? -EINVAL : 0;

	for (unsigned i = 0; i < p->packets.sockets && !rc; i++) {
		rc = steer_socket(sv->steer, queue, p->packets.xsk[i]);
		queue += sv->options.config.workers;
	}
	packets_close(&p->packets);
	p->bound = !rc;
	p->heartbeat_ns = sy_clock_ns();
	ports_steer(sv, p);
	return rc;
}

void worker_end(struct supervisor *sv, struct peer *p)
{
	for (unsigned q = (unsigned)p->worker; p->worker >= 0 && q < sv->options.queues;
	     q += sv->options.config.workers)
		steer_socket_end(sv->steer, q);
	packets_release(&p->packets);
	sy_hook_registry_leave(sv->hooks, p->registry);
	p->worker = p->registry = -1;
	p->binds = p->bound = p->stalled = false;
}

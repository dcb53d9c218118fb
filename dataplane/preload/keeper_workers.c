// SPDX-License-Identifier: Apache-2.0
/* Which process of the program is which worker. */
#include <errno.h>
#include <stdio.h>

#include "keeper.h"

static bool worker_is_free(unsigned worker)
{
	for (unsigned i = 0; i < KEEPER_PEERS; i++)
		if (peer[i].fd && peer[i].worker == (int)worker)
			return false;
	return true;
}

int worker_start(struct keeper *k, struct peer *p, struct message_answer *a)
{
	unsigned workers = k->options.config.workers, worker = 0;

	if (p->worker >= 0)
		return -EALREADY;
	while (worker < workers && !worker_is_free(worker))
		worker++;
	if (worker == workers)
		return -EBUSY;
	a->worker = worker;
	for (unsigned q = worker; q < k->options.queues; q += workers)
		a->queue[a->queues++] = q;
	int rc = packets_open(&p->packets, a);
	if (rc)
		return rc;
	p->board = sy_hook_board_join(k->hooks, p->pid, &p->channel);
	if (p->board < 0) {
		packets_drop(&p->packets);
		return p->board;
	}
	p->worker = (int)worker;
	return 0;
}

void workers_note(struct keeper *k)
{
	unsigned workers = k->options.config.workers, started = 0, waiting = 0;
	char text[SY_HOOK_NOTE_TEXT] = "";

	for (unsigned i = 0; i < KEEPER_PEERS; i++) {
		started += peer[i].fd && peer[i].worker >= 0;
		waiting += peer[i].fd && peer[i].waits;
	}
	if (started > 0 && started < workers)
		snprintf(text, sizeof(text),
		         "%u of %u workers (--workers) have a stack: what comes by the receive "
		         "queues of the others is dropped",
		         started, workers);
	sy_hook_board_note(k->hooks, 0, text);
	text[0] = '\0';
	if (waiting > 0)
		snprintf(text, sizeof(text),
		         "beside its workers (--workers), %u more of its processes wait for a "
		         "queue, and take no connections until a worker ends",
		         waiting);
	sy_hook_board_note(k->hooks, 1, text);
}

int worker_bound(struct keeper *k, struct peer *p)
{
	unsigned queue = (unsigned)p->worker;
	int rc = p->worker < 0 ? -EINVAL : 0;

	for (unsigned i = 0; i < p->packets.sockets && !rc; i++) {
		rc = steer_socket(k->steer, queue, p->packets.xsk[i]);
		queue += k->options.config.workers;
	}
	packets_drop(&p->packets);
	return rc;
}

// SPDX-License-Identifier: Apache-2.0
#include "job.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <sy_runtime.h>

static void *job_run(void *job)
{
	struct job *j = job;
	j->work(j->work_ctx);
	eventfd_write(j->fd, 1);
	return NULL;
}

static void job_end(struct job *j)
{
	pthread_join(j->thread, NULL);
	sy_runtime_unwatch(j->rt, j->fd);
	close(j->fd);
	j->running = false;
}

static void job_on_done(void *job)
{
	struct job *j = job;
	job_end(j);
	j->done(j->done_ctx);
}

int job_begin(struct job *j, struct sy_runtime *rt, void (*work)(void *work_ctx),
              void (*done)(void *done_ctx), void *work_ctx, void *done_ctx)
{
	*j = (struct job){
	        .rt = rt, .work = work, .done = done, .work_ctx = work_ctx, .done_ctx = done_ctx};
	j->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (j->fd < 0)
		return -errno;
	int rc = sy_runtime_watch(rt, j->fd, job_on_done, j);
	if (rc < 0) {
		close(j->fd);
		return rc;
	}
	rc = pthread_create(&j->thread, NULL, job_run, j);
	j->running = rc == 0;
	if (rc) {
		sy_runtime_unwatch(rt, j->fd);
		close(j->fd);
	}
	return -rc;
}

void job_wait(struct job *j)
{
	if (j->running)
		job_end(j);
}

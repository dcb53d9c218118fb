// SPDX-License-Identifier: Apache-2.0
/*
 * The experiment of the exact-rate-limiting paper (shared tester, 20 samples of 2 s) in virtual
 * time. Each packet goes to a random consumer: a coroutine that handles its packets late and in
 * bursts. It may be preempted within the limiter before each access to shared state, and an
 * adversary preempts it there, for one user in HELD, until its queue is full. Meanwhile others
 * charge the same bucket, so what it has read is stale. Of those preempted at the same bucket,
 * those with the more recent view resume first.
 */
#include <setjmp.h>
#include <ucontext.h>

static void limit_step(void);
#define SY_LIMIT_STEP() limit_step()
#include "limits_rate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"

#define SAMPLE_NS (2 * SECOND)
#define BURST     32u
#define ROOM      512u   /* queue of a consumer, packets */
#define HELD      1024u  /* the adversary targets one user in so many, including the observed one */
#define STACK     65536u /* bytes */
#define PATIENCE  8u     /* rounds before lock holders are resumed */
_Static_assert((USERS - 1) % HELD == 0, "the observed user is one of them");

struct consumer {
	struct user_packet waiting[ROOM];
	unsigned head, tail; /* ring: first, and one after the last */
	uint64_t *local;     /* [USERS] */
	/* The coroutine. */
	ucontext_t begin;
	jmp_buf at;
	char *stack;
	bool begun;
	bool held;     /* preempted in the limiter, with the first packet */
	uint64_t view; /* when; larger: later */
};

struct experiment {
	struct limits_arguments a;
	enum sy_limit_engine engine;
	struct user_source source;
	uint64_t now;
	struct sy_limit_rate rate;
	struct sy_limit *limit;  /* [USERS] */
	uint64_t *passed, *lost; /* [USERS] bytes of this sample, and of all */
	struct consumer consumer[CONSUMERS_MAX];
	struct consumer *running;
	jmp_buf scheduler;
	uint64_t holds, stale; /* preemptions, and those whose bucket changed meanwhile */
};

/* Coroutines have no argument. */
static struct experiment *experiment;

/* ---- consumers ------------------------------------------------------------------------------- */

/* Returns to the resumer. By setjmp, as swapcontext makes system calls. */
static __attribute__((noinline)) void consumer_pause(struct consumer *c)
{
	if (_setjmp(c->at) == 0)
		_longjmp(experiment->scheduler, 1);
}

/* Runs a consumer until it pauses. */
static __attribute__((noinline)) void consumer_resume(struct consumer *c)
{
	experiment->running = c;
	if (_setjmp(experiment->scheduler) == 0) {
		if (c->begun)
			_longjmp(c->at, 1);
		c->begun = true;
		setcontext(&c->begin);
	}
}

static unsigned consumer_user(const struct consumer *c)
{
	return c->waiting[c->head % ROOM].user;
}

static void limit_step(void)
{
	struct experiment *x = experiment;
	struct consumer *c = x->running;
	unsigned user = consumer_user(c);
	if (user % HELD != 0)
		return;
	uint64_t level = x->limit[user].level;
	c->view = ++x->holds;
	c->held = true;
	consumer_pause(c);
	c->held = false;
	x->stale += x->limit[user].level != level;
}

/* Handles the packets queued at the start; then pauses. */
static void consumer_main(void)
{
	struct experiment *x = experiment;
	struct consumer *c = x->running;
	for (;;) {
		uint64_t volume = sy_limit_volume(&x->rate, x->now);
		for (unsigned end = c->tail; c->head != end; c->head++) {
			const struct user_packet *p = &c->waiting[c->head % ROOM];
			bool taken = sy_limit_charge(&x->limit[p->user], x->engine, &x->rate,
			                             &c->local[p->user], volume, p->length);
			*(taken ? &x->passed[p->user] : &x->lost[p->user]) += p->length;
		}
		consumer_pause(c);
	}
}

static void consumer_begin(struct experiment *x, struct consumer *c)
{
	c->local = must(calloc(USERS, sizeof(uint64_t)));
	c->stack = must(malloc(STACK));
	getcontext(&c->begin);
	c->begin.uc_stack.ss_sp = c->stack;
	c->begin.uc_stack.ss_size = STACK;
	makecontext(&c->begin, consumer_main, 0);
}

/* Resumes a consumer with a full queue, after all with a more recent view of the same bucket, and
 * the holder of the lock it waits for. */
static void consumer_force(struct experiment *x, struct consumer *c)
{
	for (unsigned turn = 0; c->tail - c->head == ROOM; turn++) {
		for (unsigned i = 0; i < x->a.consumers; i++) {
			struct consumer *o = &x->consumer[i];
			if (o != c && o->held && consumer_user(o) == consumer_user(c) &&
			    (o->view > c->view || turn > PATIENCE))
				consumer_resume(o);
		}
		consumer_resume(c);
	}
}

/* Sends packets until a time. A consumer handles its packets when it has a burst, or earlier by
 * chance, so consumers overtake each other. */
static void experiment_run(struct experiment *x, uint64_t until)
{
	double now = (double)x->now;
	while (now < (double)until) {
		uint64_t r;
		struct user_packet p = user_packet(&x->source, &r);
		struct consumer *c = &x->consumer[(r >> 32) % x->a.consumers];
		if (c->tail - c->head == ROOM)
			consumer_force(x, c);
		c->waiting[c->tail++ % ROOM] = p;
		now += p.length * 8e9 / ALL_BITS;
		x->now = (uint64_t)now;
		if (!c->held && (c->tail - c->head >= BURST || (r >> 40) % BURST == 0))
			consumer_resume(c);
	}
}

/* ---- the experiment -------------------------------------------------------------------------- */

static void experiment_begin(struct experiment *x, const struct limits_arguments *a)
{
	struct sy_error err = {0};
	*x = (struct experiment){.a = *a,
	                         .engine = engine_of(a->engine),
	                         .source = {.random = a->seed},
	                         .now = SECOND};
	if (sy_limit_rate_init(&x->rate, LIMIT_BITS, 8 * SECOND, a->burst, x->now, &err) < 0) {
		fprintf(stderr, "steelyard-limits: %s\n", err.text);
		exit(EXIT_FAILURE);
	}
	x->limit = must(aligned_alloc(SY_CACHE_LINE, (USERS + 3) * sizeof(*x->limit)));
	x->passed = must(calloc(USERS, sizeof(*x->passed)));
	x->lost = must(calloc(USERS, sizeof(*x->lost)));
	for (unsigned u = 0; u < USERS; u++)
		sy_limit_init(&x->limit[u], &x->rate, a->batch, x->now);
	experiment = x;
	for (unsigned c = 0; c < a->consumers; c++)
		consumer_begin(x, &x->consumer[c]);
}

static void experiment_end(struct experiment *x)
{
	for (unsigned c = 0; c < x->a.consumers; c++) {
		free(x->consumer[c].local);
		free(x->consumer[c].stack); /* preempted ones end here */
	}
	free(x->limit);
	free(x->passed);
	free(x->lost);
}

static void report(const struct experiment *x, const char *metric, double value)
{
	char params[128];
	const struct measure m = {"limits", params, metric, "%", NULL};
	snprintf(params, sizeof(params), "\"engine\": \"%s\", \"consumers\": %u", x->a.engine,
	         x->a.consumers);
	measure_report(&m, value, NULL, 0);
}

/* Deviation of a user's rate in this sample from its limit, in percent. */
static double error_of(const struct experiment *x, unsigned user)
{
	double want = (double)LIMIT_BITS / 8 * (double)SAMPLE_NS / (double)SECOND;
	return 100 * ((double)x->passed[user] - want) / want;
}

void rate_perform(const struct limits_arguments *a)
{
	static struct experiment x;
	double mean = 0, lost = 0, sent = 0;

	experiment_begin(&x, a);
	experiment_run(&x, x.now + 5 * SECOND); /* full buckets empty, batches are distributed */
	memset(x.lost, 0, USERS * sizeof(*x.lost));
	for (unsigned s = 0; s < a->samples; s++) {
		double worst = 0;
		memset(x.passed, 0, USERS * sizeof(*x.passed));
		experiment_run(&x, x.now + SAMPLE_NS);
		for (unsigned u = WITHIN; u < USERS; u++)
			worst = fmax(worst, fabs(error_of(&x, u)));
		for (unsigned u = 0; u < WITHIN; u++)
			sent += (double)x.passed[u];
		report(&x, "error of a sample, observed user", fabs(error_of(&x, USERS - 1)));
		report(&x, "error of a sample, worst of 4097", worst);
		mean += error_of(&x, USERS - 1) / a->samples;
	}
	for (unsigned u = 0; u < WITHIN; u++)
		lost += (double)x.lost[u];
	report(&x, "error of the mean, observed user", fabs(mean));
	report(&x, "lost by users within the limit", 100 * lost / (sent + lost));
	report(&x, "stale views of takes that were held", 100 * (double)x.stale / (double)x.holds);
	experiment_end(&x);
}

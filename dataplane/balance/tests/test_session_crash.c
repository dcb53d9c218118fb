// SPDX-License-Identifier: Apache-2.0
/* A process that creates and ends sessions as fast as it can is killed at a random instruction. The
 * adopted sessions are compared with a log that it kept in memory shared with the parent. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "session_place.h"

#define KILLS   80
#define RECORDS (PLACE_SESSIONS / SY_SLOTS)

enum operation { NONE, INSERTING, REMOVING };

/* Written by the child, and between children by the parent. */
struct log {
	uint64_t operations; /* finished, by all children */
	uint64_t random;     /* state, so that each child continues where the previous one ended */
	uint32_t operation;  /* in progress */
	uint32_t slot, record;
	bool live[SY_SLOTS][RECORDS];
	struct session hot[SY_SLOTS][RECORDS];
};

static void log_begin(struct log *log, enum operation operation)
{
	__atomic_store_n(&log->operation, operation, __ATOMIC_RELEASE);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static void log_end(struct log *log)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	__atomic_store_n(&log->operation, NONE, __ATOMIC_RELEASE);
	__atomic_store_n(&log->operations, log->operations + 1, __ATOMIC_RELEASE);
}

static void workload_insert(struct network *n, struct log *log)
{
	struct session_table *t;
	uint32_t record;

	log_begin(log, INSERTING);
	if (network_create(n, &t, &record) == NETWORK_INSERTED) {
		log->hot[t->slot][record] = *session_at(t, record);
		__atomic_store_n(&log->live[t->slot][record], true, __ATOMIC_RELEASE);
	}
	log_end(log);
}

static void workload_remove(struct network *n, struct log *log, unsigned slot, uint32_t record)
{
	log->slot = slot;
	log->record = record;
	log_begin(log, REMOVING);
	network_remove(n, session_store_table(n->store, (uint8_t)slot), record);
	log->live[slot][record] = false;
	log_end(log);
}

static void nothing_visited(void *ctx, struct session_table *t, uint32_t record)
{
}

/* Runs until killed: tables from empty to overfull, with sweeps that trim them. */
static void workload(struct network *n, struct log *log)
{
	for (;;) {
		unsigned slot = (unsigned)(network_random(n) % SY_SLOTS);
		uint32_t record = (uint32_t)(network_random(n) % RECORDS);
		if (network_random(n) % 8 < (log->operations / 20000 % 2 ? 7 : 2))
			workload_insert(n, log);
		else if (log->live[slot][record])
			workload_remove(n, log, slot, record);
		else
			session_sweep(session_store_table(n->store, (uint8_t)slot), 2 * RECORDS,
			              nothing_visited, NULL);
		log->random = n->random;
	}
}

static void child_run(struct network *n, struct log *log)
{
	const struct session_store_options o = place_options();
	const struct session_validator validator = network_validator(n);
	uint64_t count[SESSION_RESULT_COUNT];
	struct session_store *s;

	if (session_store_open(&o, &s, NULL) != 0)
		_exit(1);
	if (session_store_found(s)->source != SESSION_SOURCE_NEW &&
	    session_store_adopt(s, &validator, 1, count, NULL) != 0)
		_exit(2);
	network_use(n, s);
	n->random = log->random;
	workload(n, log);
}

static void child_kill(struct network *n, struct log *log, uint64_t after)
{
	uint64_t goal = log->operations + after;
	int status;
	pid_t pid = fork();

	if (pid == 0)
		child_run(n, log);
	while (__atomic_load_n(&log->operations, __ATOMIC_ACQUIRE) < goal &&
	       waitpid(pid, &status, WNOHANG) == 0)
		nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* One record may have been in progress; all others must be as the log says. Updates the log. */
static unsigned log_compare(struct network *n, struct log *log)
{
	unsigned surprises = 0;

	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		struct session_table *t = session_store_table(n->store, (uint8_t)slot);
		for (uint32_t r = 0; r < RECORDS; r++) {
			const struct session *hot = session_at(t, r);
			bool live = hot->state != SESSION_FREE;
			if (live && log->live[slot][r]) {
				assert_memory_equal(hot, &log->hot[slot][r], sizeof(*hot));
				continue;
			}
			if (live == log->live[slot][r])
				continue;
			surprises++;
			if (live)
				assert_int_equal(log->operation, INSERTING);
			else
				assert_true(log->operation == REMOVING && log->slot == slot &&
				            log->record == r);
			log->live[slot][r] = live;
			log->hot[slot][r] = *hot;
		}
	}
	assert_true(surprises <= 1);
	log->operation = NONE;
	return surprises;
}

static void a_kill_ends_at_most_what_was_under_way(void **state)
{
	struct log *log =
	        mmap(NULL, sizeof(*log), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t seed = 1, kept = 0, torn = 0, surprises = 0;
	struct network n;

	assert_ptr_not_equal(log, MAP_FAILED);
	network_init(&n, 4, PLACE_SESSIONS, 1);
	for (unsigned kill = 0; kill < KILLS; kill++) {
		uint64_t count[SESSION_RESULT_COUNT];
		child_kill(&n, log, random_next(&seed) % 4000);
		network_use(&n, place_open());
		if (session_store_found(n.store)->source == SESSION_SOURCE_NEW) {
			session_store_close(n.store); /* killed before the file existed */
			continue;
		}
		place_adopt(n.store, &n, 1, count);
		for (unsigned v = 0; v < SESSION_RESULT_COUNT; v++)
			assert_true(count[v] == 0 || v == SESSION_KEPT || v == SESSION_TORN);
		assert_true(count[SESSION_TORN] <= 1);
		assert_int_equal(place_check(&n), count[SESSION_KEPT]);
		surprises += log_compare(&n, log);
		kept += count[SESSION_KEPT];
		torn += count[SESSION_TORN];
		session_store_close(n.store);
	}
	assert_true(kept > KILLS * 100);
	print_message("%lu sessions kept in %d adoptions; %lu torn, %lu not yet in the log\n", kept,
	              KILLS, torn, surprises);
	munmap(log, sizeof(*log));
	network_free(&n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_teardown(a_kill_ends_at_most_what_was_under_way, position_clear),
	};
	return cmocka_run_group_tests(tests, place_make, place_unmake);
}

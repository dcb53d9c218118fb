// SPDX-License-Identifier: Apache-2.0
/* Adoption against a plain model: the expected result of each record is computed from the file's
 * bytes, record by record, with plain loops. */
#include <signal.h>
#include <sys/wait.h>

#include "session_place.h"

#define SECOND UINT64_C(1000000000)

/* The time that tests set; 0: the real clock. */
static uint64_t clock_ns;

uint64_t __real_sy_clock_ns(void);
uint64_t __wrap_sy_clock_ns(void);

uint64_t __wrap_sy_clock_ns(void)
{
	return clock_ns ? clock_ns : __real_sy_clock_ns();
}

/* ---- the model ------------------------------------------------------------------------------- */

struct file {
	uint8_t *bytes;
	size_t size;
	const struct session_file *header;
	uint32_t records;
};

static struct file file_load(void)
{
	struct file f;
	f.bytes = place_read("", &f.size);
	f.header = (const struct session_file *)f.bytes;
	f.records = f.header->slot.records;
	return f;
}

static struct session *file_hot(const struct file *f, unsigned slot, uint32_t record)
{
	uint8_t *region = session_slot_region(f->header, (uint8_t)slot);
	return (struct session *)(region + f->header->slot.hot_at) + record;
}

static struct session_cold *file_cold(const struct file *f, unsigned slot, uint32_t record)
{
	uint8_t *region = session_slot_region(f->header, (uint8_t)slot);
	return (struct session_cold *)(region + f->header->slot.cold_at) + record;
}

/* SESSION_RESULT_COUNT: no record. */
static unsigned result_of(const struct file *f, const struct network *n, unsigned slot,
                          uint32_t record, const uint8_t *results, uint32_t away_s)
{
	static const struct session nothing;
	const struct session *hot = file_hot(f, slot, record);
	uint16_t commit = file_cold(f, slot, record)->commit;

	struct session rest = *hot;
	rest.seen = 0; /* another worker may have updated it as the session ended */
	if (commit == 0 && memcmp(&rest, &nothing, sizeof(nothing)) == 0)
		return SESSION_RESULT_COUNT;
	if (hot->state == SESSION_PAIR_RECORD) /* no session: there are no pairs here */
		return SESSION_RESULT_COUNT;
	if (commit != session_check(hot) || hot->state == 0 || hot->state >= SESSION_STATES)
		return SESSION_TORN;
	if (sy_slot_of(&hot->client, hot->client_port) != slot)
		return SESSION_MISPLACED;
	if (hot->server >= f->header->servers)
		return SESSION_UNKNOWN_ID;
	if (hot->server >= n->server_count || hot->server < n->servers_gone)
		return SESSION_SERVER_GONE;
	if (hot->local >= n->local_count || hot->local < n->locals_gone)
		return SESSION_LOCAL_GONE;
	uint32_t idle = (uint16_t)(f->header->alive_ns / SECOND - hot->seen);
	if (n->timeout_s && (idle > UINT16_MAX - 60 ? 0 : idle) + away_s > n->timeout_s)
		return SESSION_EXPIRED;
	if (sy_slot_of(&n->locals[hot->local], hot->local_port) != slot)
		return SESSION_MISPLACED;
	for (uint32_t r = 0; r < record; r++) {
		const struct session *other = file_hot(f, slot, r);
		if (results[r] != SESSION_KEPT)
			continue;
		if ((other->client_port == hot->client_port &&
		     sy_addr_equal(&other->client, &hot->client)) ||
		    (other->local_port == hot->local_port && other->local == hot->local &&
		     other->server == hot->server))
			return SESSION_DUPLICATE;
	}
	return SESSION_KEPT;
}

/* The expected result of each record, slot by slot; free() it. */
static uint8_t *model_validate(const struct file *f, const struct network *n, uint32_t away_s,
                               uint64_t count[SESSION_RESULT_COUNT + 1])
{
	uint8_t *results = malloc((size_t)SY_SLOTS * f->records);

	memset(count, 0, (SESSION_RESULT_COUNT + 1) * sizeof(*count));
	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		for (uint32_t r = 0; r < f->records; r++) {
			uint8_t *of_slot = results + (size_t)slot * f->records;
			of_slot[r] = (uint8_t)result_of(f, n, slot, r, of_slot, away_s);
			count[of_slot[r]]++;
		}
	return results;
}

static void counts_are(const uint64_t *count, const uint64_t *expected)
{
	for (unsigned v = 0; v < SESSION_RESULT_COUNT; v++)
		if (count[v] != expected[v])
			fail_msg("%s: %lu instead of %lu", session_result_name(v), count[v],
			         expected[v]);
}

/* The adopted tables hold what the model keeps, and nothing else. */
static void tables_are(const struct network *n, const struct file *f, const uint8_t *results)
{
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		const struct session_table *t = session_store_table(n->store, (uint8_t)slot);
		uint32_t top = 0;
		for (uint32_t r = 0; r < f->records; r++) {
			const struct session *was = file_hot(f, slot, r);
			bool kept = results[(size_t)slot * f->records + r] == SESSION_KEPT;
			assert_int_equal(session_at(t, r)->state != SESSION_FREE, kept);
			assert_int_equal(session_cold_at(t, r)->commit != 0, kept);
			if (!kept)
				continue;
			top = r + 1;
			assert_memory_equal(session_at(t, r), was, offsetof(struct session, path));
			assert_int_equal(session_at(t, r)->state, was->state);
			assert_memory_equal(session_cold_at(t, r), file_cold(f, slot, r),
			                    sizeof(struct session_cold));
		}
		assert_int_equal(t->top, top);
		assert_int_equal(t->sweep_at, 0);
	}
}

/* ---- damage ---------------------------------------------------------------------------------- */

/* Copies another record's halves, with a client of this slot or unchanged. */
static void damage_copy(struct network *n, struct file *f, unsigned from_slot, uint32_t from,
                        unsigned slot, uint32_t record, bool other_client)
{
	struct session *hot = file_hot(f, slot, record);
	struct session_cold *cold = file_cold(f, slot, record);

	*hot = *file_hot(f, from_slot, from);
	*cold = *file_cold(f, from_slot, from);
	while (other_client) {
		hot->client.w[3] = (uint32_t)network_random(n);
		other_client = sy_slot_of(&hot->client, hot->client_port) != slot;
	}
	if (cold->commit != 0)
		cold->commit = session_check(hot);
}

static void damage_one(struct network *n, struct file *f)
{
	unsigned slot = (unsigned)(network_random(n) % SY_SLOTS);
	uint32_t record = (uint32_t)(network_random(n) % f->records);
	uint32_t other = (uint32_t)(network_random(n) % f->records);
	struct session *hot = file_hot(f, slot, record);
	struct session_cold *cold = file_cold(f, slot, record);
	uint8_t *region = session_slot_region(f->header, (uint8_t)slot);

	switch (network_random(n) % 12) {
	case 0: /* an insertion or a removal in progress */
		cold->commit = 0;
		break;
	case 1:
		cold->commit ^= (uint16_t)(1 << network_random(n) % 16);
		break;
	case 2:
		((uint8_t *)hot)[network_random(n) % sizeof(*hot)] ^=
		        (uint8_t)(1 + network_random(n) % 255);
		break;
	case 3:
		hot->state = (uint8_t)network_random(n);
		break;
	case 4:
		memset(hot, 0, sizeof(*hot));
		break;
	case 5:
		damage_copy(n, f, slot, other, slot, record, false);
		break;
	case 6:
		damage_copy(n, f, slot, other, slot, record, true);
		break;
	case 7:
		damage_copy(n, f, (slot + 1) % SY_SLOTS, other, slot, record, false);
		break;
	case 8: /* a whole record, with an id that may have no name */
		hot->server = network_random(n) % (2 * PLACE_SERVERS);
		cold->commit = session_check(hot);
		break;
	case 9: /* a whole record, with a port of another slot */
		hot->local_port ^= (uint16_t)network_random(n);
		cold->commit = session_check(hot);
		break;
	case 10: /* adoption ignores the index */
		for (size_t at = f->header->slot.buckets_at; at < f->header->slot.hot_at; at++)
			region[at] = (uint8_t)network_random(n);
		break;
	case 11: /* adoption ignores links */
		if (cold->commit == 0)
			cold->free_next = cold->free_prev = (uint32_t)network_random(n);
		break;
	}
}

/* Fills a quarter of the tables, so that only damage keeps a session out. */
static void crashed_file_make(struct network *n, unsigned family, uint64_t seed)
{
	network_init(n, family, PLACE_SESSIONS, seed);
	n->server_count = PLACE_SERVERS / 2; /* as many as addresses, and fewer than names */
	n->seen = (uint16_t)(sy_clock_ns() / SECOND);
	network_use(n, place_open());
	place_fill(n, PLACE_SESSIONS / 4);
	session_store_close(n->store);
}

static void random_damage_ends_what_it_hits(void **state)
{
	uint64_t total[SESSION_RESULT_COUNT] = {0};

	for (unsigned round = 0; round < 60; round++) {
		uint64_t expected[SESSION_RESULT_COUNT + 1], count[SESSION_RESULT_COUNT];
		struct network n;

		crashed_file_make(&n, round % 2 ? 6 : 4, round + 1);
		struct file f = file_load();
		for (unsigned i = 0; i < 40 * round; i++)
			damage_one(&n, &f);
		n.servers_gone = round % 3;
		n.locals_gone = round % 5 / 4;
		place_write("", f.bytes, f.size);
		uint8_t *results = model_validate(&f, &n, 0, expected);
		network_use(&n, place_open());
		assert_int_equal(session_store_found(n.store)->source, SESSION_SOURCE_CRASHED);
		place_adopt(n.store, &n, 1 + round % 3, count);
		counts_are(count, expected);
		for (unsigned v = 0; v < SESSION_RESULT_COUNT; v++)
			total[v] += count[v];
		tables_are(&n, &f, results);
		assert_int_equal(place_check(&n), expected[SESSION_KEPT]);
		free(f.bytes);

		/* again: no session is left to end, and only the kept ones live */
		session_store_close(n.store);
		f = file_load();
		network_use(&n, place_open());
		place_adopt(n.store, &n, 1, count);
		for (unsigned v = 0; v < SESSION_RESULT_COUNT; v++)
			assert_int_equal(count[v], v == SESSION_KEPT ? expected[v] : 0);
		tables_are(&n, &f, results);
		/* adopted sessions keep their ports: new ones get others */
		n.servers_gone = n.locals_gone = 0;
		place_fill(&n, 300);
		assert_int_equal(place_check(&n), expected[SESSION_KEPT] + 300);
		session_store_discard(n.store);
		free(f.bytes);
		free(results);
		network_free(&n);
	}
	/* each result of damage occurred often enough */
	for (unsigned v = 0; v < SESSION_RESULT_COUNT; v++)
		assert_true(total[v] > 100 || v == SESSION_EXPIRED || v == SESSION_NO_ROOM);
}

/* ---- killed while adopting ------------------------------------------------------------------- */

static struct session_validator killer_inner;
static uint64_t killer_left;

static enum session_result killer_validate(void *ctx, uint8_t slot, struct session *hot,
                                           const struct session_cold *cold, uint32_t idle_s,
                                           struct sy_tuple *client, struct sy_tuple *server)
{
	if (killer_left-- == 0)
		kill(getpid(), SIGKILL);
	return killer_inner.validate(ctx, slot, hot, cold, idle_s, client, server);
}

/* In a child process: opens and adopts until `records` are validated. */
static void adopt_killed(const struct session_store_options *o, const struct network *n,
                         uint64_t records)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		uint64_t count[SESSION_RESULT_COUNT];
		struct session_store *s;
		killer_inner = network_validator(n);
		killer_left = records;
		struct session_validator validator = {killer_inner.ctx, killer_validate,
		                                      killer_inner.same};
		if (session_store_open(o, &s, NULL) == 0)
			session_store_adopt(s, &validator, 1, count, NULL);
		_exit(1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* All damage first, then adoptions killed at ever later records, into tables of the same or another
 * size; then one that finishes. */
static void a_crash_while_adopting_costs_nothing(void **state)
{
	for (unsigned round = 0; round < 8; round++) {
		uint64_t expected[SESSION_RESULT_COUNT + 1], count[SESSION_RESULT_COUNT];
		struct network n;

		crashed_file_make(&n, 4, 100 + round);
		struct file f = file_load();
		for (unsigned i = 0; i < 300; i++)
			damage_one(&n, &f);
		place_write("", f.bytes, f.size);
		n.servers_gone = 1;
		uint8_t *results = model_validate(&f, &n, 0, expected);
		struct session_store_options same = place_options(), larger = same;
		larger.sessions *= 2;
		for (uint64_t records = 0; records < 600; records += 75) {
			adopt_killed(&larger, &n, records);
			assert_true(place_has(".next"));
			if (round % 2)
				adopt_killed(&same, &n, records);
		}
		network_use(&n, place_open());
		assert_false(place_has(".next"));
		place_adopt(n.store, &n, 2, count);
		assert_int_equal(count[SESSION_KEPT], expected[SESSION_KEPT]);
		if (round % 2 == 0)
			counts_are(count, expected);
		tables_are(&n, &f, results);
		assert_int_equal(place_check(&n), expected[SESSION_KEPT]);
		session_store_discard(n.store);
		free(f.bytes);
		free(results);
		network_free(&n);
	}
}

/* ---- time ------------------------------------------------------------------------------------ */

static uint64_t kept_after(uint16_t idle, uint64_t away_s, uint32_t timeout_s)
{
	uint64_t count[SESSION_RESULT_COUNT];
	struct network n;

	clock_ns = 1000000 * SECOND + SECOND / 3;
	network_init(&n, 4, PLACE_SESSIONS, 5);
	n.seen = (uint16_t)(clock_ns / SECOND - idle);
	n.timeout_s = timeout_s;
	network_use(&n, place_open());
	place_fill(&n, 50);
	session_store_close(n.store);
	clock_ns += away_s * SECOND;
	network_use(&n, place_open());
	/* a process killed before it adopts does not shorten the time away */
	session_store_alive(n.store);
	session_store_close(n.store);
	network_use(&n, place_open());
	place_adopt(n.store, &n, 1, count);
	assert_int_equal(count[SESSION_KEPT] + count[SESSION_EXPIRED], 50);
	uint32_t record = 0;
	for (unsigned slot = 0; slot < SY_SLOTS; slot++, record = 0) {
		const struct session_table *t = session_store_table(n.store, (uint8_t)slot);
		if ((record = session_next(t, &record)) != SESSION_NONE)
			assert_int_equal(session_at(t, record)->seen, n.seen);
	}
	session_store_discard(n.store);
	network_free(&n);
	clock_ns = 0;
	return count[SESSION_KEPT];
}

static void the_time_away_counts(void **state)
{
	assert_int_equal(kept_after(0, 0, 10), 50);
	assert_int_equal(kept_after(10, 0, 10), 50);
	assert_int_equal(kept_after(11, 0, 10), 0);
	assert_int_equal(kept_after(4, 6, 10), 50);
	assert_int_equal(kept_after(4, 7, 10), 0);
	/* beyond what a tick can represent */
	assert_int_equal(kept_after(4, 65536, 10), 0);
	assert_int_equal(kept_after(0, 65535, 30000), 0);
	assert_int_equal(kept_after(0, 3 * 65536 + 5, 30000), 0);
	assert_int_equal(kept_after(20000, 10000, 30000), 50);
	assert_int_equal(kept_after(20000, 10001, 30000), 0);
	/* used after its process was last seen alive */
	assert_int_equal(kept_after((uint16_t)-1, 0, 10), 50);
	assert_int_equal(kept_after((uint16_t)-50, 10, 10), 50);
	assert_int_equal(kept_after((uint16_t)-50, 11, 10), 0);
}

/* ---- names of results ------------------------------------------------------------------------ */

static void results_have_names(void **state)
{
	for (unsigned v = 0; v < SESSION_RESULT_COUNT; v++) {
		assert_true(strlen(session_result_name(v)) > 3);
		assert_true(strlen(session_result_help(v)) > 3);
	}
	assert_string_equal(session_result_name(SESSION_NO_ROOM), "no-room");
	assert_string_equal(session_result_name(SESSION_RESULT_COUNT), "?");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, position_clear)
	const struct CMUnitTest tests[] = {
	        TEST(random_damage_ends_what_it_hits),
	        TEST(a_crash_while_adopting_costs_nothing),
	        TEST(the_time_away_counts),
	        TEST(results_have_names),
	};
	return cmocka_run_group_tests(tests, place_make, place_unmake);
}

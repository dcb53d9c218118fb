// SPDX-License-Identifier: Apache-2.0
/* Steps of the application, and expectations. */
#include "play.h"

/* ---- the application ------------------------------------------------------------------------- */

static void do_listen(struct play *p, char *words)
{
	unsigned backlog = 16;

	sscanf(words, "backlog %u", &backlog);
	WANT(p, sy_stack_listen(p->s, &p->local, backlog, 7, &p->listener) == 0);
}

static void do_connect(struct play *p, char *words)
{
	p->local.port = 0;
	WANT(p, sy_stack_connect(p->s, &p->local, &p->peer, 9, p->now, &p->c) == 0);
}

static void do_accept(struct play *p, char *words)
{
	struct sy_stack_endpoint peer;

	WANT(p, sy_stack_accept(p->s, p->listener, 9, &peer, &p->c) == 0);
	WANT(p, sy_addr_equal(&peer.addr, &p->peer.addr));
}

static void do_refused(struct play *p, char *words)
{
	sy_stack_id id;
	WANT(p, sy_stack_accept(p->s, p->listener, 9, NULL, &id) == -EAGAIN);
}

static void one_write(struct play *p, const char *words)
{
	uint32_t len = (uint32_t)strtoul(words, NULL, 0);
	int flags = strstr(words, "more") ? SY_STACK_MORE : strstr(words, "oob") ? SY_STACK_OOB : 0;
	uint8_t *bytes = malloc(len + 1);

	for (uint32_t i = 0; i < len; i++)
		bytes[i] = script_byte(1 + p->written + i);
	int64_t done = sy_stack_send(p->s, p->c, bytes, len, flags, p->now);
	free(bytes);
	if (done != len)
		FAIL(p, "send() says %ld", (long)done);
	p->written += len;
	if (strstr(words, "fin"))
		WANT(p, sy_stack_shutdown(p->s, p->c, p->now) == 0);
	if (strstr(words, "cork"))
		WANT(p, sy_stack_set(p->s, p->c, SY_STACK_CORK, 1, p->now) == 0);
}

static void do_write(struct play *p, char *words)
{
	const char then[] = " then ";

	for (char *next; (next = strstr(words, then)) != NULL; words = next + strlen(then)) {
		*next = '\0';
		one_write(p, words);
	}
	one_write(p, words);
}

static void do_full(struct play *p, char *words)
{
	WANT(p, sy_stack_send(p->s, p->c, "x", 1, 0, p->now) == -EAGAIN);
}

static void do_broken(struct play *p, char *words)
{
	int64_t rc = sy_stack_send(p->s, p->c, "x", 1, 0, p->now);
	if (rc != -(int64_t)strtoul(words, NULL, 0))
		FAIL(p, "send() says %ld", (long)rc);
}

static void do_read(struct play *p, char *words)
{
	uint32_t len = (uint32_t)strtoul(words, NULL, 0);
	uint8_t *bytes = malloc(len + 1);
	int64_t done = sy_stack_receive_bytes(p->s, p->c, bytes, len, p->now);

	if (done != len)
		FAIL(p, "receive() says %ld", (long)done);
	for (uint32_t i = 0; i < len; i++)
		if (bytes[i] != script_byte(1 + p->read + i))
			FAIL(p, "byte %u is wrong", p->read + i);
	p->read += len;
	free(bytes);
}

/* A short read: up to the urgent byte. */
static void do_part(struct play *p, char *words)
{
	uint8_t bytes[64];
	const void *first;
	long len = strtol(words, NULL, 0);

	WANT(p, sy_stack_peek(p->s, p->c, &first) == len);
	WANT(p, sy_stack_receive_bytes(p->s, p->c, bytes, sizeof(bytes), p->now) == len);
	p->read += (uint32_t)len;
}

static void do_mark(struct play *p, char *words)
{
	WANT(p, sy_stack_at_mark(p->s, p->c) == strtol(words, NULL, 0));
}

static void do_eof(struct play *p, char *words)
{
	uint8_t byte;
	WANT(p, sy_stack_receive_bytes(p->s, p->c, &byte, 1, p->now) == 0);
}

static void do_empty(struct play *p, char *words)
{
	uint8_t byte;
	WANT(p, sy_stack_receive_bytes(p->s, p->c, &byte, 1, p->now) == -EAGAIN);
}

static void do_shutdown(struct play *p, char *words)
{
	WANT(p, sy_stack_shutdown(p->s, p->c, p->now) == 0);
}

static void do_close(struct play *p, char *words)
{
	WANT(p, sy_stack_close(p->s, p->c, p->now) == 0);
}

static void do_unlisten(struct play *p, char *words)
{
	WANT(p, sy_stack_close(p->s, p->listener, p->now) == 0);
}

static void do_abort(struct play *p, char *words)
{
	WANT(p, sy_stack_abort(p->s, p->c, p->now) == 0);
}

static void do_set(struct play *p, char *words)
{
	static const char *const name[] = {
	        [SY_STACK_NO_DELAY] = "nodelay",
	        [SY_STACK_CORK] = "cork",
	        [SY_STACK_QUICK_ACK] = "quickack",
	        [SY_STACK_KEEPALIVE_S] = "keepalive",
	        [SY_STACK_KEEPALIVE_INTERVAL_S] = "interval",
	        [SY_STACK_KEEPALIVE_PROBES] = "probes",
	        [SY_STACK_USER_TIMEOUT_MS] = "timeout",
	        [SY_STACK_LINGER_ABORT] = "linger",
	        [SY_STACK_SEND_BYTES] = "send",
	        [SY_STACK_RECEIVE_BYTES] = "receive",
	        [SY_STACK_TOS] = "tos",
	        [SY_STACK_MSS] = "mss",
	        [SY_STACK_PACING] = "pacing",
	        [SY_STACK_PACING_RATE] = "rate",
	        [SY_STACK_PRIORITY] = "priority",
	};
	char word[16];
	unsigned value;

	WANT(p, sscanf(words, "%15s %u", word, &value) == 2);
	for (unsigned i = 0; i < SY_ARRAY_LEN(name); i++) {
		if (strcmp(name[i], word) != 0)
			continue;
		WANT(p, sy_stack_set(p->s, p->c ? p->c : p->listener, (enum sy_stack_option)i,
		                     value, p->now) == 0);
		return;
	}
	FAIL(p, "no such option");
}

/* ---- what is so ------------------------------------------------------------------------------ */

static void do_state(struct play *p, char *words)
{
	struct sy_stack_info info;

	WANT(p, sy_stack_info(p->s, p->c, &info) == 0);
	if (strcmp(sy_stack_state_name(info.state), words) != 0)
		FAIL(p, "the state is %s", sy_stack_state_name(info.state));
}

/* A new connection of the same peer: forget its numbers. */
static void do_anew(struct play *p, char *words)
{
	memset(p->ours_known, 0, sizeof(p->ours_known));
	p->written = p->read = 0;
}

static bool expects(struct play *p, const char *words)
{
	const struct sy_tuple t = {p->peer.addr, p->local.addr, p->peer.port, p->local.port,
	                           SY_PROTO_TCP};

	return sy_stack_expects_ack(p->s, &t, p->ours[0] + (uint32_t)atoi(words));
}

static void do_expects(struct play *p, char *words)
{
	WANT(p, expects(p, words));
}

static void do_alien(struct play *p, char *words)
{
	WANT(p, !expects(p, words));
}

static void do_gone(struct play *p, char *words)
{
	struct sy_stack_usage usage;

	sy_stack_usage(p->s, &usage);
	if (usage.connections != strtoul(words, NULL, 0))
		FAIL(p, "the stack has %u connections", usage.connections);
	WANT(p, usage.connections > 0 ||
	                (usage.send_bytes == 0 && usage.receive_bytes == 0 && usage.ranges == 0));
}

static void do_took(struct play *p, char *words)
{
	struct sy_stack_usage usage;

	sy_stack_usage(p->s, &usage);
	WANT(p, usage.orphans_taken == strtoul(words, NULL, 0));
}

static void do_event(struct play *p, char *words)
{
	static const char *const name[] = {"readable", "writable", "done",
	                                   "hangup",   "error",    "urgent"};
	struct sy_stack_event e;
	uint32_t want = 0;

	for (unsigned i = 0; i < SY_ARRAY_LEN(name); i++)
		want |= strstr(words, name[i]) ? 1u << i : 0;
	WANT(p, sy_stack_events(p->s, &e, 1) == 1);
	if (e.what != want)
		FAIL(p, "the event says %#x", e.what);
}

static void do_no(struct play *p, char *words)
{
	struct sy_stack_event e;
	WANT(p, sy_stack_events(p->s, &e, 1) == 0);
}

static void do_failed(struct play *p, char *words)
{
	int error = sy_stack_error(p->s, p->c);

	if (error != (int)strtoul(words, NULL, 0))
		FAIL(p, "the error is %d", error);
}

/* NAME N, or NAME MIN MAX. */
static bool range_read(const char *words, char word[32], unsigned *min, unsigned *max)
{
	int read = sscanf(words, "%31s %u %u", word, min, max);

	if (read == 2)
		*max = *min;
	return read >= 2;
}

static void do_count(struct play *p, char *words)
{
	const struct sy_stack_counters *counters = sy_stack_counters(p->s);
	char word[32];
	unsigned value, max;

	WANT(p, range_read(words, word, &value, &max));
#define X(name, help)                                                                              \
	if (strcmp(word, #name) == 0) {                                                            \
		if (counters->name < value || counters->name > max)                                \
			FAIL(p, "it is %lu", (unsigned long)counters->name);                       \
		return;                                                                            \
	}
	SY_STACK_COUNTERS(X)
#undef X
	FAIL(p, "no such counter");
}

static void do_info(struct play *p, char *words)
{
	struct sy_stack_info info;
	char word[32];
	unsigned value, max;

	WANT(p, range_read(words, word, &value, &max));
	WANT(p, sy_stack_info(p->s, p->c, &info) == 0);
	uint32_t got = strcmp(word, "cwnd") == 0       ? info.window
	               : strcmp(word, "ssthresh") == 0 ? info.threshold
	               : strcmp(word, "mss") == 0      ? info.mss
	               : strcmp(word, "rto") == 0      ? info.rto_ms
	               : strcmp(word, "flight") == 0   ? info.in_flight
	               : strcmp(word, "unsent") == 0   ? info.unsent
	               : strcmp(word, "wnd") == 0      ? info.peer_window
	                                               : UINT32_MAX;
	if (got < value || got > max)
		FAIL(p, "it is %u", got);
}

static void do_scarce(struct play *p, char *words)
{
	unsigned left = (unsigned)strtoul(words, NULL, 0);

	rte_pktmbuf_free_bulk(p->taken, p->taken_count);
	free(p->taken);
	p->taken_count = left ? rte_mempool_avail_count(p->pool) - left : 0;
	p->taken = calloc(p->taken_count + 1, sizeof(*p->taken));
	WANT(p,
	     p->taken_count == 0 || rte_pktmbuf_alloc_bulk(p->pool, p->taken, p->taken_count) == 0);
}

static void do_held(struct play *p, char *words)
{
	unsigned held = p->packets - rte_mempool_avail_count(p->pool) - p->taken_count;

	if (held != strtoul(words, NULL, 0))
		FAIL(p, "%u are held", held);
}

static void do_client(struct play *p, char *words)
{
	struct sy_stack_endpoint client = {0};
	int rc = sy_stack_client(p->s, p->c, &client);

	WANT(p, rc == 0 || rc == -ENOENT);
	WANT(p, rc || sy_addr_equal(&client.addr, &p->peer.addr));
	if (ntohs(client.port) != strtoul(words, NULL, 0))
		FAIL(p, "it is %u", ntohs(client.port));
}

/* ---- all ------------------------------------------------------------------------------------- */

static const struct {
	const char *word;
	void (*act)(struct play *p, char *words);
} steps[] = {
        {"listen", do_listen}, {"connect", do_connect},
        {"accept", do_accept}, {"refused", do_refused},
        {"write", do_write},   {"full", do_full},
        {"read", do_read},     {"eof", do_eof},
        {"empty", do_empty},   {"shutdown", do_shutdown},
        {"close", do_close},   {"unlisten", do_unlisten},
        {"abort", do_abort},   {"set", do_set},
        {"state", do_state},   {"gone", do_gone},
        {"anew", do_anew},     {"event", do_event},
        {"no", do_no},         {"failed", do_failed},
        {"count", do_count},   {"info", do_info},
        {"broken", do_broken}, {"scarce", do_scarce},
        {"held", do_held},     {"part", do_part},
        {"mark", do_mark},     {"expects", do_expects},
        {"alien", do_alien},   {"client", do_client},
        {"took", do_took},     {"rounds", do_rounds},
        {"lost", do_lost},     {"gaps", do_gaps},
        {"keep", do_keep},     {"apart", do_apart},
        {"unlike", do_unlike}, {"reboot", do_reboot},
        {"retire", do_retire}, {"export", do_export},
        {"stays", do_stays},   {"forget", do_forget},
};

bool step_play(struct play *p, const char *step, char *words)
{
	for (unsigned i = 0; i < SY_ARRAY_LEN(steps); i++) {
		if (strcmp(steps[i].word, step) == 0) {
			steps[i].act(p, words);
			return true;
		}
	}
	return false;
}

// SPDX-License-Identifier: Apache-2.0
#include "priority_worker.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>

#include "cores.h"
#include "darc.h"

#define BACKLOG     4096
#define DARC_WINDOW 1000
#define LNS_BAND    6  /* SO_PRIORITY of all connections: responses are sent in FIFO order */
#define WAIT_MS     20 /* max. sleep, in which an order is not noticed */

struct peer {
	struct raw_reader reader;
	uint32_t got; /* of the request, after its header */
	bool used;
};

struct worker {
	struct sy_tcp_library *library;
	struct sy_tcp_context *c;
	unsigned port;
	struct sy_tcp_queue *queue;
	int epoll, listener;
	bool ready, stop; /* writers: the thread; others. Relaxed */

	/* An order of another thread, under the lock; this thread resets it. */
	pthread_mutex_t lock;
	pthread_cond_t done;
	const struct setting *set;
	struct serve_counts *report;
	int set_rc;

	struct setting setting;
	int band;          /* SO_PRIORITY of connections; 0: by their levels */
	struct darc *darc; /* NULL: not in this setting */
	struct serve_counts counts;
	struct peer peer[WORKER_CONNECTIONS]; /* by descriptor */
};

/* ---- connections ----------------------------------------------------------------------------- */

static void peer_end(struct worker *w, int fd)
{
	sy_tcp_close_fd(w->c, fd);
	w->peer[fd].used = false;
	w->counts.closed++;
}

static void peer_band(struct worker *w, int fd)
{
	sy_tcp_setsockopt(w->c, fd, SOL_SOCKET, SO_PRIORITY, &w->band, sizeof(w->band));
}

static void peers_accept(struct worker *w)
{
	int fd, one = 1;

	while ((fd = sy_tcp_accept(w->c, w->listener, NULL, NULL)) >= 0) {
		struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
		sy_tcp_setsockopt(w->c, fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		if ((unsigned)fd >= WORKER_CONNECTIONS ||
		    sy_tcp_epoll_ctl(w->c, w->epoll, EPOLL_CTL_ADD, fd, &e)) {
			sy_tcp_close_fd(w->c, fd);
			continue;
		}
		peer_band(w, fd);
		w->peer[fd] = (struct peer){.used = true};
		w->counts.accepted++;
	}
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Reads up to the end of a request. Returns 1 if it is complete, 0 if not, or a negative errno:
 * -EPIPE at EOF. */
static int request_read(struct worker *w, int fd, struct request *r)
{
	struct peer *p = &w->peer[fd];

	for (;;) {
		enum raw_got got = RAW_MORE;
		struct iovec v;
		bool body = p->reader.have == RAW_HEADER;
		ssize_t len = sy_tcp_receive_look(w->c, fd, &v, 1);
		if (len <= 0)
			return len == -EAGAIN ? 0 : len == 0 ? -EPIPE : (int)len;
		int64_t taken =
		        raw_take(&p->reader, RAW_REQUEST, v.iov_base, v.iov_len, &r->header, &got);
		if (taken < 0 || (body && !pattern_is(v.iov_base, (size_t)taken, p->got)))
			return -EPROTO;
		p->got += body ? (uint32_t)taken : 0;
		sy_tcp_receive_done(w->c, fd, (size_t)taken);
		if (got != RAW_MESSAGE_DONE)
			continue;
		raw_read(p->reader.header, &r->header);
		p->got = 0;
		r->read_ns = serve_clock();
		return 1;
	}
}

static int request_serve(struct worker *w, int fd, const struct request *r)
{
	uint8_t answer[SERVE_ANSWER];
	size_t len = serve_request(w->counts.class, r, answer);

	if (len == 0 || sy_tcp_send(w->c, fd, answer, len, 0) != (ssize_t)len)
		return -EPROTO; /* the buffer holds a response, as only one is in progress */
	return 0;
}

/* Serves one complete request, then lets the stack run. */
static void peer_serve(struct worker *w, int fd)
{
	struct request r = {0};
	int rc = request_read(w, fd, &r);

	if (rc > 0 && w->setting.transport != TRANSPORT_NONE) {
		const struct note *n = sy_tcp_own(w->c, fd);
		r.tcp_ns = n ? n->tcp_ns : 0;
	}
	rc = rc > 0 ? request_serve(w, fd, &r) : rc;
	if (rc == 0)
		return;
	w->counts.bad += rc == -EPROTO;
	peer_end(w, fd);
}

/* ---- the dispatcher behind TCP --------------------------------------------------------------- */

/* As in the paper (bench/run_priority.py): urgent requests first, regardless of service time. */
static const uint8_t darc_level[TYPES_MAX] = {6, [RULE_URGENT_TYPE] = 0, [2 ... TYPES_MAX - 1] = 6};

static unsigned type_of(const struct iovec *v, int count)
{
	return count > 0 && request_begins(v[0].iov_base, v[0].iov_len)
	               ? request_type(v[0].iov_base)
	               : TYPES_MAX;
}

/* This thread is its only worker: serves one request, then lets TCP run. */
static bool darc_serve(struct worker *w)
{
	struct sy_tcp_request *t = w->darc ? darc_take(w->darc, 0) : NULL;

	if (!t)
		return false;
	serve_lent(&w->counts, t);
	darc_served(w->darc, 0);
	return true;
}

static int darc_begin(struct worker *w)
{
	const struct darc_setup o = {.workers = 1,
	                             .types = TYPES_MAX,
	                             .window = DARC_WINDOW,
	                             .type_of = type_of,
	                             .level = darc_level};
	int rc = darc_open(&o, &w->darc);

	return rc ? rc : sy_tcp_epoll_lend(w->c, w->epoll, SY_TCP_LEVELS, darc_queue(w->darc));
}

static void darc_end(struct worker *w)
{
	sy_tcp_epoll_lend(w->c, w->epoll, SY_TCP_LEVELS, NULL);
	darc_close(w->darc);
	w->darc = NULL;
}

/* ---- orders ---------------------------------------------------------------------------------- */

/* Runs exactly the hooks of the setting. none: no hooks. lns: packet hooks only. */
static int hooks_set(struct worker *w, const struct setting *s, bool packets, bool segments)
{
	int packet = sy_tcp_hook_packet(w->c, "rule-packet", rule_packet);
	int segment = sy_tcp_hook_segment(
	        w->c, "rule-segment", s->transport == TRANSPORT_NOTES ? rule_note : rule_segment);
	int rc = packet < 0 ? packet : segment < 0 ? segment : 0;

	rc = rc ? rc : sy_tcp_hook_use(w->c, SY_TCP_PACKETS, packets && s->driver ? packet : 0);
	return rc ? rc
	          : sy_tcp_hook_use(w->c, SY_TCP_SEGMENTS,
	                            segments && s->transport != TRANSPORT_NONE ? segment : 0);
}

static int setting_apply(struct worker *w, const struct setting *s)
{
	bool darc = !strcmp(s->schedule, "darc"), lns = !strcmp(s->schedule, "lns");
	bool none = !strcmp(s->schedule, "none"), ours = !strcmp(s->schedule, "ours");
	unsigned others = SY_TCP_LEVELS & ~1u;
	int rc;

	if (!none && !lns && !darc && !ours)
		return -EINVAL;
	if (s->aside && !w->queue)
		return -ENODEV;
	darc_end(w);
	rc = hooks_set(w, s, !none, !none && !lns);
	if (rc == 0 && darc)
		rc = darc_begin(w);
	else if (rc == 0 && s->aside && ours)
		rc = sy_tcp_epoll_lend(w->c, w->epoll, others, w->queue);
	if (rc)
		return rc;
	w->setting = *s;
	w->band = lns ? LNS_BAND : 0;
	for (unsigned fd = 0; fd < WORKER_CONNECTIONS; fd++)
		if (w->peer[fd].used)
			peer_band(w, (int)fd);
	return 0;
}

static void orders_take(struct worker *w)
{
	if (!__atomic_load_n(&w->set, __ATOMIC_ACQUIRE) &&
	    !__atomic_load_n(&w->report, __ATOMIC_ACQUIRE))
		return;
	pthread_mutex_lock(&w->lock);
	if (w->set)
		w->set_rc = setting_apply(w, w->set);
	if (w->report) {
		*w->report = w->counts;
		w->counts = (struct serve_counts){0};
	}
	w->set = NULL;
	w->report = NULL;
	pthread_cond_broadcast(&w->done);
	pthread_mutex_unlock(&w->lock);
}

int worker_set(struct worker *w, const struct setting *s)
{
	int rc;

	pthread_mutex_lock(&w->lock);
	__atomic_store_n(&w->set, s, __ATOMIC_RELEASE);
	while (w->set)
		pthread_cond_wait(&w->done, &w->lock);
	rc = w->set_rc;
	pthread_mutex_unlock(&w->lock);
	return rc;
}

void worker_counts(struct worker *w, struct serve_counts *out)
{
	pthread_mutex_lock(&w->lock);
	__atomic_store_n(&w->report, out, __ATOMIC_RELEASE);
	while (w->report)
		pthread_cond_wait(&w->done, &w->lock);
	pthread_mutex_unlock(&w->lock);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static int listen_all(struct worker *w)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)w->port)};
	struct epoll_event e = {.events = EPOLLIN};
	int rc;

	w->epoll = sy_tcp_epoll_create(w->c);
	w->listener = e.data.fd = sy_tcp_socket(w->c, AF_INET);
	if (w->epoll < 0 || w->listener < 0)
		return -EMFILE;
	rc = sy_tcp_bind(w->c, w->listener, (struct sockaddr *)&any, sizeof(any));
	rc = rc ? rc : sy_tcp_listen(w->c, w->listener, BACKLOG);
	return rc ? rc : sy_tcp_epoll_ctl(w->c, w->epoll, EPOLL_CTL_ADD, w->listener, &e);
}

static void serve(struct worker *w)
{
	struct epoll_event e[WORKER_FETCH];

	while (!__atomic_load_n(&w->stop, __ATOMIC_RELAXED)) {
		orders_take(w);
		/* The dispatcher classifies all available requests before one is served. */
		bool stays = darc_serve(w) || w->setting.awake;
		int count = sy_tcp_epoll_wait(w->c, w->epoll, e, (int)w->setting.fetch,
		                              stays ? 0 : WAIT_MS, NULL);
		for (int i = 0; i < count; i++) {
			if (e[i].data.fd == w->listener)
				peers_accept(w);
			else if (w->peer[e[i].data.fd].used)
				peer_serve(w, e[i].data.fd);
		}
	}
}

void *worker_main(void *arg)
{
	struct worker *w = arg;

	int rc = sy_tcp_enter(w->library, 0, &w->c);
	rc = rc ? rc : listen_all(w);
	if (rc) {
		fprintf(stderr, "steelyard-priority-server: %s\n", strerror(-rc));
		exit(1);
	}
	__atomic_store_n(&w->ready, true, __ATOMIC_RELEASE);
	serve(w);
	darc_end(w);
	sy_tcp_leave(w->c);
	return NULL;
}

struct worker *worker_new(struct sy_tcp_library *library, unsigned port, struct sy_tcp_queue *queue)
{
	struct worker *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->library = library;
	w->port = port;
	w->queue = queue;
	w->setting = (struct setting){.schedule = "none", .fetch = 1};
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->done, NULL);
	return w;
}

void worker_stop(struct worker *w)
{
	__atomic_store_n(&w->stop, true, __ATOMIC_RELAXED);
}

bool worker_is_ready(const struct worker *w)
{
	return __atomic_load_n(&w->ready, __ATOMIC_ACQUIRE);
}

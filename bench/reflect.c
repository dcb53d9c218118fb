// SPDX-License-Identifier: Apache-2.0
/*
 * steelyard-reflect: frames bounced between two AF_XDP sockets without processing. An upper bound:
 * no TCP stack on AF_XDP can echo faster over this pair of interfaces.
 *
 *     first core: resends received frames ══ second core: returns received frames
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <bpf/libbpf.h>
#include <xdp/libxdp.h>
#include <xdp/xsk.h>

#include <sy_base.h>

#include "bench_options.h"
#include "measure.h"

#define FRAMES 2048u
#define CHUNK  2048u
#define RING   (2 * FRAMES) /* completions arrive late */
#define BATCH  64u
#define ETHER  12 /* both addresses */

struct end {
	const char *interface;
	unsigned core;
	uint8_t *memory;
	struct xsk_umem *umem;
	struct xsk_socket *socket;
	struct xsk_ring_prod fill, tx;
	struct xsk_ring_cons completion, rx;
	uint64_t seen; /* frames; by its own thread, read by the main one */
};

static bool stop;

static void must(int rc, const char *what, const struct end *e)
{
	if (rc == 0)
		return;
	fprintf(stderr, "steelyard-reflect: %s: %s: %s\n", e->interface, what, strerror(-rc));
	exit(1);
}

static void end_open(struct end *e)
{
	const struct xsk_umem_config umem = {
	        .fill_size = RING, .comp_size = RING, .frame_size = CHUNK};
	const struct xsk_socket_config config = {
	        .rx_size = RING, .tx_size = RING, .bind_flags = XDP_COPY | XDP_USE_NEED_WAKEUP};
	int rc = 0;

	e->memory = mmap(NULL, FRAMES * CHUNK, PROT_READ | PROT_WRITE,
	                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	must(e->memory == MAP_FAILED ? -errno : 0, "memory", e);
	must(xsk_umem__create(&e->umem, e->memory, FRAMES * CHUNK, &e->fill, &e->completion, &umem),
	     "memory of its socket", e);
	/* The previous run's socket keeps the queue bound for a moment. */
	for (unsigned tries = 0; tries < 100; tries++) {
		rc = xsk_socket__create(&e->socket, e->interface, 0, e->umem, &e->rx, &e->tx,
		                        &config);
		if (rc != -EBUSY)
			break;
		poll(NULL, 0, 10);
	}
	must(rc, "socket", e);
}

static void fill_add(struct end *e, uint64_t address)
{
	uint32_t at;

	if (xsk_ring_prod__reserve(&e->fill, 1, &at) != 1)
		abort(); /* the ring exceeds the number of frames */
	*xsk_ring_prod__fill_addr(&e->fill, at) = address & ~(uint64_t)(CHUNK - 1);
	xsk_ring_prod__submit(&e->fill, 1);
}

/* Completed frames refill the receive ring. */
static void completions_take(struct end *e)
{
	uint32_t at, count = xsk_ring_cons__peek(&e->completion, BATCH, &at);

	for (uint32_t i = 0; i < count; i++)
		fill_add(e, *xsk_ring_cons__comp_addr(&e->completion, at + i));
	xsk_ring_cons__release(&e->completion, count);
}

/* The kernel accepts as many per call as it likes. */
static void kick(struct end *e)
{
	while (!stop && e->tx.cached_prod != __atomic_load_n(e->tx.consumer, __ATOMIC_ACQUIRE))
		if (sendto(xsk_socket__fd(e->socket), NULL, 0, MSG_DONTWAIT, NULL, 0) < 0 &&
		    errno != EAGAIN && errno != EBUSY && errno != ENOBUFS)
			must(-errno, "sending", e);
}

static void send_one(struct end *e, uint64_t address, uint32_t len)
{
	uint32_t at;

	if (xsk_ring_prod__reserve(&e->tx, 1, &at) != 1)
		abort(); /* kick() has emptied it */
	*xsk_ring_prod__tx_desc(&e->tx, at) = (struct xdp_desc){.addr = address, .len = len};
	xsk_ring_prod__submit(&e->tx, 1);
}

/* Returns received frames. Returns their number. */
static uint32_t frames_return(struct end *e)
{
	uint32_t at, count = xsk_ring_cons__peek(&e->rx, BATCH, &at);

	for (uint32_t i = 0; i < count; i++) {
		const struct xdp_desc *d = xsk_ring_cons__rx_desc(&e->rx, at + i);
		uint8_t *frame = xsk_umem__get_data(e->memory, d->addr), swap[ETHER];
		memcpy(swap, frame + ETHER / 2, ETHER / 2);
		memcpy(swap + ETHER / 2, frame, ETHER / 2);
		memcpy(frame, swap, ETHER);
		send_one(e, d->addr, d->len);
	}
	xsk_ring_cons__release(&e->rx, count);
	if (count)
		kick(e);
	completions_take(e);
	return count;
}

static void *end_run(void *arg)
{
	struct end *e = arg;
	cpu_set_t core;

	CPU_ZERO(&core);
	CPU_SET(e->core, &core);
	must(-pthread_setaffinity_np(pthread_self(), sizeof(core), &core), "core", e);
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		uint32_t count = frames_return(e);
		__atomic_store_n(&e->seen, e->seen + count, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* Frames without a destination: the XDP programs at both ends redirect them all. */
static void first_frames(struct end *e, unsigned flight, unsigned length)
{
	for (unsigned i = 0; i < flight; i++) {
		uint8_t *frame = e->memory + (size_t)i * CHUNK;
		memset(frame, 0x42, length);
		frame[0] = frame[ETHER / 2] = 2; /* addresses of hosts, locally administered */
		send_one(e, (uint64_t)i * CHUNK, length);
	}
	for (unsigned i = flight; i < FRAMES; i++)
		fill_add(e, (uint64_t)i * CHUNK);
	kick(e);
}

static double rate_of(const struct end *e, unsigned ms)
{
	uint64_t begin = sy_clock_ns(), before = __atomic_load_n(&e->seen, __ATOMIC_RELAXED);

	poll(NULL, 0, (int)ms);
	return (double)(__atomic_load_n(&e->seen, __ATOMIC_RELAXED) - before) * 1e9 /
	       (double)(sy_clock_ns() - begin);
}

int main(int argc, char **argv)
{
	struct end near = {.interface = "g2"}, far = {.interface = "s2", .core = 1};
	unsigned ms = 1000, flight = 256, length = 130;
	const struct option_entry entry[] = {
	        {"near", "NAME", OPTION_WORD, &near.interface, 0, 0, "interface that asks"},
	        {"far", "NAME", OPTION_WORD, &far.interface, 0, 0, "its other end"},
	        {"near-core", "N", OPTION_UNSIGNED, &near.core, 0, 1023, NULL},
	        {"far-core", "N", OPTION_UNSIGNED, &far.core, 0, 1023, NULL},
	        {"flight", "N", OPTION_UNSIGNED, &flight, 1, FRAMES, "frames under way"},
	        {"length", "BYTES", OPTION_UNSIGNED, &length, 60, 1514, "of a frame"},
	        {"ms", "N", OPTION_UNSIGNED, &ms, 1, 60000, "how long it is measured"},
	};
	pthread_t thread[2];
	char params[80];

	OPTIONS_TAKE(argc, argv, "How often frames go there and back between two AF_XDP sockets.",
	             entry);
	libbpf_set_print(NULL);
	libxdp_set_print(NULL);
	end_open(&near);
	end_open(&far);
	for (uint64_t i = 0; i < FRAMES; i++)
		fill_add(&far, i * CHUNK);
	pthread_create(&thread[1], NULL, end_run, &far);
	first_frames(&near, flight, length);
	pthread_create(&thread[0], NULL, end_run, &near);
	rate_of(&near, ms / 4);
	double rate = rate_of(&near, ms);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	xsk_socket__delete(near.socket);
	xsk_socket__delete(far.socket);
	snprintf(params, sizeof(params), "\"frame\": %u", length);
	measure_report(&(struct measure){.bench = "stack",
	                                 .params = params,
	                                 .metric = "frames there and back, without TCP",
	                                 .unit = "1/s"},
	               rate, NULL, 0);
	return 0;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * The runtime moves packets, independent of load balancing: EAL, ports, workers, steering, routes
 * and next hops, RCU, counters and drops, the control socket.
 *
 * Threads: W workers poll ports and run the pipeline. One control thread handles netlink, the
 * control socket and every configuration change. Workers read configuration under RCU; other
 * threads reach them through SPSC rings only.
 */
#ifndef SY_RUNTIME_H
#define SY_RUNTIME_H

#include <rte_mbuf.h>
#include <rte_rcu_qsbr.h>

#include <sy_base.h>
#include <sy_burst.h>
#include <sy_kernel.h>
#include <sy_packet.h>

#define SY_MAX_WORKERS 64
#define SY_MAX_PORTS   16
#define SY_MAX_QUEUES  64
#define SY_PORT_NONE   0xff

struct sy_runtime;
struct sy_worker;

/* ---- start (runtime.c, eal.c) ---------------------------------------------------------------- */

enum sy_port_backend { SY_PORT_XSK, SY_PORT_ETHDEV };

#define SY_RING_MIN 64
#define SY_RING_MAX 32768

struct sy_port_options {
	enum sy_port_backend backend;
	char name[32];     /* xsk: the kernel interface; ethdev: the device ("net_memif0") */
	char devargs[256]; /* ethdev: a vdev ("net_memif0,role=server,…") or a PCI address */
	enum sy_director_mode mode; /* xsk */
	uint8_t mac[6];  /* ethdev without a kernel interface; all zero: the device's own */
	uint16_t mtu;    /* ethdev; 0: 1500 */
	unsigned queues; /* ethdev; 0: one per worker, up to the device's maximum */
	unsigned ring;   /* capacity of a receive queue in packets: a power of 2, SY_RING_MIN to
	                    SY_RING_MAX; 0: 2048, ethdev 1024 */
};

/* Configuration of ports without a kernel interface. */
struct sy_static_route {
	char port[32];
	struct sy_addr prefix, via; /* via all zero: on link */
	uint8_t prefix_len;
};
struct sy_static_neigh {
	char port[32];
	struct sy_addr addr;
	uint8_t mac[6];
};

/* A stage of the pipeline: a function over the whole burst. */
struct sy_stage {
	const char *name;
	void (*run)(struct sy_worker *w, struct sy_burst *b);
};

struct sy_runtime_options {
	unsigned workers;   /* 1–SY_MAX_WORKERS */
	char cores[128];    /* CPU list of the workers; "": chosen from the process's affinity */
	bool huge;          /* false: --no-huge, with a warning */
	unsigned memory_mb; /* EAL memory */
	unsigned mbufs;     /* total packet buffers; 0: derived from ports, queues and … */
	unsigned spare;     /* … buffers that the pipeline keeps */
	char instance[64];  /* EAL file prefix */
	bool pci;           /* scan for PCI devices; false: only if a port is one */
	bool kernel;        /* false: no netlink mirror, static routes only (tests, benchmarks) */
	struct sy_port_options port[SY_MAX_PORTS];
	unsigned ports;
	struct sy_static_route *route;
	unsigned routes;
	struct sy_static_neigh *neigh;
	unsigned neighs;
	const struct sy_stage *pipeline; /* ends with a NULL name; see forwarder/pipeline.c */
	/* Called by each worker at least every SY_ROUND_MS ms, busy or idle (expiry sweeps). */
	void (*round)(struct sy_worker *w);
	/* Called in each poll of a worker: handles packets that came neither by a port nor from
	 * another worker's ring. Returns true if there was work, or may be soon. NULL: there is
	 * none. */
	bool (*poll)(struct sy_worker *w);
	/* Does poll() get no work until another worker calls sy_workers_wake()? */
	bool (*is_idle)(const struct sy_worker *w);
	/* The time at which poll() next has work, by CLOCK_MONOTONIC: a worker sleeps no longer.
	 * NULL: not before a round. */
	uint64_t (*wake_ns)(const struct sy_worker *w);
	/* Called when a shaped port's queue refused a packet of a service (sy_packet_set_service),
	 * which is dropped. NULL: not counted. */
	void (*refused)(struct sy_worker *w, uint32_t service, enum sy_drop reason);
	void *app; /* → sy_worker.app of every worker */
	/* A running forwarder owns the interfaces. Until sy_runtime_bind(), this process neither
	 * locks nor changes the interfaces, the flow director or the claims. */
	bool inherit;
	bool probe;         /* probes new addresses before it claims them (probe.c) */
	unsigned sweep_s;   /* seconds between complete verifications of kernel state; 0: 30 */
	unsigned path_half; /* 0 or 1: path ids come from this half of their space */
	bool offloads;      /* 0 or 1: half of the path ids that this process uses */
};
#define SY_ROUND_MS 10

/*
 * Binds all later memory of this process, including the session tables, to the NUMA node of the
 * workers' CPUs (options as above), as long as that node has any. Warns if these CPUs are on
 * several nodes. Call before the first large allocation. Returns 0, or −EINVAL if the list cannot
 * be parsed.
 */
int sy_memory_near(const char *cores, unsigned workers, struct sy_error *err);
/*
 * Starts EAL, creates the packet pool, every part of the ports that does not need the device
 * (UMEMs, the flow director's program), and the workers' state, and starts the mirror. Without
 * `inherit`, locks interfaces and claims: -EBUSY names the forwarder that has them. One runtime per
 * process.
 */
int sy_runtime_open(const struct sy_runtime_options *options, struct sy_runtime **out,
                    struct sy_error *err);
/*
 * Acquires the ports: locks (inherit), flow director, sockets, devices. Waits up to 2 s for a
 * predecessor to release them. From here on, packets wait for sy_runtime_start(). With `inherit`,
 * only sy_runtime_claim() steers and claims the addresses; until then the predecessor's steering
 * and claims remain.
 */
int sy_runtime_bind(struct sy_runtime *rt, struct sy_error *err);
/* Starts the workers. */
int sy_runtime_start(struct sy_runtime *rt, struct sy_error *err);
/* With `inherit`, after sy_runtime_start(): waits up to 2 s for the predecessor to release its
 * claims, replaces its program, steers and claims the addresses of earlier sy_address_claim()
 * calls, and settles if sy_address_settle() was called. Logs each address that fails and returns
 * the first error. Without `inherit`: does nothing. */
int sy_runtime_claim(struct sy_runtime *rt, struct sy_error *err);
/*
 * Stops the workers and releases sockets, devices, flow director, claims and their locks for a
 * successor. Steering and claims stay in the kernel. Counters and all other state remain readable,
 * and the control loop continues. Afterwards only sy_runtime_close() or the end of the process may
 * follow. The sockets go on closing in the background; a successor waits for each queue.
 */
void sy_runtime_quiesce(struct sy_runtime *rt);
/* Runs the control thread's loop until the first full mirror dump was applied. Returns -ECANCELED
 * if sy_runtime_stop() was called first; this is no failure. */
int sy_runtime_wait_synced(struct sy_runtime *rt, unsigned timeout_ms, struct sy_error *err);
/*
 * The control thread's loop: epoll over everything registered by sy_runtime_watch(), until
 * sy_runtime_stop(). The caller's thread becomes the control thread.
 */
int sy_runtime_run(struct sy_runtime *rt);
/* Async-signal-safe. */
void sy_runtime_stop(struct sy_runtime *rt);
/* Stops workers, closes ports; frees everything. */
void sy_runtime_close(struct sy_runtime *rt);

/* Calls fn(ctx) on the control thread whenever fd is readable. Unwatching ignores fd < 0. */
int sy_runtime_watch(struct sy_runtime *rt, int fd, void (*fn)(void *ctx), void *ctx);
void sy_runtime_unwatch(struct sy_runtime *rt, int fd);
/* Calls fn(ctx) on the control thread once, in the next iteration of its loop: for work in
 * pieces. */
void sy_runtime_defer(struct sy_runtime *rt, void (*fn)(void *ctx), void *ctx);
/* Calls fn(ctx) every period_ms on the control thread. */
int sy_runtime_every(struct sy_runtime *rt, unsigned period_ms, void (*fn)(void *ctx), void *ctx);

/* Was the first full mirror dump applied, or is there no kernel to mirror? */
bool sy_runtime_is_synced(const struct sy_runtime *rt);
/* The i-th problem with the kernel's state that another program has caused, with its remedy; NULL:
 * there are fewer. */
const char *sy_runtime_problem(const struct sy_runtime *rt, unsigned i);
/* Is it about an address that another host uses? */
bool sy_runtime_problem_is_contested(const struct sy_runtime *rt, unsigned i);
/* Number of kernel objects that this process has restored after another program removed them. */
uint64_t sy_runtime_restored(const struct sy_runtime *rt);
/* Does policy routing of this host apply to any packets? Any thread, under RCU. */
bool sy_policies_exist(const struct sy_runtime *rt);
/* Does it apply to packets of this tuple? tos: type of service or traffic class, including ECN. The
 * path to their destination may then differ from sy_path_lookup()'s. Any thread, under RCU. */
bool sy_policy_refuses(const struct sy_runtime *rt, const struct sy_tuple *t, uint8_t tos);
/* Why routing is refused (policy routing, VRF); NULL: it is not. */
const char *sy_runtime_refusal(const struct sy_runtime *rt);

/* ---- workers (worker*.c) --------------------------------------------------------------------- */

/* The pipeline's counters, per worker. The control thread reads them with relaxed atomics. */
struct sy_worker_counters {
	uint64_t rx_packets, rx_bytes, tx_packets, tx_bytes;
	uint64_t bursts, steered_out, steered_in;
	uint64_t remote; /* packets of remote-owned sessions that were forwarded here; written by
	                    the pipeline */
	uint64_t busy_cycles, idle_cycles, sleeps, wakeups;
	uint64_t drop[SY_DROP_COUNT];
};

struct sy_worker {
	unsigned id; /* 0-based; also its RCU thread id */
	struct sy_runtime *rt;
	void *app;                  /* the pipeline's state, from sy_runtime_options */
	const uint8_t *slot_worker; /* as sy_slot_worker(), by slot. readers: relaxed */
	const uint16_t *path_mtu;   /* by path: largest IP packet in bytes that fits it; 0: the path
	                               is stale. Readers: acquire */
	uint64_t link_epoch;        /* see sy_tx_cache.h: without the port's bits */
	bool queues_suffice; /* each worker has a transmit queue on every port, and no port is
	                        shaped. Writer: control thread; readers: relaxed */
	uint64_t tsc;        /* at the start of this burst or round */
	uint64_t now_ns;     /* coarse CLOCK_MONOTONIC of this burst or round */
	struct sy_worker_counters counters; /* writer: this worker. readers: relaxed */
	struct sy_worker_private *private;  /* private to worker.c */
} __attribute__((aligned(SY_CACHE_LINE)));

unsigned sy_worker_count(const struct sy_runtime *rt);
struct sy_worker *sy_worker_at(const struct sy_runtime *rt, unsigned id);
/* All packets that had reached the worker's queues and rings by this time were passed to the
 * pipeline, or are in this burst. It is behind now_ns while a queue holds more than a burst, and
 * while other workers' packets have not been polled. So a timeout for a packet ends by this time,
 * not by now_ns. */
uint64_t sy_worker_seen_ns(const struct sy_worker *w);
/* Have other threads recently used this worker's CPU? Any thread. */
bool sy_worker_shares_cpu(const struct sy_worker *w);

/* Increments a counter that one thread writes and others read without tearing. */
#define SY_COUNT(counter, n)                                                                       \
	__atomic_store_n(&(counter), __atomic_load_n(&(counter), __ATOMIC_RELAXED) + (n),          \
	                 __ATOMIC_RELAXED)
#define SY_READ(counter) __atomic_load_n(&(counter), __ATOMIC_RELAXED)

/*
 * Runs fn(w, ctx) on worker w between two bursts and waits for it, waking the worker if it sleeps.
 * Control thread only; fn must be short (≤ 100 µs). Before sy_runtime_start() and after
 * sy_runtime_quiesce(), fn runs at once, on the caller's thread. Returns 0, or -ETIMEDOUT if the
 * worker did not answer within a second.
 */
int sy_worker_call(struct sy_worker *w, void (*fn)(struct sy_worker *w, void *ctx), void *ctx);

/*
 * Instead of sy_runtime_start(), for a library: threads of the application run the workers, each
 * for any time. A worker without a thread processes no packets, and sy_worker_call() waits. All
 * must have left before sy_runtime_close().
 *
 * sy_worker_enter() ─▶ sy_worker_poll(), sy_worker_sleep(), … ─▶ sy_worker_leave()
 *
 * Outside of these calls the worker is off-line for RCU, so its thread may block.
 */
void sy_runtime_lend(struct sy_runtime *rt);
void sy_worker_enter(struct sy_worker *w);
/* One poll iteration. Returns whether there was work. */
bool sy_worker_poll(struct sy_worker *w);
/* Call after polls. Returns the nanoseconds that the thread may sleep, until sy_worker_descriptor()
 * is readable; 0: poll again. After the sleep, call sy_worker_awake() before anything else. */
uint64_t sy_worker_sleep(struct sy_worker *w);
void sy_worker_awake(struct sy_worker *w);
int sy_worker_descriptor(const struct sy_worker *w);
/* Sets a descriptor that ends the worker's sleeps when it is readable; −1: none. Do not call while
 * the worker runs. No effect on a lent worker. */
void sy_worker_watch(struct sy_worker *w, int fd);
/* Was that descriptor readable at the end of a sleep since the last call? */
bool sy_worker_is_readable(struct sy_worker *w);
/* Packets that devices accepted from it but could not send. */
uint64_t sy_worker_unfit(const struct sy_worker *w);
/* Wakes the worker. Any thread. Store the work before: options.is_idle() reads it. */
void sy_worker_wake(struct sy_worker *w);
void sy_worker_leave(struct sy_worker *w);

/* Slot → worker. Writer: control thread; readers: workers, relaxed. Initially slot mod W. */
unsigned sy_slot_worker(const struct sy_runtime *rt, uint8_t slot);

/* ---- routes (route.c, path.c) ---------------------------------------------------------------- */

/*
 * A path is a group of next hops, identified by a 16-bit id that sessions may store. A path becomes
 * stale when no route leads to it any more, or when a more specific route shadows it: users of a
 * stale id look up again. Ids of stale paths are reused only after sy_path_sweep_done(), when no
 * session has them. Id 0 is "no route" and always stale.
 */
#define SY_PATH_NONE 0

/* Longest prefix match. Any worker or the control thread. */
uint16_t sy_path_lookup(const struct sy_runtime *rt, const struct sy_addr *dst);
bool sy_path_is_stale(const struct sy_runtime *rt, uint16_t path);
/* For a path other than NONE: the MTU of its egress (smallest of its hops; 65535 if no hop leaves
 * by a port), and whether it is a black hole. */
uint16_t sy_path_mtu(const struct sy_runtime *rt, uint16_t path);
bool sy_path_is_blackhole(const struct sy_runtime *rt, uint16_t path);
/* Has the path hops, and do all lead to neighbours on a connected network? */
bool sy_path_is_on_link(const struct sy_runtime *rt, uint16_t path);
/* A counter that increases with every route change: a cheap test for "look up again". */
uint32_t sy_path_generation(const struct sy_runtime *rt);
/* Frees stale ids older than generation g. Call on the control thread, after every session was
 * visited since g, and every worker has finished the burst that it ran at the last visit. */
void sy_path_sweep_done(struct sy_runtime *rt, uint32_t generation);

/* ---- ports (port.c, port_xsk.c, port_ethdev.c) ----------------------------------------------- */

struct sy_port_stats {
	uint64_t rx_packets, rx_bytes, tx_packets, tx_bytes;
	uint64_t rx_missed, tx_failed;
	struct sy_director_stats director; /* xsk only */
};

/* Offloads of a port, sending and receiving. */
enum {
	SY_OFFLOAD_TCP_CHECKSUM = 1, /* for packets with RTE_MBUF_F_TX_TCP_CKSUM */
	SY_OFFLOAD_TSO_IPV4 = 2,     /* segments packets with RTE_MBUF_F_TX_TCP_SEG */
	SY_OFFLOAD_TSO_IPV6 = 4,
	SY_OFFLOAD_LRO = 8, /* coalesces consecutive packets of a connection */
};

/* Limits of the packets that a port segments. */
struct sy_port_tso {
	uint16_t frame;   /* max length of its frames, including Ethernet header; 0: by the MTU */
	uint16_t buffers; /* max buffers of a packet */
};

struct sy_port_info {
	char name[32];
	const char *backend; /* "xsk native", "xsk generic", "ethdev net_memif"; before binding
	                        "xsk", "ethdev" */
	uint8_t mac[6];
	uint16_t mtu;
	bool up;
	unsigned queues;
	int ifindex;       /* 0: no kernel interface */
	uint32_t offloads; /* SY_OFFLOAD_*; only with sy_runtime_options.offloads */
	struct sy_port_tso tso;
	char problem[256]; /* why the port does not work, and the remedy; empty: it works */
};

unsigned sy_port_count(const struct sy_runtime *rt);
void sy_port_get_info(const struct sy_runtime *rt, unsigned port, struct sy_port_info *out);
void sy_port_get_stats(const struct sy_runtime *rt, unsigned port, struct sy_port_stats *out);
/* Packets that flow directors dropped for this reason, or the kernel, because a link has no carrier
 * (SY_DROP_PORT_DOWN). */
uint64_t sy_port_drops(const struct sy_runtime *rt, enum sy_drop reason);
uint16_t sy_port_mtu(const struct sy_runtime *rt, unsigned port);

/*
 * Claims an address (VIP or local) on all ports: from the kernel, and by XDP redirect. Control
 * thread, once sy_runtime_is_synced(): only then is the port known whose network has an IPv6
 * address. With `inherit` and before sy_runtime_claim(), only notes the address. Undone by
 * sy_address_release().
 */
int sy_address_claim(struct sy_runtime *rt, const struct sy_addr *addr, struct sy_error *err);
/* The same without probing the network first: the address's former holder has released it. */
int sy_address_claim_now(struct sy_runtime *rt, const struct sy_addr *addr, struct sy_error *err);
/* Announces all claimed addresses again: neighbours may have learned another node's MAC address. */
void sy_addresses_announce(struct sy_runtime *rt);
/* New addresses of sy_address_claim() are being probed, and not claimed yet: returns true, and
 * calls fn(ctx) once when that is over, some 0.3 s later. An address that another host has stays
 * unclaimed, and is a sy_runtime_problem(). */
bool sy_addresses_wait(struct sy_runtime *rt, void (*fn)(void *ctx), void *ctx);
/* Claims these addresses although other hosts use them; all such addresses if count is 0. Returns
 * their number. */
unsigned sy_addresses_force(struct sy_runtime *rt, const struct sy_addr *some, unsigned count);
void sy_address_release(struct sy_runtime *rt, const struct sy_addr *addr);
/* Returns false with `inherit` before sy_runtime_claim(). */
bool sy_runtime_is_claimed(const struct sy_runtime *rt);
/* Sets the ports of a claimed VIP that have a service: the flow directors drop whole TCP and UDP
 * packets to other ports, as sy_director_serve() says; count = 0: ends that. Returns 0 or a
 * negative errno, maybe with some ports done; -EBUSY: with `inherit`, before sy_runtime_claim().
 * Control thread. */
int sy_address_serve(struct sy_runtime *rt, const struct sy_addr *addr,
                     const struct sy_port_range *range, size_t count);
/* Sets the sources whose packets to VIPs the flow directors drop, as sy_director_block() says, in
 * place of an earlier list. References the list; takes effect in pieces of some milliseconds. With
 * `inherit` and before sy_runtime_claim(), only notes it. Call it before sy_address_settle(), which
 * otherwise removes the blocks of an earlier process. Returns 0 or the first negative errno of a
 * flow director; -E2BIG: the list is too long for it. Control thread. */
int sy_sources_block(struct sy_runtime *rt, struct sy_blocked_list *list, bool all);
/* Diverts from the kernel the packets that a server sends from one port, or that a network's hosts
 * send from any port, for every destination except this host; release undoes it. With `inherit`,
 * likewise only noted. */
int sy_source_divert(struct sy_runtime *rt, const struct sy_source *source, struct sy_error *err);
void sy_source_release(struct sy_runtime *rt, const struct sy_source *source);
/* Uses of an address by this host or network that conflict with its use as VIP or server. */
enum sy_address_use {
	SY_ADDRESS_FREE,
	SY_ADDRESS_HOST,      /* an interface has it */
	SY_ADDRESS_GATEWAY,   /* routes lead there */
	SY_ADDRESS_NEIGHBOUR, /* another host on a port's network answers for it */
};

/* The first of these uses that applies; mac: of the neighbour. Control thread. */
enum sy_address_use sy_address_use(struct sy_runtime *rt, const struct sy_addr *addr,
                                   uint8_t mac[static 6]);

/*
 * Lists the addresses that cannot be the source of a packet from a port: those of all interfaces of
 * this host, and the first and last address of their IPv4 networks (broadcast, RFC 1122 3.2.1.3).
 * Free *out with free(). Returns their number, or -ENOMEM. Control thread.
 */
int sy_own_sources(const struct sy_runtime *rt, struct sy_addr **out);
/* Changes whenever that list may have changed. Control thread. */
uint32_t sy_own_sources_version(const struct sy_runtime *rt);

/* Call after claiming all addresses and sources: removes what an earlier process left. */
void sy_address_settle(struct sy_runtime *rt);

/* ---- health checks on the VIP (health_mark.c) ------------------------------------------------ */

/*
 * Routes this host's packets with a mark to a server, see sy_kernel.h, by the interface that routes
 * lead to. The first call attaches the programs (with `inherit`, sy_runtime_claim() does). Failures
 * are logged, and reported by sy_check_refusal(). Control thread.
 *
 * A mark may move between servers within a transaction, numbered `transaction`: sy_check_clear()
 * does not touch marks that the same transaction has set.
 */
void sy_check_set(struct sy_runtime *rt, uint32_t mark, const struct sy_check *check,
                  uint64_t transaction);
void sy_check_clear(struct sy_runtime *rt, uint32_t mark, uint64_t transaction);
/* Do marks lead to their servers? That is: some were set, and none failed. */
bool sy_check_works(const struct sy_runtime *rt);
/* Why marks do not work; NULL: they do. */
const char *sy_check_refusal(const struct sy_runtime *rt);

/* ---- RCU (rcu.c) ----------------------------------------------------------------------------- */

/* Calls free_fn(ptr) on the control thread once no worker can refer to ptr. Control thread. */
void sy_rcu_retire(struct sy_runtime *rt, void *ptr, void (*free_fn)(void *ptr));
#define SY_RCU_READ(p)       __atomic_load_n(&(p), __ATOMIC_ACQUIRE)
#define SY_RCU_PUBLISH(p, v) __atomic_store_n(&(p), (v), __ATOMIC_RELEASE)

/* ---- control socket (control_socket.c) ------------------------------------------------------- */

/*
 * The control socket: SOCK_STREAM, mode 0600, or 0660 with a group. A frame is a 32-bit big-endian
 * length and that many bytes of one protobuf message; lengths over SY_CONTROL_MAX are refused. The
 * handler replies to a request, maybe in a later iteration of the loop (work in pieces).
 */
#define SY_CONTROL_MAX (4u << 20)

struct sy_control;
struct sy_control_peer; /* one connection */

struct sy_control_handler {
	void *ctx;
	/* bytes are valid during the call. Every request needs exactly one sy_control_reply(); the
	 * peer's next frame is delivered only after it. */
	void (*request)(void *ctx, struct sy_control_peer *peer, const uint8_t *bytes, size_t len);
	/* A frame was too large, or the peer closed in the middle of one. Sends an error reply with
	 * this text. May be NULL: no reply is needed. */
	void (*broken)(void *ctx, struct sy_control_peer *peer, const char *text);
	/* The peer has closed: do not send a pending reply. */
	void (*gone)(void *ctx, struct sy_control_peer *peer);
};

#define SY_NO_ID UINT32_MAX /* no user or no group */

/* Access control. 8 of the 32 connections are reserved for root, this process's user and the
 * agent's; every other user has at most 8. */
struct sy_control_access {
	uint32_t group; /* its members may connect, besides this process's user; SY_NO_ID: no group
	                 */
	uint32_t agent; /* the agent's user; SY_NO_ID: none */
};

/* A peer whose frame stalls for 10 s, or takes longer than 60 s, gets broken() and is closed. If
 * the socket's group cannot be set, logs that and keeps mode 0600. */
int sy_control_open(struct sy_runtime *rt, const char *path, const struct sy_control_access *access,
                    const struct sy_control_handler *handler, struct sy_control **out,
                    struct sy_error *err);
/* Did the peer connect as root or as this process's user (SO_PEERCRED)? */
bool sy_control_peer_is_owner(const struct sy_control_peer *peer);
void sy_control_close(struct sy_control *c);
/* Stops listening and removes the path, for a successor. Connected peers stay. */
void sy_control_leave(struct sy_control *c);
/* Returns 0, or -EMSGSIZE (over SY_CONTROL_MAX) or -ENOMEM: then a reply is still due. */
int sy_control_reply(struct sy_control_peer *peer, const uint8_t *bytes, size_t len);
/* Storage for the handler's state of this connection; gone() frees it. */
void **sy_control_peer_data(struct sy_control_peer *peer);

#endif

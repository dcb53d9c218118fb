// SPDX-License-Identifier: Apache-2.0
/*
 * kernel: what Steelyard shares with Linux. A live mirror of its links, addresses, routes and
 * neighbours (netlink), the XDP flow director that takes steered packets off an interface, and the
 * claim on VIPs and local addresses that keeps the kernel from using them. No DPDK. Everything here
 * runs on one thread, the control thread.
 */
#ifndef SY_KERNEL_H
#define SY_KERNEL_H

#include <sy_base.h>

/* ---- mirror (mirror.c, mirror_store.c, mirror_parse.c) --------------------------------------- */

struct sy_link {
	int ifindex;
	char name[16];
	uint8_t mac[6];
	uint16_t mtu;
	bool up;    /* administratively up and with carrier */
	int master; /* ifindex of a bridge, bond or VRF above, 0: none */
	int lower;  /* of the interface that it lies on, or a veth's other end; 0: none */
	bool vrf_member;
	char kind[16]; /* "veth", "bond", "vlan", …; empty: physical */
};

struct sy_link_addr {
	int ifindex;
	struct sy_addr addr;
	uint8_t prefix_len; /* in the family's own bits */
};

#define SY_ROUTE_HOPS 16

struct sy_route_hop {
	int ifindex;
	struct sy_addr via; /* all zero: on link, the neighbour is the destination itself */
	uint8_t weight;     /* ≥ 1 */
};

struct sy_route {
	struct sy_addr prefix;
	uint8_t prefix_len; /* in the family's own bits: 0–32 or 0–128 */
	bool blackhole;     /* blackhole, unreachable, prohibit */
	uint8_t hop_count;  /* hops whose link is dead are left out */
	uint32_t metric;
	struct sy_route_hop hop[SY_ROUTE_HOPS];
};

struct sy_neigh {
	int ifindex;
	struct sy_addr addr;
	uint8_t mac[6];
	bool valid;  /* mac may be used: reachable, stale, delay, probe, permanent, noarp */
	bool failed; /* the kernel gave up (NUD_FAILED) */
};

/*
 * Told of every difference, `gone` when the object left. For a prefix that has several routes the
 * handler sees only the best one (lowest metric, main table before default) and is told again when
 * the best changes. Local, broadcast and multicast routes are not reported.
 */
struct sy_mirror_handler {
	void *ctx;
	void (*link)(void *ctx, const struct sy_link *link, bool gone);
	void (*addr)(void *ctx, const struct sy_link_addr *addr, bool gone);
	void (*route)(void *ctx, const struct sy_route *route, bool gone);
	void (*neigh)(void *ctx, const struct sy_neigh *neigh, bool gone);
	/* The first complete dump, or a resynchronisation after an overrun, has been delivered. */
	void (*synced)(void *ctx);
	/* Policy routing appeared or went: text says what, NULL when all is well again. The
	 * forwarder refuses to route by what it does not understand. */
	void (*refused)(void *ctx, const char *text);
};

struct sy_mirror;

/* Opens the netlink sockets of the calling thread's network namespace and starts the first dump. */
int sy_mirror_open(const struct sy_mirror_handler *handler, struct sy_mirror **out,
                   struct sy_error *err);
void sy_mirror_close(struct sy_mirror *m);
/* Readable when sy_mirror_process() has work (an epoll descriptor). */
int sy_mirror_fd(const struct sy_mirror *m);
/*
 * Handles at most `budget` messages, then returns how many it handled (0: nothing waits) or a
 * negative errno: -ENOMEM (it dumps again), else the netlink socket is broken. Never blocks. An
 * overrun (ENOBUFS) makes it dump again and report only the differences.
 */
int sy_mirror_process(struct sy_mirror *m, unsigned budget);
/* Asks the kernel to resolve and keep alive a neighbour (NTF_EXT_MANAGED; NTF_USE where the kernel
 * is older than 5.16). Asynchronous; the answer comes as a neigh event. */
int sy_mirror_neigh_manage(struct sy_mirror *m, int ifindex, const struct sy_addr *addr);
/* Ends the management; the kernel ages the entry as usual. */
int sy_mirror_neigh_release(struct sy_mirror *m, int ifindex, const struct sy_addr *addr);
/* Best route as the mirror has it; false: none. For the control thread and tests. */
bool sy_mirror_lookup(const struct sy_mirror *m, const struct sy_addr *dst, struct sy_route *out);
/* The neighbour as the mirror has it; false: none. For the control thread and tests. */
bool sy_mirror_find_neigh(const struct sy_mirror *m, int ifindex, const struct sy_addr *addr,
                          struct sy_neigh *out);
/* Shrinks the receive buffer, for the overrun test. */
int sy_mirror_set_buffer(struct sy_mirror *m, int bytes);

/* ---- flow director (director.c, director.bpf.c) ---------------------------------------------- */

/*
 * An XDP program on a link that is pinned under /sys/fs/bpf/steelyard/<netns inode>-<ifindex>, so
 * that it outlives the process. It looks up the destination address, and then the source of what is
 * not for this host: a VIP, a local address, or a server's port that is steered is redirected to
 * the AF_XDP socket of the packet's queue, or dropped if none is there; everything else passes to
 * the kernel, as do ARP and ND (ICMPv6 133–137, also when sent to a VIP).
 */
/* A server whose packets are steered whoever they are for, or (with bits) a network whose hosts'
 * packets are, unless they are for that network, another such or a group. Hashed and compared as
 * bytes. */
struct sy_source {
	struct sy_addr addr; /* of a network the first one */
	uint16_t port;       /* network order; 0: any; of a network 0 */
	uint16_t proto;      /* TCP or UDP; of a network 0 */
	uint32_t bits;       /* 0: a server; else length of the prefix, of all 128 bits, so that
	                        those of IPv4 begin at 96 */
};

enum sy_director_mode { SY_DIRECTOR_AUTO, SY_DIRECTOR_NATIVE, SY_DIRECTOR_GENERIC };

struct sy_director;

/* Attaches to the interface, or takes over what an earlier process left (same link, new program by
 * bpf_link_update, same maps: addresses stay steered until sy_director_settle()). AUTO: native,
 * generic where the driver refuses. Takes the lock of (namespace, interface): a second forwarder
 * gets -EBUSY and a text naming it. */
int sy_director_open(const char *ifname, enum sy_director_mode mode, struct sy_director **out,
                     struct sy_error *err);
/* The same in two steps, for a successor of a forwarder that still runs: the program is loaded over
 * the predecessor's maps, and nothing is locked or changed. Only sy_director_queues() may be called
 * before sy_director_take(). */
int sy_director_prepare(const char *ifname, enum sy_director_mode mode, struct sy_director **out,
                        struct sy_error *err);
/* Takes the lock (waiting up to wait_ms for it) and the link. If the predecessor's maps are others
 * by now, the program is loaded again. While all maps are the predecessor's, its program goes on
 * directing packets, to the sockets that are set from here on, until sy_director_update(). */
int sy_director_take(struct sy_director *d, unsigned wait_ms, struct sy_error *err);
/* Puts the own program in the predecessor's place, if it is not there yet: the kernel takes some
 * 10 ms for that, which need not be spent before packets flow again. */
int sy_director_update(struct sy_director *d, struct sy_error *err);
/* After the interface was deleted and one of its name is there: puts the program on that one, with
 * all that is steered; the sockets are to be set again. May be called again when it failed. */
int sy_director_move(struct sy_director *d, struct sy_error *err);
/* frame_max: bytes of the longest frame that the sockets take, longer ones are dropped; 0: any.
 * vlans: other interfaces lie on this one for its VLANs (802.1Q), so that tagged frames pass to
 * the kernel; else those for steered addresses are dropped. Returns 0 or a negative errno. */
int sy_director_set(struct sy_director *d, uint32_t frame_max, bool vlans);
/* Releases the lock and closes; the program stays attached, so steered packets are dropped and no
 * kernel answers them. */
void sy_director_close(struct sy_director *d);
/* Number of receive queues of the interface (ethtool), at least 1. */
int sy_director_queues(const struct sy_director *d);
bool sy_director_is_native(const struct sy_director *d);
/* Lets packets of `queue` go to the AF_XDP socket xsk_fd; fd −1 takes it out again. */
int sy_director_set_socket(struct sy_director *d, unsigned queue, int xsk_fd);
/* Steers a destination address, or stops to. */
int sy_director_steer(struct sy_director *d, const struct sy_addr *addr, bool on);
/* The same for all that a server sends from one port or from any, or hosts of a network, unless it
 * is for an address of this host. */
int sy_director_steer_source(struct sy_director *d, const struct sy_source *source, bool on);
/* An address of this host, whatever its interface, or one that has gone: packets for it are never
 * steered by their source. Without effect on a steered one, as an IPv6 address that is claimed. */
int sy_director_host(struct sy_director *d, const struct sy_addr *addr, bool on);
/* Stops to steer what an earlier process steered and this one has not steered again. Until then
 * those packets are dropped, so that a take-over never shows them to the kernel. */
int sy_director_settle(struct sy_director *d);

/* Per-interface counters of the program, packets. */
struct sy_director_stats {
	uint64_t steered, passed, dropped_no_socket;
	/* For steered addresses: of a VLAN, or with more than one tag; longer than the sockets
	 * take. For anybody: with more tags than are read, or ending before its IP header does. */
	uint64_t dropped_vlan, dropped_too_big, dropped_truncated;
};
int sy_director_read_stats(const struct sy_director *d, struct sy_director_stats *out);

/* Is the bpffs of this process another than that of the host's first process? Then what is pinned
 * dies with this mount namespace. False where that cannot be seen. */
bool sy_pins_are_private(void);

/* ---- claims (claim.c): VIPs and local addresses towards the kernel --------------------------- */

/*
 * A claimed address is answered for by the kernel's ARP or ND, but never used as a source and never
 * reset by it. IPv4: a `local` route on lo, table local, protocol 201 (steelyard's). IPv6: a /128
 * with preferred lifetime 0, nodad, on the given port's interface. Either way an nftables table
 * `inet steelyard` keeps resets and ICMP errors sourced from claimed addresses from leaving on
 * interfaces without the program, and drops what local processes would send from them.
 */
struct sy_claims;

/* Opens the set, waiting up to wait_ms for its lock; claims that an earlier process left are found
 * again and kept until sy_claims_settle(). */
int sy_claims_open(struct sy_claims **out, unsigned wait_ms, struct sy_error *err);
/* What tells this thread's network namespace from all others of this boot (SO_NETNS_COOKIE, where
 * the kernel has it; else its inode). */
uint64_t sy_netns_cookie(void);
void sy_claims_close(struct sy_claims *c); /* claims stay on the host */
/* ifindex: where the address shall be answered for (0: any; needed for IPv6). Idempotent: add IPv6
 * addresses again when their link comes up, as the kernel forgets them when it goes down; another
 * ifindex moves one. An address that the host itself has configured is refused (-EADDRINUSE). */
int sy_claims_add(struct sy_claims *c, const struct sy_addr *addr, int ifindex,
                  struct sy_error *err);
/* After an interface came up: puts back the IPv6 claims that the kernel took away with it. Returns
 * 0 or the first failure as a negative errno. */
int sy_claims_renew(struct sy_claims *c, int ifindex);
/* After an IPv6 address vanished from an interface: puts it back if it is claimed there. Cheap for
 * all others. Returns as sy_claims_renew(). */
int sy_claims_restore(struct sy_claims *c, const struct sy_addr *addr, int ifindex);
/* The interface `from` was made again as `to`: IPv6 claims on it are to lie there from now on.
 * sy_claims_renew() puts them there. */
void sy_claims_move(struct sy_claims *c, int from, int to);
/* Calls fn for each address that is claimed; it must not change the set. */
void sy_claims_each(const struct sy_claims *c, void (*fn)(void *ctx, const struct sy_addr *addr),
                    void *ctx);
int sy_claims_remove(struct sy_claims *c, const struct sy_addr *addr);
/* Removes found claims that nobody has added again. */
int sy_claims_settle(struct sy_claims *c);

/* ---- health checks on the VIP (check.c, check.bpf.c) ----------------------------------------- */

/*
 * What this host sends to a VIP with a mark (SO_MARK) of the range below goes to one server as a
 * client's packets would. The claim leads it to lo, where a tc program (clsact, egress) hands it to
 * the server's MAC address, in a tunnel if told to, or drops it if the mark means nothing. What
 * servers answer from the VIP a second program, on the ports' ingress, gives to lo: there the
 * kernel takes it, whose own address the VIP seems to be (net.ipv4.conf.lo.accept_local, which is
 * set), and strict reverse-path filters are content. Only what belongs to a connection of this host
 * is let in. Design record 0015.
 */
struct sy_checks;

#define SY_CHECK_MARK_FIRST 0x53000001u
#define SY_CHECK_MARK_LAST  0x53ffffffu

struct sy_check {
	struct sy_addr vip, server;
	struct sy_addr source; /* of the tunnel, of the server's family; all zero: no tunnel */
	int ifindex;           /* that leads to the server; 0: none does, checks are dropped */
};

/* Loads the programs; nothing is changed yet. */
int sy_checks_open(struct sy_checks **out, struct sy_error *err);
/* Puts them on lo and these interfaces, in the place of an earlier process's. They outlive this
 * process, as the flow director does, until sy_kernel_cleanup(). */
int sy_checks_attach(struct sy_checks *c, const int *ifindex, unsigned count, struct sy_error *err);
/* What a mark means from now on, NULL: nothing. Also before sy_checks_attach(). Negative errno:
 * -E2BIG: too many. */
int sy_checks_set(struct sy_checks *c, uint32_t mark, const struct sy_check *check);
void sy_checks_close(struct sy_checks *c);

/* ---- cleanup (cleanup.c): everything that a forwarder may have left in this namespace -------- */

/* Detaches pinned links and removes claims and the nftables table; calls told(text) for each thing
 * removed. A live forwarder's things are refused with -EBUSY. */
int sy_kernel_cleanup(void (*told)(void *ctx, const char *text), void *ctx, struct sy_error *err);

#endif

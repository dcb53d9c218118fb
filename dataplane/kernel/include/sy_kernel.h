// SPDX-License-Identifier: Apache-2.0
/*
 * kernel: the interface to Linux. A live mirror of the kernel's links, addresses, routes and
 * neighbours (netlink); the XDP flow director, which redirects steered packets of an interface to
 * the forwarder; and claims on VIPs and local addresses, which keep the kernel from using them. No
 * DPDK. Everything here runs on the control thread.
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
	int master; /* ifindex of the bridge, bond or VRF above; 0: none */
	int lower;  /* ifindex of the interface below, or of a veth's peer; 0: none */
	bool vrf_member;
	char kind[16]; /* "veth", "bond", "vlan", …; empty: physical */
};

struct sy_link_addr {
	int ifindex;
	struct sy_addr addr;
	uint8_t prefix_len; /* 0–32 for IPv4, 0–128 for IPv6 */
};

#define SY_ROUTE_HOPS 16

struct sy_route_hop {
	int ifindex;
	struct sy_addr via; /* all zero: on-link, the destination itself is the neighbour */
	uint8_t weight;     /* ≥ 1 */
};

struct sy_route {
	struct sy_addr prefix;
	uint8_t prefix_len; /* 0–32 for IPv4, 0–128 for IPv6 */
	bool blackhole;     /* blackhole, unreachable, prohibit */
	uint8_t hop_count;  /* without hops whose link is dead */
	uint32_t metric;
	struct sy_route_hop hop[SY_ROUTE_HOPS];
};

struct sy_neigh {
	int ifindex;
	struct sy_addr addr;
	uint8_t mac[6];
	bool valid;  /* mac is usable: reachable, stale, delay, probe, permanent, noarp */
	bool failed; /* the kernel gave up (NUD_FAILED) */
};

/* Packets that the kernel routes by more than their destination: by an ip rule, or by a route with
 * a source address or type of service. 0 bits: any address. */
struct sy_policy {
	struct sy_addr from, to;
	uint8_t from_bits, to_bits; /* of 128, 96 more for IPv4; 0: any */
	bool v6;
	uint8_t tos, proto;          /* 0: any */
	uint16_t sport[2], dport[2]; /* first and last, host order; last 0: any */
	char text[360];              /* description and remedy */
};

/*
 * Called for every change; `gone`: the object was removed. For a prefix that has several routes the
 * handler gets only the best one (lowest metric, main table before default), and a new call when
 * the best changes. Local, broadcast and multicast routes are not reported.
 */
struct sy_mirror_handler {
	void *ctx;
	void (*link)(void *ctx, const struct sy_link *link, bool gone);
	void (*addr)(void *ctx, const struct sy_link_addr *addr, bool gone);
	void (*route)(void *ctx, const struct sy_route *route, bool gone);
	void (*neigh)(void *ctx, const struct sy_neigh *neigh, bool gone);
	/* The first complete dump, or a resynchronisation after an overrun, was delivered. */
	void (*synced)(void *ctx);
	/* The reason to refuse all routing has changed: text names the VRF; NULL: none any more. */
	void (*refused)(void *ctx, const char *text);
	/* Policy routing has changed: it applies to these packets; the mirror's routes are valid
	 * for all others. */
	void (*policies)(void *ctx, const struct sy_policy *list, unsigned count);
	/* Are packets routed from the interface of this name? NULL: from all. */
	bool (*uses)(void *ctx, const char *name);
	/* Claims or the programs of health checks may have changed: SY_DISTURBED_… */
	void (*disturbed)(void *ctx, unsigned what);
};
#define SY_DISTURBED_CLAIMS 1u
#define SY_DISTURBED_CHECKS 2u

struct sy_mirror;

/* Opens the netlink sockets of the calling thread's network namespace and starts the first dump. */
int sy_mirror_open(const struct sy_mirror_handler *handler, struct sy_mirror **out,
                   struct sy_error *err);
void sy_mirror_close(struct sy_mirror *m);
/* Readable when sy_mirror_process() has work (an epoll descriptor). */
int sy_mirror_fd(const struct sy_mirror *m);
/*
 * Handles at most `budget` messages. Returns their number (0: none is waiting) or a negative errno:
 * -ENOMEM (it dumps again); any other: the netlink socket is broken. Never blocks. After an overrun
 * (ENOBUFS) it dumps again and reports only the differences.
 */
int sy_mirror_process(struct sy_mirror *m, unsigned budget);
/* Requests the kernel to resolve a neighbour and keep it resolved (NTF_EXT_MANAGED; NTF_USE on
 * kernels before 5.16). A permanent entry stays as it is. Asynchronous: the result arrives as a
 * neigh event. */
int sy_mirror_neigh_manage(struct sy_mirror *m, int ifindex, const struct sy_addr *addr);
/* Ends that, except for permanent entries: the kernel ages the entry as usual from then on. */
int sy_mirror_neigh_release(struct sy_mirror *m, int ifindex, const struct sy_addr *addr);
/* Looks up the best route in the mirror. Returns false if there is none. For the control thread and
 * tests. */
bool sy_mirror_lookup(const struct sy_mirror *m, const struct sy_addr *dst, struct sy_route *out);
/* Looks up a neighbour in the mirror. Returns false if there is none. For the control thread and
 * tests. */
bool sy_mirror_find_neigh(const struct sy_mirror *m, int ifindex, const struct sy_addr *addr,
                          struct sy_neigh *out);
/* Were all kernel reports about neighbours applied? That is: the socket is empty and no report was
 * lost. */
bool sy_mirror_is_current(const struct sy_mirror *m);
/* Shrinks the receive buffer, for the overrun test. */
int sy_mirror_set_buffer(struct sy_mirror *m, int bytes);

/* ---- flow director (director.c, director.bpf.c) ---------------------------------------------- */

/*
 * An XDP program. Its link is pinned under /sys/fs/bpf/steelyard/<netns inode>-<ifindex> and
 * outlives the process. The program looks up a packet's destination address and then, if the packet
 * is not for this host, its source. Steered are VIPs, local addresses and servers' ports: such a
 * packet is redirected to the AF_XDP socket of its queue, or dropped if there is none. All other
 * packets pass to the kernel, as do ARP and ND (ICMPv6 133–137, also when sent to a VIP).
 */
/* bits 0: a server; its packets are steered to any destination but this host. Otherwise a network:
 * packets from its hosts are steered unless they are for a host of this or another such network, or
 * for a multicast or link-local address. Hashed and compared as bytes. */
struct sy_source {
	struct sy_addr addr; /* of a network: its first address */
	uint16_t port;       /* network order; 0: any; of a network 0 */
	uint16_t proto;      /* TCP or UDP; of a network 0 */
	uint32_t bits;       /* 0: a server; else the prefix length out of 128 bits; IPv4 prefixes
	                        have 96 more than usual */
};

enum sy_director_mode { SY_DIRECTOR_AUTO, SY_DIRECTOR_NATIVE, SY_DIRECTOR_GENERIC };

struct sy_director;

/* Attaches to the interface, or takes over from an earlier process (same link, new program by
 * bpf_link_update, same maps: addresses stay steered until sy_director_settle()). AUTO: native, or
 * generic if the driver refuses. Acquires the lock of (namespace, interface): a second forwarder
 * gets -EBUSY and a text that names the first. */
int sy_director_open(const char *ifname, enum sy_director_mode mode, struct sy_director **out,
                     struct sy_error *err);
/* The first of two steps that do the same for the successor of a running forwarder. Loads the
 * program with the predecessor's maps; locks and changes nothing. Before sy_director_acquire() only
 * sy_director_queues() may be called. */
int sy_director_prepare(const char *ifname, enum sy_director_mode mode, struct sy_director **out,
                        struct sy_error *err);
/* The second step: acquires the lock (waiting up to wait_ms for it) and the link. Reloads the
 * program if the predecessor's maps are no longer the same. While all maps are the predecessor's,
 * its program continues to direct packets, to the sockets that are set from now on, until
 * sy_director_update(). */
int sy_director_acquire(struct sy_director *d, unsigned wait_ms, struct sy_error *err);
/* Replaces the predecessor's program if it is still on the link. The kernel needs some 10 ms for
 * it: call this after packets flow again. */
int sy_director_update(struct sy_director *d, struct sy_error *err);
/* After the interface was recreated under its name: attaches the program to the new one. Everything
 * steered stays steered; the sockets must be set again. May be retried after a failure. */
int sy_director_move(struct sy_director *d, struct sy_error *err);
/* frame_max: length of the longest frame that the sockets accept; longer ones are dropped; 0: any.
 * vlans: this interface has VLAN interfaces (802.1Q), and tagged frames pass to the kernel;
 * otherwise tagged frames for steered addresses are dropped. Returns 0 or a negative errno. */
int sy_director_set(struct sy_director *d, uint32_t frame_max, bool vlans);
struct sy_verify;
/* Reattaches the program if another program has detached or replaced it, and pins its link again if
 * the pin is gone. */
void sy_director_verify(struct sy_director *d, const struct sy_verify *v);
/* Releases the lock and closes. The program stays attached: steered packets are dropped, and the
 * kernel does not answer them. */
void sy_director_close(struct sy_director *d);
/* Number of receive queues of the interface (ethtool), at least 1. */
int sy_director_queues(const struct sy_director *d);
bool sy_director_is_native(const struct sy_director *d);
/* Sends packets of `queue` to the AF_XDP socket xsk_fd; −1 removes the socket. */
int sy_director_set_socket(struct sy_director *d, unsigned queue, int xsk_fd);
/* Steers a destination address (on) or stops steering it. */
int sy_director_steer(struct sy_director *d, const struct sy_addr *addr, bool on);
/* Ports of one protocol, host order. */
struct sy_port_range {
	uint16_t first, last, proto;
};
/* Sets the services of a steered VIP: from now on the program drops whole TCP and UDP packets to
 * ports outside of these ranges. Left to the forwarder are fragments, packets with IP options or
 * extension headers, and those with a TTL of 1. More than 10 separate ranges are joined across the
 * smallest gaps. n = 0, or sy_director_steer(): drops nothing. Returns 0 or a negative errno;
 * -ENOENT: the address is not steered. */
int sy_director_serve(struct sy_director *d, const struct sy_addr *addr,
                      const struct sy_port_range *range, size_t n);
/* A network whose packets are blocked. */
struct sy_blocked {
	struct sy_addr addr; /* its first address */
	uint8_t bits;        /* of the family: at most 32 or 128 */
};
/* Networks in ascending order of addresses, none within another. Immutable, reference-counted. */
struct sy_blocked_list;
/* Takes ownership of the array, even on failure; at[] is from malloc(), or NULL with count = 0.
 * Returns a reference, or NULL without memory. Any thread; the other functions: control thread. */
struct sy_blocked_list *sy_blocked_list_make(struct sy_blocked *at, size_t count);
struct sy_blocked_list *sy_blocked_list_hold(struct sy_blocked_list *list);
size_t sy_blocked_list_count(const struct sy_blocked_list *list);
/* NULL is allowed. */
void sy_blocked_list_drop(struct sy_blocked_list *list);
/* Blocks packets of these networks to VIPs set by sy_director_serve(), in place of all earlier
 * blocks: TCP segments that begin a connection (SYN without ACK), or with `all` any packet.
 * References the list. sy_director_block_step() does the work in pieces; until it is done, some
 * networks may still be as before. Returns 0 or a negative errno: -E2BIG, with nothing changed, if
 * the list has more than 1 048 576 IPv4 addresses in networks smaller than /24, 262 144 IPv6
 * networks of at least 48 bits, or 4096 shorter ones. */
int sy_director_block(struct sy_director *d, struct sy_blocked_list *list, bool all);
/* Does the next piece, some milliseconds. Returns 1 if more is left; 0 if all is done; -EAGAIN if
 * more is left but there is no memory now; or another negative errno if all is done except entries
 * that could not be written: these are not blocked. At the end, entries that are no longer in the
 * list are never blocked. */
int sy_director_block_step(struct sy_director *d);
/* Steers packets that a server sends from one port or from any, or that hosts of a network send,
 * unless they are for an address of this host. */
int sy_director_steer_source(struct sy_director *d, const struct sy_source *source, bool on);
/* Adds (on) or removes an address of this host, on any interface: packets for it are never steered
 * by their source. No effect on a steered address, for example a claimed IPv6 address. */
int sy_director_host(struct sy_director *d, const struct sy_addr *addr, bool on);
/* Stops steering entries of an earlier process that this one has not confirmed. Until then their
 * packets are dropped, so that a take-over never passes them to the kernel. */
int sy_director_settle(struct sy_director *d);

/* Per-interface counters of the program, packets. */
struct sy_director_stats {
	uint64_t steered, passed, dropped_no_socket;
	/* For steered addresses: in a VLAN or with more than one tag; longer than the sockets
	 * accept. For any address: more tags than are read; frame ends inside its IP header. */
	uint64_t dropped_vlan, dropped_too_big, dropped_truncated;
	uint64_t dropped_no_service; /* see sy_director_serve() */
	uint64_t dropped_blocked;    /* see sy_director_block() */
};
int sy_director_read_stats(const struct sy_director *d, struct sy_director_stats *out);

/* Is the host's bpffs not mounted by the host's first process? Then pins disappear with this mount
 * namespace. Returns false if that cannot be determined. */
bool sy_pins_are_private(void);

/* ---- claims (claim.c): VIPs and local addresses towards the kernel --------------------------- */

/*
 * For a claimed address the kernel answers ARP or ND, but never uses it as a source or sends resets
 * from it. IPv4: a `local` route on lo, table local, protocol 201 (steelyard's). IPv6: a /128 with
 * preferred lifetime 0, nodad, on the given port's interface. For both, an nftables table `inet
 * steelyard` drops every packet that this host sends from a claimed address, such as resets and
 * ICMP errors, except neighbour advertisements. It does not affect forwarded packets and ARP.
 */
struct sy_claims;

/* Opens the set, waiting up to wait_ms for its lock. Finds the claims of an earlier process, and
 * keeps them until sy_claims_settle(). */
int sy_claims_open(struct sy_claims **out, unsigned wait_ms, struct sy_error *err);
/* A number that identifies this thread's network namespace since boot (SO_NETNS_COOKIE; the inode
 * on older kernels). */
uint64_t sy_netns_cookie(void);
void sy_claims_close(struct sy_claims *c); /* claims stay on the host */
/* ifindex: the interface that answers for the address (0: any; IPv6 needs one). Idempotent. The
 * kernel removes IPv6 addresses when their link goes down: add them again when it comes up. Adding
 * one with another ifindex moves it. Refuses an address that the host itself has configured
 * (-EADDRINUSE). */
int sy_claims_add(struct sy_claims *c, const struct sy_addr *addr, int ifindex,
                  struct sy_error *err);
/* After an interface came up: restores the IPv6 claims that the kernel removed when it went down.
 * Returns 0 or the first failure as a negative errno. */
int sy_claims_renew(struct sy_claims *c, int ifindex);
/* The interface `from` was created again as `to`: assigns its IPv6 claims to `to`.
 * sy_claims_renew() then adds them there. */
void sy_claims_move(struct sy_claims *c, int from, int to);
/* Calls fn for each claimed address; fn must not change the set. */
void sy_claims_each(const struct sy_claims *c, void (*fn)(void *ctx, const struct sy_addr *addr),
                    void *ctx);
/* Fails as sy_claims_add() would for an address that the host has, or that no host can have.
 * Changes nothing. */
int sy_claims_check(const struct sy_claims *c, const struct sy_addr *addr, struct sy_error *err);
/* Describes the problem of a claimed address that the host uses too, with the remedy. */
void sy_claim_describe_double(const struct sy_addr *addr, char *text, size_t size);
/* Does this process have the claim, or did an earlier one leave it on this host? */
bool sy_claims_has(const struct sy_claims *c, const struct sy_addr *addr);
int sy_claims_remove(struct sy_claims *c, const struct sy_addr *addr);
/* Removes claims of an earlier process that this one has not confirmed. */
int sy_claims_settle(struct sy_claims *c);

/* ---- verification (claim_verify.c, guard_watch.c, setting.c) --------------------------------- */

/* Callbacks of a verification: objects that it has restored, and problems that it cannot fix, with
 * the remedy. It calls problem() at each verification while the problem lasts. */
struct sy_verify {
	void *ctx;
	void (*restored)(void *ctx, const char *text);
	void (*problem)(void *ctx, const char *text);
	/* Is the interface up? Then it must have its IPv6 claims. */
	bool (*is_up)(void *ctx, int ifindex);
};

/* Readable when a program changed nftables. */
int sy_claims_fd(const struct sy_claims *c);
/* Reads these events. Returns true if another process may have changed the guard. */
bool sy_claims_read(struct sy_claims *c);
/* Recreates the guard's table if another program has changed it. Some milliseconds for thousands of
 * claims. */
void sy_claims_verify_guard(struct sy_claims *c, const struct sy_verify *v);
/* Verifies some claims, and adds those that the host or the guard lacks. Returns true if more are
 * left: call it again. */
bool sy_claims_verify_step(struct sy_claims *c, const struct sy_verify *v);

/* An interface for sy_settings_verify(). */
struct sy_verify_port {
	const char *name;
	bool v4, v6; /* answers for claims of this family */
};
/* Reports as problems the sysctls that prevent the kernel from answering for claims on these
 * interfaces. */
void sy_settings_verify(const struct sy_verify_port *port, unsigned ports, bool checks,
                        const struct sy_verify *v);

/* ---- health checks on the VIP (check.c, check.bpf.c) ----------------------------------------- */

/*
 * Packets that this host sends to a VIP with a mark (SO_MARK) of the range below go to one server,
 * like a client's packets. The claim routes them to lo. There a tc program (clsact, egress) sends
 * them to the server's MAC address, in a tunnel if one is set, or drops them if the mark is
 * unknown. Servers answer from the VIP. A second program, on the ports' ingress, redirects the
 * answers to lo. The kernel accepts them there although the VIP looks like its own address
 * (net.ipv4.conf.lo.accept_local is set), and strict reverse-path filters pass them. Only packets
 * of a connection of this host are redirected. Design record 0015.
 */
struct sy_checks;

#define SY_CHECK_MARK_FIRST 0x53000001u
#define SY_CHECK_MARK_LAST  0x53ffffffu

struct sy_check {
	struct sy_addr vip, server;
	struct sy_addr source; /* of the tunnel, in the server's family; all zero: no tunnel */
	int ifindex;           /* interface to the server; 0: none, checks are dropped */
};

/* Loads the programs and changes nothing else. */
int sy_checks_open(struct sy_checks **out, struct sy_error *err);
/* Attaches the programs to lo and these interfaces and replaces those of an earlier process. They
 * outlive this process, as the flow director does, until sy_kernel_cleanup(). */
int sy_checks_attach(struct sy_checks *c, const int *ifindex, unsigned count, struct sy_error *err);
/* Reattaches programs that other programs have removed or replaced, and sets accept_local again. */
void sy_checks_verify(struct sy_checks *c, const int *ifindex, unsigned count,
                      const struct sy_verify *v);
/* Sets the target of a mark; NULL removes it. May be called before sy_checks_attach(). Returns 0 or
 * a negative errno; -E2BIG: too many. */
int sy_checks_set(struct sy_checks *c, uint32_t mark, const struct sy_check *check);
void sy_checks_close(struct sy_checks *c);

/* ---- cleanup (cleanup.c): everything that a forwarder may have left in this namespace -------- */

/* Detaches pinned links and removes claims and the nftables table. Calls report(text) for each
 * thing removed. Fails with -EBUSY while a forwarder runs. */
int sy_kernel_cleanup(void (*report)(void *ctx, const char *text), void *ctx, struct sy_error *err);
/* The same for a host whose addresses move to another node. XDP programs that steer sources stay,
 * without addresses, and drop the sources' packets: the kernel would route them untranslated until
 * all hosts send to the other node. */
int sy_kernel_release(void (*report)(void *ctx, const char *text), void *ctx, struct sy_error *err);

#endif

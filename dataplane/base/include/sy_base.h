// SPDX-License-Identifier: Apache-2.0
/*
 * base: helpers that every other module uses. No DPDK, no system state.
 *
 * Addresses are 16 bytes for both families (IPv4 as ::ffff:a.b.c.d), so one code path serves both.
 * Ports, addresses and checksums are in network order everywhere. If a variable is in host order,
 * its name or its comment says so.
 */
#ifndef SY_BASE_H
#define SY_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SY_CACHE_LINE                      64
#define SY_PAGE                            4096
#define SY_ARRAY_LEN(a)                    (sizeof(a) / sizeof((a)[0]))
#define SY_LIKELY(x)                       __builtin_expect(!!(x), 1)
#define SY_UNLIKELY(x)                     __builtin_expect(!!(x), 0)
#define SY_PRINTF(fmt, args)               __attribute__((format(printf, fmt, args)))
#define SY_CONTAINER_OF(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

/* For functions that only prefetch: GCC considers them free of effects and removes calls, unless
 * they are inlined before that. */
#define SY_PREFETCH_INLINE inline __attribute__((always_inline))

/* ---- errors (error.c) ------------------------------------------------------------------------ */

/* Where something failed and the remedy, as text for the operator. */
struct sy_error {
	int code; /* positive errno, 0: none */
	char text[300];
};

/* Fills *err (may be NULL) and returns -code; callers write `return sy_fail(...)`. */
int sy_fail(struct sy_error *err, int code, const char *fmt, ...) SY_PRINTF(3, 4);

/* Prepends "context: " to err's text and returns err's negative code (-EIO if err is NULL). */
int sy_fail_in(struct sy_error *err, const char *fmt, ...) SY_PRINTF(2, 3);

/* ---- log (log.c): one line per message to standard error; never on the packet path ----------- */

enum sy_log_level { SY_LOG_ERROR, SY_LOG_WARN, SY_LOG_INFO, SY_LOG_DEBUG };

void sy_log_set_level(enum sy_log_level max);
/* area: the module that logs ("kernel", "control", …). */
void sy_log(enum sy_log_level level, const char *area, const char *fmt, ...) SY_PRINTF(3, 4);

/* ---- secrets (secret.c) ---------------------------------------------------------------------- */

/* Excludes whole pages from core dumps: for keys that outlive the process. Copies elsewhere, as on
 * the stack, are wiped. */
void sy_secret_pages(void *pages, size_t len);
/* Overwrites memory; the compiler cannot omit it. Not by a library function: the linker would pull
 * in libbsd, which the forwarder does not need otherwise. */
static inline void sy_secret_wipe(void *secret, size_t len)
{
	memset(secret, 0, len);
	__asm__ volatile("" : : "r"(secret) : "memory");
}

/* ---- addresses (addr.c) ---------------------------------------------------------------------- */

struct sy_addr {
	union {
		uint8_t b[16];
		uint16_t h[8];
		uint32_t w[4];
		uint64_t d[2];
	};
};

/* A network. */
struct sy_prefix {
	struct sy_addr addr; /* its first address */
	uint8_t bits;        /* of the family: at most 32 or 128 */
};

#define SY_ADDR_TEXT 46 /* INET6_ADDRSTRLEN */

static inline struct sy_addr sy_addr_v4(uint32_t net_order)
{
	struct sy_addr a = {.w = {0, 0, 0, net_order}};
	a.h[5] = 0xffff;
	return a;
}

static inline bool sy_addr_is_v4(const struct sy_addr *a)
{
	return a->d[0] == 0 && a->h[4] == 0 && a->h[5] == 0xffff;
}

static inline bool sy_addr_equal(const struct sy_addr *a, const struct sy_addr *b)
{
	return ((a->d[0] ^ b->d[0]) | (a->d[1] ^ b->d[1])) == 0;
}

/* Accepts dotted IPv4 and any RFC 4291 text. Returns 0 or -EINVAL. */
int sy_addr_parse(const char *text, struct sy_addr *out);
/* Writes at most SY_ADDR_TEXT bytes: IPv4 dotted, IPv6 as in RFC 5952. Returns out. */
char *sy_addr_format(const struct sy_addr *a, char out[static SY_ADDR_TEXT]);
/* Converts raw bytes to an address; len is 4 or 16. Returns 0 or -EINVAL. */
int sy_addr_from_bytes(const uint8_t *bytes, size_t len, struct sy_addr *out);
/* Converts an address to raw bytes. Returns their number, 4 or 16. */
size_t sy_addr_to_bytes(const struct sy_addr *a, uint8_t out[static 16]);

/* True for "this network", loopback, multicast, reserved and broadcast addresses (RFC 6890). A
 * peer never sends from them. Network order. */
static inline bool sy_ipv4_is_bogus_source(uint32_t address)
{
	uint8_t first;
	memcpy(&first, &address, sizeof(first));
	return first == 0 || first == 127 || first >= 224;
}

/* The same for both families. */
static inline bool sy_addr_is_bogus_source(const struct sy_addr *a)
{
	if (sy_addr_is_v4(a))
		return sy_ipv4_is_bogus_source(a->w[3]);
	/* multicast, ::, ::1 */
	return a->b[0] == 0xff ||
	       (a->d[0] == 0 && a->w[2] == 0 && a->h[6] == 0 && a->b[14] == 0 && a->b[15] <= 1);
}

/* Link-local address (RFC 4291 2.5.6, RFC 3927): routers do not forward its packets. */
static inline bool sy_addr_is_link_local(const struct sy_addr *a)
{
	return sy_addr_is_v4(a) ? a->b[12] == 169 && a->b[13] == 254
	                        : a->b[0] == 0xfe && (a->b[1] & 0xc0) == 0x80;
}

/* ---- checksum arithmetic (RFC 1071, RFC 1624) ------------------------------------------------ */

/* Ones' complement sums of network-order 16-bit words are kept unfolded in 32 or 64 bits. */
static inline uint16_t sy_csum_fold(uint64_t sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)((sum & 0xffff) + (sum >> 16));
}

/* Sum of len bytes as network-order words; a last single byte is padded with zero. Not inverted. */
uint64_t sy_csum_sum(const void *data, size_t len);

/* Sum of an address as it appears in a header: 2 words for IPv4, 8 for IPv6. */
static inline uint32_t sy_csum_addr(const struct sy_addr *a)
{
	uint32_t low = (uint32_t)a->h[6] + a->h[7];
	if (sy_addr_is_v4(a))
		return low;
	return low + a->h[0] + a->h[1] + a->h[2] + a->h[3] + a->h[4] + a->h[5];
}

/* Delta for sy_csum_apply(csum, delta), which replaces words that sum to `old` by words that sum to
 * `new` (RFC 1624, eqn. 3: HC' = ~(~HC + ~m + m')). */
static inline uint16_t sy_csum_delta(uint64_t old, uint64_t new)
{
	return sy_csum_fold(new + (uint16_t)~sy_csum_fold(old));
}

static inline uint16_t sy_csum_apply(uint16_t csum, uint16_t delta)
{
	return (uint16_t)~sy_csum_fold((uint64_t)(uint16_t)~csum + delta);
}

/* The delta of the reverse direction. */
static inline uint16_t sy_csum_inverse(uint16_t delta)
{
	return (uint16_t)~delta;
}

/* ---- hashes (hash.c) ------------------------------------------------------------------------- */

/* The five-tuple as it appears in a packet. 40 bytes, no padding: hashed as five 64-bit words. */
struct sy_tuple {
	struct sy_addr src, dst;
	uint16_t sport, dport;
	uint32_t proto;
};
_Static_assert(sizeof(struct sy_tuple) == 40, "hashed as five words");

/* A secret of this instance; without it an attacker cannot craft collisions. */
struct sy_hash_key {
	uint64_t k[8];
};

static inline uint64_t sy_hash_mix(uint64_t a, uint64_t b)
{
	__uint128_t p = (__uint128_t)a * b;
	return (uint64_t)p ^ (uint64_t)(p >> 64);
}

/*
 * 64 well-mixed bits: folded 64×64→128 products of keyed words. Inline because it runs for every
 * packet. The last product spreads consecutive ports of one client. Without it their hashes are
 * multiples of one factor, and some keys map those to few buckets. A zero factor makes a product
 * lose the other factor; as the key is secret, that happens only by chance (2^-64 per try). Both
 * IPv4 addresses are one word, the source in the low half, which saves two products. last: ports
 * and protocol, as in a tuple.
 */
static inline uint64_t sy_hash_v4(const struct sy_hash_key *key, uint64_t addrs, uint64_t last)
{
	uint64_t h = sy_hash_mix(addrs ^ key->k[0], last ^ key->k[1]);
	return sy_hash_mix(h ^ key->k[6], key->k[7]);
}

/* src, dst: 16 bytes each, of any alignment. */
static inline uint64_t sy_hash_v6(const struct sy_hash_key *key, const uint8_t *src,
                                  const uint8_t *dst, uint64_t last)
{
	uint64_t s[2], d[2];
	memcpy(s, src, sizeof(s));
	memcpy(d, dst, sizeof(d));
	uint64_t h = sy_hash_mix(s[0] ^ key->k[0], s[1] ^ key->k[1]) ^
	             sy_hash_mix(d[0] ^ key->k[2], d[1] ^ key->k[3]);
	h = sy_hash_mix(h ^ key->k[4], last ^ key->k[5]);
	return sy_hash_mix(h ^ key->k[6], key->k[7]);
}

static inline uint64_t sy_hash_tuple(const struct sy_hash_key *key, const struct sy_tuple *t)
{
	uint64_t last;
	memcpy(&last, &t->sport, sizeof(last));
	if (sy_addr_is_v4(&t->src) && sy_addr_is_v4(&t->dst))
		return sy_hash_v4(key, t->src.w[3] | (uint64_t)t->dst.w[3] << 32, last);
	return sy_hash_v6(key, t->src.b, t->dst.b, last);
}

/* Fills the key from the kernel's random source. Returns 0 or a negative errno. */
int sy_hash_key_random(struct sy_hash_key *key);

/* ---- slots (slot.c): the unit of ownership --------------------------------------------------- */

/*
 * slot = H(address) ^ T[port] of the client's side. Both are keyed by a secret of the installation
 * (docs/design/0019-slots.md). H is a byte of the product of the address's words. T is the XOR of
 * two secret permutations of the port's bytes. Each address therefore has the same number of ports
 * in each slot, and code can enumerate them.
 */
#define SY_SLOTS      256
#define SY_SLOT_PORTS 256 /* of the 65536 ports of one address, those in one slot */

/* All forwarders that share sessions have the same key. */
struct sy_slot_key {
	uint64_t k[2];
};

/* Tables derived from the key. Written before any other thread runs, read by all threads. */
struct sy_slot_map {
	uint64_t address[2], address_v4; /* address_v4: address[1] ^ second word of ::ffff:0:0 */
	uint8_t first[256], second[256]; /* permutations of a port's bytes, in memory order */
	uint8_t second_of[256];          /* the inverse of second[] */
} __attribute__((aligned(SY_PAGE)));     /* a page of its own: sy_secret_pages() */
extern struct sy_slot_map sy_slot_map;

/* Derives sy_slot_map from this key. Call it before any other thread runs. */
void sy_slot_set_key(const struct sy_slot_key *key);
/* A fixed key for tests and benchmarks; sy_slot_init() sets it. */
extern const struct sy_slot_key sy_slot_key_fixed;
void sy_slot_init(void);
/* Fills the key from the kernel's random source. Returns 0 or a negative errno. */
int sy_slot_key_random(struct sy_slot_key *key);
/* Reads 32 hexadecimal digits; white space may follow. Returns 0 or -EINVAL. */
int sy_slot_key_parse(const char *text, struct sy_slot_key *key);

/* Reads the same from a file. Returns 0, or a negative errno and fills err. */
int sy_slot_key_read(const char *path, struct sy_slot_key *key, struct sy_error *err);

/* The port's contribution to the slot: T[port]. Port in network order. */
static inline uint8_t sy_slot_of_port(uint16_t port)
{
	return sy_slot_map.first[port & 0xff] ^ sy_slot_map.second[port >> 8];
}

static inline uint64_t sy_slot_product(const struct sy_addr *a)
{
	__uint128_t p = (__uint128_t)(a->d[0] ^ sy_slot_map.address[0]) *
	                (a->d[1] ^ sy_slot_map.address[1]);
	return (uint64_t)(p >> 64);
}

static inline uint8_t sy_slot_of_addr(const struct sy_addr *a)
{
	return (uint8_t)sy_slot_product(a);
}

/* A hash of the address by the same key, without the bits that give the slot. */
static inline uint32_t sy_slot_hash(const struct sy_addr *a)
{
	return (uint32_t)(sy_slot_product(a) >> 8);
}

/* Slot of a client-side address and port (network order). */
static inline uint8_t sy_slot_of(const struct sy_addr *a, uint16_t port)
{
	return sy_slot_of_addr(a) ^ sy_slot_of_port(port);
}

/* The same for an IPv4 address in network order. */
static inline uint8_t sy_slot_of_v4(uint32_t addr, uint16_t port)
{
	__uint128_t p = (__uint128_t)sy_slot_map.address[0] *
	                ((uint64_t)addr << 32 ^ sy_slot_map.address_v4);
	return (uint8_t)(p >> 64) ^ sy_slot_of_port(port);
}

/* The port (network order) that puts address a into this slot and whose first byte in memory is n
 * (0 ≤ n < SY_SLOT_PORTS). There is exactly one for each n. */
static inline uint16_t sy_slot_port(uint8_t slot, const struct sy_addr *a, unsigned n)
{
	uint8_t second = slot ^ sy_slot_of_addr(a) ^ sy_slot_map.first[n];
	return (uint16_t)(n | sy_slot_map.second_of[second] << 8);
}

/* ---- clocks ---------------------------------------------------------------------------------- */

uint64_t sy_clock_ns(void); /* CLOCK_MONOTONIC, nanoseconds */

/* ---- sequence numbers (RFC 9293, 3.4) and 16-bit ticks --------------------------------------- */

static inline bool sy_seq_before(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

/* ---- drops: every reason, its name and what an operator can do (drop.c) ---------------------- */

#define SY_DROPS(X)                                                                                \
	X(NONE, "none", "not dropped")                                                             \
	X(TRUNCATED, "truncated", "the packet is shorter than its headers say")                    \
	X(NOT_IP, "not-ip", "neither IPv4 nor IPv6")                                               \
	X(VLAN, "vlan",                                                                            \
	  "frame of a VLAN (802.1Q or 802.1ad): use the VLAN's own interface as port")             \
	X(BAD_IP_HEADER, "bad-ip-header", "IP version, header length or total length is wrong")    \
	X(BAD_IP_CHECKSUM, "bad-ip-checksum", "IPv4 header checksum is wrong")                     \
	X(BAD_SOURCE, "bad-source", "loopback, multicast, reserved or unspecified source")         \
	X(LINK_LOCAL, "link-local",                                                                \
	  "a link-local source must not leave its link (RFC 4291 2.5.6, RFC 3927 2.6.2): "         \
	  "give that host an address of wider scope")                                              \
	X(OWN_SOURCE, "own-source",                                                                \
	  "the source is an address of this host, a VIP, a local or pool address, or a "           \
	  "network's broadcast address: forged, or another host has an address of this one")       \
	X(LAND, "land", "source and destination are the same (land attack)")                       \
	X(FRAGMENT_TIMEOUT, "fragment-timeout",                                                    \
	  "a fragment waited 2 s for the rest of its datagram: look for loss, or for the "         \
	  "reason that another fragment was dropped for")                                          \
	X(FRAGMENT_DUPLICATE, "fragment-duplicate", "the fragment has already arrived")            \
	X(FRAGMENT_OVERLAP, "fragment-overlap",                                                    \
	  "the datagram's fragments overlap or disagree on its length (RFC 5722)")                 \
	X(FRAGMENT_WAIT_FULL, "fragment-wait-full",                                                \
	  "too many fragments waited for the rest of their datagrams: the oldest datagram was "    \
	  "dropped, first of a source with more than its share")                                   \
	X(FRAGMENT_TOO_MANY, "fragment-too-many", "the datagram has more than 128 fragments")      \
	X(ICMP_FRAGMENT, "icmp-fragment", "a fragment of an ICMP message: ping with less data")    \
	X(TINY_FRAGMENT, "tiny-fragment",                                                          \
	  "a fragment too short for the headers that filters read (RFC 1858, RFC 7112)")           \
	X(BAD_FRAGMENT, "bad-fragment",                                                            \
	  "a fragment with an impossible length or offset (ping of death)")                        \
	X(IP_OPTIONS, "ip-options", "malformed IPv4 options")                                      \
	X(SOURCE_ROUTE, "source-route",                                                            \
	  "IPv4 source routing, which is only used for attacks today")                             \
	X(EXTENSION_HEADER, "extension-header",                                                    \
	  "IPv6 extension headers that are malformed, out of order, too many or for mobility")     \
	X(ROUTING_HEADER, "routing-header",                                                        \
	  "IPv6 routing header of type 0 (RFC 5095), or with segments left")                       \
	X(UNKNOWN_PROTOCOL, "unknown-protocol", "neither TCP, UDP nor ICMP")                       \
	X(BAD_L4_HEADER, "bad-l4-header", "TCP data offset, UDP length or ICMP length is wrong")   \
	X(BAD_TCP_FLAGS, "bad-tcp-flags", "a combination of TCP flags that no TCP stack sends")    \
	X(UNFINISHED_CHECKSUM, "unfinished-checksum",                                              \
	  "the sender left the checksum to hardware that does not exist: ethtool -K DEV tx off "   \
	  "there")                                                                                 \
	X(BAD_L4_CHECKSUM, "bad-l4-checksum", "TCP, UDP or ICMP checksum is wrong")                \
	X(OTHER_HOST, "other-host", "sent to another host's MAC address; a switch floods it here") \
	X(UNKNOWN_DESTINATION, "unknown-destination",                                              \
	  "the destination is neither a VIP nor a local address: if it should be one, see "        \
	  "`steelyard get "                                                                        \
	  "services` and local_addresses in the file")                                             \
	X(NO_SERVICE, "no-service",                                                                \
	  "the VIP has no service on this protocol and port: a scan, or a service that the file "  \
	  "lacks "                                                                                 \
	  "(`steelyard get services`)")                                                            \
	X(NO_SESSION, "no-session",                                                                \
	  "no session, and the packet cannot create one; if routers move flows between "           \
	  "forwarders, see sloppy_tcp of the service")                                             \
	X(RELAY_RATE, "relay-rate",                                                                \
	  "no session at this node of an ECMP group, and no node had one for too many packets "    \
	  "before it: a flood")                                                                    \
	X(ACL_DROP, "acl-drop",                                                                    \
	  "an access list drops its source, protocol or port: `steelyard get access` shows which " \
	  "rule; what the XDP program drops early is counted in one row, not by rule")             \
	X(ACL_RESET, "acl-reset", "an access list refuses it, and its sender was told")            \
	X(NO_SERVER, "no-server",                                                                  \
	  "the service has no server that takes new sessions: none is configured, or each is "     \
	  "down, drained, "                                                                        \
	  "killed or has weight 0 (`steelyard get servers`)")                                      \
	X(CONNECTION_LIMIT, "connection-limit",                                                    \
	  "max_sessions of the service, or of all its available servers, is reached: raise it, "   \
	  "or add servers")                                                                        \
	X(CLIENT_RATE, "client-rate",                                                              \
	  "the client begins more sessions than client_limits of the service allow: raise them, "  \
	  "if it is no attacker")                                                                  \
	X(CLIENT_SESSIONS, "client-sessions",                                                      \
	  "the client has as many sessions as client_limits of the service allow: raise them, if " \
	  "it is no attacker")                                                                     \
	X(SESSION_RATE, "session-rate",                                                            \
	  "a limit of new sessions is reached: `steelyard get limits` shows which; raise it, if "  \
	  "they are welcome")                                                                      \
	X(LIMIT_EXCEEDED, "limit-exceeded",                                                        \
	  "a limit of bits or packets is reached: `steelyard get limits` shows which; raise it, "  \
	  "if the traffic is welcome")                                                             \
	X(NO_LOCAL_ADDRESS, "no-local-address",                                                    \
	  "no local address of the server's family: add one to local_addresses")                   \
	X(NAT_CLASH, "nat-clash",                                                                  \
	  "the client uses the same port to the same NAT server through another VIP: give each "   \
	  "VIP servers or "                                                                        \
	  "server ports of its own, or use FNAT")                                                  \
	X(NAT_STRAY, "nat-stray",                                                                  \
	  "a packet from a NAT server and its service's port, without a session")                  \
	X(SNAT_STRAY, "snat-stray",                                                                \
	  "a packet to a pool address of SNAT, without a session of an inside host")               \
	X(BACKUP, "backup",                                                                        \
	  "a new connection of an inside host reached a backup: its gateway has to move with "     \
	  "the role, as keepalived's virtual address does")                                        \
	X(NO_POOL_PORT, "no-pool-port",                                                            \
	  "all ports of the pool towards that destination are in use: add pool addresses")         \
	X(NO_LOCAL_PORT, "no-local-port",                                                          \
	  "all local ports towards the server are in use: add local addresses")                    \
	X(TABLE_FULL, "table-full",                                                                \
	  "a slot of the session table is full and has no session to evict: if the whole "         \
	  "table is nearly full (status), raise --sessions")                                       \
	X(SESSION_EVICTED, "session-evicted",                                                      \
	  "not a packet: a closing or idle UDP session ended early, as its slot was full: raise "  \
	  "--sessions or --max-sessions, or look for a flood")                                     \
	X(EMBRYONIC_EVICTED, "embryonic-evicted",                                                  \
	  "not a packet: a half-open or unanswered session ended early, as such sessions had "     \
	  "their share of the table or of local ports: look for a flood (syn_defence), or add "    \
	  "local addresses")                                                                       \
	X(SERVER_REMOVED, "server-removed",                                                        \
	  "the session's server or service was removed: drain a server before (`steelyard drain "  \
	  "--wait`)")                                                                              \
	X(SESSION_KILLED, "session-killed",                                                        \
	  "the session expired, or its server was killed or failed: its ends get resets")          \
	X(BAD_COOKIE, "bad-cookie",                                                                \
	  "an ACK of no session whose number is no SYN cookie: forged, or too old")                \
	X(SYN_PROOF, "syn-proof",                                                                  \
	  "a client's answer to a challenge of syn_defence; nothing is lost")                      \
	X(OPENING, "opening",                                                                      \
	  "the server has not accepted the connection yet; the sender repeats what it needs")      \
	X(BAD_TCP_STATE, "bad-tcp-state", "TCP flags that the session's state does not allow")     \
	X(NO_ROUTE, "no-route",                                                                    \
	  "the kernel has no route, or its route leaves by an interface that is not a port: ask "  \
	  "`ip route get "                                                                         \
	  "ADDRESS`, then add a route, or start the forwarder with that interface as --port")      \
	X(BLACKHOLE, "blackhole",                                                                  \
	  "the kernel's route is blackhole, unreachable or prohibit: see `ip route get ADDRESS`")  \
	X(NOT_ON_LINK, "not-on-link",                                                              \
	  "a DR server is behind a router, which would send the VIP's packets back: connect "      \
	  "the forwarder to the server's network, or use FNAT")                                    \
	X(NO_NEIGHBOUR, "no-neighbour",                                                            \
	  "the next hop did not answer ARP or ND in time: is it up, on this link and in this "     \
	  "VLAN? `ip neigh` "                                                                      \
	  "lists the FAILED ones")                                                                 \
	X(NEIGHBOUR_QUEUE, "neighbour-queue",                                                      \
	  "too many packets already wait for the next hop's answer to ARP or ND: see "             \
	  "no-neighbour")                                                                          \
	X(TTL_EXPIRED, "ttl-expired",                                                              \
	  "TTL or hop limit has expired: a traceroute, or routers that send packets round in "     \
	  "circles")                                                                               \
	X(TOO_BIG, "too-big",                                                                      \
	  "larger than the egress MTU, which the sender was informed of; or larger than a port's " \
	  "packet buffers: see get ports")                                                         \
	X(UNTRANSLATABLE, "untranslatable",                                                        \
	  "UDP without a checksum, over IPv6 or in fragments, cannot be translated to the other "  \
	  "address family")                                                                        \
	X(NO_CLIENT_ADDRESS, "no-client-address",                                                  \
	  "the TCP header has no space for the client's address; the packet was forwarded "        \
	  "without it")                                                                            \
	X(ICMP_UNHANDLED, "icmp-unhandled",                                                        \
	  "an ICMP message that is neither an echo nor an error that an endpoint needs")           \
	X(ICMP_NO_SESSION, "icmp-no-session", "an ICMP error about a packet without a session")    \
	X(PATH_MTU_KEPT, "path-mtu-kept",                                                          \
	  "an error about one client's path MTU below 1280 bytes, not passed to an FNAT server, "  \
	  "which would apply it to all clients; packets to that client are fragmented here")       \
	X(BAD_PATH_MTU, "bad-path-mtu",                                                            \
	  "an ICMP error reports a path MTU below the least of its protocol, 68 bytes of IPv4 or " \
	  "1280 of IPv6 (RFC 791, RFC 8201 4): forged, or from a router with an error")            \
	X(ECHO_RATE, "echo-rate",                                                                  \
	  "an echo request above the rate that is answered, in all or from one network: let "      \
	  "monitoring ping less often, or look for a flood")                                       \
	X(ICMP_RATE, "icmp-rate", "the rate limit suppressed an ICMP answer")                      \
	X(RESET_RATE, "reset-rate", "the rate limit suppressed a reset or probe of the forwarder") \
	X(TX_FULL, "tx-full",                                                                      \
	  "the port's transmit queue is full: the link is slower than what is to be sent, or its " \
	  "driver is; "                                                                            \
	  "see `steelyard get ports`")                                                             \
	X(SHAPING_FULL, "shaping-full",                                                            \
	  "a queue of the port's shaping is full: `steelyard get shaping` shows which; raise its " \
	  "rate, or let it send less")                                                             \
	X(SHAPING_EARLY, "shaping-early",                                                          \
	  "a queue of the port's shaping grows long, and has early drops: TCP then slows down")    \
	X(PORT_DOWN, "port-down",                                                                  \
	  "the egress port is down: see `ip link` and `steelyard get ports`")                      \
	X(STEERING_FULL, "steering-full",                                                          \
	  "the ring to the slot's worker is full: that worker is overloaded (`steelyard get "      \
	  "workers`); give "                                                                       \
	  "the forwarder more --workers")                                                          \
	X(EVENT_FULL, "event-full",                                                                \
	  "the event device, through which limits with `engine: atomic` let packets pass, is "     \
	  "full: its workers are overloaded; give such limits `engine: cas`, or the forwarder "    \
	  "more --workers")                                                                        \
	X(OVERLOAD, "overload",                                                                    \
	  "its worker could not keep up, and of all packets left out those that begin "            \
	  "sessions; a client that asks again is served (docs/attack.md): give the forwarder "     \
	  "more --workers")                                                                        \
	X(NO_BUFFER, "no-buffer", "the packet pool is empty: raise --mbufs")

enum sy_drop {
#define X(id, name, help) SY_DROP_##id,
	SY_DROPS(X)
#undef X
	        SY_DROP_COUNT
};

const char *sy_drop_name(enum sy_drop reason);
const char *sy_drop_help(enum sy_drop reason);

#endif

// SPDX-License-Identifier: Apache-2.0
#include "director_fixture.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define FRAMES 4096

int near_ns, far_ns;
struct sy_director *director;

/* ---- set-up ---------------------------------------------------------------------------------- */

int direct_setup(void **state)
{
	far_ns = netns_new();
	near_ns = netns_new();
	veth_new("near0", "far0", far_ns);
	sh("ip addr add 192.0.2.1/24 dev near0; ip addr add 2001:db8::1/64 dev near0 nodad");
	sh("sysctl -qw net.ipv4.ip_forward=0");
	netns_enter(far_ns);
	sh("ip addr add 192.0.2.2/24 dev far0; ip addr add 2001:db8::2/64 dev far0 nodad");
	sh("ip route add " VIP4 " via 192.0.2.1; ip -6 route add " VIP6 " via 2001:db8::1");
	netns_enter(near_ns);
	return 0;
}

int direct_teardown(void **state)
{
	sy_director_close(director);
	director = NULL;
	return netns_cleanup(near_ns, far_ns);
}

void director_start(enum sy_director_mode mode)
{
	struct sy_error err = {0};

	if (sy_director_open("near0", mode, &director, &err))
		fail_msg("%s", err.text);
}

void director_stop(void)
{
	sy_director_close(director);
	director = NULL;
}

struct sy_director_stats stats(void)
{
	struct sy_director_stats s;

	assert_int_equal(sy_director_read_stats(director, &s), 0);
	return s;
}

/* ---- traffic --------------------------------------------------------------------------------- */

void far_send_bytes(const char *dst, uint16_t port, size_t bytes)
{
	static const char text[8192] = "steelyard";
	struct sy_addr addr = addr_of(dst);
	struct sockaddr_in to4 = {.sin_family = AF_INET, .sin_port = htons(9)};
	struct sockaddr_in6 to6 = {.sin6_family = AF_INET6, .sin6_port = htons(9)};
	bool v4 = sy_addr_is_v4(&addr);
	int fd;

	netns_enter(far_ns);
	fd = socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	const struct sockaddr_in from4 = {.sin_family = AF_INET, .sin_port = htons(port)};
	const struct sockaddr_in6 from6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	assert_int_equal(
	        bind(fd, v4 ? (void *)&from4 : (void *)&from6, v4 ? sizeof(from4) : sizeof(from6)),
	        0);
	memcpy(&to4.sin_addr, addr.b + 12, 4);
	memcpy(&to6.sin6_addr, addr.b, 16);
	assert_int_equal(sendto(fd, text, bytes, 0, v4 ? (void *)&to4 : (void *)&to6,
	                        v4 ? sizeof(to4) : sizeof(to6)),
	                 bytes);
	close(fd);
	netns_enter(near_ns);
}

void far_send_from(const char *dst, uint16_t port)
{
	far_send_bytes(dst, port, 9);
}

void far_send(const char *dst)
{
	far_send_from(dst, 0);
}

/* Returns its length. */
static unsigned quote_make(uint8_t *out, const struct sy_addr *src, const struct sy_addr *dst,
                           uint16_t port, unsigned extra)
{
	bool v4 = sy_addr_is_v4(dst);
	uint8_t *at = out + (v4 ? 20 : 40);
	const uint16_t ports[2] = {htons(40000), htons(port)};

	out[0] = (uint8_t)(v4 ? 0x45 + extra / 4 : 0x60);
	out[v4 ? 9 : 6] = !v4 && extra ? IPPROTO_DSTOPTS : IPPROTO_UDP;
	memcpy(out + (v4 ? 12 : 8), v4 ? src->b + 12 : src->b, v4 ? 4 : 16);
	memcpy(out + (v4 ? 16 : 24), v4 ? dst->b + 12 : dst->b, v4 ? 4 : 16);
	for (unsigned n = 0; n < extra; n += 8, at += 8)
		at[0] = !v4 && n + 8 < extra ? IPPROTO_DSTOPTS : IPPROTO_UDP;
	memcpy(at, ports, sizeof(ports));
	return (unsigned)(at - out) + 8;
}

void far_send_error(const char *dst, uint8_t type, const char *quoted, uint16_t port,
                    unsigned extra)
{
	struct sy_addr addr = addr_of(dst), about = addr_of(quoted);
	bool v4 = sy_addr_is_v4(&addr);
	uint8_t message[256] = {type};
	unsigned len = 8 + quote_make(message + 8, &addr, &about, port, extra);
	struct sockaddr_in to4 = {.sin_family = AF_INET};
	struct sockaddr_in6 to6 = {.sin6_family = AF_INET6};
	int fd;

	netns_enter(far_ns);
	fd = socket(v4 ? AF_INET : AF_INET6, SOCK_RAW | SOCK_CLOEXEC,
	            v4 ? IPPROTO_ICMP : IPPROTO_ICMPV6);
	assert_true(fd >= 0);
	memcpy(&to4.sin_addr, addr.b + 12, 4);
	memcpy(&to6.sin6_addr, addr.b, 16);
	assert_int_equal(sendto(fd, message, len, 0, v4 ? (void *)&to4 : (void *)&to6,
	                        v4 ? sizeof(to4) : sizeof(to6)),
	                 len);
	close(fd);
	netns_enter(near_ns);
}

void await_counter(size_t offset, uint64_t from)
{
	uint64_t end = sy_clock_ns() + SUPPORT_PATIENCE_MS * 1000000ull;

	for (;;) {
		struct sy_director_stats s = stats();

		if (*(const uint64_t *)((const char *)&s + offset) > from)
			return;
		if (sy_clock_ns() > end)
			fail_msg("counter at offset %zu does not grow", offset);
		poll(NULL, 0, 5);
	}
}

void receiver_open(struct receiver *r, unsigned queue)
{
	struct xsk_socket_config config = {.rx_size = 64,
	                                   .libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD,
	                                   .bind_flags = XDP_COPY};
	uint64_t end = sy_clock_ns() + SUPPORT_PATIENCE_MS * 1000000ull;
	uint32_t at = 0;
	int rc;

	memset(r, 0, sizeof(*r));
	r->frames =
	        mmap(NULL, 64 * FRAMES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(r->frames, MAP_FAILED);
	assert_int_equal(
	        xsk_umem__create(&r->umem, r->frames, 64 * FRAMES, &r->fill, &r->done, NULL), 0);
	/* A socket holds its queue for a short time after it was closed. */
	while ((rc = xsk_socket__create(&r->xsk, "near0", queue, r->umem, &r->rx, NULL, &config)) ==
	               -EBUSY &&
	       sy_clock_ns() < end)
		poll(NULL, 0, 1);
	assert_int_equal(rc, 0);
	assert_int_equal(xsk_ring_prod__reserve(&r->fill, 32, &at), 32);
	for (unsigned i = 0; i < 32; i++)
		*xsk_ring_prod__fill_addr(&r->fill, at + i) = i * FRAMES;
	xsk_ring_prod__submit(&r->fill, 32);
}

void receiver_close(struct receiver *r)
{
	xsk_socket__delete(r->xsk);
	xsk_umem__delete(r->umem);
	munmap(r->frames, 64 * FRAMES);
}

void receivers_expect(struct receiver r[2], uint16_t ethertype)
{
	struct pollfd fd[2] = {{.fd = xsk_socket__fd(r[0].xsk), .events = POLLIN},
	                       {.fd = xsk_socket__fd(r[1].xsk), .events = POLLIN}};
	uint32_t at = 0;

	assert_true(poll(fd, 2, SUPPORT_PATIENCE_MS) > 0);
	for (unsigned i = 0; i < 2; i++) {
		const struct xdp_desc *desc;
		const uint8_t *frame;

		if (!xsk_ring_cons__peek(&r[i].rx, 1, &at))
			continue;
		desc = xsk_ring_cons__rx_desc(&r[i].rx, at);
		frame = xsk_umem__get_data(r[i].frames, desc->addr);
		assert_int_equal(frame[12] << 8 | frame[13], ethertype);
		xsk_ring_cons__release(&r[i].rx, 1);
		return;
	}
	fail_msg("woken without a frame");
}

void steer(const char *text, bool on)
{
	struct sy_addr addr = addr_of(text);

	assert_int_equal(sy_director_steer(director, &addr, on), 0);
}

void director_settle(void)
{
	struct sy_director_stats before;

	steer(VIP4, true);
	assert_int_equal(sy_director_settle(director), 0);
	before = stats();
	far_send(VIP4);
	await_more(dropped_no_socket, before);
	before = stats();
	far_send(VIP6);
	await_more(passed, before);
	assert_int_equal(stats().dropped_no_socket, before.dropped_no_socket);
}

static bool pinned_link(struct bpf_link_info *info)
{
	uint32_t len = sizeof(*info);
	struct stat st;
	char pin[128];
	int fd;

	memset(info, 0, sizeof(*info));
	assert_int_equal(stat("/proc/thread-self/ns/net", &st), 0);
	snprintf(pin, sizeof(pin), "/sys/fs/bpf/steelyard/%lu-%u", (unsigned long)st.st_ino,
	         if_nametoindex("near0"));
	fd = bpf_obj_get(pin);
	if (fd < 0)
		return false;
	assert_int_equal(bpf_obj_get_info_by_fd(fd, info, &len), 0);
	close(fd);
	return true;
}

uint32_t pinned_link_id(void)
{
	struct bpf_link_info info;

	return pinned_link(&info) ? info.id : 0;
}

uint32_t pinned_program_id(void)
{
	struct bpf_link_info info;

	return pinned_link(&info) ? info.prog_id : 0;
}

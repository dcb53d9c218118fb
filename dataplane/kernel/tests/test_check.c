// SPDX-License-Identifier: Apache-2.0
/* Health checks on the VIP: real connections with a mark, and what remains after a process ends. */
#include "netns.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MARK 0x53000007u
#define PORT 8080

/* This host has p0 (192.0.2.1, 2001:db8::1), the server eth0 (.2, ::2) and the VIPs on its lo. */
static int here, there;
static const char *const vip[] = {"2001:db8::80", "192.0.2.80"};
static const char *const own[] = {"2001:db8::1", "192.0.2.1"};
static const char *const server[] = {"2001:db8::2", "192.0.2.2"};

static void vips_claim(struct sy_claims **claims)
{
	struct sy_error err = {0};

	assert_int_equal(sy_claims_open(claims, 0, &err), 0);
	for (int v4 = 0; v4 < 2; v4++) {
		struct sy_addr addr = addr_of(vip[v4]);

		assert_int_equal(sy_claims_add(*claims, &addr, (int)if_nametoindex("p0"), &err), 0);
	}
}

static int setup(void **state)
{
	static struct sy_claims *claims;

	there = netns_new();
	here = netns_new();
	veth_new("p0", "eth0", there);
	/* Strict, as some distributions set it. */
	sh("sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.p0.rp_filter=1");
	sh("ip address add 192.0.2.1/24 dev p0 && ip address add 2001:db8::1/64 dev p0 nodad");
	netns_enter(there);
	sh("sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2");
	sh("ip address add 192.0.2.2/24 dev eth0 && ip address add 2001:db8::2/64 dev eth0 nodad");
	sh("ip address add 192.0.2.80/32 dev lo && ip address add 2001:db8::80/128 dev lo nodad");
	netns_enter(here);
	vips_claim(&claims);
	*state = claims;
	return 0;
}

static int teardown(void **state)
{
	sy_claims_close(*state);
	return netns_cleanup(here, there);
}

static struct sy_checks *checks_begin(void)
{
	int ifindex = (int)if_nametoindex("p0");
	struct sy_error err = {0};
	struct sy_checks *c;

	if (sy_checks_open(&c, &err) || sy_checks_attach(c, &ifindex, 1, &err))
		fail_msg("%s", err.text);
	return c;
}

static struct sy_check check_of(const char *of_vip, const char *of_server, const char *source)
{
	struct sy_check check = {.vip = addr_of(of_vip),
	                         .server = addr_of(of_server),
	                         .ifindex = (int)if_nametoindex("p0")};

	if (source)
		check.source = addr_of(source);
	return check;
}

static socklen_t sockaddr_of(const char *text, uint16_t port, struct sockaddr_storage *out)
{
	struct sockaddr_in *in = (void *)out;
	struct sockaddr_in6 *in6 = (void *)out;

	memset(out, 0, sizeof(*out));
	if (strchr(text, ':')) {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(port);
		assert_int_equal(inet_pton(AF_INET6, text, &in6->sin6_addr), 1);
		return sizeof(*in6);
	}
	in->sin_family = AF_INET;
	in->sin_port = htons(port);
	assert_int_equal(inet_pton(AF_INET, text, &in->sin_addr), 1);
	return sizeof(*in);
}

static int socket_bound(const char *text, uint16_t port, int type)
{
	struct sockaddr_storage addr;
	socklen_t len = sockaddr_of(text, port, &addr);
	int one = 1, fd = socket(addr.ss_family, type | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&addr, len), 0);
	return fd;
}

/* Starts a check without waiting for its result. */
static int check_start(const char *of_vip, const char *source, uint32_t mark)
{
	struct sockaddr_storage addr;
	int fd = socket_bound(source, 0, SOCK_STREAM | SOCK_NONBLOCK);
	socklen_t len = sockaddr_of(of_vip, PORT, &addr);

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_MARK, &mark, sizeof(mark)), 0);
	if (connect(fd, (struct sockaddr *)&addr, len) < 0)
		assert_int_equal(errno, EINPROGRESS);
	return fd;
}

static int check_end(int fd)
{
	struct pollfd wait = {.fd = fd, .events = POLLOUT};
	socklen_t len = sizeof(int);
	int result = 0;

	if (poll(&wait, 1, SUPPORT_PATIENCE_MS) != 1)
		fail_msg("a check neither failed nor succeeded");
	assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_ERROR, &result, &len), 0);
	close(fd);
	return result;
}

/* ---- direct routing -------------------------------------------------------------------------- */

/* The server answers only while it has the VIP; its own address does not matter. */
static void test_a_server_is_asked_on_the_vip(void **state)
{
	(void)state;
	for (int v4 = 0; v4 < 2; v4++) {
		struct sy_checks *c = checks_begin();
		struct sy_check check = check_of(vip[v4], server[v4], NULL);
		const char *bits = v4 ? "32" : "128";
		int listener, other;

		assert_int_equal(sy_checks_set(c, MARK, &check), 0);
		netns_enter(there);
		listener = socket_bound(vip[v4], PORT, SOCK_STREAM);
		other = socket_bound(server[v4], PORT, SOCK_STREAM);
		assert_int_equal(listen(listener, 4), 0);
		assert_int_equal(listen(other, 4), 0);
		netns_enter(here);
		assert_int_equal(check_end(check_start(vip[v4], own[v4], MARK)), 0);
		netns_enter(there);
		close(listener);
		netns_enter(here);
		assert_int_equal(check_end(check_start(vip[v4], own[v4], MARK)), ECONNREFUSED);
		netns_enter(there);
		sh("ip address del %s/%s dev lo", vip[v4], bits);
		netns_enter(here);
		/* No answer comes: the server's kernel received the packet but did not accept it */
		int fd = check_start(vip[v4], own[v4], MARK);
		struct pollfd wait = {.fd = fd, .events = POLLOUT};

		assert_int_equal(poll(&wait, 1, 300), 0);
		close(fd);
		netns_enter(there);
		sh("ip address add %s/%s dev lo%s", vip[v4], bits, v4 ? "" : " nodad");
		close(other);
		netns_enter(here);
		sy_checks_close(c);
	}
}

/* This host must not answer in the server's place. */
static void test_a_mark_without_meaning_goes_nowhere(void **state)
{
	(void)state;
	struct sy_checks *c = checks_begin();
	struct sy_check check = check_of(vip[1], server[1], NULL);
	struct pollfd wait = {.events = POLLOUT};
	int listener = socket_bound("0.0.0.0", PORT, SOCK_STREAM);

	assert_int_equal(listen(listener, 4), 0);
	wait.fd = check_start(vip[1], own[1], MARK);
	assert_int_equal(poll(&wait, 1, 100), 0);
	close(wait.fd);
	check.ifindex = 0; /* no interface to the server */
	assert_int_equal(sy_checks_set(c, MARK, &check), 0);
	wait.fd = check_start(vip[1], own[1], MARK);
	assert_int_equal(poll(&wait, 1, 100), 0);
	close(wait.fd);
	assert_int_equal(sy_checks_set(c, MARK, NULL), 0);
	assert_int_equal(sy_checks_set(c, MARK, NULL), 0);
	close(listener);
	sy_checks_close(c);
}

/* ---- tunnels --------------------------------------------------------------------------------- */

/* The next packet of a tunnel, from its inner header on. */
static void tunnelled_expect(int raw, bool outer4, bool inner4)
{
	struct pollfd wait = {.fd = raw, .events = POLLIN};
	uint8_t packet[256];
	ssize_t n;

	if (poll(&wait, 1, SUPPORT_PATIENCE_MS) != 1)
		fail_msg("no tunnel packet");
	n = recv(raw, packet, sizeof(packet), 0);
	const uint8_t *inner = packet + (outer4 ? sizeof(struct iphdr) : 0);

	assert_true(n > 0);
	if (outer4) {
		const struct iphdr *ip = (void *)packet;

		assert_int_equal(ip->saddr, inet_addr(own[1]));
		assert_int_equal(ntohs(ip->tot_len), n);
	}
	if (inner4) {
		const struct iphdr *ip = (void *)inner;

		assert_int_equal(ip->saddr, inet_addr(own[1]));
		assert_int_equal(ip->daddr, inet_addr(vip[1]));
		assert_int_equal(((const struct tcphdr *)(ip + 1))->dest, htons(PORT));
		assert_int_equal(inner - packet + ntohs(ip->tot_len), n);
	} else {
		const struct ip6_hdr *ip = (void *)inner;
		struct in6_addr to;

		assert_int_equal(inet_pton(AF_INET6, vip[0], &to), 1);
		assert_memory_equal(&ip->ip6_dst, &to, sizeof(to));
		assert_int_equal(((const struct tcphdr *)(ip + 1))->dest, htons(PORT));
		assert_int_equal(inner - packet + sizeof(*ip) + ntohs(ip->ip6_plen), n);
	}
}

static void test_tunnels(void **state)
{
	(void)state;
	struct sy_checks *c = checks_begin();

	for (int outer4 = 0; outer4 < 2; outer4++)
		for (int inner4 = 0; inner4 < 2; inner4++) {
			struct sy_check check = check_of(vip[inner4], server[outer4], own[outer4]);
			int raw, fd;

			netns_enter(there);
			raw = socket(outer4 ? AF_INET : AF_INET6, SOCK_RAW,
			             inner4 ? IPPROTO_IPIP : IPPROTO_IPV6);
			assert_true(raw >= 0);
			netns_enter(here);
			assert_int_equal(sy_checks_set(c, MARK, &check), 0);
			fd = check_start(vip[inner4], own[inner4], MARK);
			tunnelled_expect(raw, outer4, inner4);
			close(fd);
			close(raw);
		}
	sy_checks_close(c);
}

/* ---- what outlives a process ----------------------------------------------------------------- */

static void filters_expect(const char *interface, const char *direction, unsigned count)
{
	sh("test $(tc filter show dev %s %s | grep -c 'check_.* id') = %u", interface, direction,
	   count);
}

static void test_successors_replace_and_cleanup_removes(void **state)
{
	struct sy_error err = {0};

	for (unsigned i = 0; i < 3; i++) {
		struct sy_checks *c = checks_begin();

		filters_expect("lo", "egress", 1);
		filters_expect("p0", "ingress", 1);
		sy_checks_close(c);
		filters_expect("lo", "egress", 1);
	}
	sh("test $(cat /proc/sys/net/ipv4/conf/lo/accept_local) = 1");
	/* The hook stays if it has another program's filter. */
	sh("tc filter add dev p0 egress bpf da bytecode '1,6 0 0 0,'");
	sy_claims_close(*state);
	assert_int_equal(sy_kernel_cleanup(NULL, NULL, &err), 0);
	filters_expect("lo", "egress", 0);
	filters_expect("p0", "ingress", 0);
	sh("test $(cat /proc/sys/net/ipv4/conf/lo/accept_local) = 0");
	sh("! tc qdisc show dev lo | grep -q clsact");
	sh("tc filter show dev p0 egress | grep -q bytecode");
	vips_claim((struct sy_claims **)state);
}

/* A sysctl that an administrator has set stays. */
static void test_cleanup_leaves_a_sysctl_that_was_set(void **state)
{
	struct sy_error err = {0};

	sh("sysctl -qw net.ipv4.conf.lo.accept_local=1");
	sy_checks_close(checks_begin());
	sy_claims_close(*state);
	assert_int_equal(sy_kernel_cleanup(NULL, NULL, &err), 0);
	sh("test $(cat /proc/sys/net/ipv4/conf/lo/accept_local) = 1");
	vips_claim((struct sy_claims **)state);
}

static void test_an_interface_that_is_not_there(void **state)
{
	struct sy_error err = {0};
	struct sy_checks *c;
	int ifindex = 4711;

	(void)state;
	assert_int_equal(sy_checks_open(&c, &err), 0);
	assert_true(sy_checks_attach(c, &ifindex, 1, &err) < 0);
	assert_non_null(strstr(err.text, "does not accept a tc program"));
	sy_checks_close(c);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_a_server_is_asked_on_the_vip),
	        TEST(test_a_mark_without_meaning_goes_nowhere),
	        TEST(test_tunnels),
	        TEST(test_successors_replace_and_cleanup_removes),
	        TEST(test_cleanup_leaves_a_sysctl_that_was_set),
	        TEST(test_an_interface_that_is_not_there),
	};

	return cmocka_run_group_tests_name("kernel check", tests, NULL, NULL);
}

// SPDX-License-Identifier: Apache-2.0
/*
 * The mirror's socket and its dumps.
 *
 * Events and dumps share one socket and are therefore read in the order in which the kernel wrote
 * them. The kernel fills a part of a dump without the lock under which routes change, so an event
 * just before a part may contradict it. If both are about the same object, the dump is spoilt and
 * is repeated.
 *
 * Links are dumped first. That request takes the lock under which the kernel sets a link down and
 * silently drops its IPv4 routes, so the route dump after it sees the result.
 */
#include "mirror.h"

#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/fib_rules.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define SWEEP_BUCKETS 64        /* buckets swept per message of the budget */
#define RECEIVE_BYTES (8 << 20) /* a burst of some 10 000 route changes */

/* ---- opening --------------------------------------------------------------------------------- */

static int socket_open(struct sy_mirror *m, struct sy_error *err)
{
	static const int groups[] = {
	        RTNLGRP_LINK,       RTNLGRP_NEIGH,      RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR,
	        RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE, RTNLGRP_IPV4_RULE,   RTNLGRP_IPV6_RULE,
	        RTNLGRP_NEXTHOP,    RTNLGRP_TC,
	};
	struct sockaddr_nl self = {.nl_family = AF_NETLINK};
	socklen_t len = sizeof(self);
	int one = 1, size = m->buffer_bytes;

	m->nl = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (m->nl < 0 || bind(m->nl, (void *)&self, sizeof(self)) < 0 ||
	    getsockname(m->nl, (void *)&self, &len) < 0)
		return sy_fail(err, errno, "cannot open a netlink socket: %s", strerror(errno));
	m->id = self.nl_pid;
	for (size_t i = 0; i < SY_ARRAY_LEN(groups); i++)
		if (setsockopt(m->nl, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &groups[i],
		               sizeof(groups[i])) < 0)
			return sy_fail(err, errno,
			               "cannot subscribe to netlink group %d: %s; Linux 5.9 or "
			               "newer is needed",
			               groups[i], strerror(errno));
	/* Without CAP_NET_ADMIN sysctl net.core.rmem_max limits the size; an overrun only causes
	 * another dump. */
	if (setsockopt(m->nl, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)) < 0)
		setsockopt(m->nl, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	/* Keeps cached IPv6 routes out of dumps. */
	setsockopt(m->nl, SOL_NETLINK, NETLINK_GET_STRICT_CHK, &one, sizeof(one));
	return 0;
}

static int epoll_open(struct sy_mirror *m, struct sy_error *err)
{
	struct epoll_event in = {.events = EPOLLIN};

	m->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	m->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (m->wake < 0 || m->epoll < 0 || epoll_ctl(m->epoll, EPOLL_CTL_ADD, m->nl, &in) < 0 ||
	    epoll_ctl(m->epoll, EPOLL_CTL_ADD, m->wake, &in) < 0)
		return sy_fail(err, errno, "cannot watch the netlink socket: %s", strerror(errno));
	return 0;
}

/* Which messages the kernel dropped is unknown: dump everything. */
static void mirror_overrun(struct sy_mirror *m)
{
	m->wanted = MIRROR_EVERYTHING;
	m->spoilt = true;
	m->announce = true;
	mirror_disturbed(m, SY_DISTURBED_CLAIMS | SY_DISTURBED_CHECKS);
}

/* Opens a new socket and dumps everything again. */
static int socket_renew(struct sy_mirror *m)
{
	struct epoll_event in = {.events = EPOLLIN};
	struct sy_error err;
	int rc;

	close(m->nl); /* this also removes it from epoll */
	rc = socket_open(m, &err);
	if (rc == 0 && epoll_ctl(m->epoll, EPOLL_CTL_ADD, m->nl, &in) < 0)
		rc = -errno;
	m->dumping = false;
	mirror_overrun(m);
	return rc;
}

static void mirror_wake(struct sy_mirror *m)
{
	eventfd_write(m->wake, 1);
}

int sy_mirror_open(const struct sy_mirror_handler *handler, struct sy_mirror **out,
                   struct sy_error *err)
{
	struct sy_mirror *m = calloc(1, sizeof(*m));
	int rc;

	*out = NULL;
	if (!m)
		return sy_fail(err, ENOMEM, "no memory for the mirror");
	m->nl = m->wake = m->epoll = -1;
	m->buffer_bytes = RECEIVE_BYTES;
	rc = store_init(&m->store, handler);
	if (rc == 0)
		rc = table_init(&m->managed);
	if (rc)
		sy_fail(err, -rc, "cannot prepare the mirror: %s", strerror(-rc));
	else
		rc = socket_open(m, err);
	if (rc == 0)
		rc = epoll_open(m, err);
	if (rc) {
		sy_mirror_close(m);
		return rc;
	}
	m->wanted = MIRROR_EVERYTHING;
	m->announce = true;
	mirror_wake(m);
	*out = m;
	return 0;
}

void sy_mirror_close(struct sy_mirror *m)
{
	if (!m)
		return;
	if (m->nl >= 0)
		close(m->nl);
	if (m->wake >= 0)
		close(m->wake);
	if (m->epoll >= 0)
		close(m->epoll);
	managed_free(m);
	store_fini(&m->store);
	free(m);
}

int sy_mirror_fd(const struct sy_mirror *m)
{
	return m->epoll;
}

int sy_mirror_set_buffer(struct sy_mirror *m, int bytes)
{
	if (setsockopt(m->nl, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)) < 0)
		return -errno;
	m->buffer_bytes = bytes;
	return 0;
}

bool sy_mirror_lookup(const struct sy_mirror *m, const struct sy_addr *dst, struct sy_route *out)
{
	return store_lookup(&m->store, dst, out);
}

bool sy_mirror_find_neigh(const struct sy_mirror *m, int ifindex, const struct sy_addr *addr,
                          struct sy_neigh *out)
{
	const struct sy_neigh *neigh = store_find_neigh(&m->store, ifindex, addr);

	if (neigh)
		*out = *neigh;
	return neigh;
}

bool sy_mirror_is_current(const struct sy_mirror *m)
{
	struct pollfd readable = {.fd = m->nl, .events = POLLIN};
	bool dumps = (m->wanted & MIRROR_BIT(KIND_NEIGH)) || (m->dumping && m->kind == KIND_NEIGH);

	return !dumps && m->at >= m->have && poll(&readable, 1, 0) == 0;
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void refusal_describe(const struct sy_mirror *m, char *text, size_t len)
{
	const struct sy_mirror_handler *h = &m->store.handler;
	const struct sy_link *member = store_find_vrf_member(&m->store, h->uses, h->ctx);

	text[0] = 0;
	if (member)
		snprintf(text, len, "%s belongs to a VRF; release it: ip link set %s nomaster",
		         member->name, member->name);
}

/* Routes whose packets only the kernel can send; lookups find no hop for them. */
static unsigned policies_of_routes(const struct sy_mirror *m, struct sy_policy *list)
{
	static const char *const unsupported[ROUTE_UNSUPPORTED_COUNT] = {
	        [ROUTE_ENCAP] = "routes with encapsulation (encap): packets to them are dropped "
	                        "(no-route); remove them",
	        [ROUTE_BARE_NEXTHOP] = "routes by nexthop object without their hops: packets to "
	                               "them are dropped (no-route); set sysctl "
	                               "net.ipv4.nexthop_compat_mode=1",
	};
	unsigned count = 0;

	for (unsigned i = 0; i < m->store.policies; i++)
		list[count++] = m->store.policy[i].policy;
	for (unsigned i = 0; i < ROUTE_UNSUPPORTED_COUNT; i++) {
		if (!m->store.unsupported_routes[i] || !unsupported[i])
			continue;
		/* matches no packet here: its routes have no hops */
		list[count] =
		        (struct sy_policy){.sport = {1, 1}, .dport = {1, 1}, .proto = UINT8_MAX};
		snprintf(list[count].text, sizeof(list->text), "%u %s",
		         m->store.unsupported_routes[i], unsupported[i]);
		count++;
	}
	if (m->store.policies_lost) {
		for (unsigned v6 = 0; v6 < 2; v6++) {
			list[count] = (struct sy_policy){.v6 = v6};
			snprintf(list[count++].text, sizeof(list->text),
			         "policy routing: more than %u routes by source address or type of "
			         "service: no new IPv%c session begins; remove some",
			         STORE_POLICIES, v6 ? '6' : '4');
		}
	}
	return count;
}

static void policies_update(struct sy_mirror *m)
{
	static struct sy_policy
	        list[2 * MIRROR_RULES + STORE_POLICIES + ROUTE_UNSUPPORTED_COUNT + 2];
	unsigned count = 0;

	if (!m->policies_changed && !m->store.policies_changed)
		return;
	m->policies_changed = m->store.policies_changed = false;
	for (unsigned v6 = 0; v6 < 2; v6++)
		for (unsigned i = 0; i < m->rules[v6]; i++)
			list[count++] = m->rule[v6][i];
	count += policies_of_routes(m, list + count);
	if (m->store.handler.policies)
		m->store.handler.policies(m->store.handler.ctx, list, count);
}

static void refusal_update(struct sy_mirror *m)
{
	char text[sizeof(m->refused)];

	policies_update(m);
	refusal_describe(m, text, sizeof(text));
	if (strcmp(text, m->refused) == 0)
		return;
	memcpy(m->refused, text, sizeof(text));
	if (m->store.handler.refused)
		m->store.handler.refused(m->store.handler.ctx, text[0] ? m->refused : NULL);
}

/* ---- dumps ----------------------------------------------------------------------------------- */

int mirror_send(struct sy_mirror *m, const void *msg, size_t len)
{
	struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};

	if (sendto(m->nl, msg, len, 0, (void *)&kernel, sizeof(kernel)) < 0)
		return -errno;
	return 0;
}

static int dump_start(struct sy_mirror *m)
{
	static const struct {
		uint16_t type, header;
		uint8_t family;
	} request[KIND_COUNT] = {
	        [KIND_LINK] = {RTM_GETLINK, sizeof(struct ifinfomsg), AF_UNSPEC},
	        [KIND_ADDR] = {RTM_GETADDR, sizeof(struct ifaddrmsg), AF_UNSPEC},
	        [KIND_RULE4] = {RTM_GETRULE, sizeof(struct fib_rule_hdr), AF_INET},
	        [KIND_RULE6] = {RTM_GETRULE, sizeof(struct fib_rule_hdr), AF_INET6},
	        [KIND_ROUTE4] = {RTM_GETROUTE, sizeof(struct rtmsg), AF_INET},
	        [KIND_ROUTE6] = {RTM_GETROUTE, sizeof(struct rtmsg), AF_INET6},
	        [KIND_NEIGH] = {RTM_GETNEIGH, sizeof(struct ndmsg), AF_UNSPEC},
	};
	_Alignas(8) char buf[64];
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);
	int rc;

	m->kind = (enum store_kind)__builtin_ctz(m->wanted);
	m->dump_seq = ++m->seq;
	nlh->nlmsg_type = request[m->kind].type;
	nlh->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	nlh->nlmsg_seq = m->dump_seq;
	/* The family is the first byte of each of these headers. */
	*(uint8_t *)mnl_nlmsg_put_extra_header(nlh, request[m->kind].header) =
	        request[m->kind].family;
	rc = mirror_send(m, nlh, nlh->nlmsg_len);
	if (rc)
		return rc;
	m->wanted &= ~MIRROR_BIT(m->kind);
	m->dumping = true;
	m->spoilt = false;
	m->recent_count = 0;
	m->rules_found = 0;
	m->store.gen[m->kind]++;
	return 0;
}

/* No dump runs any more. If none is wanted, reports that the mirror is synchronised. */
static void dump_finish(struct sy_mirror *m)
{
	m->sweeping = false;
	if (m->wanted)
		return;
	refusal_update(m);
	if (!m->announce)
		return;
	m->announce = false;
	if (m->store.handler.synced)
		m->store.handler.synced(m->store.handler.ctx);
}

void mirror_dump_done(struct sy_mirror *m)
{
	m->dumping = false;
	if (m->spoilt) {
		m->wanted |= MIRROR_BIT(m->kind);
		return;
	}
	if (m->kind == KIND_RULE4 || m->kind == KIND_RULE6) {
		m->rules[m->kind == KIND_RULE6] = m->rules_found;
		memcpy(m->rule[m->kind == KIND_RULE6], m->rule_found, sizeof(m->rule_found));
		m->policies_changed = true;
	}
	m->sweep_bucket = 0;
	m->sweeping = true;
}

void mirror_dump_failed(struct sy_mirror *m, int error)
{
	m->dumping = false;
	if (error == -ENOBUFS || error == -ENOMEM || error == -EAGAIN || error == -EINTR) {
		m->wanted |= MIRROR_BIT(m->kind);
		return;
	}
	/* The kernel may be built without this family: then there is nothing to dump. */
	sy_log(SY_LOG_WARN, "kernel", "netlink dump %d failed: %s", m->kind, strerror(-error));
	dump_finish(m);
}

static void sweep_step(struct sy_mirror *m)
{
	for (unsigned i = 0; i < SWEEP_BUCKETS; i++) {
		if (!store_sweep(&m->store, m->kind, &m->sweep_bucket)) {
			dump_finish(m);
			return;
		}
	}
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* Returns 1 after a message or an overrun, 0 if the socket is empty, or a negative errno. */
static int mirror_receive(struct sy_mirror *m)
{
	struct sockaddr_nl from = {0};
	struct iovec iov = {.iov_base = m->buf, .iov_len = sizeof(m->buf)};
	struct msghdr msg = {
	        .msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	do
		n = recvmsg(m->nl, &msg, 0);
	while (n < 0 && errno == EINTR);
	m->have = m->at = 0;
	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n < 0 && errno != ENOBUFS)
		return -errno;
	if (n < 0 || (msg.msg_flags & MSG_TRUNC))
		mirror_overrun(m);
	else if (from.nl_pid == 0) /* ignore messages of other processes */
		m->have = (size_t)n;
	m->have_dump = false;
	return 1;
}

static void mirror_next_message(struct sy_mirror *m)
{
	const struct nlmsghdr *nlh = (const void *)(m->buf + m->at);

	if (!mnl_nlmsg_ok(nlh, (int)(m->have - m->at))) {
		m->at = m->have;
	} else {
		m->at += NLMSG_ALIGN(nlh->nlmsg_len);
		if (m->at > m->have)
			m->at = m->have;
		mirror_on_message(m, nlh);
	}
	if (m->at == m->have && m->have_dump)
		m->recent_count = 0;
}

/* Returns 1 if one unit of the budget was used, 0 if there is nothing to do, or a negative errno.
 *
 * A dump is requested only on an empty socket, because on a full one the kernel may drop even the
 * message that the dump failed. The first part is there when the request returns, and each read
 * makes the kernel write the next one. An empty socket during a dump therefore means that this
 * message was dropped. */
static int mirror_step(struct sy_mirror *m)
{
	int rc;

	if (m->sweeping) {
		sweep_step(m);
		return 1;
	}
	if (m->at < m->have) {
		mirror_next_message(m);
		return 1;
	}
	rc = mirror_receive(m);
	if (rc || (!m->dumping && !m->wanted))
		return rc;
	rc = m->dumping ? socket_renew(m) : dump_start(m);
	return rc ? rc : 1;
}

int sy_mirror_process(struct sy_mirror *m, unsigned budget)
{
	unsigned handled = 0;
	eventfd_t ignored;
	int rc = 0;

	eventfd_read(m->wake, &ignored);
	while (handled < budget) {
		rc = mirror_step(m);
		if (rc <= 0)
			break;
		handled++;
		if (m->store.out_of_memory) {
			m->store.out_of_memory = false;
			mirror_overrun(m);
			rc = -ENOMEM;
			break;
		}
	}
	if (!m->dumping && !m->sweeping && !m->wanted)
		refusal_update(m);
	if (m->at < m->have || m->sweeping || (m->wanted && !m->dumping))
		mirror_wake(m);
	return rc < 0 ? rc : (int)handled;
}

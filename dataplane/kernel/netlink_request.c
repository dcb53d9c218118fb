// SPDX-License-Identifier: Apache-2.0
#include "netlink_request.h"

#include <errno.h>
#include <linux/netfilter/nfnetlink.h>
#include <sys/socket.h>

#define ANSWER_BYTES 32768

struct mnl_socket *request_open(void)
{
	struct mnl_socket *nl = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC);
	int one = 1;

	if (!nl)
		return NULL;
	/* Strict checking: the kernel filters dumps; otherwise they may return a million routes. */
	if (mnl_socket_bind(nl, 0, MNL_SOCKET_AUTOPID) < 0 ||
	    setsockopt(mnl_socket_get_fd(nl), SOL_NETLINK, NETLINK_GET_STRICT_CHK, &one,
	               sizeof(one)) < 0) {
		int code = errno;

		mnl_socket_close(nl);
		errno = code;
		return NULL;
	}
	return nl;
}

struct mnl_socket *request_open_nft(bool events)
{
	struct mnl_socket *nl =
	        mnl_socket_open2(NETLINK_NETFILTER, SOCK_CLOEXEC | (events ? SOCK_NONBLOCK : 0));
	int group = NFNLGRP_NFTABLES;

	if (!nl)
		return NULL;
	if (mnl_socket_bind(nl, 0, MNL_SOCKET_AUTOPID) < 0 ||
	    (events && setsockopt(mnl_socket_get_fd(nl), SOL_NETLINK, NETLINK_ADD_MEMBERSHIP,
	                          &group, sizeof(group)) < 0)) {
		int code = errno;

		mnl_socket_close(nl);
		errno = code;
		return NULL;
	}
	return nl;
}

void *request_begin(struct request *r, uint16_t type, uint16_t flags, size_t size)
{
	r->nlh = mnl_nlmsg_put_header(r->buf);
	r->nlh->nlmsg_type = type;
	r->nlh->nlmsg_flags = NLM_F_REQUEST | flags;
	if ((flags & NLM_F_DUMP) != NLM_F_DUMP)
		r->nlh->nlmsg_flags |= NLM_F_ACK;
	return mnl_nlmsg_put_extra_header(r->nlh, size);
}

void request_put_addr(struct request *r, uint16_t attr, const struct sy_addr *addr)
{
	uint8_t raw[16];
	size_t len = sy_addr_to_bytes(addr, raw);

	mnl_attr_put(r->nlh, attr, len, raw);
}

/* Receives the rest of a dump; `answer` has its first len bytes. */
static void dump_discard(struct mnl_socket *nl, uint32_t seq, char *answer, ssize_t len)
{
	for (;;) {
		const struct nlmsghdr *nlh = (const void *)answer;
		int left = (int)len;

		for (; mnl_nlmsg_ok(nlh, left); nlh = mnl_nlmsg_next(nlh, &left))
			if (nlh->nlmsg_seq == seq &&
			    (nlh->nlmsg_type == NLMSG_DONE || nlh->nlmsg_type == NLMSG_ERROR))
				return;
		while ((len = mnl_socket_recvfrom(nl, answer, ANSWER_BYTES)) < 0)
			if (errno != EINTR)
				return;
	}
}

int request_send(struct mnl_socket *nl, struct request *r, mnl_cb_t cb, void *data)
{
	static uint32_t seq;
	_Alignas(8) char answer[ANSWER_BYTES];
	int rc = MNL_CB_OK;

	r->nlh->nlmsg_seq = ++seq;
	if (mnl_socket_sendto(nl, r->nlh, r->nlh->nlmsg_len) < 0)
		return -errno;
	while (rc > MNL_CB_STOP) {
		ssize_t n = mnl_socket_recvfrom(nl, answer, sizeof(answer));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		rc = mnl_cb_run(answer, (size_t)n, seq, mnl_socket_get_portid(nl), cb, data);
		if (rc < 0 && errno == EINTR) {
			dump_discard(nl, seq, answer, n);
			return -EINTR;
		}
	}
	return rc < 0 ? -errno : 0;
}

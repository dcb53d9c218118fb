// SPDX-License-Identifier: Apache-2.0
/* Sends one netlink request and waits for the answer: for set-up, not for the mirror. */
#ifndef NETLINK_REQUEST_H
#define NETLINK_REQUEST_H

#include <libmnl/libmnl.h>
#include <sy_base.h>

struct request {
	_Alignas(8) char buf[256];
	struct nlmsghdr *nlh;
};

/* Opens a socket in the calling thread's namespace; NULL with errno set on failure. */
struct mnl_socket *request_open(void);
/* The same for nftables (NETLINK_NETFILTER). events: it only receives the events of all changes,
 * and never blocks. */
struct mnl_socket *request_open_nft(bool events);
/* Begins a message. Returns its zeroed header of `size` bytes, which follows the netlink header. */
void *request_begin(struct request *r, uint16_t type, uint16_t flags, size_t size);
void request_put_addr(struct request *r, uint16_t attr, const struct sy_addr *addr);
/* Sends the request and passes every answer to cb (may be NULL). Returns 0 or the kernel's negative
 * errno. */
int request_send(struct mnl_socket *nl, struct request *r, mnl_cb_t cb, void *data);

#endif

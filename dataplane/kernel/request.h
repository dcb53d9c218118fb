// SPDX-License-Identifier: Apache-2.0
/* One netlink request and its answer, waited for: for set-up, not for the mirror. */
#ifndef KERNEL_REQUEST_H
#define KERNEL_REQUEST_H

#include <libmnl/libmnl.h>
#include <sy_base.h>

struct request {
	_Alignas(8) char buf[256];
	struct nlmsghdr *nlh;
};

/* A socket in the calling thread's namespace, NULL with errno set if there is none. */
struct mnl_socket *request_open(void);
/* Begins a message; returns its zeroed header of `size` bytes behind the netlink header. */
void *request_begin(struct request *r, uint16_t type, uint16_t flags, size_t size);
void request_put_addr(struct request *r, uint16_t attr, const struct sy_addr *addr);
/* Sends it and gives every answer to cb (may be NULL); returns 0 or the kernel's negative errno. */
int request_send(struct mnl_socket *nl, struct request *r, mnl_cb_t cb, void *data);

#endif

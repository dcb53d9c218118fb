// SPDX-License-Identifier: Apache-2.0
/* Finds and changes the owner of an address on the host: local routes for IPv4, addresses for
 * IPv6. */
#ifndef KERNEL_OWNER_H
#define KERNEL_OWNER_H

#include <libmnl/libmnl.h>
#include <sy_base.h>

/* How the host uses an address. */
struct owner {
	bool there;
	bool own;       /* has the forwarder's protocol number */
	bool broadcast; /* IPv4: broadcast address of an interface's network */
	int ifindex;
	bool may_be_own; /* IPv6: /128 with preferred lifetime 0 and no protocol number */
	struct sy_addr addr;
};

/* Looks up an address on the host. */
struct owner owner_find(struct mnl_socket *nl, const struct sy_addr *addr);
/* Read one kernel message about a route or an address; data: struct owner. */
int route4_read(const struct nlmsghdr *nlh, void *data);
int addr6_read(const struct nlmsghdr *nlh, void *data);
/* Add (RTM_NEWROUTE, RTM_NEWADDR) or remove a route to an address on lo, or an address on an
 * interface. Both return 0 or a negative errno. */
int route4_request(struct mnl_socket *nl, uint16_t type, uint16_t flags,
                   const struct sy_addr *addr);
int addr6_request(struct mnl_socket *nl, uint16_t type, uint16_t flags, const struct sy_addr *addr,
                  int ifindex);

#endif

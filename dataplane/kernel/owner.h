// SPDX-License-Identifier: Apache-2.0
/* Whose an address is on the host: local routes of IPv4, addresses of IPv6, asked and changed. */
#ifndef KERNEL_OWNER_H
#define KERNEL_OWNER_H

#include <libmnl/libmnl.h>
#include <sy_base.h>

/* What the host has under an address. */
struct owner {
	bool there;
	bool ours; /* our protocol number */
	int ifindex;
	bool could_be_ours; /* IPv6: /128, preferred lifetime 0 */
	struct sy_addr addr;
};

/* Who has this address? */
struct owner owner_find(struct mnl_socket *nl, const struct sy_addr *addr);
/* One message of the kernel's about a route, about an address; data: struct owner. */
int route4_read(const struct nlmsghdr *nlh, void *data);
int addr6_read(const struct nlmsghdr *nlh, void *data);
/* Asks for a route to an address on lo, or an address on an interface, to come (RTM_NEWROUTE,
 * RTM_NEWADDR) or go. Both return 0 or a negative errno. */
int route4_request(struct mnl_socket *nl, uint16_t type, uint16_t flags,
                   const struct sy_addr *addr);
int addr6_request(struct mnl_socket *nl, uint16_t type, uint16_t flags, const struct sy_addr *addr,
                  int ifindex);

#endif

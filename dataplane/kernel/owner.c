// SPDX-License-Identifier: Apache-2.0
#include "owner.h"
#include "host.h"
#include "netlink_request.h"

#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>

int route4_request(struct mnl_socket *nl, uint16_t type, uint16_t flags, const struct sy_addr *addr)
{
	struct request r;
	struct rtmsg *rtm = request_begin(&r, type, flags, sizeof(*rtm));

	rtm->rtm_family = AF_INET;
	rtm->rtm_dst_len = 32;
	rtm->rtm_table = RT_TABLE_LOCAL;
	rtm->rtm_protocol = HOST_PROTOCOL;
	rtm->rtm_scope = RT_SCOPE_HOST;
	rtm->rtm_type = RTN_LOCAL;
	request_put_addr(&r, RTA_DST, addr);
	mnl_attr_put_u32(r.nlh, RTA_OIF, if_nametoindex("lo"));
	return request_send(nl, &r, NULL, NULL);
}

int addr6_request(struct mnl_socket *nl, uint16_t type, uint16_t flags, const struct sy_addr *addr,
                  int ifindex)
{
	struct ifa_cacheinfo lifetime = {.ifa_prefered = 0, .ifa_valid = UINT32_MAX};
	struct request r;
	struct ifaddrmsg *ifa = request_begin(&r, type, flags, sizeof(*ifa));

	ifa->ifa_family = AF_INET6;
	ifa->ifa_prefixlen = 128;
	ifa->ifa_scope = RT_SCOPE_UNIVERSE;
	ifa->ifa_index = (uint32_t)ifindex;
	request_put_addr(&r, IFA_LOCAL, addr);
	request_put_addr(&r, IFA_ADDRESS, addr);
	mnl_attr_put_u32(r.nlh, IFA_FLAGS, IFA_F_NODAD | IFA_F_NOPREFIXROUTE);
	mnl_attr_put(r.nlh, IFA_CACHEINFO, sizeof(lifetime), &lifetime);
	mnl_attr_put_u8(r.nlh, IFA_PROTO, HOST_PROTOCOL);
	return request_send(nl, &r, NULL, NULL);
}

int route4_read(const struct nlmsghdr *nlh, void *data)
{
	const struct rtmsg *rtm = mnl_nlmsg_get_payload(nlh);
	struct owner *owner = data;
	const struct nlattr *attr;

	memset(owner, 0, sizeof(*owner));
	mnl_attr_for_each(attr, nlh, sizeof(*rtm)) if (mnl_attr_get_type(attr) == RTA_DST &&
	                                               mnl_attr_get_payload_len(attr) == 4)
	        sy_addr_from_bytes(mnl_attr_get_payload(attr), 4, &owner->addr);
	owner->there = rtm->rtm_type == RTN_LOCAL && rtm->rtm_dst_len == 32;
	owner->broadcast = rtm->rtm_type == RTN_BROADCAST;
	/* Does not check the table: for a single address the kernel reports a route of table local
	 * as one of table main. */
	owner->own = owner->there && rtm->rtm_protocol == HOST_PROTOCOL;
	return MNL_CB_OK;
}

int addr6_read(const struct nlmsghdr *nlh, void *data)
{
	const struct ifaddrmsg *ifa = mnl_nlmsg_get_payload(nlh);
	const struct ifa_cacheinfo *lifetime = NULL;
	struct owner *owner = data;
	const struct nlattr *attr;
	bool unmarked = true;

	memset(owner, 0, sizeof(*owner));
	owner->there = true;
	owner->ifindex = (int)ifa->ifa_index;
	mnl_attr_for_each(attr, nlh, sizeof(*ifa))
	{
		uint16_t type = mnl_attr_get_type(attr), len = mnl_attr_get_payload_len(attr);

		if (type == IFA_ADDRESS && len == 16)
			sy_addr_from_bytes(mnl_attr_get_payload(attr), 16, &owner->addr);
		else if (type == IFA_CACHEINFO && len >= sizeof(*lifetime))
			lifetime = mnl_attr_get_payload(attr);
		else if (type == IFA_PROTO && len >= 1) {
			owner->own = mnl_attr_get_u8(attr) == HOST_PROTOCOL;
			unmarked = false;
		}
	}
	owner->may_be_own =
	        unmarked && ifa->ifa_prefixlen == 128 && lifetime && lifetime->ifa_prefered == 0;
	return MNL_CB_OK;
}

struct owner owner_find(struct mnl_socket *nl, const struct sy_addr *addr)
{
	struct owner owner = {0};
	struct request r;

	if (sy_addr_is_v4(addr)) {
		struct rtmsg *rtm = request_begin(&r, RTM_GETROUTE, 0, sizeof(*rtm));

		rtm->rtm_family = AF_INET;
		rtm->rtm_dst_len = 32;
		rtm->rtm_flags = RTM_F_FIB_MATCH; /* the matching route of the table itself */
		request_put_addr(&r, RTA_DST, addr);
		if (request_send(nl, &r, route4_read, &owner) < 0)
			owner.there = false;
	} else {
		struct ifaddrmsg *ifa = request_begin(&r, RTM_GETADDR, 0, sizeof(*ifa));

		ifa->ifa_family = AF_INET6;
		request_put_addr(&r, IFA_ADDRESS, addr);
		if (request_send(nl, &r, addr6_read, &owner) < 0)
			owner.there = false;
	}
	return owner;
}

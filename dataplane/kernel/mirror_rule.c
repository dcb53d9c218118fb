// SPDX-License-Identifier: Apache-2.0
/* Policy routing: which packets the kernel's rules and routes treat by more than their
 * destination. */
#include "mirror_rule.h"

#include <linux/fib_rules.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>

static const struct nlattr *attr_find(const struct nlmsghdr *nlh, uint16_t type)
{
	const struct nlattr *attr;

	mnl_attr_for_each(attr, nlh, sizeof(struct fib_rule_hdr)) if (mnl_attr_get_type(attr) ==
	                                                              type) return attr;
	return NULL;
}

static uint32_t attr_value(const struct nlmsghdr *nlh, uint16_t type, uint32_t otherwise)
{
	const struct nlattr *attr = attr_find(nlh, type);

	if (!attr)
		return otherwise;
	if (mnl_attr_get_payload_len(attr) >= 4)
		return mnl_attr_get_u32(attr);
	return mnl_attr_get_payload_len(attr) >= 1 ? mnl_attr_get_u8(attr) : otherwise;
}

static bool attr_prefix(const struct nlmsghdr *nlh, uint16_t type, struct sy_addr *out)
{
	const struct nlattr *attr = attr_find(nlh, type);
	size_t len = attr ? mnl_attr_get_payload_len(attr) : 0;

	return (len == 4 || len == 16) &&
	       sy_addr_from_bytes(mnl_attr_get_payload(attr), len, out) == 0;
}

static void attr_ports(const struct nlmsghdr *nlh, uint16_t type, uint16_t out[2])
{
	const struct nlattr *attr = attr_find(nlh, type);

	/* struct fib_rule_port_range, host order */
	if (attr && mnl_attr_get_payload_len(attr) >= 4)
		memcpy(out, mnl_attr_get_payload(attr), 4);
}

/* Can the rule match a packet that a port has received for another host? Such a packet has no mark,
 * no socket and no outgoing interface. */
static bool rule_can_match(const struct nlmsghdr *nlh, bool (*uses)(void *ctx, const char *name),
                           void *ctx)
{
	const struct nlattr *iif = attr_find(nlh, FRA_IIFNAME),
	                    *uid = attr_find(nlh, FRA_UID_RANGE);
	uint32_t protocol = attr_value(nlh, FRA_IP_PROTO, 0);
	char name[16] = "";

	if (attr_value(nlh, FRA_FWMARK, 0) || attr_find(nlh, FRA_OIFNAME) ||
	    attr_value(nlh, FRA_L3MDEV, 0) ||
	    (protocol && protocol != IPPROTO_TCP && protocol != IPPROTO_UDP))
		return false;
	if (uid && mnl_attr_get_payload_len(uid) >= 4 && mnl_attr_get_u32(uid) > 0)
		return false;
	if (!iif)
		return true;
	snprintf(name, sizeof(name), "%.*s", (int)mnl_attr_get_payload_len(iif),
	         (const char *)mnl_attr_get_payload(iif));
	return strcmp(name, "lo") != 0 && (!uses || uses(ctx, name));
}

/* Do the rules of every host lead to the same result? */
static bool rule_is_usual(const struct nlmsghdr *nlh, const struct fib_rule_hdr *frh)
{
	uint32_t table = attr_value(nlh, FRA_TABLE, frh->table);

	return frh->action == FR_ACT_NOP ||
	       (frh->action == FR_ACT_TO_TBL &&
	        attr_value(nlh, FRA_SUPPRESS_PREFIXLEN, UINT32_MAX) == UINT32_MAX &&
	        (table == RT_TABLE_LOCAL || table == RT_TABLE_MAIN || table == RT_TABLE_DEFAULT));
}

static void policy_describe(struct sy_policy *p, const char *what)
{
	char from[SY_ADDR_TEXT], to[SY_ADDR_TEXT], which[3 * SY_ADDR_TEXT] = "all packets";
	unsigned more = p->v6 ? 0 : 96;

	if (p->from_bits && p->to_bits)
		snprintf(which, sizeof(which), "packets from %s/%u to %s/%u",
		         sy_addr_format(&p->from, from), p->from_bits - more,
		         sy_addr_format(&p->to, to), p->to_bits - more);
	else if (p->from_bits)
		snprintf(which, sizeof(which), "packets from %s/%u", sy_addr_format(&p->from, from),
		         p->from_bits - more);
	else if (p->to_bits)
		snprintf(which, sizeof(which), "packets to %s/%u", sy_addr_format(&p->to, to),
		         p->to_bits - more);
	snprintf(p->text, sizeof(p->text),
	         "policy routing: %s: the forwarder routes by destination alone, so new sessions "
	         "with %s%s are dropped (no-route)",
	         what, which, p->tos ? " of that type of service" : "");
}

bool rule_parse(const struct nlmsghdr *nlh, bool (*uses)(void *ctx, const char *name), void *ctx,
                struct sy_policy *out)
{
	const struct fib_rule_hdr *frh = mnl_nlmsg_get_payload(nlh);
	char what[96];
	unsigned priority, more;

	memset(out, 0, sizeof(*out));
	if (mnl_nlmsg_get_payload_len(nlh) < sizeof(*frh) ||
	    (frh->family != AF_INET && frh->family != AF_INET6))
		return false;
	out->v6 = frh->family == AF_INET6;
	more = out->v6 ? 0 : 96;
	if (!(frh->flags & FIB_RULE_INVERT)) {
		if (rule_is_usual(nlh, frh) || !rule_can_match(nlh, uses, ctx))
			return false;
		if (frh->src_len && attr_prefix(nlh, FRA_SRC, &out->from))
			out->from_bits = (uint8_t)(frh->src_len + more);
		if (frh->dst_len && attr_prefix(nlh, FRA_DST, &out->to))
			out->to_bits = (uint8_t)(frh->dst_len + more);
		out->tos = frh->tos;
		out->proto = (uint8_t)attr_value(nlh, FRA_IP_PROTO, 0);
		attr_ports(nlh, FRA_SPORT_RANGE, out->sport);
		attr_ports(nlh, FRA_DPORT_RANGE, out->dport);
	}
	priority = attr_value(nlh, FRA_PRIORITY, 0);
	snprintf(what, sizeof(what),
	         "IPv%c rule with priority %u; remove it: ip %srule del pref %u",
	         out->v6 ? '6' : '4', priority, out->v6 ? "-6 " : "", priority);
	policy_describe(out, what);
	return true;
}

void rule_widen(struct sy_policy *last)
{
	*last = (struct sy_policy){.v6 = last->v6};
	policy_describe(last, "more rules than the forwarder reads; remove some");
}

void route_policy(const struct route_msg *msg, struct sy_policy *out)
{
	unsigned more = msg->v6 ? 0 : 96;
	char prefix[SY_ADDR_TEXT], what[160];

	*out = (struct sy_policy){
	        .v6 = msg->v6, .to = msg->prefix, .from = msg->from, .tos = msg->tos};
	out->to_bits = msg->prefix_len ? (uint8_t)(msg->prefix_len + more) : 0;
	out->from_bits = msg->from_len ? (uint8_t)(msg->from_len + more) : 0;
	snprintf(what, sizeof(what), "a route to %s/%u by %s; remove it",
	         sy_addr_format(&msg->prefix, prefix), msg->prefix_len,
	         msg->from_len ? "source address (from)" : "type of service (tos)");
	policy_describe(out, what);
}

// SPDX-License-Identifier: Apache-2.0
/* Handles messages of dumps and events, and infers changes that the kernel does not report. */
#include "host.h"
#include "mirror.h"

#include <libmnl/libmnl.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <net/if.h>

#define ROUTES (MIRROR_BIT(KIND_LINK) | MIRROR_BIT(KIND_ROUTE4) | MIRROR_BIT(KIND_ROUTE6))
#define RULES  (MIRROR_BIT(KIND_RULE4) | MIRROR_BIT(KIND_RULE6))

/* Records events until the next part of a dump, and searches them while that part is read. Returns
 * whether this dumped object may be older than an event about it: then it must not be stored, and
 * the dump is repeated. */
static bool recent_check(struct sy_mirror *m, bool dumped, const struct sy_addr *addr,
                         uint32_t extra)
{
	uint32_t hash = store_hash(&m->store, addr, extra);
	bool found = false;

	if (!m->dumping)
		return false;
	if (!dumped) {
		if (m->recent_count < MIRROR_RECENT)
			m->recent[m->recent_count] = hash;
		m->recent_count++;
		return false;
	}
	if (m->recent_count > MIRROR_RECENT)
		m->spoilt = true;
	for (unsigned i = 0; i < m->recent_count && i < MIRROR_RECENT && !found; i++)
		found = m->recent[i] == hash;
	m->spoilt |= found;
	return found;
}

/* ---- messages -------------------------------------------------------------------------------- */

static void on_link(struct sy_mirror *m, const struct nlmsghdr *nlh, bool dumped)
{
	bool gone = nlh->nlmsg_type == RTM_DELLINK;
	struct sy_link link;

	if (!link_parse(nlh, &link))
		return;
	if (recent_check(m, dumped, &(struct sy_addr){0}, (uint32_t)link.ifindex) ||
	    !store_link(&m->store, &link, gone))
		return;
	/* without an event: when a link goes down or up, the kernel drops IPv4 routes and marks
	 * hops */
	if (!dumped)
		m->wanted |= ROUTES | (gone ? MIRROR_BIT(KIND_ADDR) | MIRROR_BIT(KIND_NEIGH) : 0);
	if (!gone && link.up)
		managed_on_link_up(m, link.ifindex);
}

static void on_addr(struct sy_mirror *m, const struct nlmsghdr *nlh, bool dumped)
{
	bool gone = nlh->nlmsg_type == RTM_DELADDR;
	struct sy_link_addr addr;

	if (!addr_parse(nlh, &addr))
		return;
	if (recent_check(m, dumped, &addr.addr, (uint32_t)addr.ifindex))
		return;
	store_addr(&m->store, &addr, gone);
	/* without an event: the kernel removes routes with this preferred source */
	if (gone)
		m->wanted |= ROUTES;
}

static enum route_change route_change_of(const struct nlmsghdr *nlh, bool dumped, bool v6)
{
	if (dumped)
		return ROUTE_DUMPED;
	if (nlh->nlmsg_type == RTM_DELROUTE)
		return ROUTE_DELETED;
	if (nlh->nlmsg_flags & NLM_F_REPLACE)
		return ROUTE_REPLACED;
	return v6 || (nlh->nlmsg_flags & NLM_F_APPEND) ? ROUTE_APPENDED : ROUTE_PREPENDED;
}

static void on_route(struct sy_mirror *m, const struct nlmsghdr *nlh, bool dumped)
{
	char text[SY_ADDR_TEXT];
	struct route_msg msg;

	if (!route_parse(nlh, &msg))
		return;
	if (recent_check(m, dumped, &msg.prefix, msg.prefix_len))
		return;
	if (msg.hops_lost)
		sy_log(SY_LOG_WARN, "kernel", "route %s/%u: only the first %d next hops are used",
		       sy_addr_format(&msg.prefix, text), msg.prefix_len, SY_ROUTE_HOPS);
	if (store_route(&m->store, &msg, route_change_of(nlh, dumped, msg.v6)))
		m->wanted |= MIRROR_BIT(msg.v6 ? KIND_ROUTE6 : KIND_ROUTE4);
}

static void on_neigh(struct sy_mirror *m, const struct nlmsghdr *nlh, bool dumped)
{
	bool gone = nlh->nlmsg_type == RTM_DELNEIGH;
	struct neigh_msg msg;

	if (!neigh_parse(nlh, &msg))
		return;
	if (recent_check(m, dumped, &msg.neigh.addr, (uint32_t)msg.neigh.ifindex))
		return;
	store_neigh(&m->store, &msg.neigh, gone);
	if (!dumped || !m->spoilt) /* otherwise it will be dumped again */
		managed_on_neigh(m, &msg, gone);
}

static void on_rule(struct sy_mirror *m, const struct nlmsghdr *nlh, bool dumped)
{
	const struct sy_mirror_handler *h = &m->store.handler;
	struct sy_policy rule;

	if (!dumped)
		m->wanted |= RULES; /* rules are few and rarely change: dump them all */
	else if (!rule_parse(nlh, h->uses, h->ctx, &rule))
		return;
	else if (m->rules_found < MIRROR_RULES)
		m->rule_found[m->rules_found++] = rule;
	else
		rule_widen(&m->rule_found[MIRROR_RULES - 1]);
}

static void on_nexthop(struct sy_mirror *m, const struct nlmsghdr *nlh)
{
	bool changes = nlh->nlmsg_type == RTM_DELNEXTHOP || (nlh->nlmsg_flags & NLM_F_REPLACE);

	/* without an event: routes lose hops of a nexthop object, or are removed with it */
	if (changes && m->store.object_routes)
		m->wanted |= ROUTES;
}

/* NLMSG_ERROR and NLMSG_DONE both begin with the error. */
static int error_read(const struct nlmsghdr *nlh)
{
	int error = 0;

	if (mnl_nlmsg_get_payload_len(nlh) >= sizeof(error))
		memcpy(&error, mnl_nlmsg_get_payload(nlh), sizeof(error));
	return error;
}

static void on_error(struct sy_mirror *m, const struct nlmsghdr *nlh)
{
	int error = error_read(nlh);

	if (!error)
		return;
	if (m->dumping && nlh->nlmsg_seq == m->dump_seq)
		mirror_dump_failed(m, error);
	else
		sy_log(SY_LOG_DEBUG, "kernel", "the kernel refused a neighbour request: %s",
		       strerror(-error));
}

static void on_done(struct sy_mirror *m, const struct nlmsghdr *nlh)
{
	int error = error_read(nlh);

	if (error < 0)
		mirror_dump_failed(m, error);
	else
		mirror_dump_done(m);
}

/* ---- claims and health checks ---------------------------------------------------------------- */

void mirror_disturbed(const struct sy_mirror *m, unsigned what)
{
	if (m->store.handler.disturbed)
		m->store.handler.disturbed(m->store.handler.ctx, what);
}

/* Is it a claim of this process? Kernels before 5.18 do not store the protocol of an address: then
 * own changes are verified too. */
static bool addr_is_claim(const struct nlmsghdr *nlh)
{
	const struct nlattr *attr;

	mnl_attr_for_each(
	        attr, nlh,
	        sizeof(struct ifaddrmsg)) if (mnl_attr_get_type(attr) ==
	                                      IFA_PROTO) return mnl_attr_get_payload_len(attr) >=
	                1 &&
	        mnl_attr_get_u8(attr) == HOST_PROTOCOL;
	return false;
}

/* Were claims removed? With the last IPv4 address of lo the kernel removes all routes on it,
 * without an event for each. */
static bool claims_are_disturbed(const struct nlmsghdr *nlh)
{
	const struct rtmsg *rtm = mnl_nlmsg_get_payload(nlh);
	const struct ifinfomsg *ifi = mnl_nlmsg_get_payload(nlh);

	switch (nlh->nlmsg_type) {
	case RTM_DELROUTE:
		return mnl_nlmsg_get_payload_len(nlh) >= sizeof(*rtm) &&
		       rtm->rtm_protocol == HOST_PROTOCOL;
	case RTM_NEWLINK:
		return mnl_nlmsg_get_payload_len(nlh) >= sizeof(*ifi) &&
		       (ifi->ifi_flags & IFF_LOOPBACK);
	case RTM_DELADDR:
		return true;
	case RTM_NEWADDR:
		return !addr_is_claim(nlh);
	default:
		return false;
	}
}

static void event_check(const struct sy_mirror *m, const struct nlmsghdr *nlh)
{
	if (claims_are_disturbed(nlh))
		mirror_disturbed(m, SY_DISTURBED_CLAIMS);
	else if (nlh->nlmsg_type == RTM_DELQDISC || nlh->nlmsg_type == RTM_NEWTFILTER ||
	         nlh->nlmsg_type == RTM_DELTFILTER)
		mirror_disturbed(m, SY_DISTURBED_CHECKS);
}

void mirror_on_message(struct sy_mirror *m, const struct nlmsghdr *nlh)
{
	bool dumped = m->dumping && nlh->nlmsg_seq == m->dump_seq && nlh->nlmsg_pid == m->id &&
	              (nlh->nlmsg_flags & NLM_F_MULTI);

	m->have_dump |= dumped;
	if (!dumped)
		event_check(m, nlh);
	if (dumped && (nlh->nlmsg_flags & NLM_F_DUMP_INTR))
		m->spoilt = true;
	switch (nlh->nlmsg_type) {
	case NLMSG_DONE:
		if (dumped)
			on_done(m, nlh);
		break;
	case NLMSG_ERROR:
		on_error(m, nlh);
		break;
	case RTM_NEWLINK:
	case RTM_DELLINK:
		on_link(m, nlh, dumped);
		break;
	case RTM_NEWADDR:
	case RTM_DELADDR:
		on_addr(m, nlh, dumped);
		break;
	case RTM_NEWROUTE:
	case RTM_DELROUTE:
		on_route(m, nlh, dumped);
		break;
	case RTM_NEWNEIGH:
	case RTM_DELNEIGH:
		on_neigh(m, nlh, dumped);
		break;
	case RTM_NEWRULE:
	case RTM_DELRULE:
		on_rule(m, nlh, dumped);
		break;
	case RTM_NEWNEXTHOP:
	case RTM_DELNEXTHOP:
		on_nexthop(m, nlh);
		break;
	}
}

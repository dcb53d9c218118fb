// SPDX-License-Identifier: Apache-2.0
/*
 * Answers to clients whose service, or whose port, is unavailable
 * (docs/design/0049-unavailable.md).
 *
 *   no server, all full, no local port     any packet that would begin a session
 *   no server                              also TCP segments that have no session
 *   no service on this port of a VIP       TCP and UDP, by --unknown-ports
 */
#include "unavailable.h"

#include "address_set.h"
#include "create.h"
#include "icmp_packet.h"
#include "reset.h"
#include "service_drop.h"

/* The setting that applies to packets dropped for this reason. */
static enum sy_unavailable setting_of(const struct sy_balance *b, const struct service *service,
                                      const struct sy_tuple *client, enum sy_drop reason)
{
	if (!service)
		return reason == SY_DROP_NO_SERVICE &&
		                       address_set_find(SY_RCU_READ(b->address_set),
		                                        &client->dst) == ADDRESS_SET_VIP
		               ? b->options.unknown_ports
		               : SY_UNAVAILABLE_DROP;
	switch (reason) {
	case SY_DROP_NO_SERVER:
	case SY_DROP_CONNECTION_LIMIT:
	case SY_DROP_NO_LOCAL_ADDRESS:
	case SY_DROP_NO_LOCAL_PORT:
		return service->policy.when_unavailable;
	case SY_DROP_NO_SESSION:
		/* While a server is up, another forwarder may have the session: stay silent. With
		 * RESETS_UNKNOWN, slow_refuse_server() has already sent a reset. */
		return service_has_server(service) || service->policy.resets & RESETS_UNKNOWN
		               ? SY_UNAVAILABLE_DROP
		               : service->policy.when_unavailable;
	default:
		return SY_UNAVAILABLE_DROP;
	}
}

/* Fragmented segments are answered by an ICMP error: a reset needs the segment's length. */
static bool answer_send(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                        enum sy_unavailable setting, enum unavailable_kind *kind)
{
	const struct sy_view *v = &burst->view[i];
	if (v->proto == SY_PROTO_TCP && v->fragment == SY_FRAGMENT_NONE &&
	    setting == SY_UNAVAILABLE_RESET) {
		*kind = UNAVAILABLE_BY_RESET;
		return segment_is_allowed(w, ORIGINATED_RESET, &v->tuple.src) &&
		       reset_answer(w, burst, i);
	}
	*kind = UNAVAILABLE_BY_ICMP;
	return icmp_send_error(w, burst, i, SY_ICMP_PORT_UNREACHABLE, 0);
}

void unavailable_answer(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                        const struct service *service, enum sy_drop reason)
{
	struct balance_worker *bw = balance_worker_of(w);
	const struct sy_view *v = &burst->view[i];
	const enum sy_unavailable setting = setting_of(w->app, service, &v->tuple, reason);
	enum unavailable_kind kind;

	/* RFC 9293 3.10.7.1: never reset a reset. */
	if (setting == SY_UNAVAILABLE_DROP || !sy_view_has_l4(v) ||
	    (v->proto == SY_PROTO_TCP && v->tcp_flags & SY_TCP_RST))
		return;
	/* For other drop reasons, create_check() has checked the source already. */
	if ((reason == SY_DROP_NO_SESSION || reason == SY_DROP_NO_SERVICE) &&
	    create_check_origin(w->app, burst, i) != SY_DROP_NONE)
		return;
	uint64_t *sent = service ? bw->load[service->id].unavailable : bw->unknown_ports;
	if (answer_send(w, burst, i, setting, &kind))
		SY_COUNT(sent[kind], 1);
}

void unavailable_refuse(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                        const struct service *service, enum sy_drop reason)
{
	SY_COUNT(balance_worker_of(w)->counts[service->id].refused[refusal_of(reason)], 1);
	unavailable_answer(w, burst, i, service, reason);
	service_packet_drop(w, burst, i, service, reason);
}

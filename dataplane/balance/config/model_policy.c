// SPDX-License-Identifier: Apache-2.0
/* Reads and checks how a service distributes its sessions. */
#include "client_count.h"
#include "client_rate.h"
#include "model.h"

#define PERSISTENCE_LIMIT 32767u /* seconds: half of an entry's range */
#define SLOW_START_LIMIT  3600u  /* seconds */
#define SYNC_AGE_LIMIT    3600u  /* seconds */

static int read_persistence(const Steelyard__Forwarder__V1__Service *pb, struct policy *out,
                            struct sy_error *err)
{
	const Steelyard__Forwarder__V1__Persistence *p = pb->persistence;
	if (!p)
		return 0;
	if (p->timeout_s == 0 || p->timeout_s > PERSISTENCE_LIMIT)
		return sy_fail(err, EINVAL,
		               "service %s: a persistence timeout of %u s is not within 1–%u s",
		               pb->name, p->timeout_s, PERSISTENCE_LIMIT);
	if (p->prefix4 > 32 || p->prefix6 > 128)
		return sy_fail(err, EINVAL,
		               "service %s: persistence prefixes /%u and /%u: at most 32 for IPv4 "
		               "and 128 for IPv6",
		               pb->name, p->prefix4, p->prefix6);
	if (pb->one_packet)
		return sy_fail(err, EINVAL,
		               "service %s: persistence sends all of a client's datagrams to one "
		               "server, one_packet spreads them: remove one",
		               pb->name);
	out->persistence.timeout = (uint16_t)p->timeout_s;
	out->persistence.prefix4 = (uint8_t)(p->prefix4 ? p->prefix4 : 32);
	out->persistence.prefix6 = (uint8_t)(p->prefix6 ? p->prefix6 : 128);
	return 0;
}

static uint8_t read_resets(const Steelyard__Forwarder__V1__Resets *pb)
{
	if (!pb)
		return 0;
	return (uint8_t)((pb->expired ? RESETS_EXPIRED : 0) | (pb->down ? RESETS_DOWN : 0) |
	                 (pb->unknown ? RESETS_UNKNOWN : 0));
}

/* With sloppy_tcp another forwarder must choose the same server, without any state of the
 * connection. */
static int check_sloppy(const Steelyard__Forwarder__V1__Service *pb, struct sy_error *err)
{
	if (!pb->sloppy_tcp)
		return 0;
	if (pb->key->protocol != STEELYARD__FORWARDER__V1__PROTOCOL__PROTOCOL_TCP)
		return sy_fail(err, EINVAL, "service %s: sloppy_tcp is for TCP", pb->name);
	if (pb->mode != STEELYARD__FORWARDER__V1__MODE__MODE_DR &&
	    pb->mode != STEELYARD__FORWARDER__V1__MODE__MODE_IPIP)
		return sy_fail(
		        err, EINVAL,
		        "service %s: sloppy_tcp is for dr and ipip: other modes need the session "
		        "to translate a connection's packets",
		        pb->name);
	if (pb->scheduler != STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_MAGLEV &&
	    pb->scheduler != STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_CONHASH)
		return sy_fail(err, EINVAL,
		               "service %s: sloppy_tcp is for maglev and conhash, which select "
		               "the same server on all forwarders",
		               pb->name);
	if (pb->persistence || pb->slow_start_s)
		return sy_fail(err, EINVAL,
		               "service %s: sloppy_tcp selects the server by hash only: remove "
		               "persistence and slow_start",
		               pb->name);
	return 0;
}

static int read_defence(const Steelyard__Forwarder__V1__Service *pb, uint8_t *out,
                        struct sy_error *err)
{
	*out = DEFENCE_OFF;
	switch (pb->syn_defence) {
	case STEELYARD__FORWARDER__V1__SYN_DEFENCE__SYN_DEFENCE_UNSPECIFIED:
	case STEELYARD__FORWARDER__V1__SYN_DEFENCE__SYN_DEFENCE_OFF:
		return 0;
	case STEELYARD__FORWARDER__V1__SYN_DEFENCE__SYN_DEFENCE_AUTO:
		*out = DEFENCE_AUTO;
		break;
	case STEELYARD__FORWARDER__V1__SYN_DEFENCE__SYN_DEFENCE_ALWAYS:
		*out = DEFENCE_ALWAYS;
		break;
	default:
		return sy_fail(err, EINVAL,
		               "service %s: unknown syn_defence %d; known: auto, always, off",
		               pb->name, (int)pb->syn_defence);
	}
	if (pb->key->protocol != STEELYARD__FORWARDER__V1__PROTOCOL__PROTOCOL_TCP)
		return sy_fail(err, EINVAL, "service %s: syn_defence is for TCP", pb->name);
	return 0;
}

static int read_unavailable(const Steelyard__Forwarder__V1__Service *pb, uint8_t *out,
                            struct sy_error *err)
{
	switch (pb->when_unavailable) {
	case STEELYARD__FORWARDER__V1__WHEN_UNAVAILABLE__WHEN_UNAVAILABLE_UNSPECIFIED:
	case STEELYARD__FORWARDER__V1__WHEN_UNAVAILABLE__WHEN_UNAVAILABLE_RESET:
		*out = SY_UNAVAILABLE_RESET;
		return 0;
	case STEELYARD__FORWARDER__V1__WHEN_UNAVAILABLE__WHEN_UNAVAILABLE_DROP:
		*out = SY_UNAVAILABLE_DROP;
		return 0;
	case STEELYARD__FORWARDER__V1__WHEN_UNAVAILABLE__WHEN_UNAVAILABLE_ICMP:
		*out = SY_UNAVAILABLE_ICMP;
		return 0;
	default:
		return sy_fail(err, EINVAL,
		               "service %s: unknown when_unavailable %d; known: drop, reset, icmp",
		               pb->name, (int)pb->when_unavailable);
	}
}

static int read_sync(const Steelyard__Forwarder__V1__Service *pb, uint8_t *out,
                     struct sy_error *err)
{
	if (pb->sync_older_than_s > SYNC_AGE_LIMIT)
		return sy_fail(err, EINVAL,
		               "service %s: sync: older_than %u s is not within 1–%u s", pb->name,
		               pb->sync_older_than_s, SYNC_AGE_LIMIT);
	if (pb->sync_older_than_s && (pb->sync == STEELYARD__FORWARDER__V1__SYNC__SYNC_OFF ||
	                              pb->sync == STEELYARD__FORWARDER__V1__SYNC__SYNC_ALL ||
	                              pb->sync == STEELYARD__FORWARDER__V1__SYNC__SYNC_STRICT))
		return sy_fail(
		        err, EINVAL,
		        "service %s: sync: older_than excludes off, all and strict: remove one",
		        pb->name);
	switch (pb->sync) {
	case STEELYARD__FORWARDER__V1__SYNC__SYNC_UNSPECIFIED:
	case STEELYARD__FORWARDER__V1__SYNC__SYNC_ESTABLISHED:
		*out = SYNC_ESTABLISHED;
		return 0;
	case STEELYARD__FORWARDER__V1__SYNC__SYNC_OFF:
		*out = SYNC_OFF;
		return 0;
	case STEELYARD__FORWARDER__V1__SYNC__SYNC_ALL:
		*out = SYNC_ALL;
		return 0;
	case STEELYARD__FORWARDER__V1__SYNC__SYNC_STRICT:
		*out = SYNC_STRICT;
		return 0;
	default:
		return sy_fail(err, EINVAL,
		               "service %s: unknown sync %d; known: off, established, all, strict",
		               pb->name, (int)pb->sync);
	}
}

static int check_client_limits(const Steelyard__Forwarder__V1__Service *pb, struct sy_error *err)
{
	const Steelyard__Forwarder__V1__ClientLimits *l = pb->client_limits;
	if (!l)
		return 0;
	if ((l->new_per_second == 0 && l->sessions == 0) ||
	    (l->new_per_second == 0) != (l->burst == 0) || l->new_per_second > CLIENT_RATE_MAX ||
	    l->burst > CLIENT_BURST_MAX || l->sessions > CLIENT_SESSIONS_MAX)
		return sy_fail(err, EINVAL,
		               "service %s: client_limits: new_per_second is 1 to %u, burst 1 to "
		               "%u, sessions 1 to %u; burst and new_per_second go together",
		               pb->name, CLIENT_RATE_MAX, CLIENT_BURST_MAX, CLIENT_SESSIONS_MAX);
	const bool udp = pb->key->protocol == STEELYARD__FORWARDER__V1__PROTOCOL__PROTOCOL_UDP;
	if (l->sessions && udp &&
	    (pb->one_packet || pb->mode == STEELYARD__FORWARDER__V1__MODE__MODE_DR ||
	     pb->mode == STEELYARD__FORWARDER__V1__MODE__MODE_IPIP))
		return sy_fail(err, EINVAL,
		               "service %s: client_limits: sessions: a UDP session counts once its "
		               "server has answered, which is not seen under dr and ipip, nor kept "
		               "with one_packet",
		               pb->name);
	if (l->sessions && pb->sloppy_tcp)
		return sy_fail(err, EINVAL,
		               "service %s: client_limits: sessions: with sloppy_tcp a segment "
		               "without a handshake begins a session, so forged ones would use up "
		               "a client's: remove one",
		               pb->name);
	return 0;
}

int read_policy(const Steelyard__Forwarder__V1__Service *pb, struct policy *out,
                struct sy_error *err)
{
	const struct scheduler_ops *ops = scheduler_find((uint32_t)pb->scheduler);
	if (!ops)
		return sy_fail(err, EINVAL,
		               "service %s: unknown scheduler %d; known: rr, wrr, lc, wlc, sed, "
		               "sh, maglev, conhash, share, p2c",
		               pb->name, (int)pb->scheduler);
	if (pb->hash_on < STEELYARD__FORWARDER__V1__HASH_ON__HASH_ON_UNSPECIFIED ||
	    pb->hash_on > STEELYARD__FORWARDER__V1__HASH_ON__HASH_ON_TUPLE)
		return sy_fail(err, EINVAL, "service %s: unknown hash_on %d; known: source, tuple",
		               pb->name, (int)pb->hash_on);
	if (pb->hash_on != STEELYARD__FORWARDER__V1__HASH_ON__HASH_ON_UNSPECIFIED && !ops->by_hash)
		return sy_fail(
		        err, EINVAL,
		        "service %s: hash_on is for sh, maglev and conhash; %s does not hash",
		        pb->name, ops->name);
	if (pb->slow_start_s > SLOW_START_LIMIT)
		return sy_fail(err, EINVAL, "service %s: a slow start of %u s is above %u s",
		               pb->name, pb->slow_start_s, SLOW_START_LIMIT);
	if (pb->one_packet && pb->key->protocol != STEELYARD__FORWARDER__V1__PROTOCOL__PROTOCOL_UDP)
		return sy_fail(err, EINVAL, "service %s: one_packet is for UDP", pb->name);
	if (pb->one_packet && pb->mode != STEELYARD__FORWARDER__V1__MODE__MODE_FNAT)
		return sy_fail(err, EINVAL,
		               "service %s: one_packet: only fnat can match answers to single "
		               "datagrams",
		               pb->name);
	if ((unsigned)pb->client_address >
	    STEELYARD__FORWARDER__V1__CLIENT_ADDRESS__CLIENT_ADDRESS_PROXY_V2)
		return sy_fail(
		        err, EINVAL,
		        "service %s: unknown client_address %d; known: toa, proxy_v1, proxy_v2",
		        pb->name, (int)pb->client_address);
	if (pb->client_address &&
	    (pb->key->protocol != STEELYARD__FORWARDER__V1__PROTOCOL__PROTOCOL_TCP ||
	     pb->mode != STEELYARD__FORWARDER__V1__MODE__MODE_FNAT))
		return sy_fail(
		        err, EINVAL,
		        "service %s: client_address is for TCP and fnat, whose servers do not see "
		        "the client's address",
		        pb->name);
	if (pb->keep_client_options &&
	    pb->client_address == STEELYARD__FORWARDER__V1__CLIENT_ADDRESS__CLIENT_ADDRESS_TOA)
		return sy_fail(err, EINVAL,
		               "service %s: client_options: with client_address: toa a client's "
		               "own option would contradict the forwarder's",
		               pb->name);
	if (pb->mark && pb->mark->dscp > 63)
		return sy_fail(err, EINVAL, "service %s: DSCP %u is above 63", pb->name,
		               pb->mark->dscp);
	if (read_resets(pb->resets) &&
	    pb->key->protocol != STEELYARD__FORWARDER__V1__PROTOCOL__PROTOCOL_TCP)
		return sy_fail(err, EINVAL, "service %s: resets are for TCP", pb->name);
	const Steelyard__Forwarder__V1__ClientLimits *limits = pb->client_limits;
	static const Steelyard__Forwarder__V1__ClientLimits none =
	        STEELYARD__FORWARDER__V1__CLIENT_LIMITS__INIT;
	limits = limits ? limits : &none;
	uint8_t defence, unavailable = SY_UNAVAILABLE_RESET, sync = SYNC_ESTABLISHED;
	if (check_client_limits(pb, err) < 0 || check_sloppy(pb, err) < 0 ||
	    read_defence(pb, &defence, err) < 0 || read_unavailable(pb, &unavailable, err) < 0 ||
	    read_sync(pb, &sync, err) < 0)
		return -EINVAL;
	*out = (struct policy){
	        .scheduler = (uint8_t)pb->scheduler,
	        .hash_on = (uint8_t)pb->hash_on,
	        .one_packet = pb->one_packet,
	        .sloppy_tcp = pb->sloppy_tcp,
	        .slow_start = (uint16_t)pb->slow_start_s,
	        .max_sessions = pb->max_sessions,
	        .client_per_second = limits->new_per_second,
	        .client_burst = limits->burst,
	        .client_sessions = limits->sessions,
	        .client_address = (uint8_t)pb->client_address,
	        .keep_client_options = pb->keep_client_options,
	        .resets = read_resets(pb->resets),
	        .syn_defence = defence,
	        .when_unavailable = unavailable,
	        .sync = sync,
	        .sync_older_than = (uint16_t)pb->sync_older_than_s,
	        .mark = (uint8_t)(pb->mark ? pb->mark->dscp + 1 : 0),
	};
	return read_persistence(pb, out, err);
}

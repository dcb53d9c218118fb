// SPDX-License-Identifier: Apache-2.0
/* Opens, binds and closes ports for runtime.c; finds them by name or interface. Backends:
 * port_xsk.c and port_ethdev.c. */
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime.h"

const struct port_ops *port_ops_of(enum sy_port_backend backend)
{
	static const struct port_ops *const all[] = {
	        [SY_PORT_XSK] = &port_xsk_ops,
	        [SY_PORT_ETHDEV] = &port_ethdev_ops,
	};
	return all[backend];
}

int port_open(struct sy_runtime *rt, const struct sy_port_options *o, struct sy_error *err)
{
	struct port *p = aligned_alloc(SY_CACHE_LINE, sizeof(*p));
	if (!p)
		return sy_fail(err, ENOMEM, "port %s: no memory", o->name);
	memset(p, 0, sizeof(*p));
	p->ops = port_ops_of(o->backend);
	p->id = rt->ports;
	memcpy(p->name, o->name, sizeof(p->name));
	rt->port[rt->ports++] = p;
	return p->ops->open(rt, p, o, err) ? sy_fail_in(err, "port %s", o->name) : 0;
}

/* The port's offloads, for logs. */
static const char *offloads_text(const struct port *p, char out[static 64])
{
	static const struct {
		uint32_t bit;
		const char *name;
	} all[] = {{SY_OFFLOAD_TCP_CHECKSUM, "checksums"},
	           {SY_OFFLOAD_TSO_IPV4, "TSO"},
	           {SY_OFFLOAD_TSO_IPV6, "TSO of IPv6"},
	           {SY_OFFLOAD_LRO, "LRO"}};
	size_t len = 0;

	out[0] = 0;
	for (unsigned i = 0; i < SY_ARRAY_LEN(all); i++)
		if (p->offloads & all[i].bit)
			len += (size_t)snprintf(out + len, 64 - len, ", %s", all[i].name);
	return out;
}

int port_bind(struct sy_runtime *rt, unsigned id, struct sy_patience *patience,
              struct sy_error *err)
{
	struct port *p = rt->port[id];
	if (p->ops->bind(rt, p, &rt->options.port[id], patience, err))
		return sy_fail_in(err, "port %s", p->name);
	p->bound = true;
	if (port_director(p))
		sy_director_read_stats(port_director(p), &p->found);
	char offloads[64];
	sy_log(SY_LOG_INFO, "runtime", "port %s: %s, %u queue%s, MTU %u%s", p->name, p->backend,
	       p->queues, p->queues == 1 ? "" : "s", p->mtu, offloads_text(p, offloads));
	return 0;
}

void port_release(struct port *p)
{
	if (p->bound)
		p->ops->stats(p, &p->last);
	p->bound = false;
	p->ops->release(p);
}

void port_close(struct sy_runtime *rt, unsigned id)
{
	struct port *p = rt->port[id];
	shaping_close(p);
	if (p->impl)
		p->ops->close(p);
	free(p);
	rt->port[id] = NULL;
}

/* Explains why the port uses less than the interface's MTU, with the remedy. */
static void mtu_problem(const struct port *p, char *out, size_t cap)
{
	snprintf(
	        out, cap,
	        "the interface's MTU is %u, but packet buffers hold %u: larger packets are dropped "
	        "(too-big); remedy: %sip link set %s mtu %u",
	        p->mtu_link, p->mtu_max,
	        p->mtu_max < p->ops->mtu_max ? "restart the forwarder, or " : "", p->name,
	        p->mtu_max);
}

bool port_set_mtu(struct port *p, unsigned mtu)
{
	unsigned used = p->mtu_max && mtu > p->mtu_max ? p->mtu_max : mtu;
	bool changed = p->mtu != used, first = mtu != p->mtu_link;
	p->mtu_link = (uint16_t)mtu;
	if (used < mtu && first) { /* log once, not at each change of the interface */
		char text[256];
		mtu_problem(p, text, sizeof(text));
		sy_log(SY_LOG_WARN, "runtime", "port %s: %s", p->name, text);
	}
	__atomic_store_n(&p->mtu, (uint16_t)used, __ATOMIC_RELAXED);
	return changed;
}

unsigned port_by_ifindex(const struct sy_runtime *rt, int ifindex)
{
	for (unsigned i = 0; i < rt->ports; i++)
		if (ifindex && rt->port[i]->ifindex == ifindex)
			return i;
	return SY_PORT_NONE;
}

unsigned port_by_name(const struct sy_runtime *rt, const char *name)
{
	for (unsigned i = 0; i < rt->ports; i++)
		if (!strcmp(rt->port[i]->name, name))
			return i;
	return SY_PORT_NONE;
}

unsigned sy_port_count(const struct sy_runtime *rt)
{
	return rt->ports;
}

void sy_port_get_info(const struct sy_runtime *rt, unsigned port, struct sy_port_info *out)
{
	const struct port *p = rt->port[port];
	*out = (struct sy_port_info){.backend = p->backend,
	                             .mtu = SY_READ(p->mtu),
	                             .up = SY_READ(p->up),
	                             .queues = p->queues,
	                             .ifindex = p->ifindex,
	                             .offloads = p->offloads,
	                             .tso = p->tso};
	memcpy(out->name, p->name, sizeof(out->name));
	if (p->gone)
		memcpy(out->problem, p->problem, sizeof(out->problem));
	else if (p->mtu_link > p->mtu)
		mtu_problem(p, out->problem, sizeof(out->problem));
	uint64_t mac = SY_READ(p->mac);
	memcpy(out->mac, &mac, sizeof(out->mac));
}

void sy_port_get_stats(const struct sy_runtime *rt, unsigned port, struct sy_port_stats *out)
{
	struct port *p = rt->port[port];
	*out = p->last;
	for (unsigned q = 0; q < SY_MAX_QUEUES; q++) {
		const struct port_queue_counters *c = &p->counters[q];
		out->rx_packets += SY_READ(c->rx_packets);
		out->rx_bytes += SY_READ(c->rx_bytes);
		out->tx_packets += SY_READ(c->tx_packets);
		out->tx_bytes += SY_READ(c->tx_bytes);
		out->tx_failed +=
		        SY_READ(c->tx_failed) + SY_READ(c->unfit) + SY_READ(c->no_carrier);
	}
	if (p->bound)
		p->ops->stats(p, out);
}

/* Drop reasons that flow directors count too. */
static const struct {
	enum sy_drop reason;
	size_t counter; /* offset in struct sy_director_stats */
} director_drops[] = {
        {SY_DROP_VLAN, offsetof(struct sy_director_stats, dropped_vlan)},
        {SY_DROP_TRUNCATED, offsetof(struct sy_director_stats, dropped_truncated)},
        {SY_DROP_TOO_BIG, offsetof(struct sy_director_stats, dropped_too_big)},
        {SY_DROP_NO_SERVICE, offsetof(struct sy_director_stats, dropped_no_service)},
        {SY_DROP_ACL_DROP, offsetof(struct sy_director_stats, dropped_blocked)},
};

static uint64_t counter_at(const struct sy_director_stats *stats, size_t counter)
{
	return *(const uint64_t *)((const char *)stats + counter);
}

static uint64_t no_carrier_drops(const struct sy_runtime *rt)
{
	uint64_t packets = 0;
	for (unsigned i = 0; i < rt->ports; i++)
		for (unsigned q = 0; q < SY_MAX_QUEUES; q++)
			packets += SY_READ(rt->port[i]->counters[q].no_carrier);
	return packets;
}

uint64_t sy_port_drops(const struct sy_runtime *rt, enum sy_drop reason)
{
	uint64_t packets = 0;
	unsigned n = 0;
	if (reason == SY_DROP_PORT_DOWN)
		return no_carrier_drops(rt);
	while (n < SY_ARRAY_LEN(director_drops) && director_drops[n].reason != reason)
		n++;
	for (unsigned i = 0; n < SY_ARRAY_LEN(director_drops) && i < rt->ports; i++) {
		if (!rt->port[i]->bound && !rt->port[i]->gone)
			continue;
		struct sy_port_stats stats;
		sy_port_get_stats(rt, i, &stats);
		packets += counter_at(&stats.director, director_drops[n].counter) -
		           counter_at(&rt->port[i]->found, director_drops[n].counter);
	}
	return packets;
}

uint16_t sy_port_mtu(const struct sy_runtime *rt, unsigned port)
{
	return SY_READ(rt->port[port]->mtu);
}

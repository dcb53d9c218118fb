// SPDX-License-Identifier: Apache-2.0
#include "setup.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <sy_port_option.h>

#include "context.h"

#define PACKETS      16384
#define CONNECTIONS  16384
#define LISTENERS    64
#define BUFFER_BYTES 2560 /* of a standard packet, with its share of the pool */

/* ---- memory ---------------------------------------------------------------------------------- */

static unsigned queues_of(const char *interface)
{
	char path[128];
	unsigned queues = 0;

	do
		snprintf(path, sizeof(path), "/sys/class/net/%.32s/queues/rx-%u", interface,
		         queues);
	while (!access(path, F_OK) && ++queues < SY_MAX_QUEUES);
	return queues ? queues : 1;
}

/* Packets in flight per queue. */
static uint64_t queue_packets(const struct sy_port_options *p)
{
	return p->ring > 2048 ? 2 * p->ring : 4096;
}

/* Sums packets in ports and workers, and unread ones. */
unsigned setup_memory_mb(const struct sy_tcp_setup *o, const struct sy_runtime_options *r)
{
	uint64_t packets = o->packets + o->contexts * UINT64_C(1536);

	if (o->memory_mb)
		return o->memory_mb;
	for (unsigned i = 0; i < r->ports; i++) {
		const struct sy_port_options *p = &r->port[i];
		unsigned queues = p->backend == SY_PORT_XSK ? queues_of(p->name) : o->contexts;
		packets += queues * queue_packets(p);
	}
	if (o->contexts > 1)
		packets += 16384;
	return (unsigned)(64 + packets * BUFFER_BYTES / (1 << 20));
}

/* ---- settings -------------------------------------------------------------------------------- */

/* Converts between versions: fields the caller lacks are 0; fields this version lacks must not be
 * set. */
static int versions_meet(const struct sy_tcp_setup *from, struct sy_tcp_setup *o,
                         struct sy_error *err)
{
	static const struct sy_tcp_setup none;

	if (from->size < offsetof(struct sy_tcp_setup, contexts))
		return sy_fail(err, EINVAL,
		               "the setup's size is not set; write sizeof(struct sy_tcp_setup)");
	for (size_t i = sizeof(*o); i < from->size; i++)
		if (((const uint8_t *)from)[i])
			return sy_fail(err, E2BIG,
			               "options of a newer libsteelyard-tcp; install "
			               "the one that the program was built with");
	*o = none;
	memcpy(o, from, from->size < sizeof(*o) ? from->size : sizeof(*o));
	return 0;
}

static void setup_complete(struct sy_tcp_setup *o)
{
	o->contexts = o->contexts ? o->contexts : 1;
	o->connections = o->connections ? o->connections : CONNECTIONS;
	o->listeners = o->listeners ? o->listeners : LISTENERS;
	o->packets = o->packets ? o->packets : PACKETS;
	o->port_first = o->port_first ? o->port_first : 49152;
	o->port_last = o->port_last ? o->port_last : 65535;
	o->congestion = o->congestion ? o->congestion : "cubic";
}

static int setup_check(const struct sy_tcp_setup *o, struct sy_error *err)
{
	if (o->contexts > SY_MAX_WORKERS)
		return sy_fail(err, EINVAL, "%u contexts: 1 to %d are possible", o->contexts,
		               SY_MAX_WORKERS);
	if (o->interfaces < 1 || o->interfaces > SY_MAX_PORTS)
		return sy_fail(err, EINVAL, "%u interfaces: 1 to %d are possible", o->interfaces,
		               SY_MAX_PORTS);
	if (o->addresses < 1 || o->addresses > SETUP_ADDRESSES)
		return sy_fail(err, EINVAL, "%u addresses: 1 to %d are possible", o->addresses,
		               SETUP_ADDRESSES);
	if (o->port_first > o->port_last)
		return sy_fail(err, EINVAL, "ephemeral ports from %u to %u: there are none",
		               o->port_first, o->port_last);
	return 0;
}

static int text_address(const char *text, struct sy_stack_endpoint *out, struct sy_error *err)
{
	*out = (struct sy_stack_endpoint){0};
	if (sy_addr_parse(text, &out->addr) || address_is_any(&out->addr))
		return sy_fail(err, EINVAL, "\"%s\" is no address", text);
	return 0;
}

int setup_read(const struct sy_tcp_setup *from, struct sy_tcp_setup *o,
               struct sy_stack_endpoint address[SETUP_ADDRESSES], struct sy_error *err)
{
	int rc = versions_meet(from, o, err);

	if (rc)
		return rc;
	setup_complete(o);
	rc = setup_check(o, err);
	for (unsigned i = 0; i < o->addresses && !rc; i++)
		rc = text_address(o->address[i], &address[i], err);
	return rc;
}

int setup_ports(const struct sy_tcp_setup *o, struct sy_runtime_options *r, struct sy_error *err)
{
	int rc = 0;

	for (unsigned i = 0; i < o->interfaces && !rc; i++)
		rc = sy_port_option(r, o->interface[i], err);
	for (unsigned i = 0; i < o->routes && !rc; i++)
		rc = sy_route_option(r, o->route[i], err);
	for (unsigned i = 0; i < o->neighbours && !rc; i++)
		rc = sy_neighbour_option(r, o->neighbour[i], err);
	for (unsigned i = 0; i < r->ports; i++) {
		r->kernel |= r->port[i].backend == SY_PORT_XSK;
		if (o->generic)
			r->port[i].mode = SY_DIRECTOR_GENERIC;
	}
	return rc;
}

// SPDX-License-Identifier: Apache-2.0
/* Opens devices and closes them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_bus_vdev.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_service.h>
#include <rte_service_component.h>

#include "event.h"

#define REMEDY                                                                                     \
	"remedy: event_dsw or event_sw, which are software, or event_dlb2 where the CPU has a "    \
	"DLB "                                                                                     \
	"that is bound to vfio-pci"
#define DRAIN_ROUNDS 100000 /* a device that gives nothing out for so long is stopped as it is */

const char *const sy_event_model_name[SY_EVENT_MODELS] = {
        [SY_EVENT_DIRECT] = "direct",
        [SY_EVENT_UNORDERED] = "unordered",
        [SY_EVENT_ORDERED] = "ordered",
        [SY_EVENT_ATOMIC] = "atomic",
};

/* ---- finding the device ---------------------------------------------------------------------- */

/* A device that EAL has found: by its name, or by part of its driver's name, because a PCI device
 * is named by its address. */
static int device_present(const char *name, const char *driver)
{
	for (uint8_t i = 0; i < RTE_EVENT_MAX_DEVS; i++) {
		struct rte_event_dev_info info = {0};
		if (rte_event_dev_info_get(i, &info) < 0 || !info.dev)
			continue;
		if (driver ? strstr(rte_driver_name(rte_dev_driver(info.dev)), driver) != NULL
		           : strcmp(rte_dev_name(info.dev), name) == 0)
			return i;
	}
	return -ENODEV;
}

/* "event_dsw,args": creates a virtual device for this stage. */
static int device_make(struct sy_event *event, const char *name, struct sy_error *err)
{
	static unsigned made;
	const char *args = strchrnul(name, ',');
	if (strncmp(name, "event_", 6) != 0)
		return sy_fail(err, ENODEV, "there is no event device \"%s\"; " REMEDY, name);
	snprintf(event->made, sizeof(event->made), "%.*s_%u", (int)(args - name), name,
	         __atomic_fetch_add(&made, 1, __ATOMIC_RELAXED));
	if (rte_vdev_init(event->made, *args ? args + 1 : NULL) < 0) {
		event->made[0] = '\0';
		return sy_fail(err, ENODEV,
		               "there is no event device \"%s\", or no memory for it; " REMEDY
		               "; or a larger --memory",
		               name);
	}
	return rte_event_dev_get_dev_id(event->made);
}

static int device_find(struct sy_event *event, const char *name, struct sy_error *err)
{
	bool dlb = strcmp(name, "event_dlb2") == 0;
	int id = device_present(name, dlb ? "dlb2" : NULL);
	if (id < 0 && dlb)
		return sy_fail(err, ENODEV, "EAL has found no DLB; " REMEDY);
	if (id < 0)
		id = device_make(event, name, err);
	if (id < 0)
		return id;
	event->device = (uint8_t)id;
	return 0;
}

/* ---- configuring it -------------------------------------------------------------------------- */

static int options_check(const struct sy_event_options *o, struct sy_error *err)
{
	uint64_t all = o->ports >= 64 ? UINT64_MAX : (UINT64_C(1) << o->ports) - 1;
	if (o->ports < 1 || o->ports > SY_EVENT_PORTS_MAX)
		return sy_fail(err, EINVAL, "an event device cannot have %u ports; 1 to %u",
		               o->ports, SY_EVENT_PORTS_MAX);
	if ((o->consumers & all) == 0 || (o->consumers & ~all) != 0)
		return sy_fail(err, EINVAL,
		               "the consumers of an event device must be among its %u ports",
		               o->ports);
	if (o->model == SY_EVENT_DIRECT && (o->consumers & (o->consumers - 1)) != 0)
		return sy_fail(err, EINVAL,
		               "a direct queue has one consumer; remedy: unordered, ordered or "
		               "atomic for several");
	if (o->model == SY_EVENT_ORDERED &&
	    (o->exit >= o->ports || (o->consumers >> o->exit & 1) != 0))
		return sy_fail(err, EINVAL,
		               "an ordered queue needs an exit, a port that is not a consumer");
	return 0;
}

static uint32_t min(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static int capacity_of(const struct sy_event_options *o, const struct rte_event_dev_info *info)
{
	if (info->max_num_events < 0)
		return -1; /* an open system has no event limit */
	return o->capacity ? (int)min(o->capacity, (uint32_t)info->max_num_events)
	                   : info->max_num_events;
}

static int queues_setup(struct sy_event *event, uint32_t flows)
{
	static const uint8_t type[SY_EVENT_MODELS] = {
	        [SY_EVENT_DIRECT] = RTE_SCHED_TYPE_ATOMIC,
	        [SY_EVENT_UNORDERED] = RTE_SCHED_TYPE_PARALLEL,
	        [SY_EVENT_ORDERED] = RTE_SCHED_TYPE_ORDERED,
	        [SY_EVENT_ATOMIC] = RTE_SCHED_TYPE_ATOMIC,
	};
	struct rte_event_queue_conf conf = {
	        .nb_atomic_flows = flows,
	        .nb_atomic_order_sequences = flows,
	        .schedule_type = type[event->model],
	        .priority = RTE_EVENT_DEV_PRIORITY_NORMAL,
	};
	if (event->model == SY_EVENT_DIRECT)
		conf.event_queue_cfg = RTE_EVENT_QUEUE_CFG_SINGLE_LINK;
	int rc = rte_event_queue_setup(event->device, QUEUE_MAIN, &conf);
	if (rc < 0 || event->model != SY_EVENT_ORDERED)
		return rc;
	conf.event_queue_cfg = RTE_EVENT_QUEUE_CFG_SINGLE_LINK;
	conf.schedule_type = RTE_SCHED_TYPE_ATOMIC;
	return rte_event_queue_setup(event->device, QUEUE_EXIT, &conf);
}

static int port_setup(struct sy_event *event, unsigned i, const struct rte_event_dev_config *dev)
{
	struct rte_event_port_conf conf;
	struct sy_event_port *p = &event->port[i];
	bool exit = event->model == SY_EVENT_ORDERED && i == event->exit;
	int rc = rte_event_port_default_conf_get(event->device, (uint8_t)i, &conf);
	if (rc < 0)
		return rc;
	conf.new_event_threshold = dev->nb_events_limit;
	conf.dequeue_depth = (uint16_t)dev->nb_event_port_dequeue_depth;
	conf.enqueue_depth = (uint16_t)dev->nb_event_port_enqueue_depth;
	conf.event_port_cfg =
	        p->consumes ? RTE_EVENT_PORT_CFG_HINT_WORKER : RTE_EVENT_PORT_CFG_HINT_PRODUCER;
	if (exit || (event->model == SY_EVENT_DIRECT && p->consumes))
		conf.event_port_cfg =
		        RTE_EVENT_PORT_CFG_SINGLE_LINK | RTE_EVENT_PORT_CFG_HINT_CONSUMER;
	rc = rte_event_port_setup(event->device, (uint8_t)i, &conf);
	if (rc < 0 || (!p->consumes && !exit))
		return rc;
	uint8_t queue = exit ? QUEUE_EXIT : QUEUE_MAIN;
	return rte_event_port_link(event->device, (uint8_t)i, &queue, NULL, 1) == 1 ? 0
	                                                                            : -rte_errno;
}

/* No service core: the ports run the service, see device_work(). */
static int service_setup(struct sy_event *event)
{
	if (rte_event_dev_service_id_get(event->device, &event->service) < 0)
		return 0; /* it has none */
	int rc = rte_service_set_runstate_mapped_check(event->service, 0);
	if (rc == 0)
		rc = rte_service_runstate_set(event->service, 1);
	event->scheduled = rc == 0;
	return rc;
}

/* The first run shows whether the device works: later results are not checked. */
static int service_try(struct sy_event *event, const struct sy_event_options *o,
                       struct sy_error *err)
{
	int rc = event->scheduled ? rte_service_run_iter_on_app_lcore(event->service, 0) : 0;
	if (rc >= 0 || rc == -EAGAIN) /* -EAGAIN: nothing to do */
		return 0;
	rte_event_dev_stop(event->device);
	return sy_fail(err, -rc,
	               "the event device %s does not run in its ports' threads (%s); remedy: "
	               "event_dsw",
	               o->device, strerror(-rc));
}

static int device_setup(struct sy_event *event, const struct sy_event_options *o,
                        struct sy_error *err)
{
	struct rte_event_dev_info info;
	int rc = rte_event_dev_info_get(event->device, &info);
	if (rc < 0)
		return sy_fail(err, -rc, "asking the event device %s", o->device);
	struct rte_event_dev_config dev = {
	        .nb_events_limit = capacity_of(o, &info),
	        .nb_event_queues = o->model == SY_EVENT_ORDERED ? 2 : 1,
	        .nb_event_ports = (uint8_t)o->ports,
	        .nb_event_queue_flows = min(info.max_event_queue_flows, 1u << SY_EVENT_FLOW_BITS),
	        .nb_event_port_dequeue_depth =
	                min(info.max_event_port_dequeue_depth, SY_EVENT_BURST),
	        .nb_event_port_enqueue_depth =
	                min(info.max_event_port_enqueue_depth, 2 * SY_EVENT_BURST),
	        .nb_single_link_event_port_queues =
	                o->model == SY_EVENT_DIRECT || o->model == SY_EVENT_ORDERED,
	};
	event->maintained = !(info.event_dev_cap & RTE_EVENT_DEV_CAP_MAINTENANCE_FREE);
	event->relinks = info.event_dev_cap & RTE_EVENT_DEV_CAP_RUNTIME_PORT_LINK;
	rc = rte_event_dev_configure(event->device, &dev);
	if (rc < 0)
		return sy_fail(err, -rc, "the event device %s refuses %u ports and %d events",
		               o->device, o->ports, dev.nb_events_limit);
	rc = queues_setup(event, dev.nb_event_queue_flows);
	if (rc < 0)
		return sy_fail(err, ENOTSUP,
		               "the event device %s has no %s queues (%s); remedy: event_sw, "
		               "which has all",
		               o->device, sy_event_model_name[o->model], strerror(-rc));
	for (unsigned i = 0; i < o->ports && rc >= 0; i++)
		rc = port_setup(event, i, &dev);
	if (rc >= 0)
		rc = service_setup(event);
	if (rc >= 0)
		rc = rte_event_dev_start(event->device);
	if (rc < 0)
		return sy_fail(err, -rc, "the event device %s does not start", o->device);
	return service_try(event, o, err);
}

static void device_end(struct sy_event *event)
{
	uint32_t service = 0;
	bool serves = rte_event_dev_service_id_get(event->device, &service) == 0;
	rte_event_dev_close(event->device);
	if (event->made[0]) {
		rte_vdev_uninit(event->made);
		/* DPDK's event_sw leaves its service behind, and a process can have 64. */
		if (serves && rte_service_get_name(service))
			rte_service_component_unregister(service);
	}
	free(event);
}

int sy_event_open(const struct sy_event_options *o, struct sy_event **out, struct sy_error *err)
{
	struct sy_error own = {0};
	err = err ? err : &own;
	err->code = 0;
	int rc = options_check(o, err);
	if (rc < 0)
		return rc;
	size_t size = sizeof(struct sy_event) + o->ports * sizeof(struct sy_event_port);
	struct sy_event *event =
	        aligned_alloc(SY_CACHE_LINE, (size + SY_CACHE_LINE - 1) & ~(SY_CACHE_LINE - 1UL));
	if (!event)
		return sy_fail(err, ENOMEM, "no memory for the ports of an event device");
	memset(event, 0, size);
	event->model = o->model;
	event->ports = o->ports;
	event->exit = o->exit;
	rte_spinlock_init(&event->lock);
	rc = device_find(event, o->device, err);
	if (rc < 0) {
		free(event);
		return rc;
	}
	for (unsigned i = 0; i < o->ports; i++)
		event->port[i] = (struct sy_event_port){.event = event,
		                                        .device = event->device,
		                                        .id = (uint8_t)i,
		                                        .model = (uint8_t)o->model,
		                                        .consumes = o->consumers >> i & 1};
	rc = device_setup(event, o, err);
	if (rc < 0) {
		device_end(event);
		return rc;
	}
	for (unsigned i = 0; i < o->ports; i++)
		event->port[i].scheduled = event->scheduled;
	*out = event;
	return 0;
}

/* ---- closing it ------------------------------------------------------------------------------ */

struct flush {
	sy_event_lost lost;
	void *ctx;
};

static void flush_one(uint8_t device, struct rte_event e, void *arg)
{
	const struct flush *f = arg;
	if (e.op != RTE_EVENT_OP_RELEASE)
		f->lost(e.u64, f->ctx);
}

static void drain(struct sy_event *event, const struct flush *f)
{
	for (unsigned round = 0; round < DRAIN_ROUNDS && sy_event_in_flight(event) > 0; round++)
		for (unsigned i = 0; i < event->ports; i++) {
			struct sy_event_port *p = &event->port[i];
			struct rte_event e[SY_EVENT_BURST];
			sy_event_maintain(p);
			unsigned n = sy_event_receive(p, e, SY_EVENT_BURST);
			for (unsigned k = 0; k < n; k++)
				f->lost(e[k].u64, f->ctx);
		}
	for (unsigned i = 0; i < event->ports; i++)
		sy_event_release(&event->port[i]);
}

void sy_event_close(struct sy_event *event, sy_event_lost lost, void *ctx)
{
	struct flush f = {lost, ctx};
	drain(event, &f);
	rte_event_dev_stop_flush_callback_register(event->device, flush_one, &f);
	rte_event_dev_stop(event->device);
	device_end(event);
}

struct sy_event_port *sy_event_port(struct sy_event *event, unsigned port)
{
	return &event->port[port];
}

bool sy_event_is_scheduled(const struct sy_event *event)
{
	return event->scheduled;
}

uint64_t sy_event_in_flight(const struct sy_event *event)
{
	uint64_t left = 0, sent = 0;
	for (unsigned i = 0; i < event->ports; i++)
		left += __atomic_load_n(&event->port[i].left, __ATOMIC_ACQUIRE);
	for (unsigned i = 0; i < event->ports; i++)
		sent += __atomic_load_n(&event->port[i].sent, __ATOMIC_ACQUIRE);
	return sent - left;
}

// SPDX-License-Identifier: Apache-2.0
/* Any DPDK device: memif, pcap, null, TAP and PCI drivers. */
#include <dirent.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_dev.h>
#include <rte_ethdev.h>

#include "runtime.h"

#define RING    1024  /* descriptors per queue */
#define LRO_MAX 65535 /* max bytes of a packet coalesced by a device */

struct ethdev_port {
	uint16_t dev; /* DPDK's port id */
	bool created; /* hot-plugged by this process: removed at the end */
	bool started;
	bool copies;       /* its transmit queues hold no buffers */
	uint16_t ring;     /* descriptors of a receive queue */
	bool prepares;     /* its packets may need rte_eth_tx_prepare() */
	bool chains;       /* packets may consist of several buffers */
	uint64_t too_long; /* frames longer than a buffer. Writers: workers; approximate */
};

/* With a period of 16 bits, so that both directions of a connection hash alike. This only spreads
 * packets over queues; slots use another hash (docs/design/0019-slots.md). */
static uint8_t rss_key[40] = {0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a,
                              0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a,
                              0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a,
                              0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a};

static unsigned ethdev_rx(struct port *p, unsigned queue, struct rte_mbuf **m, unsigned n)
{
	struct ethdev_port *e = p->impl;
	unsigned kept = 0;
	n = rte_eth_rx_burst(e->dev, (uint16_t)queue, m, (uint16_t)n);
	if (e->chains)
		return n;
	for (unsigned i = 0; i < n; i++) {
		/* The forwarder's stages read only contiguous frames. */
		if (SY_UNLIKELY(m[i]->nb_segs > 1) && rte_pktmbuf_linearize(m[i])) {
			SY_COUNT(e->too_long, 1);
			rte_pktmbuf_free(m[i]);
			continue;
		}
		m[kept++] = m[i];
	}
	return kept;
}

static unsigned ethdev_waiting(struct port *p, unsigned queue, unsigned *room)
{
	const struct ethdev_port *e = p->impl;
	int waiting = rte_eth_rx_queue_count(e->dev, (uint16_t)queue);
	*room = waiting < 0 ? 0 : e->ring; /* not every driver supports the count */
	return waiting > 0 ? (unsigned)waiting : 0;
}

/* Drivers rewrite headers as their device needs them, and refuse what it cannot send. */
static unsigned ethdev_tx(struct port *p, unsigned queue, struct rte_mbuf **m, unsigned n)
{
	struct ethdev_port *e = p->impl;
	unsigned done = 0;

	if (!e->prepares)
		return rte_eth_tx_burst(e->dev, (uint16_t)queue, m, (uint16_t)n);
	for (;;) {
		uint16_t fit =
		        rte_eth_tx_prepare(e->dev, (uint16_t)queue, m + done, (uint16_t)(n - done));
		uint16_t sent = rte_eth_tx_burst(e->dev, (uint16_t)queue, m + done, fit);
		done += sent;
		if (sent < fit || done == n)
			return done;
		SY_COUNT(p->counters[queue].unfit, 1);
		rte_pktmbuf_free(m[done++]);
		if (done == n)
			return done;
	}
}

/* Devices do not say, and drivers free sent buffers as late as possible. */
static unsigned ethdev_sending(struct port *p, unsigned queue)
{
	const struct ethdev_port *e = p->impl;
	return e->copies ? 0 : RING;
}

static bool ethdev_is_pending(struct port *p, unsigned queue)
{
	return false;
}

static int ethdev_descriptor(struct port *p, unsigned queue)
{
	return -1;
}

static void ethdev_stats(struct port *p, struct sy_port_stats *out)
{
	const struct ethdev_port *e = p->impl;
	struct rte_eth_stats s;
	if (!rte_eth_stats_get(e->dev, &s))
		out->rx_missed += s.imissed + s.rx_nombuf + s.ierrors;
	out->rx_missed += SY_READ(e->too_long);
}

static void ethdev_refresh(struct port *p)
{
	const struct ethdev_port *e = p->impl;
	struct rte_eth_link link;
	if (!rte_eth_link_get_nowait(e->dev, &link))
		__atomic_store_n(&p->up, link.link_status == RTE_ETH_LINK_UP, __ATOMIC_RELAXED);
}

static int device_find(struct ethdev_port *e, const struct sy_port_options *o, struct sy_error *err)
{
	if (!rte_eth_dev_get_port_by_name(o->name, &e->dev))
		return 0;
	if (!*o->devargs)
		return sy_fail(err, ENODEV, "no such DPDK device, and no devargs to create it");
	int rc = rte_dev_probe(o->devargs);
	if (rc)
		return sy_fail(err, rc == -1 ? ENODEV : -rc,
		               "DPDK cannot create \"%s\"; its log above says why", o->devargs);
	e->created = true;
	if (rte_eth_dev_get_port_by_name(o->name, &e->dev))
		return sy_fail(err, ENODEV, "devargs \"%s\" create a device with another name",
		               o->devargs);
	return 0;
}

/* virtio peers on the same machine leave checksums unfinished once a receiver offers to verify
 * them. Packets passed on to the kernel must have them, including UDP. */
static bool device_is_virtio(const char *driver)
{
	return strncmp(driver, "net_virtio", 10) == 0 || strncmp(driver, "net_vhost", 9) == 0;
}

/* Software segmentation in drivers has undocumented limits: net_tap segments IPv4 only, and counts
 * the Ethernet header as part of the MTU. */
static void tso_choose(struct port *p, const struct rte_eth_dev_info *info,
                       struct rte_eth_conf *conf)
{
	const uint64_t needed = RTE_ETH_TX_OFFLOAD_TCP_TSO | RTE_ETH_TX_OFFLOAD_MULTI_SEGS |
	                        RTE_ETH_TX_OFFLOAD_TCP_CKSUM | RTE_ETH_TX_OFFLOAD_IPV4_CKSUM;
	const struct rte_eth_desc_lim *lim = &info->tx_desc_lim;
	bool tap = strcmp(info->driver_name, "net_tap") == 0;

	/* A segment uses two buffers behind the headers: the MTU is no larger than a buffer. */
	if ((info->tx_offload_capa & needed) != needed ||
	    (lim->nb_mtu_seg_max && lim->nb_mtu_seg_max < 3))
		return;
	conf->txmode.offloads |= needed;
	p->offloads |= SY_OFFLOAD_TSO_IPV4 | (tap ? 0 : SY_OFFLOAD_TSO_IPV6);
	p->tso = (struct sy_port_tso){.frame = tap ? p->mtu : 0, .buffers = lim->nb_seg_max};
}

static void lro_choose(struct port *p, const struct rte_eth_dev_info *info,
                       struct rte_eth_conf *conf)
{
	const uint64_t needed = RTE_ETH_RX_OFFLOAD_TCP_LRO | RTE_ETH_RX_OFFLOAD_TCP_CKSUM;

	if ((info->rx_offload_capa & needed) != needed)
		return;
	conf->rxmode.offloads |= needed | (info->rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER);
	conf->rxmode.max_lro_pkt_size =
	        info->max_lro_pkt_size < LRO_MAX ? info->max_lro_pkt_size : LRO_MAX;
	p->offloads |= SY_OFFLOAD_LRO;
}

/* The device does not support such settings or queues. */
static void lro_leave(struct port *p, struct rte_eth_conf *conf)
{
	conf->rxmode.offloads &= ~(RTE_ETH_RX_OFFLOAD_TCP_LRO | RTE_ETH_RX_OFFLOAD_SCATTER);
	conf->rxmode.max_lro_pkt_size = 0;
	p->offloads &= ~(uint32_t)SY_OFFLOAD_LRO;
}

/* Received packets carry flags of verified checksums; checksums of sent packets are computed on
 * request (port.h). */
static void offloads_choose(struct port *p, const struct rte_eth_dev_info *info,
                            struct rte_eth_conf *conf)
{
	conf->txmode.offloads = info->tx_offload_capa & RTE_ETH_TX_OFFLOAD_TCP_CKSUM;
	p->offloads = conf->txmode.offloads ? SY_OFFLOAD_TCP_CHECKSUM : 0;
	tso_choose(p, info, conf);
	if (device_is_virtio(info->driver_name))
		return;
	conf->rxmode.offloads = info->rx_offload_capa &
	                        (RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_TCP_CKSUM);
	lro_choose(p, info, conf);
}

static int queues_set_up(struct sy_runtime *rt, struct port *p, const struct sy_port_options *o,
                         const struct rte_eth_dev_info *info, const struct rte_eth_conf *conf,
                         struct sy_error *err)
{
	struct ethdev_port *e = p->impl;
	int rc = rte_eth_dev_configure(e->dev, (uint16_t)p->queues, (uint16_t)p->queues, conf);
	uint16_t rx = (uint16_t)(o->ring ? o->ring : RING), tx = RING;
	if (!rc)
		rc = rte_eth_dev_adjust_nb_rx_tx_desc(e->dev, &rx, &tx);
	if (!rc && o->ring && rx != o->ring)
		return sy_fail(err, EINVAL, "the device takes receive rings of %u to %u packets",
		               info->rx_desc_lim.nb_min, info->rx_desc_lim.nb_max);
	e->ring = rx;
	int socket = rte_eth_dev_socket_id(e->dev);
	for (unsigned q = 0; q < p->queues && !rc; q++) {
		rc = rte_eth_rx_queue_setup(e->dev, (uint16_t)q, rx, (unsigned)socket, NULL,
		                            rt->pool);
		if (!rc)
			rc = rte_eth_tx_queue_setup(e->dev, (uint16_t)q, tx, (unsigned)socket,
			                            NULL);
	}
	return rc ? sy_fail(err, -rc, "the device refuses %u queues: %s", p->queues, strerror(-rc))
	          : 0;
}

static int device_configure(struct sy_runtime *rt, struct port *p, const struct sy_port_options *o,
                            const struct rte_eth_dev_info *info, struct sy_error *err)
{
	struct ethdev_port *e = p->impl;
	struct rte_eth_conf conf = {0};
	unsigned queues = o->queues ? o->queues : rt->options.workers;
	unsigned max = info->max_rx_queues < info->max_tx_queues ? info->max_rx_queues
	                                                         : info->max_tx_queues;
	max = max < SY_MAX_QUEUES ? max : SY_MAX_QUEUES;
	p->queues = queues < max ? queues : max;
	uint64_t hash =
	        info->flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP);
	if (p->queues > 1 && hash) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = hash;
		if (info->hash_key_size && info->hash_key_size <= sizeof(rss_key)) {
			conf.rx_adv_conf.rss_conf.rss_key = rss_key;
			conf.rx_adv_conf.rss_conf.rss_key_len = info->hash_key_size;
		}
	}
	if (rt->options.offloads)
		offloads_choose(p, info, &conf);
	e->prepares = p->offloads != 0;
	e->chains = rt->options.offloads;
	int rc = queues_set_up(rt, p, o, info, &conf, err);
	if (rc && p->offloads & SY_OFFLOAD_LRO) {
		lro_leave(p, &conf);
		rc = queues_set_up(rt, p, o, info, &conf, err);
	}
	return rc;
}

static void device_address(struct port *p, const struct sy_port_options *o)
{
	const struct ethdev_port *e = p->impl;
	static const uint8_t none[6];
	struct rte_ether_addr mac;
	if (!rte_eth_macaddr_get(e->dev, &mac))
		memcpy(&p->mac, mac.addr_bytes, 6);
	if (!memcmp(o->mac, none, sizeof(none)))
		return;
	/* devices without a filter accept any address; this port sends from it in any case */
	memcpy(mac.addr_bytes, o->mac, sizeof(o->mac));
	rte_eth_dev_default_mac_addr_set(e->dev, &mac);
	memcpy(&p->mac, o->mac, 6);
}

static bool device_copies(const char *driver, const char *devargs)
{
	static const char *const copying[] = {"net_af_packet", "net_memif", "net_null", "net_pcap",
	                                      "net_tap"};
	for (unsigned i = 0; i < SY_ARRAY_LEN(copying); i++)
		if (strcmp(driver, copying[i]) == 0)
			return !strstr(devargs, "zero-copy=yes");
	return false;
}

static int device_open(struct sy_runtime *rt, struct port *p, const struct sy_port_options *o,
                       struct sy_error *err)
{
	struct rte_eth_dev_info info;
	struct ethdev_port *e = p->impl;
	int rc = device_find(e, o, err);
	if (rc)
		return rc;
	rc = rte_eth_dev_info_get(e->dev, &info);
	if (rc)
		return sy_fail(err, -rc, "the device does not report its properties: %s",
		               strerror(-rc));
	e->copies = device_copies(info.driver_name, o->devargs);
	rc = device_configure(rt, p, o, &info, err);
	if (rc)
		return rc;
	device_address(p, o);
	rc = rte_eth_dev_set_mtu(e->dev, p->mtu);
	if (rc && rc != -ENOTSUP) /* devices without an MTU send any size */
		return sy_fail(err, -rc, "an MTU of %u is refused: %s", p->mtu, strerror(-rc));
	rc = rte_eth_dev_start(e->dev);
	if (rc)
		return sy_fail(err, -rc, "the device does not start: %s", strerror(-rc));
	e->started = true;
	ethdev_refresh(p);
	/* a TAP's kernel interface is the other end of the link, not this port */
	p->ifindex = strcmp(info.driver_name, "net_tap") ? (int)info.if_index : 0;
	snprintf(p->backend, sizeof(p->backend), "ethdev %s", info.driver_name);
	return 0;
}

static int interface_of_pci(const char *address)
{
	char path[128];
	int ifindex = 0;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/net", address);
	DIR *dir = opendir(path);
	struct dirent *e;
	while (dir && !ifindex && (e = readdir(dir)))
		ifindex = e->d_name[0] == '.' ? 0 : (int)if_nametoindex(e->d_name);
	if (dir)
		closedir(dir);
	return ifindex;
}

/* The kernel interface of a device that is not open, for the mirror: that of a PCI device whose
 * kernel driver stays (mlx5), or a packet socket's iface option. 0: none. */
static int interface_guess(const char *devargs)
{
	unsigned domain = 0, bus, device, function;
	char name[IF_NAMESIZE], address[16];
	const char *iface = strstr(devargs, "iface=");
	if (iface && sscanf(iface, "iface=%15[^,]", name) == 1)
		return !strncmp(devargs, "net_tap", 7) ? 0 : (int)if_nametoindex(name);
	if (sscanf(devargs, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4 &&
	    sscanf(devargs, "%x:%x.%x", &bus, &device, &function) != 3)
		return 0;
	snprintf(address, sizeof(address), "%04x:%02x:%02x.%x", domain & 0xffff, bus & 0xff,
	         device & 0xff, function & 0xf);
	return interface_of_pci(address);
}

/* Only one process can have the device. Without a predecessor, opens it before the kernel is
 * mirrored: the mirror must know its interface, if it has one. */
static int ethdev_open(struct sy_runtime *rt, struct port *p, const struct sy_port_options *o,
                       struct sy_error *err)
{
	p->impl = calloc(1, sizeof(struct ethdev_port));
	if (!p->impl)
		return sy_fail(err, ENOMEM, "no memory");
	p->mtu = o->mtu ? o->mtu : 1500;
	memcpy(&p->mac, o->mac, sizeof(o->mac));
	snprintf(p->backend, sizeof(p->backend), "ethdev");
	if (!rt->options.inherit)
		return device_open(rt, p, o, err);
	p->ifindex = interface_guess(o->devargs);
	return 0;
}

static int ethdev_bind(struct sy_runtime *rt, struct port *p, const struct sy_port_options *o,
                       struct sy_patience *patience, struct sy_error *err)
{
	int guessed = p->ifindex;
	int rc = rt->options.inherit ? device_open(rt, p, o, err) : 0;
	if (rc || p->ifindex == guessed)
		return rc;
	return sy_fail(err, EOPNOTSUPP,
	               "it has kernel interface %d, which is unknown before it is opened, so "
	               "its routes are missing; restart the forwarder instead of upgrading it",
	               p->ifindex);
}

static void ethdev_release(struct port *p)
{
	struct ethdev_port *e = p->impl;
	struct rte_eth_dev_info info;
	if (e->started)
		rte_eth_dev_stop(e->dev);
	if (e->created && !rte_eth_dev_info_get(e->dev, &info)) {
		struct rte_device *device = info.device;
		rte_eth_dev_close(e->dev);
		rte_dev_remove(device);
	}
	e->started = e->created = false;
}

static void ethdev_close(struct port *p)
{
	ethdev_release(p);
	free(p->impl);
}

static int ethdev_needs(const struct sy_port_options *o, unsigned workers, struct port_needs *out,
                        struct sy_error *err)
{
	const unsigned mtu = o->mtu ? o->mtu : 1500;
	(void)err;
	out->buffers = (port_ring(o) + RING) * (o->queues ? o->queues : workers);
	out->data_room = RTE_PKTMBUF_HEADROOM + RTE_ALIGN_CEIL(mtu + 64, 64);
	return 0;
}

const struct port_ops port_ethdev_ops = {
        .ring = RING,
        .needs = ethdev_needs,
        .open = ethdev_open,
        .bind = ethdev_bind,
        .rx = ethdev_rx,
        .waiting = ethdev_waiting,
        .tx = ethdev_tx,
        .sending = ethdev_sending,
        .is_pending = ethdev_is_pending,
        .descriptor = ethdev_descriptor,
        .refresh = ethdev_refresh,
        .stats = ethdev_stats,
        .release = ethdev_release,
        .close = ethdev_close,
};

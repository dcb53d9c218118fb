// SPDX-License-Identifier: Apache-2.0
#include "generator_link.h"

#include <stdio.h>

#include <rte_dev.h>
#include <rte_mbuf.h>

#define BUFFERS 8191 /* per pool: more than a ring of 4096 and the caches hold */
#define CACHE   256

int link_pools_open(struct link *l, const char *name, struct sy_error *err)
{
	struct rte_mempool **pool[] = {&l->received, &l->sent[FRAME_IN], &l->sent[FRAME_OUT]};
	char pool_name[RTE_MEMPOOL_NAMESIZE];

	snprintf(l->name, sizeof(l->name), "%s", name);
	for (unsigned i = 0; i < SY_ARRAY_LEN(pool); i++) {
		snprintf(pool_name, sizeof(pool_name), "%.16s-%u", l->name, i);
		*pool[i] = rte_pktmbuf_pool_create(pool_name, BUFFERS, CACHE, 0,
		                                   RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
		if (*pool[i] == NULL)
			return sy_fail(err, ENOMEM, "link %s: no memory for buffers; give --memory",
			               l->name);
	}
	return 0;
}

int link_open(struct link *l, const char *devargs, struct sy_error *err)
{
	struct rte_eth_conf conf = {0};
	uint16_t rx = 1024, tx = 1024;
	char device[64];

	snprintf(device, sizeof(device), "%.*s", (int)strcspn(devargs, ","), devargs);
	if (rte_dev_probe(devargs) != 0 || rte_eth_dev_get_port_by_name(device, &l->dev) != 0)
		return sy_fail(err, ENODEV, "link %s: DPDK does not create \"%s\"", l->name,
		               devargs);
	int rc = rte_eth_dev_configure(l->dev, 1, 1, &conf);
	if (rc == 0)
		rc = rte_eth_dev_adjust_nb_rx_tx_desc(l->dev, &rx, &tx);
	if (rc == 0)
		rc = rte_eth_rx_queue_setup(l->dev, 0, rx, 0, NULL, l->received);
	if (rc == 0)
		rc = rte_eth_tx_queue_setup(l->dev, 0, tx, 0, NULL);
	if (rc == 0)
		rc = rte_eth_dev_start(l->dev);
	return rc ? sy_fail(err, -rc, "link %s: the device does not start: %s", l->name,
	                    strerror(-rc))
	          : 0;
}

void link_close(struct link *l)
{
	rte_eth_dev_stop(l->dev);
	rte_eth_dev_close(l->dev);
}

bool link_is_up(const struct link *l)
{
	struct rte_eth_link link;
	return rte_eth_link_get_nowait(l->dev, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

static void buffer_fill(struct rte_mempool *pool, void *template, void *buffer, unsigned i)
{
	const struct frame_template *t = template;
	struct rte_mbuf *m = buffer;

	rte_pktmbuf_reset(m);
	memcpy(rte_pktmbuf_append(m, (uint16_t)t->length), t->bytes, t->length);
}

int link_prepare(struct link *l, unsigned family, unsigned size, bool fresh, struct sy_error *err)
{
	for (unsigned way = 0; way < FRAME_WAYS; way++) {
		struct frame_template *t = &l->template[way];
		unsigned length = t->length;
		bool six = t->six;
		if (frame_template_make(t, family, way, size, fresh) != 0)
			return sy_fail(err, EINVAL,
			               "frames of IPv%u have %u to %u bytes, not %u: families are "
			               "4 and 6",
			               family, FRAME_MIN(family == 6), FRAME_MAX, size);
		if (t->length != length || t->six != six)
			rte_mempool_obj_iter(l->sent[way], buffer_fill, t);
	}
	return 0;
}

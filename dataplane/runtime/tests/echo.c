// SPDX-License-Identifier: Apache-2.0
#include "echo.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

uint32_t echo_wrong_worker;

static void swap(void *a, void *b, size_t len)
{
	uint8_t t[16];
	memcpy(t, a, len);
	memcpy(a, b, len);
	memcpy(b, t, len);
}

static bool frame_echo(struct rte_mbuf *m, struct sy_view *v)
{
	uint8_t *frame = sy_frame(m);
	if (sy_packet_parse(frame, m->data_len, v) || v->proto != SY_PROTO_UDP)
		return false;
	struct sy_udp *udp = (struct sy_udp *)(frame + v->l4);
	struct sy_ipv4 *v4 = (struct sy_ipv4 *)(frame + v->l3);
	struct sy_ipv6 *v6 = (struct sy_ipv6 *)(frame + v->l3);
	swap(&udp->sport, &udp->dport, 2);
	if (v->v4)
		swap(&v4->src, &v4->dst, 4);
	else
		swap(v6->src, v6->dst, 16);
	return true;
}

static void stage_echo(struct sy_worker *w, struct sy_burst *b)
{
	for (unsigned i = 0; i < b->count; i++) {
		struct sy_view *v = &b->view[i];
		if (sy_packet_parse(sy_frame(b->mbuf[i]), b->mbuf[i]->data_len, v))
			continue;
		b->slot[i] = sy_slot_of(&v->tuple.src, v->tuple.sport);
		if (sy_slot_worker(w->rt, b->slot[i]) != w->id) {
			if (b->steered)
				__atomic_fetch_add(&echo_wrong_worker, 1, __ATOMIC_RELAXED);
			sy_burst_steer(w, b, i);
		} else if (frame_echo(b->mbuf[i], v)) {
			b->path[i] = sy_path_lookup(w->rt, &v->tuple.src);
			b->flow[i] = v->tuple.sport;
			b->next[i] = SY_NEXT_TRANSMIT;
		}
	}
}

const struct sy_stage echo_pipeline[] = {
        {"echo", stage_echo}, {"transmit", sy_transmit_stage}, {NULL, NULL}};

void shell(const char *command)
{
	if (system(command)) {
		fprintf(stderr, "failed: %s\n", command);
		exit(2);
	}
}

void checksums_on(const char *ifname)
{
	struct ethtool_value value = {.cmd = ETHTOOL_STXCSUM};
	struct ifreq request = {.ifr_data = (char *)&value};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", ifname);
	if (fd < 0 || ioctl(fd, SIOCETHTOOL, &request))
		exit(3);
	close(fd);
}

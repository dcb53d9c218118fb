// SPDX-License-Identifier: Apache-2.0
/* VLAN tags that a device removes from frames before XDP sees them (rx-vlan-offload). */
#include "director_state.h"

#include <linux/ethtool.h>
#include <sy_link.h>

static bool tags_are_taken_off(const char *ifname)
{
	struct ethtool_value flags = {.cmd = ETHTOOL_GFLAGS};

	return sy_link_ethtool(ifname, &flags) == 0 && flags.data & ETH_FLAG_RXVLAN;
}

static void tags_leave_on(const struct sy_director *d)
{
	struct ethtool_value flags = {.cmd = ETHTOOL_GFLAGS};

	if (sy_link_ethtool(d->ifname, &flags) == 0) {
		flags.cmd = ETHTOOL_SFLAGS;
		flags.data &= ~(uint32_t)ETH_FLAG_RXVLAN;
		sy_link_ethtool(d->ifname, &flags);
	}
	if (!tags_are_taken_off(d->ifname))
		sy_log(SY_LOG_INFO, "kernel",
		       "%s: rx-vlan-offload is now off, so that frames of VLANs differ from "
		       "untagged ones",
		       d->ifname);
	else if (!d->bound)
		sy_log(SY_LOG_WARN, "kernel",
		       "%s: its rx-vlan-offload cannot be switched off: frames of VLANs look "
		       "untagged and are forwarded; keep VLANs away from this link, or use "
		       "Linux 6.8 or newer and a driver that shows VLAN tags to XDP",
		       d->ifname);
}

void director_tags_keep(const struct sy_director *d)
{
	if (!tags_are_taken_off(d->ifname))
		return;
	/* no effect on a veth: tags are beside the frame if the sender put them there */
	if (!sy_link_is_veth(d->ifname))
		tags_leave_on(d);
	else if (!d->bound)
		sy_log(SY_LOG_WARN, "kernel",
		       "%s: frames of VLANs look untagged if their sender's offload adds "
		       "the tag; remedy: mode native and Linux 6.8, or at the veth's other end: "
		       "ethtool -K DEV txvlan off",
		       d->ifname);
}

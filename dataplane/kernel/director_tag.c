// SPDX-License-Identifier: Apache-2.0
/* VLAN tags that a device removes from frames before XDP sees them (rx-vlan-offload). */
#include "director_state.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static int ethtool_ask(int fd, const char *ifname, void *command)
{
	struct ifreq ifr = {.ifr_data = command};

	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", ifname);
	return ioctl(fd, SIOCETHTOOL, &ifr);
}

static bool tags_are_taken_off(int fd, const char *ifname)
{
	struct ethtool_value flags = {.cmd = ETHTOOL_GFLAGS};

	return ethtool_ask(fd, ifname, &flags) == 0 && flags.data & ETH_FLAG_RXVLAN;
}

/* On a veth the setting has no effect: tags are beside the frame if the sender left them there. */
static bool device_is_veth(int fd, const char *ifname)
{
	struct ethtool_drvinfo info = {.cmd = ETHTOOL_GDRVINFO};

	return ethtool_ask(fd, ifname, &info) == 0 && !strcmp(info.driver, "veth");
}

static void tags_leave_on(int fd, const struct sy_director *d)
{
	struct ethtool_value flags = {.cmd = ETHTOOL_GFLAGS};

	if (ethtool_ask(fd, d->ifname, &flags) == 0) {
		flags.cmd = ETHTOOL_SFLAGS;
		flags.data &= ~(uint32_t)ETH_FLAG_RXVLAN;
		ethtool_ask(fd, d->ifname, &flags);
	}
	if (!tags_are_taken_off(fd, d->ifname))
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
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || !tags_are_taken_off(fd, d->ifname)) {
		if (fd >= 0)
			close(fd);
		return;
	}
	if (!device_is_veth(fd, d->ifname))
		tags_leave_on(fd, d);
	else if (!d->bound)
		sy_log(SY_LOG_WARN, "kernel",
		       "%s: frames of VLANs look untagged if their sender's offload adds "
		       "the tag; remedy: mode native and Linux 6.8, or at the veth's other end: "
		       "ethtool -K DEV txvlan off",
		       d->ifname);
	close(fd);
}

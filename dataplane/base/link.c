// SPDX-License-Identifier: Apache-2.0
#include <sy_link.h>

#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

int sy_link_ethtool(const char *ifname, void *command)
{
	struct ifreq r = {.ifr_data = command};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int rc;

	if (fd < 0)
		return -errno;
	snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", ifname);
	rc = ioctl(fd, SIOCETHTOOL, &r) ? -errno : 0;
	close(fd);
	return rc;
}

unsigned sy_link_queues(const char *ifname)
{
	struct ethtool_channels channels = {.cmd = ETHTOOL_GCHANNELS};
	unsigned queues;

	if (sy_link_ethtool(ifname, &channels))
		return 1;
	/* A driver reports each queue either as combined or as rx. */
	queues = channels.combined_count + channels.rx_count;
	return queues ? queues : 1;
}

bool sy_link_is_veth(const char *ifname)
{
	struct ethtool_drvinfo info = {.cmd = ETHTOOL_GDRVINFO};

	return sy_link_ethtool(ifname, &info) == 0 && !strcmp(info.driver, "veth");
}

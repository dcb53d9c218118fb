/* SPDX-License-Identifier: Apache-2.0 */
/* Facts of a kernel interface, in the caller's network namespace, as ethtool has them. */
#ifndef SY_LINK_H
#define SY_LINK_H

#include <stdbool.h>

/* Carries out a command of <linux/ethtool.h>, which it fills. Returns 0 or a negative errno. */
int sy_link_ethtool(const char *ifname, void *command);
/* How many receive queues there are; 1, if the driver does not tell. */
unsigned sy_link_queues(const char *ifname);
/* Its other end is on this machine, where senders leave checksums unfinished. Frames may still come
 * from a wire, by a bridge or a route behind it. */
bool sy_link_is_veth(const char *ifname);

#endif

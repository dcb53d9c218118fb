/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of a kernel interface in the caller's network namespace, by ethtool. */
#ifndef SY_LINK_H
#define SY_LINK_H

#include <stdbool.h>

/* Executes a command of <linux/ethtool.h> and fills its struct. Returns 0 or a negative errno. */
int sy_link_ethtool(const char *ifname, void *command);
/* Number of receive queues; 1 if the driver does not report it. */
unsigned sy_link_queues(const char *ifname);
/* Is it a veth, whose peer is on this machine and leaves checksums unfinished? Frames may still
 * come from a wire, by a bridge or route behind it. */
bool sy_link_is_veth(const char *ifname);

#endif

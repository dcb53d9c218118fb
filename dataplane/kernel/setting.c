// SPDX-License-Identifier: Apache-2.0
/* Sysctls of the host that prevent the kernel from answering for claims. They belong to the host,
 * so they are reported, not changed. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <sy_kernel.h>

/* Value of net.<family>.conf.<interface>.<name>; 0 if it cannot be read. */
static int setting_read(const char *family, const char *interface, const char *name)
{
	char path[128], value[16] = "";
	int fd;

	snprintf(path, sizeof(path), "/proc/sys/net/%s/conf/%s/%s", family, interface, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	if (read(fd, value, sizeof(value) - 1) < 0)
		value[0] = '\0';
	close(fd);
	return atoi(value);
}

/* The kernel uses the larger one of an interface's value and that of "all". */
static const char *arp_ignore_where(const char *port)
{
	if (setting_read("ipv4", "all", "arp_ignore") > 0)
		return "all";
	return setting_read("ipv4", port, "arp_ignore") > 0 ? port : NULL;
}

static void port_verify(const struct sy_verify_port *p, const struct sy_verify *v)
{
	const char *where = p->v4 ? arp_ignore_where(p->name) : NULL;
	char text[320];

	if (where) {
		snprintf(text, sizeof(text),
		         "port %s: the kernel answers no ARP request for IPv4 VIPs, as "
		         "net.ipv4.conf.%s.arp_ignore is %d; neighbours lose them when their "
		         "entries expire; remedy: sysctl -w net.ipv4.conf.%s.arp_ignore=0",
		         p->name, where, setting_read("ipv4", where, "arp_ignore"), where);
		v->problem(v->ctx, text);
	}
	if (p->v6 && setting_read("ipv6", p->name, "disable_ipv6")) {
		snprintf(text, sizeof(text),
		         "port %s: the kernel answers for no IPv6 VIP, as "
		         "net.ipv6.conf.%s.disable_ipv6 is 1; remedy: sysctl -w "
		         "net.ipv6.conf.%s.disable_ipv6=0",
		         p->name, p->name, p->name);
		v->problem(v->ctx, text);
	}
}

void sy_settings_verify(const struct sy_verify_port *port, unsigned ports, bool checks,
                        const struct sy_verify *v)
{
	bool v6 = false;

	for (unsigned i = 0; i < ports; i++) {
		port_verify(&port[i], v);
		v6 |= port[i].v6;
	}
	if (checks && v6 && setting_read("ipv6", "lo", "disable_ipv6"))
		v->problem(v->ctx,
		           "servers of DR and IPIP services cannot be checked on their IPv6 VIPs, "
		           "as net.ipv6.conf.lo.disable_ipv6 is 1; remedy: sysctl -w "
		           "net.ipv6.conf.lo.disable_ipv6=0");
}

// SPDX-License-Identifier: Apache-2.0
/* The supervisor's command line, which `steelyard run` writes, and facts of the interface. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sy_link.h>

#include "supervisor.h"

static int number_parse(const char *text, unsigned long min, unsigned long max, uint32_t *out)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (end == text || *end || n < min || n > max)
		return -EINVAL;
	*out = (uint32_t)n;
	return 0;
}

static int ports_parse(const char *text, struct message_answer *c)
{
	unsigned first, last;
	char rest;

	if (sscanf(text, "%u-%u%c", &first, &last, &rest) != 2 || first < 1024 || last > 65535 ||
	    first > last)
		return -EINVAL;
	c->port_first = (uint16_t)first;
	c->port_last = (uint16_t)last;
	return 0;
}

static int address_parse(const char *text, struct message_answer *c)
{
	if (c->addresses == MESSAGE_ADDRESSES)
		return -E2BIG;
	return sy_addr_parse(text, &c->addr[c->addresses++]);
}

static int port_parse(const char *text, struct message_answer *c)
{
	uint32_t port;

	if (c->ports == MESSAGE_PORTS || number_parse(text, 1, 65535, &port))
		return -EINVAL;
	c->port[c->ports++] = (uint16_t)port;
	return 0;
}

static int fork_parse(const char *text, struct message_answer *c)
{
	static const char *const name[] = {[MESSAGE_FORK_AUTO] = "auto",
	                                   [MESSAGE_FORK_RELAY] = "relay",
	                                   [MESSAGE_FORK_KEEP] = "keep"};

	for (uint32_t i = 0; i < sizeof(name) / sizeof(*name); i++) {
		if (strcmp(text, name[i]) == 0) {
			c->fork = i;
			return 0;
		}
	}
	return -EINVAL;
}

static int interface_read(struct supervisor_options *o, struct sy_error *err)
{
	struct message_answer *c = &o->config;
	struct ifreq r = {0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc = 0;

	memcpy(r.ifr_name, c->ifname, sizeof(r.ifr_name));
	c->ifindex = (int)if_nametoindex(c->ifname);
	if (!c->ifindex || ioctl(fd, SIOCGIFHWADDR, &r))
		rc = sy_fail(err, errno, "interface %s: %s", c->ifname, strerror(errno));
	else
		memcpy(c->mac, r.ifr_hwaddr.sa_data, sizeof(c->mac));
	if (!rc && ioctl(fd, SIOCGIFMTU, &r))
		rc = sy_fail(err, errno, "interface %s: %s", c->ifname, strerror(errno));
	close(fd);
	if (rc)
		return rc;
	if (r.ifr_mtu > 3498)
		return sy_fail(err, EMSGSIZE, "%s has an MTU of %d; AF_XDP supports at most 3498",
		               c->ifname, r.ifr_mtu);
	c->mtu = (uint16_t)r.ifr_mtu;
	c->unfinished = sy_link_is_veth(c->ifname);
	return 0;
}

static int queues_check(struct supervisor_options *o, struct sy_error *err)
{
	struct message_answer *c = &o->config;

	o->queues = sy_link_queues(c->ifname); /* one AF_XDP socket can be bound to each */
	if (o->queues > STEER_QUEUES)
		return sy_fail(err, E2BIG, "%s has %u queues, at most %u are supported", c->ifname,
		               o->queues, STEER_QUEUES);
	if (c->workers > o->queues)
		return sy_fail(err, EINVAL,
		               "%u workers need as many receive queues, and %s has %u; remedy: "
		               "ethtool -L %s combined %u (a veth: rx %u), or fewer workers",
		               c->workers, c->ifname, o->queues, c->ifname, c->workers, c->workers);
	if ((o->queues + c->workers - 1) / c->workers > MESSAGE_QUEUES)
		return sy_fail(err, E2BIG,
		               "a worker has at most %u queues; remedy: fewer by ethtool -L %s",
		               MESSAGE_QUEUES, c->ifname);
	return 0;
}

int supervisor_options_parse(int argc, char **argv, struct supervisor_options *out, char ***command,
                             struct sy_error *err)
{
	static const struct option list[] = {{"interface", 1, NULL, 'i'},
	                                     {"address", 1, NULL, 'a'},
	                                     {"workers", 1, NULL, 'w'},
	                                     {"local-ports", 1, NULL, 'p'},
	                                     {"memory", 1, NULL, 'm'},
	                                     {"connections", 1, NULL, 'c'},
	                                     {"ring", 1, NULL, 'r'},
	                                     {"library", 1, NULL, 'l'},
	                                     {"log", 1, NULL, 'v'},
	                                     {"port", 1, NULL, 's'},
	                                     {"toa", 0, NULL, 't'},
	                                     {"pacing", 0, NULL, 'e'},
	                                     {"large-segments", 0, NULL, 'g'},
	                                     {"fork", 1, NULL, 'f'},
	                                     {"hook", 1, NULL, SUPERVISOR_HOOK},
	                                     {"hook-file", 1, NULL, SUPERVISOR_HOOK_FILE},
	                                     {"hook-param", 1, NULL, SUPERVISOR_HOOK_PARAM},
	                                     {"hook-place", 1, NULL, SUPERVISOR_HOOK_PLACE},
	                                     {"name", 1, NULL, SUPERVISOR_NAME},
	                                     {NULL, 0, NULL, 0}};
	struct message_answer *c = &out->config;
	int rc = 0, option;

	*c = (struct message_answer){.workers = 1,
	                             .memory_mb = 64,
	                             .connections = 65536,
	                             .ring = 4096,
	                             .port_first = 61000,
	                             .port_last = 65535,
	                             .log = SY_LOG_WARN};
	while (!rc && (option = getopt_long(argc, argv, "+", list, NULL)) >= 0) {
		switch (option) {
		case 'i':
			snprintf(c->ifname, sizeof(c->ifname), "%s", optarg);
			break;
		case 'a':
			rc = address_parse(optarg, c);
			break;
		case 's':
			rc = port_parse(optarg, c);
			break;
		case 'w':
			rc = number_parse(optarg, 1, MESSAGE_WORKERS, &c->workers);
			break;
		case 'p':
			rc = ports_parse(optarg, c);
			break;
		case 'm':
			rc = number_parse(optarg, 16, 65536, &c->memory_mb);
			break;
		case 'c':
			rc = number_parse(optarg, 16, 4000000, &c->connections);
			break;
		case 'r':
			rc = number_parse(optarg, MESSAGE_RING_MIN, MESSAGE_RING_MAX, &c->ring);
			rc = rc ? rc : c->ring & (c->ring - 1) ? -EINVAL : 0;
			break;
		case 't':
			c->toa = 1;
			break;
		case 'e':
			c->pacing = 1;
			break;
		case 'g':
			c->large = 1;
			break;
		case 'f':
			rc = fork_parse(optarg, c);
			break;
		case 'l':
			out->library = optarg;
			break;
		case 'v':
			rc = number_parse(optarg, SY_LOG_ERROR, SY_LOG_DEBUG, &c->log);
			break;
		case SUPERVISOR_HOOK:
		case SUPERVISOR_HOOK_FILE:
		case SUPERVISOR_HOOK_PARAM:
		case SUPERVISOR_HOOK_PLACE:
			rc = supervisor_hook_option(option, optarg, err);
			if (rc)
				return rc;
			break;
		case SUPERVISOR_NAME:
			out->name = optarg;
			break;
		default:
			rc = -EINVAL;
		}
		if (rc)
			return sy_fail(err, -rc, "option \"%s\" of the supervisor",
			               argv[optind - 1]);
	}
	*command = argv + optind;
	if (!**command || !c->ifname[0] || !c->addresses || !out->library)
		return sy_fail(err, EINVAL, "use `steelyard run`, which starts this program");
	rc = interface_read(out, err);
	return rc ? rc : queues_check(out, err);
}

// SPDX-License-Identifier: Apache-2.0
#include "steer.h"

#include <errno.h>
#include <linux/if_link.h>
#include <stdlib.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sy_link.h>

#include "steer.skel.h"

struct steer {
	struct steer_bpf *bpf;
	int link;
	bool native;
};

static int attach(struct steer *s, int ifindex, uint32_t flags)
{
	LIBBPF_OPTS(bpf_link_create_opts, o, .flags = flags);
	int fd = bpf_link_create(bpf_program__fd(s->bpf->progs.steer), ifindex, BPF_XDP, &o);

	if (fd < 0)
		return fd;
	s->link = fd;
	s->native = flags == XDP_FLAGS_DRV_MODE;
	return 0;
}

static int attach_refused(const char *ifname, int rc, struct sy_error *err)
{
	if (rc == -EBUSY || rc == -EEXIST)
		return sy_fail(err, -rc,
		               "%s has an XDP program already, of a forwarder or of another "
		               "`steelyard run`: `bpftool net` shows it",
		               ifname);
	unsigned queues = sy_link_queues(ifname);
	/* Linux reports the reason only in extended acknowledgements. */
	if (rc == -ENOSPC && sy_link_is_veth(ifname))
		return sy_fail(err, -rc,
		               "%s: the XDP program cannot be attached: the other end of this veth "
		               "sends by more queues than there are here to receive (%u); remedy, "
		               "there: ethtool -L PEER tx %u",
		               ifname, queues, queues);
	return sy_fail(err, -rc, "%s: the XDP program cannot be attached: %s", ifname,
	               strerror(-rc));
}

int steer_open(int ifindex, const char *ifname, const uint8_t mac[6], struct steer **out,
               struct sy_error *err)
{
	struct steer *s = calloc(1, sizeof(*s));

	if (!s)
		return sy_fail(err, ENOMEM, "no memory");
	s->link = -1;
	libbpf_set_print(NULL);
	s->bpf = steer_bpf__open();
	if (s->bpf)
		memcpy(s->bpf->rodata->mac, mac, sizeof(s->bpf->rodata->mac));
	if (!s->bpf || steer_bpf__load(s->bpf)) {
		int code = errno;
		steer_bpf__destroy(s->bpf);
		free(s);
		return sy_fail(err, code, "the XDP program does not load: %s%s", strerror(code),
		               code == EPERM ? "; run this as root" : "");
	}
	int rc = attach(s, ifindex, XDP_FLAGS_DRV_MODE);
	if (rc == -EOPNOTSUPP || rc == -EINVAL)
		rc = attach(s, ifindex, XDP_FLAGS_SKB_MODE);
	if (rc) {
		steer_close(s);
		return attach_refused(ifname, rc, err);
	}
	*out = s;
	return 0;
}

void steer_close(struct steer *s)
{
	if (s->link >= 0)
		close(s->link);
	steer_bpf__destroy(s->bpf);
	free(s);
}

int steer_link(const struct steer *s)
{
	return s->link;
}

bool steer_is_native(const struct steer *s)
{
	return s->native;
}

static int update(int map, const void *key, const void *value)
{
	return bpf_map_update_elem(map, key, value, BPF_ANY);
}

int steer_address(struct steer *s, const struct sy_addr *addr, uint16_t first, uint16_t last)
{
	struct steer_ports ports = {first, last};

	return update(bpf_map__fd(s->bpf->maps.local), addr, &ports);
}

int steer_port(struct steer *s, const struct sy_addr *addr, uint16_t port,
               const struct steer_port *to)
{
	int map = bpf_map__fd(s->bpf->maps.served);
	struct steer_key key = {.port = port};

	memcpy(key.addr, addr, sizeof(key.addr));
	return to ? update(map, &key, to) : bpf_map_delete_elem(map, &key);
}

int steer_socket(struct steer *s, unsigned queue, int fd)
{
	uint32_t key = queue, value = (uint32_t)fd;

	return update(bpf_map__fd(s->bpf->maps.sockets), &key, &value);
}

void steer_socket_end(struct steer *s, unsigned queue)
{
	uint32_t key = queue;

	bpf_map_delete_elem(bpf_map__fd(s->bpf->maps.sockets), &key);
}

// SPDX-License-Identifier: Apache-2.0
#include "director.skel.h"
#include "director_map.h"
#include "host.h"

#include <assert.h>
#include <bpf/bpf.h>
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/if_link.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* An address that an earlier process steered. It stays until sy_director_settle(), lest the kernel
 * sees its packets meanwhile. */
struct found {
	struct director_key key;
	bool again; /* steered by this process too */
};

struct sy_director {
	struct director_bpf *bpf;
	uint32_t predecessor; /* id of the program whose maps were adopted, 0: none */
	enum sy_director_mode mode;
	char ifname[IF_NAMESIZE];
	int ifindex;
	int lock;
	int link;
	bool native;
	bool same_maps; /* all of them are the predecessor's */
	bool outdated;  /* its program is still on the link */
	bool found_known;
	struct found *found; /* sorted by key */
	size_t found_count;
};

static_assert(sizeof(struct director_key) == sizeof(struct sy_source), "same bytes");

/* ---- taking over ----------------------------------------------------------------------------- */

static bool map_info(int fd, struct bpf_map_info *out)
{
	uint32_t len = sizeof(*out);

	memset(out, 0, sizeof(*out));
	return bpf_obj_get_info_by_fd(fd, out, &len) == 0;
}

/* A map of the predecessor goes on if the new program would make the same one. */
static bool map_adopt(struct bpf_object *object, int fd)
{
	struct bpf_map_info info;
	struct bpf_map *map;

	if (!map_info(fd, &info))
		return false;
	map = bpf_object__find_map_by_name(object, info.name);
	/* it makes its own descriptor */
	return map && bpf_map__type(map) == info.type && bpf_map__key_size(map) == info.key_size &&
	       bpf_map__value_size(map) == info.value_size &&
	       bpf_map__max_entries(map) == info.max_entries &&
	       bpf_map__map_flags(map) == info.map_flags && bpf_map__reuse_fd(map, fd) == 0;
}

/* Returns whether the program will have no map of its own. */
static bool maps_adopt(struct bpf_object *object, uint32_t prog_id)
{
	uint32_t ids[16] = {0}, len = sizeof(struct bpf_prog_info);
	struct bpf_prog_info info = {.nr_map_ids = SY_ARRAY_LEN(ids), .map_ids = (uintptr_t)ids};
	int prog = bpf_prog_get_fd_by_id(prog_id);
	const struct bpf_map *map;
	unsigned missing = 0;

	if (prog < 0)
		return false;
	bpf_object__for_each_map(map, object) missing++;
	if (bpf_obj_get_info_by_fd(prog, &info, &len) == 0) {
		for (uint32_t i = 0; i < info.nr_map_ids && i < SY_ARRAY_LEN(ids); i++) {
			int fd = bpf_map_get_fd_by_id(ids[i]);

			if (fd >= 0) {
				missing -= map_adopt(object, fd);
				close(fd);
			}
		}
	}
	close(prog);
	return missing == 0;
}

static bool link_info(int fd, struct bpf_link_info *out)
{
	uint32_t len = sizeof(*out);

	memset(out, 0, sizeof(*out));
	return bpf_obj_get_info_by_fd(fd, out, &len) == 0 && out->type == BPF_LINK_TYPE_XDP;
}

static bool mode_is_native(int ifindex)
{
	LIBBPF_OPTS(bpf_xdp_query_opts, opts);

	return bpf_xdp_query(ifindex, 0, &opts) == 0 && opts.attach_mode != XDP_ATTACHED_SKB;
}

static void pin_path(const struct sy_director *d, char out[static HOST_PATH])
{
	host_pin_path(out, host_netns(), d->ifindex);
}

/* The link that a predecessor pinned, or −1. Its device may be gone, or it may be attached in
 * another mode than asked for: then it is not fit to be taken over. */
static int link_find(struct sy_director *d, struct bpf_link_info *info, bool *fit)
{
	char pin[HOST_PATH];
	int fd;

	pin_path(d, pin);
	fd = bpf_obj_get(pin);
	if (fd < 0)
		return -1;
	d->native = mode_is_native(d->ifindex);
	*fit = link_info(fd, info) && info->xdp.ifindex == (uint32_t)d->ifindex &&
	       !(d->mode == SY_DIRECTOR_NATIVE && !d->native) &&
	       !(d->mode == SY_DIRECTOR_GENERIC && d->native);
	return fd;
}

/* The link to take over, or −1; one that is not fit is removed. */
static int link_recover(struct sy_director *d, struct bpf_link_info *info)
{
	char pin[HOST_PATH];
	bool fit;
	int fd = link_find(d, info, &fit);

	if (fd < 0 || fit)
		return fd;
	bpf_link_detach(fd);
	close(fd);
	pin_path(d, pin);
	unlink(pin);
	return -1;
}

/* The program of a link that could be taken over as it is now; 0: there is none. */
static uint32_t link_predecessor(struct sy_director *d)
{
	struct bpf_link_info info;
	bool fit;
	int fd = link_find(d, &info, &fit);

	if (fd >= 0)
		close(fd);
	return fd >= 0 && fit ? info.prog_id : 0;
}

static int program_load(struct sy_director *d, uint32_t predecessor, struct sy_error *err)
{
	int rc;

	director_bpf__destroy(d->bpf);
	d->bpf = director_bpf__open();
	if (!d->bpf)
		return sy_fail(err, errno, "cannot open the flow director's program: %s",
		               strerror(errno));
	d->same_maps = predecessor && maps_adopt(d->bpf->obj, predecessor);
	d->predecessor = predecessor;
	rc = director_bpf__load(d->bpf);
	return rc ? sy_fail(err, -rc,
	                    "%s: the kernel refuses the flow director's program: %s; Linux 5.9 "
	                    "or newer with BPF and AF_XDP is needed",
	                    d->ifname, strerror(-rc))
	          : 0;
}

/* The key comes first in struct found, so this compares two of them, or a key with one. */
static int key_compare(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct director_key));
}

static int found_add(struct sy_director *d, size_t *room, const struct director_key *key)
{
	if (d->found_count == *room) {
		size_t wanted = *room ? *room * 2 : 64;
		struct found *more = realloc(d->found, wanted * sizeof(*more));

		if (!more)
			return -ENOMEM;
		d->found = more;
		*room = wanted;
	}
	d->found[d->found_count++] = (struct found){.key = *key};
	return 0;
}

/* Not before the first address is steered or settled: while nobody receives, each moment counts. */
static int found_read(struct sy_director *d)
{
	int map = bpf_map__fd(d->bpf->maps.steered), inside = bpf_map__fd(d->bpf->maps.inside);
	struct director_key key, network = {0};
	struct director_prefix prefix;
	size_t room = 0;
	int rc = 0;

	if (d->found_known)
		return 0;
	d->found_count = 0;
	for (void *last = NULL; rc == 0 && bpf_map_get_next_key(map, last, &key) == 0; last = &key)
		rc = found_add(d, &room, &key);
	for (void *last = NULL; rc == 0 && bpf_map_get_next_key(inside, last, &prefix) == 0;
	     last = &prefix) {
		memcpy(network.w, prefix.w, sizeof(network.w));
		network.bits = prefix.bits;
		rc = found_add(d, &room, &network);
	}
	if (rc)
		return rc;
	if (d->found_count)
		qsort(d->found, d->found_count, sizeof(*d->found), key_compare);
	d->found_known = true;
	return 0;
}

/* ---- attaching ------------------------------------------------------------------------------- */

static int attach_refused(const struct sy_director *d, int code, struct sy_error *err)
{
	uint32_t id = 0;

	if (code != EBUSY && code != EEXIST)
		return sy_fail(
		        err, code,
		        "%s: cannot attach the flow director (XDP): %s; try xdp mode generic",
		        d->ifname, strerror(code));
	bpf_xdp_query_id(d->ifindex, 0, &id);
	return sy_fail(err, code,
	               "%s: a foreign XDP program (id %u) is attached; see it with bpftool net, "
	               "remove it with: ip link set dev %s xdp off (or, if a link holds it: "
	               "bpftool link detach id LINK)",
	               d->ifname, id, d->ifname);
}

static int link_attach(struct sy_director *d, struct sy_error *err)
{
	LIBBPF_OPTS(bpf_link_create_opts, opts);
	int prog = bpf_program__fd(d->bpf->progs.direct);
	int code = EOPNOTSUPP;
	char pin[HOST_PATH];

	d->native = false;
	if (d->mode != SY_DIRECTOR_GENERIC) {
		opts.flags = XDP_FLAGS_DRV_MODE;
		d->link = bpf_link_create(prog, d->ifindex, BPF_XDP, &opts);
		code = errno;
		d->native = d->link >= 0;
	}
	if (d->link < 0 && d->mode != SY_DIRECTOR_NATIVE && code != EBUSY && code != EEXIST) {
		opts.flags = XDP_FLAGS_SKB_MODE;
		d->link = bpf_link_create(prog, d->ifindex, BPF_XDP, &opts);
		code = errno;
	}
	if (d->link < 0)
		return attach_refused(d, code, err);
	pin_path(d, pin);
	/* Another namespace's cleanup may just have taken the empty folder away. */
	if (bpf_obj_pin(d->link, pin) < 0 &&
	    (errno != ENOENT || host_bpffs(err) < 0 || bpf_obj_pin(d->link, pin) < 0))
		return sy_fail(err, errno, "%s: cannot pin the flow director at %s: %s", d->ifname,
		               pin, strerror(errno));
	return 0;
}

/* ---- opening: prepare, then take --------------------------------------------------------------
 */

static int director_new(const char *ifname, enum sy_director_mode mode, struct sy_director **out,
                        struct sy_error *err)
{
	struct sy_director *d = calloc(1, sizeof(*d));

	*out = NULL;
	if (!d)
		return sy_fail(err, ENOMEM, "%s: no memory for the flow director", ifname);
	d->lock = d->link = -1;
	d->mode = mode;
	snprintf(d->ifname, sizeof(d->ifname), "%s", ifname);
	d->ifindex = (int)if_nametoindex(ifname);
	if (!d->ifindex) {
		free(d);
		return sy_fail(err, ENODEV, "%s: no such interface in this network namespace",
		               ifname);
	}
	*out = d;
	return 0;
}

static int director_lock(struct sy_director *d, unsigned wait_ms, struct sy_error *err)
{
	char what[16];

	snprintf(what, sizeof(what), "%d", d->ifindex);
	d->lock = host_lock(what, d->ifname, ", or give this one other interfaces", wait_ms, err);
	return d->lock < 0 ? d->lock : 0;
}

/* With the lock held: nobody else changes the link from here on. */
static int director_attach(struct sy_director *d, struct sy_error *err)
{
	struct bpf_link_info info;
	uint32_t predecessor;
	int rc;

	d->link = link_recover(d, &info);
	predecessor = d->link >= 0 ? info.prog_id : 0;
	if (!d->bpf || predecessor != d->predecessor) {
		rc = program_load(d, predecessor, err);
		if (rc)
			return rc;
	}
	/* What the predecessor's sockets have left: they are gone, as the lock proves. */
	for (uint32_t queue = 0; queue < DIRECTOR_QUEUES; queue++)
		bpf_map_delete_elem(bpf_map__fd(d->bpf->maps.xsks), &queue);
	if (d->link < 0)
		return link_attach(d, err);
	d->outdated = true;
	return d->same_maps ? 0 : sy_director_update(d, err);
}

int sy_director_update(struct sy_director *d, struct sy_error *err)
{
	if (!d->outdated)
		return 0;
	if (bpf_link_update(d->link, bpf_program__fd(d->bpf->progs.direct), NULL) < 0)
		return sy_fail(err, errno,
		               "%s: cannot take over the flow director: %s; run steelyard cleanup",
		               d->ifname, strerror(errno));
	d->outdated = false;
	return 0;
}

int sy_director_open(const char *ifname, enum sy_director_mode mode, struct sy_director **out,
                     struct sy_error *err)
{
	int rc = director_new(ifname, mode, out, err);

	if (rc)
		return rc;
	/* The lock first: whoever is refused it shall not have loaded anything. */
	rc = sy_director_take(*out, 0, err);
	if (rc == 0)
		rc = sy_director_update(*out, err);
	if (rc) {
		sy_director_close(*out);
		*out = NULL;
	}
	return rc;
}

int sy_director_prepare(const char *ifname, enum sy_director_mode mode, struct sy_director **out,
                        struct sy_error *err)
{
	int rc = director_new(ifname, mode, out, err);

	if (rc)
		return rc;
	rc = program_load(*out, link_predecessor(*out), err);
	if (rc) {
		sy_director_close(*out);
		*out = NULL;
	}
	return rc;
}

int sy_director_take(struct sy_director *d, unsigned wait_ms, struct sy_error *err)
{
	int rc = director_lock(d, wait_ms, err);

	if (!rc)
		rc = host_bpffs(err);
	return rc ? rc : director_attach(d, err);
}

void sy_director_close(struct sy_director *d)
{
	if (!d)
		return;
	if (d->link >= 0)
		close(d->link);
	director_bpf__destroy(d->bpf);
	if (d->lock >= 0)
		close(d->lock);
	free(d->found);
	free(d);
}

/* ---- use ------------------------------------------------------------------------------------- */

int sy_director_queues(const struct sy_director *d)
{
	struct ethtool_channels channels = {.cmd = ETHTOOL_GCHANNELS};
	struct ifreq ifr = {.ifr_data = (void *)&channels};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	uint32_t queues = 0;

	if (fd < 0)
		return 1;
	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", d->ifname);
	/* A driver counts a queue either as combined or as rx. */
	if (ioctl(fd, SIOCETHTOOL, &ifr) == 0)
		queues = channels.combined_count + channels.rx_count;
	close(fd);
	if (queues > DIRECTOR_QUEUES)
		queues = DIRECTOR_QUEUES;
	return queues ? (int)queues : 1;
}

bool sy_director_is_native(const struct sy_director *d)
{
	return d->native;
}

int sy_director_set_socket(struct sy_director *d, unsigned queue, int xsk_fd)
{
	int map = bpf_map__fd(d->bpf->maps.xsks);
	uint32_t key = queue;

	if (xsk_fd >= 0)
		return bpf_map_update_elem(map, &key, &xsk_fd, BPF_ANY) < 0 ? -errno : 0;
	if (bpf_map_delete_elem(map, &key) < 0 && errno != ENOENT)
		return -errno;
	return 0;
}

/* Writes an entry, or takes it out (value NULL), in the map that it is for. */
static int key_write(struct sy_director *d, const void *key, const uint8_t *value)
{
	const struct director_key *k = key;
	struct director_prefix prefix = {.bits = k->bits};
	int map = bpf_map__fd(k->bits ? d->bpf->maps.inside : d->bpf->maps.steered);

	memcpy(prefix.w, k->w, sizeof(prefix.w));
	if (k->bits)
		key = &prefix;
	if (value)
		return bpf_map_update_elem(map, key, value, BPF_ANY) < 0 ? -errno : 0;
	return bpf_map_delete_elem(map, key) < 0 && errno != ENOENT ? -errno : 0;
}

/* Notes of an entry that was found whether this process has it too. */
static int found_mark(struct sy_director *d, const struct sy_source *key, bool again)
{
	struct found *before = NULL;
	int rc = found_read(d);

	if (rc)
		return rc;
	if (d->found_count)
		before = bsearch(key, d->found, d->found_count, sizeof(*d->found), key_compare);
	if (before)
		before->again = again;
	return 0;
}

int sy_director_steer_source(struct sy_director *d, const struct sy_source *source, bool on)
{
	uint8_t steer = DIRECTOR_STEER;
	int rc = found_mark(d, source, on);

	return rc ? rc : key_write(d, source, on ? &steer : NULL);
}

int sy_director_steer(struct sy_director *d, const struct sy_addr *addr, bool on)
{
	const struct sy_source key = {.addr = *addr};

	return sy_director_steer_source(d, &key, on);
}

int sy_director_host(struct sy_director *d, const struct sy_addr *addr, bool on)
{
	int map = bpf_map__fd(d->bpf->maps.steered);
	const struct sy_source key = {.addr = *addr};
	uint8_t host = DIRECTOR_HOST, now = 0;
	int rc;

	/* The kernel has claimed addresses too, and they are steered. */
	if (bpf_map_lookup_elem(map, &key, &now) == 0 && now == DIRECTOR_STEER)
		return 0;
	rc = found_mark(d, &key, on);
	return rc ? rc : key_write(d, &key, on ? &host : NULL);
}

int sy_director_settle(struct sy_director *d)
{
	int rc = found_read(d);

	if (rc)
		return rc;
	for (size_t i = 0; i < d->found_count; i++) {
		int failed = d->found[i].again ? 0 : key_write(d, &d->found[i].key, NULL);

		rc = failed ? failed : rc;
	}
	free(d->found);
	d->found = NULL;
	d->found_count = 0;
	return rc;
}

int sy_director_read_stats(const struct sy_director *d, struct sy_director_stats *out)
{
	int map = bpf_map__fd(d->bpf->maps.counters), cpus = libbpf_num_possible_cpus();
	uint64_t total[DIRECTOR_COUNTERS] = {0}, *each;

	if (cpus <= 0)
		return -ENOSYS;
	each = calloc((size_t)cpus, sizeof(*each));
	if (!each)
		return -ENOMEM;
	for (uint32_t i = 0; i < DIRECTOR_COUNTERS; i++) {
		if (bpf_map_lookup_elem(map, &i, each) < 0) {
			int code = errno;

			free(each);
			return -code;
		}
		for (int cpu = 0; cpu < cpus; cpu++)
			total[i] += each[cpu];
	}
	free(each);
	*out = (struct sy_director_stats){.steered = total[DIRECTOR_STEERED],
	                                  .passed = total[DIRECTOR_PASSED],
	                                  .dropped_no_socket = total[DIRECTOR_NO_SOCKET]};
	return 0;
}

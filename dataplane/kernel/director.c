// SPDX-License-Identifier: Apache-2.0
#include "director_state.h"

#include <assert.h>
#include <bpf/bpf.h>
#include <errno.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <sy_link.h>
#include <unistd.h>

static_assert(sizeof(struct director_key) == sizeof(struct sy_source), "same bytes");

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
	               "%s: another XDP program (id %u) is attached; see it with bpftool net, "
	               "remove it with: ip link set dev %s xdp off (or, if a link holds it: "
	               "bpftool link detach id LINK)",
	               d->ifname, id, d->ifname);
}

/* Returns 0 or a positive errno. */
static int link_create(struct sy_director *d, uint32_t mode)
{
	LIBBPF_OPTS(bpf_link_create_opts, opts, .flags = mode);

	d->link = bpf_link_create(d->prog, d->ifindex, BPF_XDP, &opts);
	d->native = d->link >= 0 && mode == XDP_FLAGS_DRV_MODE;
	return d->link < 0 ? errno : 0;
}

int director_link_pin(const struct sy_director *d, struct sy_error *err)
{
	char pin[HOST_PATH];

	director_pin_path(d, pin);
	/* Another namespace's cleanup may have removed the empty folder meanwhile. */
	if (bpf_obj_pin(d->link, pin) < 0 &&
	    (errno != ENOENT || host_bpffs(err) < 0 || bpf_obj_pin(d->link, pin) < 0))
		return sy_fail(err, errno, "%s: cannot pin the flow director at %s: %s", d->ifname,
		               pin, strerror(errno));
	return 0;
}

int director_link_attach(struct sy_director *d, struct sy_error *err)
{
	int code = EOPNOTSUPP, rc;

	if (d->mode != SY_DIRECTOR_GENERIC)
		code = link_create(d, XDP_FLAGS_DRV_MODE);
	if (code && code != EBUSY && code != EEXIST && d->bound) {
		rc = director_load(d, d->predecessor, false, err);
		if (rc)
			return rc;
		if (d->mode != SY_DIRECTOR_GENERIC)
			code = link_create(d, XDP_FLAGS_DRV_MODE);
	}
	if (code && d->mode != SY_DIRECTOR_NATIVE && code != EBUSY && code != EEXIST)
		code = link_create(d, XDP_FLAGS_SKB_MODE);
	if (code)
		return attach_refused(d, code, err);
	return director_link_pin(d, err);
}

/* ---- opening: prepare, then acquire ---------------------------------------------------------- */

static int director_new(const char *ifname, enum sy_director_mode mode, struct sy_director **out,
                        struct sy_error *err)
{
	struct sy_director *d;
	int rc = host_bpffs_check(err);

	*out = NULL;
	if (rc)
		return rc;
	d = calloc(1, sizeof(*d));
	if (!d)
		return sy_fail(err, ENOMEM, "%s: no memory for the flow director", ifname);
	d->lock = d->link = d->prog = -1;
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

/* May the program be bound to the device? Only in native mode: an attached program fixes the mode;
 * otherwise native is tried first, unless the mode is generic. */
static bool may_bind(const struct sy_director *d)
{
	return d->link >= 0 ? d->native : d->mode != SY_DIRECTOR_GENERIC;
}

/* Removes the entries of the predecessor's sockets, which are closed: this process has the lock. */
static void sockets_forget(struct sy_director *d)
{
	for (uint32_t queue = 0; queue < DIRECTOR_QUEUES; queue++)
		bpf_map_delete_elem(d->xsks, &queue);
}

/* The caller holds the lock: no other process changes the link. */
static int director_attach(struct sy_director *d, struct sy_error *err)
{
	struct bpf_link_info info;
	uint32_t predecessor;
	int rc;

	d->link = director_link_recover(d, &info);
	predecessor = d->link >= 0 ? info.prog_id : 0;
	if (!d->bpf || predecessor != d->predecessor || (d->link >= 0 && d->bound && !d->native)) {
		rc = director_load(d, predecessor, may_bind(d), err);
		if (rc)
			return rc;
	}
	sockets_forget(d);
	if (d->link < 0)
		return director_link_attach(d, err);
	d->outdated = true;
	return d->same_maps ? 0 : sy_director_update(d, err);
}

int sy_director_update(struct sy_director *d, struct sy_error *err)
{
	if (!d->outdated)
		return 0;
	if (bpf_link_update(d->link, d->prog, NULL) < 0)
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
	/* Acquire the lock first: a process that is refused must not load anything. */
	rc = sy_director_acquire(*out, 0, err);
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
	uint32_t predecessor;
	bool may_bind;

	if (rc)
		return rc;
	predecessor = director_predecessor(*out, &may_bind);
	rc = director_load(*out, predecessor, may_bind, err);
	if (rc) {
		sy_director_close(*out);
		*out = NULL;
	}
	return rc;
}

int sy_director_acquire(struct sy_director *d, unsigned wait_ms, struct sy_error *err)
{
	int rc = director_lock(d, wait_ms, err);

	if (!rc)
		rc = host_bpffs(err);
	if (!rc)
		rc = director_attach(d, err);
	if (!rc)
		director_tags_keep(d);
	return rc;
}

/* Moves to a new device: the maps have all steered entries and do not depend on the device. */
int sy_director_move(struct sy_director *d, struct sy_error *err)
{
	char pin[HOST_PATH], lock_path[HOST_PATH], what[16];
	struct bpf_prog_info info = {0};
	uint32_t len = sizeof(info);
	int lock = d->lock, before = d->ifindex, now = (int)if_nametoindex(d->ifname), rc;

	if (!now)
		return sy_fail(err, ENODEV, "%s: no such interface in this network namespace",
		               d->ifname);
	if (bpf_obj_get_info_by_fd(d->prog, &info, &len) < 0)
		return sy_fail(err, errno, "%s: cannot read the flow director's program: %s",
		               d->ifname, strerror(errno));
	director_pin_path(d, pin);
	if (d->link >= 0)
		close(d->link);
	d->link = -1;
	if (now != before)
		unlink(pin);
	d->ifindex = now;
	rc = now == before ? 0 : director_lock(d, 0, err);
	if (rc) {
		d->ifindex = before;
		d->lock = lock;
		return rc;
	}
	if (now != before && lock >= 0) {
		snprintf(what, sizeof(what), "%d", before);
		host_lock_path(lock_path, host_netns(), what);
		unlink(lock_path);
		close(lock);
	}
	rc = director_load(d, info.id, d->mode != SY_DIRECTOR_GENERIC, err);
	if (rc)
		return rc;
	sockets_forget(d);
	d->link = director_link_recover(d, &(struct bpf_link_info){0});
	if (d->link >= 0) { /* attached to this device by an earlier attempt */
		d->outdated = true;
		rc = sy_director_update(d, err);
	} else {
		rc = director_link_attach(d, err);
	}
	if (rc == 0)
		director_tags_keep(d);
	return rc;
}

void sy_director_close(struct sy_director *d)
{
	if (!d)
		return;
	if (d->link >= 0)
		close(d->link);
	director_blocks_free(d);
	bpf_object__close(d->bpf);
	if (d->lock >= 0)
		close(d->lock);
	free(d->found);
	free(d);
}

/* ---- use ------------------------------------------------------------------------------------- */

int sy_director_queues(const struct sy_director *d)
{
	unsigned queues = sy_link_queues(d->ifname);

	return queues > DIRECTOR_QUEUES ? DIRECTOR_QUEUES : (int)queues;
}

int sy_director_set(struct sy_director *d, uint32_t frame_max, bool vlans)
{
	d->now.frame_max = frame_max;
	d->now.vlans = vlans;
	return director_settings_write(d);
}

bool sy_director_is_native(const struct sy_director *d)
{
	return d->native;
}

int sy_director_set_socket(struct sy_director *d, unsigned queue, int xsk_fd)
{
	int map = d->xsks;
	uint32_t key = queue;

	if (xsk_fd >= 0)
		return bpf_map_update_elem(map, &key, &xsk_fd, BPF_ANY) < 0 ? -errno : 0;
	if (bpf_map_delete_elem(map, &key) < 0 && errno != ENOENT)
		return -errno;
	return 0;
}

/* Writes an entry to its map, or removes it (kind 0). */
static int key_write(struct sy_director *d, const void *key, uint8_t kind)
{
	const struct director_address value = {.kind = kind};
	const struct director_key *k = key;
	struct director_prefix prefix = {.bits = k->bits};
	int map = k->bits ? d->inside : d->steered;

	memcpy(prefix.w, k->w, sizeof(prefix.w));
	if (k->bits)
		key = &prefix;
	if (kind) /* for a network the value is its first byte */
		return bpf_map_update_elem(map, key, &value, BPF_ANY) < 0 ? -errno : 0;
	return bpf_map_delete_elem(map, key) < 0 && errno != ENOENT ? -errno : 0;
}

/* Marks a found entry as confirmed by this process, or not. */
static int found_mark(struct sy_director *d, const struct sy_source *key, bool confirmed)
{
	struct found *before = NULL;
	int rc = director_found_read(d);

	if (rc)
		return rc;
	if (d->found_count)
		before = bsearch(key, d->found, d->found_count, sizeof(*d->found),
		                 director_key_compare);
	if (before)
		before->confirmed = confirmed;
	return 0;
}

int sy_director_steer_source(struct sy_director *d, const struct sy_source *source, bool on)
{
	int rc = found_mark(d, source, on);

	return rc ? rc : key_write(d, source, on ? DIRECTOR_STEER : 0);
}

int sy_director_steer(struct sy_director *d, const struct sy_addr *addr, bool on)
{
	const struct sy_source key = {.addr = *addr};

	return sy_director_steer_source(d, &key, on);
}

int sy_director_host(struct sy_director *d, const struct sy_addr *addr, bool on)
{
	int map = d->steered;
	const struct sy_source key = {.addr = *addr};
	struct director_address now = {0};
	int rc;

	/* Claimed addresses are addresses of this host too, and stay steered. */
	if (bpf_map_lookup_elem(map, &key, &now) == 0 && now.kind != DIRECTOR_HOST)
		return 0;
	rc = found_mark(d, &key, on);
	return rc ? rc : key_write(d, &key, on ? DIRECTOR_HOST : 0);
}

int sy_director_settle(struct sy_director *d)
{
	int rc = director_found_read(d);

	if (rc)
		return rc;
	for (size_t i = 0; i < d->found_count; i++) {
		int failed = d->found[i].confirmed ? 0 : key_write(d, &d->found[i].key, 0);

		rc = failed ? failed : rc;
	}
	free(d->found);
	d->found = NULL;
	d->found_count = 0;
	if (!d->blocks) {
		int failed = director_blocks_settle(d);

		rc = failed ? failed : rc;
	}
	return rc;
}

int sy_director_read_stats(const struct sy_director *d, struct sy_director_stats *out)
{
	int map = d->counters, cpus = libbpf_num_possible_cpus();
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
	                                  .dropped_no_socket = total[DIRECTOR_NO_SOCKET],
	                                  .dropped_vlan = total[DIRECTOR_VLAN],
	                                  .dropped_truncated = total[DIRECTOR_TRUNCATED],
	                                  .dropped_too_big = total[DIRECTOR_TOO_BIG],
	                                  .dropped_no_service = total[DIRECTOR_NO_SERVICE],
	                                  .dropped_blocked = total[DIRECTOR_BLOCKED]};
	return 0;
}

// SPDX-License-Identifier: Apache-2.0
/* The flow director of an earlier process: its link, its maps and their entries. */
#include "director_state.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/if_link.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static bool map_info(int fd, struct bpf_map_info *out)
{
	uint32_t len = sizeof(*out);

	memset(out, 0, sizeof(*out));
	return bpf_obj_get_info_by_fd(fd, out, &len) == 0;
}

/* Reuses a map of the predecessor if the new program would create an equal one. */
static bool map_adopt(struct bpf_object *object, int fd)
{
	struct bpf_map_info info;
	struct bpf_map *map;

	if (!map_info(fd, &info))
		return false;
	map = bpf_object__find_map_by_name(object, info.name);
	/* bpf_map__reuse_fd() duplicates the descriptor */
	return map && bpf_map__type(map) == info.type && bpf_map__key_size(map) == info.key_size &&
	       bpf_map__value_size(map) == info.value_size &&
	       bpf_map__max_entries(map) == info.max_entries &&
	       bpf_map__map_flags(map) == info.map_flags && bpf_map__reuse_fd(map, fd) == 0;
}

bool director_maps_adopt(struct bpf_object *object, uint32_t prog_id)
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

/* Returns the program's map of this name if its keys and values have these sizes; otherwise −1. */
static int map_find(uint32_t prog_id, const char *name, uint32_t key_size, uint32_t value_size)
{
	uint32_t ids[16] = {0}, len = sizeof(struct bpf_prog_info);
	struct bpf_prog_info info = {.nr_map_ids = SY_ARRAY_LEN(ids), .map_ids = (uintptr_t)ids};
	int prog = bpf_prog_get_fd_by_id(prog_id), found = -1;

	if (prog >= 0 && bpf_obj_get_info_by_fd(prog, &info, &len) == 0) {
		for (uint32_t i = 0; found < 0 && i < info.nr_map_ids && i < 16; i++) {
			int fd = bpf_map_get_fd_by_id(ids[i]);
			struct bpf_map_info map;

			if (fd >= 0 && map_info(fd, &map) && !strcmp(map.name, name) &&
			    map.key_size == key_size && map.value_size == value_size)
				found = fd;
			else if (fd >= 0)
				close(fd);
		}
	}
	if (prog >= 0)
		close(prog);
	return found;
}

/* Removes the forwarder's addresses from a map `steered`. Returns true if it has sources. */
static bool steered_keep_sources(int map)
{
	struct director_key key, next;
	struct director_address address;
	bool has_sources = false;
	int rc = bpf_map_get_next_key(map, NULL, &next);

	while (rc == 0) {
		key = next;
		rc = bpf_map_get_next_key(map, &key, &next);
		if (key.proto)
			has_sources = true;
		else if (bpf_map_lookup_elem(map, &key, &address) == 0 &&
		         address.kind != DIRECTOR_HOST)
			bpf_map_delete_elem(map, &key);
	}
	return has_sources;
}

bool director_addresses_remove(uint32_t prog_id)
{
	int steered = map_find(prog_id, "steered", sizeof(struct director_key),
	                       sizeof(struct director_address));
	int inside = map_find(prog_id, "inside", sizeof(struct director_prefix), 1);
	struct director_prefix network;
	bool has_sources = inside >= 0 && bpf_map_get_next_key(inside, NULL, &network) == 0;

	/* a program of an older version steers by addresses that cannot be removed */
	if (steered < 0)
		has_sources = false;
	else if (steered_keep_sources(steered))
		has_sources = true;
	if (steered >= 0)
		close(steered);
	if (inside >= 0)
		close(inside);
	return has_sources;
}

void director_steered_copy(const struct sy_director *d, uint32_t prog_id)
{
	struct director_address address = {0};
	/* values of one byte: from before VIPs had ports */
	int before = map_find(prog_id, "steered", sizeof(struct director_key), 1);
	struct director_key key;

	for (void *last = NULL; before >= 0 && bpf_map_get_next_key(before, last, &key) == 0;
	     last = &key)
		if (bpf_map_lookup_elem(before, &key, &address.kind) == 0)
			bpf_map_update_elem(d->steered, &key, &address, BPF_NOEXIST);
	if (before >= 0)
		close(before);
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

void director_pin_path(const struct sy_director *d, char out[static HOST_PATH])
{
	host_pin_path(out, host_netns(), d->ifindex);
}

/* Returns the link that a predecessor pinned, or −1. *fit: it can be taken over, because its device
 * exists and its mode is the requested one. */
static int link_find(struct sy_director *d, struct bpf_link_info *info, bool *fit)
{
	char pin[HOST_PATH];
	int fd;

	director_pin_path(d, pin);
	fd = bpf_obj_get(pin);
	if (fd < 0)
		return -1;
	d->native = mode_is_native(d->ifindex);
	*fit = link_info(fd, info) && info->xdp.ifindex == (uint32_t)d->ifindex &&
	       !(d->mode == SY_DIRECTOR_NATIVE && !d->native) &&
	       !(d->mode == SY_DIRECTOR_GENERIC && d->native);
	return fd;
}

int director_link_recover(struct sy_director *d, struct bpf_link_info *info)
{
	char pin[HOST_PATH];
	bool fit;
	int fd = link_find(d, info, &fit);

	if (fd < 0 || fit)
		return fd;
	bpf_link_detach(fd);
	close(fd);
	director_pin_path(d, pin);
	unlink(pin);
	return -1;
}

uint32_t director_predecessor(struct sy_director *d, bool *may_bind)
{
	struct bpf_link_info info;
	bool fit;
	int fd = link_find(d, &info, &fit);

	if (fd >= 0)
		close(fd);
	/* An attached program fixes the mode; otherwise any mode but generic is possible. Only a
	 * program for native mode may be bound to the device. */
	*may_bind = fd >= 0 && fit ? d->native : d->mode != SY_DIRECTOR_GENERIC;
	return fd >= 0 && fit ? info.prog_id : 0;
}

int director_key_compare(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct director_key));
}

static int found_add(struct sy_director *d, size_t *capacity, const struct director_key *key)
{
	if (d->found_count == *capacity) {
		size_t wanted = *capacity ? *capacity * 2 : 64;
		struct found *more = realloc(d->found, wanted * sizeof(*more));

		if (!more)
			return -ENOMEM;
		d->found = more;
		*capacity = wanted;
	}
	d->found[d->found_count++] = (struct found){.key = *key};
	return 0;
}

int director_found_read(struct sy_director *d)
{
	int map = d->steered, inside = d->inside;
	struct director_key key, network = {0};
	struct director_prefix prefix;
	size_t capacity = 0;
	int rc = 0;

	if (d->found_known)
		return 0;
	d->found_count = 0;
	for (void *last = NULL; rc == 0 && bpf_map_get_next_key(map, last, &key) == 0; last = &key)
		rc = found_add(d, &capacity, &key);
	for (void *last = NULL; rc == 0 && bpf_map_get_next_key(inside, last, &prefix) == 0;
	     last = &prefix) {
		memcpy(network.w, prefix.w, sizeof(network.w));
		network.bits = prefix.bits;
		rc = found_add(d, &capacity, &network);
	}
	if (rc)
		return rc;
	if (d->found_count)
		qsort(d->found, d->found_count, sizeof(*d->found), director_key_compare);
	d->found_known = true;
	return 0;
}

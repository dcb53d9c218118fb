// SPDX-License-Identifier: Apache-2.0
/* Loads the flow director's program. */
#include "director_state.h"

#include <bpf/bpf.h>
#include <errno.h>

#include "director.skel.h"
#include "director_bound.skel.h"
#include "director_frags.skel.h"

/* linux/bpf.h of older kernels does not define it. */
#define DEVICE_BOUND_ONLY (1u << 6)

/* DIRECTOR_LEVEL in director.bpf.c. */
enum { LEVEL_ANY, LEVEL_FRAGS, LEVEL_BOUND };

static struct bpf_object *object_open(int level)
{
	LIBBPF_OPTS(bpf_object_open_opts, opts, .object_name = "director_bpf");
	const void *elf;
	size_t size;

	if (level == LEVEL_BOUND)
		elf = director_bound_bpf__elf_bytes(&size);
	else if (level == LEVEL_FRAGS)
		elf = director_frags_bpf__elf_bytes(&size);
	else
		elf = director_bpf__elf_bytes(&size);
	return bpf_object__open_mem(elf, size, &opts);
}

static int map_fd(const struct bpf_object *object, const char *name)
{
	return bpf_map__fd(bpf_object__find_map_by_name(object, name));
}

/* Returns 0 or a negative errno. */
static int level_load(struct sy_director *d, int level, uint32_t predecessor)
{
	struct bpf_object *object = object_open(level);
	struct bpf_program *program;
	bool same_maps;
	int rc;

	if (!object)
		return -errno;
	program = bpf_object__find_program_by_name(object, "direct");
	if (level == LEVEL_BOUND) {
		bpf_program__set_ifindex(program, (uint32_t)d->ifindex);
		bpf_program__set_flags(program, bpf_program__flags(program) | DEVICE_BOUND_ONLY);
	}
	same_maps = predecessor && director_maps_adopt(object, predecessor);
	rc = bpf_object__load(object);
	if (rc) {
		bpf_object__close(object);
		return rc;
	}
	bpf_object__close(d->bpf);
	d->bpf = object;
	d->same_maps = same_maps;
	d->bound = level == LEVEL_BOUND;
	d->prog = bpf_program__fd(program);
	d->steered = map_fd(object, "steered");
	d->inside = map_fd(object, "inside");
	d->xsks = map_fd(object, "xsks");
	d->counters = map_fd(object, "counters");
	d->settings = map_fd(object, "settings");
	director_blocks_reload(d);
	if (predecessor) { /* until this process sets a list */
		uint32_t first = 0;

		bpf_map_lookup_elem(d->settings, &first, &d->now);
	}
	if (predecessor && !same_maps)
		director_steered_copy(d, predecessor);
	return 0;
}

static int quiet(enum libbpf_print_level level, const char *format, va_list args)
{
	return 0;
}

int director_load(struct sy_director *d, uint32_t predecessor, bool may_bind, struct sy_error *err)
{
	int level = may_bind ? LEVEL_BOUND : LEVEL_FRAGS, rc;
	libbpf_print_fn_t before = libbpf_set_print(quiet);

	/* Suppresses the kernel's messages for higher levels, which are expected to fail. */
	while ((rc = level_load(d, level, predecessor)) != 0 && level > LEVEL_ANY)
		if (--level == LEVEL_ANY)
			libbpf_set_print(before);
	libbpf_set_print(before);
	d->predecessor = predecessor;
	return rc ? sy_fail(err, -rc,
	                    "%s: the kernel refuses the flow director's program: %s; Linux 5.9 "
	                    "or newer with BPF and AF_XDP is needed",
	                    d->ifname, strerror(-rc))
	          : 0;
}

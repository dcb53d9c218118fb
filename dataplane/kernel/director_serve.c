// SPDX-License-Identifier: Apache-2.0
/* Sets the ports of a VIP with services in the flow director's program, which drops packets to
 * others (docs/design/0028-host-protection.md). */
#include "director_state.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdlib.h>

static int range_compare(const void *a, const void *b)
{
	const struct sy_port_range *x = a, *y = b;

	if (x->proto != y->proto)
		return x->proto < y->proto ? -1 : 1;
	return x->first < y->first ? -1 : x->first > y->first;
}

/* Joins overlapping or adjacent ranges of a sorted list. Returns how many are left. */
static size_t ranges_join(struct sy_port_range *r, size_t n)
{
	size_t out = 0;

	for (size_t i = 0; i < n; i++) {
		struct sy_port_range *last = out ? &r[out - 1] : NULL;

		if (!last || last->proto != r[i].proto || r[i].first > last->last + 1u)
			r[out++] = r[i];
		else if (r[i].last > last->last)
			last->last = r[i].last;
	}
	return out;
}

/* The gap before range i; ranges of different protocols are never joined. */
static uint32_t gap_before(const struct sy_port_range *r, size_t i)
{
	return r[i].proto == r[i - 1].proto ? (uint32_t)r[i].first - r[i - 1].last : UINT32_MAX;
}

static int gap_compare(const void *a, const void *b)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x > y ? -1 : x < y;
}

/* Joins ranges across the smallest gaps until they fit the map's value. The result may include
 * ports without a service; the forwarder decides on these. Returns how many are left; 0: no
 * memory. */
static size_t ranges_fit(struct sy_port_range *r, size_t n)
{
	uint32_t *gap, min;
	size_t out = 1;

	if (n <= DIRECTOR_RANGES)
		return n;
	gap = malloc(n * sizeof(*gap));
	if (!gap)
		return 0;
	for (size_t i = 1; i < n; i++)
		gap[i - 1] = gap_before(r, i);
	qsort(gap, n - 1, sizeof(*gap), gap_compare);
	/* Keep gaps above this one. Of equal gaps, keeping none is simplest. */
	min = gap[DIRECTOR_RANGES - 1];
	free(gap);
	for (size_t i = 1; i < n; i++) {
		if (gap_before(r, i) > min)
			r[out++] = r[i];
		else
			r[out - 1].last = r[i].last;
	}
	return out;
}

static int value_make(struct director_address *out, const struct sy_port_range *range, size_t n)
{
	struct sy_port_range *r = malloc(n * sizeof(*r));

	if (!r)
		return -ENOMEM;
	memcpy(r, range, n * sizeof(*r));
	qsort(r, n, sizeof(*r), range_compare);
	n = ranges_fit(r, ranges_join(r, n));
	out->kind = n ? DIRECTOR_VIP : DIRECTOR_STEER;
	out->count = (uint8_t)n;
	for (size_t i = 0; i < n; i++)
		out->ports[i] = (struct director_ports){r[i].first, r[i].last, r[i].proto};
	free(r);
	return 0;
}

int sy_director_serve(struct sy_director *d, const struct sy_addr *addr,
                      const struct sy_port_range *range, size_t n)
{
	const struct sy_source key = {.addr = *addr};
	struct director_address value = {.kind = DIRECTOR_STEER}, now;
	int rc = n ? value_make(&value, range, n) : 0;

	if (rc)
		return rc;
	if (bpf_map_lookup_elem(d->steered, &key, &now) < 0 || now.kind == DIRECTOR_HOST)
		return -ENOENT;
	return bpf_map_update_elem(d->steered, &key, &value, BPF_EXIST) < 0 ? -errno : 0;
}

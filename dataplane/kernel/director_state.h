// SPDX-License-Identifier: Apache-2.0
/* A flow director, as the files that make it share it. */
#ifndef KERNEL_DIRECTOR_STATE_H
#define KERNEL_DIRECTOR_STATE_H

#include <net/if.h>

#include <bpf/libbpf.h>

#include "director_map.h"
#include "host.h"

/* An address that an earlier process steered. It stays until sy_director_settle(), lest the kernel
 * sees its packets meanwhile. */
struct found {
	struct director_key key;
	bool again; /* steered by this process too */
};

struct sy_director {
	struct bpf_object *bpf; /* with the descriptors of what it holds: */
	int prog, steered, inside, xsks, counters, settings;
	bool bound;           /* the program is for this device alone, in native mode */
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

/* ---- director_load.c ---- */

/* Loads the program of the highest level that the kernel takes, over the maps of another program if
 * they fit (id, 0: none). may_bind: it may be one for native mode only. */
int director_load(struct sy_director *d, uint32_t predecessor, bool may_bind, struct sy_error *err);

/* ---- director_tag.c ---- */

/* Sees to it that VLAN tags can be seen: what hardware takes off frames beforehand, it is told to
 * leave. What cannot be helped is logged with its remedy. */
void director_tags_keep(const struct sy_director *d);

/* ---- director_found.c ---- */

void director_pin_path(const struct sy_director *d, char out[static HOST_PATH]);
/* The link to take over, or −1; one that is not fit is removed. */
int director_link_recover(struct sy_director *d, struct bpf_link_info *info);
/* The program of a link that could be taken over as it is now; 0: there is none. may_bind: as
 * director_load() wants it for that. */
uint32_t director_predecessor(struct sy_director *d, bool *may_bind);
/* Gives the object, which is not loaded, the maps of this program; false: not all of them fit. */
bool director_maps_adopt(struct bpf_object *object, uint32_t prog_id);
/* The key comes first in struct found, so this compares two of them, or a key with one. */
int director_key_compare(const void *a, const void *b);
/* Notes what the maps steer. Not before the first address is steered or settled: while nobody
 * receives, each moment counts. */
int director_found_read(struct sy_director *d);

#endif

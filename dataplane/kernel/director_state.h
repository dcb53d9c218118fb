// SPDX-License-Identifier: Apache-2.0
/* A flow director's state, shared by the files that implement it. */
#ifndef KERNEL_DIRECTOR_STATE_H
#define KERNEL_DIRECTOR_STATE_H

#include <net/if.h>

#include <bpf/libbpf.h>

#include "director_map.h"
#include "host.h"

/* An entry steered by an earlier process. It stays until sy_director_settle(), otherwise the kernel
 * would get its packets. */
struct found {
	struct director_key key;
	bool confirmed; /* confirmed by this process */
};

struct sy_director {
	struct bpf_object *bpf; /* the descriptors below belong to it */
	int prog, steered, inside, xsks, counters, settings;
	struct director_settings now; /* contents of the settings map */
	struct blocks *blocks;        /* director_block.c; NULL: nothing blocked */
	bool bound;                   /* the program is bound to this device, in native mode */
	uint32_t predecessor;         /* id of the program whose maps were adopted, 0: none */
	enum sy_director_mode mode;
	char ifname[IF_NAMESIZE];
	int ifindex;
	int lock;
	int link;
	bool native;
	bool same_maps; /* all maps are the predecessor's */
	bool outdated;  /* the predecessor's program is still on the link */
	bool found_known;
	struct found *found; /* sorted by key */
	size_t found_count;
};

/* ---- director.c ---------------------------------------------------------------------------------
 */

/* Attaches the program by a new link and pins it. */
int director_link_attach(struct sy_director *d, struct sy_error *err);
int director_link_pin(const struct sy_director *d, struct sy_error *err);

/* ---- director_load.c ------------------------------------------------------------------------- */

/* Loads the program of the highest level that the kernel accepts. predecessor: id of a program
 * whose maps are reused if they fit; 0: none. may_bind: the program may be bound to
 * the device, which native mode allows. */
int director_load(struct sy_director *d, uint32_t predecessor, bool may_bind, struct sy_error *err);

/* ---- director_block.c ------------------------------------------------------------------------ */

/* Removes the blocks of an earlier process unless this one has set a list. */
int director_blocks_settle(struct sy_director *d);
void director_blocks_free(struct sy_director *d);
/* The program was loaded again, with the same maps. */
void director_blocks_reload(struct sy_director *d);
/* Writes d->now. Returns 0 or a negative errno. */
int director_settings_write(struct sy_director *d);

/* ---- director_tag.c -------------------------------------------------------------------------- */

/* Makes VLAN tags visible to the program: switches off rx-vlan-offload, by which the hardware
 * removes them. Logs a remedy if that fails. */
void director_tags_keep(const struct sy_director *d);

/* ---- director_found.c ------------------------------------------------------------------------ */

void director_pin_path(const struct sy_director *d, char out[static HOST_PATH]);
/* Returns the link to take over, or −1. Removes a link that cannot be used. */
int director_link_recover(struct sy_director *d, struct bpf_link_info *info);
/* Returns the id of the program of a link that could be taken over now; 0: none. Sets *may_bind for
 * director_load(). */
uint32_t director_predecessor(struct sy_director *d, bool *may_bind);
/* Makes the object, not loaded yet, reuse the maps of this program. Returns false if not all of
 * them fit. */
bool director_maps_adopt(struct bpf_object *object, uint32_t prog_id);
/* Copies the steered entries of an older version's program, whose map has another layout. */
void director_steered_copy(const struct sy_director *d, uint32_t prog_id);
/* Removes the addresses that this program steers. Returns true if it steers sources, too. */
bool director_addresses_remove(uint32_t prog_id);
/* The key comes first in struct found, so this compares two of them, or a key with one. */
int director_key_compare(const void *a, const void *b);
/* Reads the entries of the maps. Deferred until the first address is steered or settled: during a
 * take-over, while no socket receives, it would lengthen the outage. */
int director_found_read(struct sy_director *d);

#endif

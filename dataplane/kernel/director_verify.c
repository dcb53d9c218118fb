// SPDX-License-Identifier: Apache-2.0
/* Restores the flow director after another program has detached it, replaced its program or removed
 * its pin. */
#include "director_state.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum link_state { LINK_INTACT, LINK_DETACHED, LINK_REPLACED, LINK_UNPINNED };

static enum link_state link_state(const struct sy_director *d)
{
	struct bpf_link_info link = {0};
	struct bpf_prog_info prog = {0};
	uint32_t link_len = sizeof(link), prog_len = sizeof(prog);
	char pin[HOST_PATH];
	struct stat st;

	if (bpf_obj_get_info_by_fd(d->link, &link, &link_len) < 0 ||
	    bpf_obj_get_info_by_fd(d->prog, &prog, &prog_len) < 0)
		return LINK_INTACT; /* unknown */
	if (link.xdp.ifindex != (uint32_t)d->ifindex)
		return LINK_DETACHED;
	if (link.prog_id != prog.id)
		return LINK_REPLACED;
	director_pin_path(d, pin);
	return stat(pin, &st) < 0 && errno == ENOENT ? LINK_UNPINNED : LINK_INTACT;
}

static int link_restore(struct sy_director *d, enum link_state state, struct sy_error *err)
{
	char pin[HOST_PATH];

	switch (state) {
	case LINK_DETACHED:
		close(d->link);
		d->link = -1;
		director_pin_path(d, pin);
		unlink(pin);
		return director_link_attach(d, err);
	case LINK_REPLACED:
		d->outdated = true;
		return sy_director_update(d, err);
	case LINK_UNPINNED:
		return director_link_pin(d, err);
	default:
		return 0;
	}
}

void sy_director_verify(struct sy_director *d, const struct sy_verify *v)
{
	static const char *const what[] = {[LINK_DETACHED] = "XDP program on",
	                                   [LINK_REPLACED] = "program of the XDP link on",
	                                   [LINK_UNPINNED] = "pin of the XDP program on"};
	enum link_state state;
	struct sy_error err = {0};
	char text[96];

	if (d->outdated) /* sy_director_update() will replace it */
		return;
	state = d->link < 0 ? LINK_DETACHED : link_state(d);
	if (state == LINK_INTACT || (int)if_nametoindex(d->ifname) != d->ifindex)
		return;
	if (link_restore(d, state, &err)) {
		v->problem(v->ctx, err.text);
		return;
	}
	snprintf(text, sizeof(text), "%s %s", what[state], d->ifname);
	v->restored(v->ctx, text);
}

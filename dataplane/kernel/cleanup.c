// SPDX-License-Identifier: Apache-2.0
#include "check.h"
#include "claim.h"
#include "director_state.h"
#include "guard.h"

#include <bpf/bpf.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Locks of interfaces; a forwarder has fewer ports in one namespace. */
#define CLEANUP_LOCKS 256

struct cleanup {
	void (*report)(void *ctx, const char *text);
	void *ctx;
	uint64_t netns;
	bool release; /* keep what steers sources */
	int lock[CLEANUP_LOCKS];
	char lock_path[CLEANUP_LOCKS][HOST_PATH];
	unsigned locks;
};

static void cleanup_report(const struct cleanup *c, const char *what, const char *which)
{
	char text[2 * HOST_PATH];

	snprintf(text, sizeof(text), "%s %s", what, which);
	if (c->report)
		c->report(c->ctx, text);
}

/* Parses "<prefix><netns>-<ifindex>". Returns true if the name has this form. */
static bool name_split(const char *name, const char *prefix, uint64_t *netns, int *ifindex)
{
	int end = 0;

	if (strncmp(name, prefix, strlen(prefix)) != 0)
		return false;
	name += strlen(prefix);
	return sscanf(name, "%" SCNu64 "-%d%n", netns, ifindex, &end) == 2 && !name[end];
}

/* Acquires every lock of this namespace: then no forwarder runs in it. */
static int locks_acquire(struct cleanup *c, struct sy_error *err)
{
	DIR *dir = opendir(HOST_RUN_DIR);
	struct dirent *entry;
	int rc = 0;

	if (!dir)
		return sy_fail(err, errno, "cannot read " HOST_RUN_DIR ": %s", strerror(errno));
	while (rc >= 0 && c->locks < CLEANUP_LOCKS && (entry = readdir(dir))) {
		char what[16], held[64], name[IF_NAMESIZE];
		uint64_t netns;
		int ifindex;

		if (!name_split(entry->d_name, "lock-", &netns, &ifindex) || netns != c->netns)
			continue;
		snprintf(what, sizeof(what), "%d", ifindex);
		if (if_indextoname((unsigned)ifindex, name))
			snprintf(held, sizeof(held), "%s", name);
		else
			snprintf(held, sizeof(held), "interface %d", ifindex);
		rc = host_lock(what, held, "", 0, err);
		if (rc >= 0) {
			c->lock[c->locks] = rc;
			host_lock_path(c->lock_path[c->locks++], netns, what);
		}
	}
	closedir(dir);
	return rc < 0 ? rc : 0;
}

static void locks_release(struct cleanup *c, bool remove)
{
	while (c->locks) {
		c->locks--;
		if (remove && unlink(c->lock_path[c->locks]) == 0)
			cleanup_report(c, "lock", c->lock_path[c->locks]);
		close(c->lock[c->locks]);
	}
}

/* Detaches a pinned link of this namespace, or of any namespace if its device is gone. A release
 * keeps one that steers sources. */
static void pin_remove(struct cleanup *c, const char *name)
{
	struct bpf_link_info info = {0};
	uint32_t len = sizeof(info);
	char path[HOST_PATH], text[64], ifname[IF_NAMESIZE];
	uint64_t netns;
	int ifindex, fd;

	if (!name_split(name, "", &netns, &ifindex))
		return;
	host_pin_path(path, netns, ifindex);
	fd = bpf_obj_get(path);
	if (fd < 0)
		return;
	if (bpf_obj_get_info_by_fd(fd, &info, &len) == 0 &&
	    (netns == c->netns || (info.type == BPF_LINK_TYPE_XDP && info.xdp.ifindex == 0)) &&
	    !(c->release && info.xdp.ifindex && director_addresses_remove(info.prog_id))) {
		bpf_link_detach(fd); /* fails harmlessly if the device is gone */
		if (unlink(path) == 0 && info.xdp.ifindex &&
		    if_indextoname(info.xdp.ifindex, ifname)) {
			cleanup_report(c, "XDP program of", ifname);
		} else {
			snprintf(text, sizeof(text), "%" PRIu64 "-%d", netns, ifindex);
			cleanup_report(c, "XDP program of a vanished interface:", text);
		}
	}
	close(fd);
}

static void pins_remove(struct cleanup *c)
{
	DIR *dir = opendir(HOST_BPF_DIR);
	struct dirent *entry;

	if (!dir)
		return; /* no bpffs, no pins */
	while ((entry = readdir(dir)))
		pin_remove(c, entry->d_name);
	closedir(dir);
	rmdir(HOST_BPF_DIR); /* fails while other namespaces use it */
}

static int claims_clean(struct cleanup *c, struct sy_claims *claims, struct sy_error *err)
{
	int rc = claims_remove_found(claims, c->report, c->ctx);

	if (rc)
		return sy_fail(err, -rc, "cannot remove a claim: %s", strerror(-rc));
	if (guard_delete(claims_guard(claims)))
		cleanup_report(c, "nftables table", "inet steelyard");
	if (unlink(claims_state_path(claims)) == 0)
		cleanup_report(c, "state", claims_state_path(claims));
	return 0;
}

static int kernel_clean(bool release, void (*report)(void *ctx, const char *text), void *ctx,
                        struct sy_error *err)
{
	struct cleanup *c = calloc(1, sizeof(*c));
	struct sy_claims *claims = NULL;
	char path[HOST_PATH];
	int rc;

	if (!c)
		return sy_fail(err, ENOMEM, "no memory for cleanup");
	c->report = report;
	c->ctx = ctx;
	c->release = release;
	c->netns = host_netns();
	rc = host_bpffs_check(err); /* without it the pins are not visible */
	if (rc == 0)
		rc = claims_load(&claims, 0, err);
	if (rc == 0)
		rc = locks_acquire(c, err);
	if (rc == 0) {
		pins_remove(c);
		checks_remove(c->report, c->ctx);
		rc = claims_clean(c, claims, err);
	}
	locks_release(c, rc == 0);
	if (rc == 0) {
		/* created by claims_load(): not reported */
		host_lock_path(path, c->netns, "claims");
		unlink(path);
	}
	sy_claims_close(claims);
	if (rc == 0)
		rmdir(HOST_RUN_DIR);
	free(c);
	return rc;
}

int sy_kernel_cleanup(void (*report)(void *ctx, const char *text), void *ctx, struct sy_error *err)
{
	return kernel_clean(false, report, ctx, err);
}

int sy_kernel_release(void (*report)(void *ctx, const char *text), void *ctx, struct sy_error *err)
{
	return kernel_clean(true, report, ctx, err);
}

// SPDX-License-Identifier: Apache-2.0
#include "check.h"
#include "check.skel.h"
#include "check_map.h"
#include "host.h"
#include "netlink_request.h"

#include <assert.h>
#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Handle and priority identify the filters of an earlier process, which are replaced in one
 * step. */
#define CHECK_HANDLE   1
#define CHECK_PRIORITY HOST_PROTOCOL
#define ACCEPT_LOCAL   "/proc/sys/net/ipv4/conf/lo/accept_local"

struct sy_checks {
	struct check_bpf *bpf;
};

static_assert(SY_CHECK_MARK_FIRST >> 24 == CHECK_MARK_KIND, "the program knows its marks");
static_assert(SY_CHECK_MARK_LAST >> 24 == CHECK_MARK_KIND, "the program knows its marks");
static_assert(sizeof(struct sy_addr) == sizeof(((struct check_target *)0)->vip), "same bytes");

/* ---- filters --------------------------------------------------------------------------------- */

static struct bpf_tc_hook hook_at(int ifindex)
{
	return (struct bpf_tc_hook){
	        .sz = sizeof(struct bpf_tc_hook),
	        .ifindex = ifindex,
	        .attach_point = ifindex == CHECK_LO ? BPF_TC_EGRESS : BPF_TC_INGRESS,
	};
}

static struct bpf_tc_opts filter_named(void)
{
	return (struct bpf_tc_opts){
	        .sz = sizeof(struct bpf_tc_opts),
	        .handle = CHECK_HANDLE,
	        .priority = CHECK_PRIORITY,
	};
}

/* libbpf prints the kernel's messages to stderr even if the call has not failed. */
static int filter_call(int (*call)(const struct bpf_tc_hook *, struct bpf_tc_opts *),
                       const struct bpf_tc_hook *hook, struct bpf_tc_opts *opts)
{
	libbpf_print_fn_t before = libbpf_set_print(NULL);
	int rc = call(hook, opts);

	libbpf_set_print(before);
	return rc;
}

static int hook_create(struct bpf_tc_hook *hook)
{
	libbpf_print_fn_t before = libbpf_set_print(NULL);
	int rc = bpf_tc_hook_create(hook);

	libbpf_set_print(before);
	return rc == -EEXIST ? 0 : rc;
}

static bool program_is_own(uint32_t id, const char *name)
{
	struct bpf_prog_info info = {0};
	uint32_t len = sizeof(info);
	int fd = bpf_prog_get_fd_by_id(id);
	bool own =
	        fd >= 0 && bpf_obj_get_info_by_fd(fd, &info, &len) == 0 && !strcmp(info.name, name);

	if (fd >= 0)
		close(fd);
	return own;
}

/* Does the interface have this program? */
static bool filter_is_there(int ifindex, int prog)
{
	struct bpf_tc_hook hook = hook_at(ifindex);
	struct bpf_tc_opts found = filter_named();
	struct bpf_prog_info info = {0};
	uint32_t len = sizeof(info);

	return bpf_obj_get_info_by_fd(prog, &info, &len) == 0 &&
	       filter_call(bpf_tc_query, &hook, &found) == 0 && found.prog_id == info.id;
}

static bool filter_is_own(int ifindex)
{
	struct bpf_tc_hook hook = hook_at(ifindex);
	struct bpf_tc_opts found = filter_named();

	return filter_call(bpf_tc_query, &hook, &found) == 0 &&
	       program_is_own(found.prog_id, ifindex == CHECK_LO ? "check_out" : "check_in");
}

static int filter_attach(int ifindex, int prog, struct sy_error *err)
{
	struct bpf_tc_hook hook = hook_at(ifindex);
	struct bpf_tc_opts filter = filter_named();
	char name[IF_NAMESIZE] = "no interface";
	int rc = hook_create(&hook);

	filter.prog_fd = prog;
	filter.flags = BPF_TC_F_REPLACE;
	if (!rc)
		rc = filter_call(bpf_tc_attach, &hook, &filter);
	if (!rc)
		return 0;
	if_indextoname((unsigned)ifindex, name);
	return sy_fail(
	        err, -rc,
	        "servers cannot be checked on the VIP: %s does not accept a tc program: %s; the "
	        "kernel needs clsact and cls_bpf",
	        name, strerror(-rc));
}

static int filter_count(const struct nlmsghdr *nlh, void *count)
{
	*(unsigned *)count += nlh->nlmsg_type == RTM_NEWTFILTER;
	return MNL_CB_OK;
}

/* Has the interface's clsact no filters at all? */
static bool clsact_is_empty(int ifindex)
{
	static const uint32_t parent[] = {TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS),
	                                  TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_EGRESS)};
	struct mnl_socket *nl = request_open();
	unsigned count = 0;
	int rc = nl ? 0 : -errno;

	for (unsigned i = 0; !rc && i < SY_ARRAY_LEN(parent); i++) {
		struct request r;
		struct tcmsg *tc = request_begin(&r, RTM_GETTFILTER, NLM_F_DUMP, sizeof(*tc));

		*tc = (struct tcmsg){.tcm_ifindex = ifindex, .tcm_parent = parent[i]};
		rc = request_send(nl, &r, filter_count, &count);
	}
	if (nl)
		mnl_socket_close(nl);
	return !rc && !count;
}

static bool filter_remove(int ifindex)
{
	struct bpf_tc_hook hook = hook_at(ifindex);
	struct bpf_tc_opts filter = filter_named();

	if (!filter_is_own(ifindex) || bpf_tc_detach(&hook, &filter) < 0)
		return false;
	if (clsact_is_empty(ifindex)) {
		hook.attach_point = BPF_TC_INGRESS | BPF_TC_EGRESS;
		bpf_tc_hook_destroy(&hook);
	}
	return true;
}

/* ---- answers from the VIP, an address of this host as it seems ------------------------------- */

/* Path of the file that records for cleanup that the sysctl was 0 before. */
static void accept_local_note(char out[static HOST_PATH])
{
	snprintf(out, HOST_PATH, HOST_RUN_DIR "/accept-local-%" PRIu64, host_netns());
}

static bool accept_local_write(char value)
{
	int fd = open(ACCEPT_LOCAL, O_RDWR | O_CLOEXEC);
	char now = 0;
	bool done = fd >= 0 && read(fd, &now, 1) == 1 &&
	            (now == value || pwrite(fd, &value, 1, 0) == 1);

	if (fd >= 0)
		close(fd);
	return done;
}

static bool accept_local_is_set(void)
{
	int fd = open(ACCEPT_LOCAL, O_RDONLY | O_CLOEXEC);
	char now = 0;
	bool set = fd >= 0 && read(fd, &now, 1) == 1 && now == '1';

	if (fd >= 0)
		close(fd);
	return set;
}

static int accept_local_begin(struct sy_error *err)
{
	char note[HOST_PATH], now = 0;
	int fd = open(ACCEPT_LOCAL, O_RDONLY | O_CLOEXEC);

	if (fd >= 0 && read(fd, &now, 1) == 1 && now == '0') {
		close(fd);
		accept_local_note(note);
		fd = open(note, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		if (fd >= 0)
			(void)fchmod(fd, 0600); /* an earlier build made it readable */
	}
	if (fd >= 0)
		close(fd);
	return accept_local_write('1')
	               ? 0
	               : sy_fail(err, errno,
	                         "servers cannot be checked on the VIP: " ACCEPT_LOCAL
	                         " cannot be set to 1: %s",
	                         strerror(errno));
}

static void accept_local_end(void)
{
	char note[HOST_PATH];

	accept_local_note(note);
	if (unlink(note) == 0)
		accept_local_write('0');
}

/* ---- use ------------------------------------------------------------------------------------- */

int sy_checks_open(struct sy_checks **out, struct sy_error *err)
{
	struct sy_checks *c = calloc(1, sizeof(*c));
	int rc = c ? 0 : -ENOMEM;

	*out = NULL;
	if (!rc) {
		c->bpf = check_bpf__open_and_load();
		rc = c->bpf ? 0 : -errno;
	}
	if (rc) {
		free(c);
		return sy_fail(err, -rc,
		               "servers cannot be checked on the VIP: the kernel refuses the "
		               "program: %s; Linux 5.16 or newer with BPF is needed",
		               strerror(-rc));
	}
	*out = c;
	return 0;
}

int sy_checks_attach(struct sy_checks *c, const int *ifindex, unsigned count, struct sy_error *err)
{
	int rc = accept_local_begin(err);

	/* First the ingress programs, for the answers; then the egress program. */
	for (unsigned i = 0; !rc && i < count; i++)
		rc = filter_attach(ifindex[i], bpf_program__fd(c->bpf->progs.check_in), err);
	return rc ? rc : filter_attach(CHECK_LO, bpf_program__fd(c->bpf->progs.check_out), err);
}

static void filter_verify(int ifindex, int prog, const struct sy_verify *v)
{
	char name[IF_NAMESIZE] = "", text[64];
	struct sy_error err = {0};

	if (filter_is_there(ifindex, prog) || !if_indextoname((unsigned)ifindex, name))
		return;
	if (filter_attach(ifindex, prog, &err)) {
		v->problem(v->ctx, err.text);
		return;
	}
	snprintf(text, sizeof(text), "health checks' tc program on %s", name);
	v->restored(v->ctx, text);
}

void sy_checks_verify(struct sy_checks *c, const int *ifindex, unsigned count,
                      const struct sy_verify *v)
{
	struct sy_error err = {0};

	for (unsigned i = 0; i < count; i++)
		filter_verify(ifindex[i], bpf_program__fd(c->bpf->progs.check_in), v);
	filter_verify(CHECK_LO, bpf_program__fd(c->bpf->progs.check_out), v);
	if (accept_local_is_set())
		return;
	if (accept_local_begin(&err))
		v->problem(v->ctx, err.text);
	else
		v->restored(v->ctx, "net.ipv4.conf.lo.accept_local=1");
}

int sy_checks_set(struct sy_checks *c, uint32_t mark, const struct sy_check *check)
{
	int map = bpf_map__fd(c->bpf->maps.check_targets);
	struct check_target target = {0};

	if (!check)
		return bpf_map_delete_elem(map, &mark) < 0 && errno != ENOENT ? -errno : 0;
	memcpy(target.vip, &check->vip, sizeof(target.vip));
	memcpy(target.server, &check->server, sizeof(target.server));
	memcpy(target.source, &check->source, sizeof(target.source));
	target.ifindex = (uint32_t)check->ifindex;
	return bpf_map_update_elem(map, &mark, &target, BPF_ANY) < 0 ? -errno : 0;
}

void sy_checks_close(struct sy_checks *c)
{
	if (!c)
		return;
	check_bpf__destroy(c->bpf);
	free(c);
}

void checks_remove(void (*report)(void *ctx, const char *text), void *ctx)
{
	struct if_nameindex *all = if_nameindex();
	char text[64];

	for (const struct if_nameindex *i = all; i && i->if_index; i++) {
		if (!filter_remove((int)i->if_index) || !report)
			continue;
		snprintf(text, sizeof(text), "health checks' program of %s", i->if_name);
		report(ctx, text);
	}
	if_freenameindex(all);
	accept_local_end();
}

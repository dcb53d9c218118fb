// SPDX-License-Identifier: Apache-2.0
#include "options_host.h"

#include <grp.h>
#include <mntent.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>

#include <sy_event.h>

#define GROUP_DEFAULT "steelyard"

void options_find_store(struct options *o)
{
	FILE *mounts = o->runtime.huge ? setmntent("/proc/self/mounts", "r") : NULL;
	struct mntent *m;
	strcpy(o->store_directory, "/dev/shm");
	while (mounts && !o->balance.store_huge && (m = getmntent(mounts)))
		if (!strcmp(m->mnt_type, "hugetlbfs") &&
		    strlen(m->mnt_dir) < sizeof(o->store_directory)) {
			strcpy(o->store_directory, m->mnt_dir);
			o->balance.store_huge = true;
		}
	if (mounts)
		endmntent(mounts);
	o->balance.store_directory = o->store_directory;
}

/* Reads the file itself: NSS would load libraries, and a directory service may not be up yet. */
static uint32_t group_find(const char *name)
{
	uint32_t found = SY_NO_ID;
	FILE *f = fopen("/etc/group", "re");
	for (struct group *g; f && found == SY_NO_ID && (g = fgetgrent(f));)
		if (!strcmp(g->gr_name, name))
			found = g->gr_gid;
	if (f)
		fclose(f);
	return found;
}

static uint32_t user_find(const char *name)
{
	uint32_t found = SY_NO_ID;
	FILE *f = fopen("/etc/passwd", "re");
	for (struct passwd *p; f && found == SY_NO_ID && (p = fgetpwent(f));)
		if (!strcmp(p->pw_name, name))
			found = p->pw_uid;
	if (f)
		fclose(f);
	return found;
}

void options_default_group(struct sy_control_access *out)
{
	out->group = group_find(GROUP_DEFAULT);
	out->agent = user_find(GROUP_DEFAULT);
}

int options_read_group(const char *text, struct sy_control_access *out, struct sy_error *err)
{
	char *end;
	unsigned long id = strtoul(text, &end, 10);
	bool is_id = end != text && !*end && text[0] != '-' && id < SY_NO_ID;
	out->group = is_id ? (uint32_t)id : group_find(text);
	out->agent = is_id ? SY_NO_ID : user_find(text);
	if (out->group == SY_NO_ID)
		return sy_fail(err, EINVAL,
		               "--socket-group %s: /etc/group has no such group; add it with "
		               "`groupadd --system`, or give a group's number",
		               text);
	return 0;
}

int options_read_event_model(const char *text, const char **out, struct sy_error *err)
{
	for (unsigned i = 0; i < SY_EVENT_MODELS; i++)
		if (!strcmp(text, sy_event_model_name[i])) {
			*out = sy_event_model_name[i];
			return 0;
		}
	return sy_fail(err, EINVAL,
	               "--event-model %s: must be atomic, ordered, unordered or direct", text);
}

int options_read_unavailable(const char *text, enum sy_unavailable *out, struct sy_error *err)
{
	static const char *const names[] = {[SY_UNAVAILABLE_DROP] = "drop",
	                                    [SY_UNAVAILABLE_RESET] = "reset",
	                                    [SY_UNAVAILABLE_ICMP] = "icmp"};
	for (unsigned i = 0; i < SY_ARRAY_LEN(names); i++)
		if (!strcmp(text, names[i])) {
			*out = (enum sy_unavailable)i;
			return 0;
		}
	return sy_fail(err, EINVAL, "--unknown-ports %s: must be drop, reset or icmp", text);
}

int options_read_confine(const char *text, enum sy_confine *out, struct sy_error *err)
{
	static const char *const names[] = {
	        [SY_CONFINE_ON] = "on", [SY_CONFINE_TRAP] = "trap", [SY_CONFINE_OFF] = "off"};
	for (unsigned i = 0; i < SY_ARRAY_LEN(names); i++)
		if (!strcmp(text, names[i])) {
			*out = (enum sy_confine)i;
			return 0;
		}
	return sy_fail(err, EINVAL, "--seccomp %s: must be on, trap or off", text);
}

// SPDX-License-Identifier: Apache-2.0
/* `role`: this node's role, or the change that waits, and the boot of this host. keepalived reports
 * a role only when it changes; after a reboot another node serves. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "saved.h"

#define ROLE_TEXT 64

/* By master, wanted_master. */
static const char *const role_word[2][2] = {{"backup", "becoming-master"},
                                            {"becoming-backup", "master"}};

/* Returns false if the kernel does not say which boot this is. */
static bool role_text(struct saved_role role, char out[ROLE_TEXT])
{
	uint8_t boot[16];
	int at = snprintf(out, ROLE_TEXT, "%s ", role_word[role.master][role.wanted_master]);
	if (session_boot_id(boot, NULL) < 0)
		return false;
	for (unsigned i = 0; i < sizeof(boot); i++)
		at += snprintf(out + at, ROLE_TEXT - (size_t)at, "%02x", boot[i]);
	snprintf(out + at, ROLE_TEXT - (size_t)at, "\n");
	return true;
}

static bool role_path(const char *directory, const char *suffix, char out[PATH_MAX])
{
	return directory && snprintf(out, PATH_MAX, "%s/role%s", directory, suffix) < (int)PATH_MAX;
}

struct saved_role role_file_load(const char *directory)
{
	char path[PATH_MAX], text[ROLE_TEXT] = "", want[ROLE_TEXT];
	FILE *f = role_path(directory, "", path) ? fopen(path, "re") : NULL;
	if (!f)
		return (struct saved_role){0};
	if (!fgets(text, sizeof(text), f))
		text[0] = '\0';
	fclose(f);
	for (unsigned i = 1; i < 4; i++) {
		const struct saved_role role = {i / 2, i % 2};
		if (role_text(role, want) && !strcmp(text, want))
			return role;
	}
	return (struct saved_role){0};
}

int role_file_save(const char *directory, struct saved_role role)
{
	char path[PATH_MAX], fresh[PATH_MAX], text[ROLE_TEXT] = "backup\n";
	if (!directory)
		return 0;
	if (!role_path(directory, "", path) || !role_path(directory, ".new", fresh))
		return -ENAMETOOLONG;
	if ((role.master || role.wanted_master) && !role_text(role, text))
		return -EIO;
	FILE *f = fopen(fresh, "we");
	if (!f)
		return -errno;
	const bool written = fputs(text, f) >= 0;
	if (fclose(f) != 0 || !written || rename(fresh, path) < 0)
		return errno ? -errno : -EIO;
	return 0;
}

// SPDX-License-Identifier: Apache-2.0
/* `role`: what this node is among its peers. keepalived says so only when it changes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "saved.h"

#define MASTER "master\n"
#define BACKUP "backup\n"

static bool role_path(const char *directory, const char *suffix, char out[PATH_MAX])
{
	return directory && snprintf(out, PATH_MAX, "%s/role%s", directory, suffix) < (int)PATH_MAX;
}

bool role_file_is_master(const char *directory)
{
	char path[PATH_MAX], text[16] = "";
	FILE *f = role_path(directory, "", path) ? fopen(path, "re") : NULL;
	if (!f)
		return false;
	if (!fgets(text, sizeof(text), f))
		text[0] = '\0';
	fclose(f);
	return !strcmp(text, MASTER);
}

int role_file_save(const char *directory, bool master)
{
	char path[PATH_MAX], fresh[PATH_MAX];
	if (!directory)
		return 0;
	if (!role_path(directory, "", path) || !role_path(directory, ".new", fresh))
		return -ENAMETOOLONG;
	FILE *f = fopen(fresh, "we");
	if (!f)
		return -errno;
	const bool written = fputs(master ? MASTER : BACKUP, f) >= 0;
	if (fclose(f) != 0 || !written || rename(fresh, path) < 0)
		return errno ? -errno : -EIO;
	return 0;
}

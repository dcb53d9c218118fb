// SPDX-License-Identifier: Apache-2.0
/* `role`: "master" and the boot of this host in which it became that, or "backup". keepalived says
 * so only when it changes; after a reboot another node serves. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "saved.h"

#define ROLE_TEXT 64

/* Returns false if the kernel does not say which boot this is. */
static bool master_text(char out[ROLE_TEXT])
{
	uint8_t boot[16];
	int at = snprintf(out, ROLE_TEXT, "master ");
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

bool role_file_is_master(const char *directory)
{
	char path[PATH_MAX], text[ROLE_TEXT] = "", master[ROLE_TEXT];
	FILE *f = role_path(directory, "", path) ? fopen(path, "re") : NULL;
	if (!f)
		return false;
	if (!fgets(text, sizeof(text), f))
		text[0] = '\0';
	fclose(f);
	return master_text(master) && !strcmp(text, master);
}

int role_file_save(const char *directory, bool master)
{
	char path[PATH_MAX], fresh[PATH_MAX], text[ROLE_TEXT] = "backup\n";
	if (!directory)
		return 0;
	if (!role_path(directory, "", path) || !role_path(directory, ".new", fresh))
		return -ENAMETOOLONG;
	if (master && !master_text(text))
		return -EIO;
	FILE *f = fopen(fresh, "we");
	if (!f)
		return -errno;
	const bool written = fputs(text, f) >= 0;
	if (fclose(f) != 0 || !written || rename(fresh, path) < 0)
		return errno ? -errno : -EIO;
	return 0;
}

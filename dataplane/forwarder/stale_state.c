// SPDX-License-Identifier: Apache-2.0
#include "stale_state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <sy_lock.h>

#define NOTES     "/run/steelyard"
#define FILES_MAX 16 /* max files in a note */

enum { FILE_SOCKET, FILE_EAL, FILE_SESSIONS, FILE_REFUSED, FILE_NEXT, FILES_OWN };

/* NOTES/files-<netns inode>-; the instance completes a note's name. */
static int note_prefix(char *out, size_t cap)
{
	struct stat st;
	if (stat("/proc/thread-self/ns/net", &st) < 0)
		return -errno;
	snprintf(out, cap, "files-%lu-", (unsigned long)st.st_ino);
	return 0;
}

/* Opens and locks a note. The lock's previous holder may have removed it; then opens a new one. */
static int note_open(const char *path, struct sy_error *err)
{
	for (;;) {
		struct stat held, named;
		int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (fd < 0)
			return sy_fail(err, errno, "%s: %s", path, strerror(errno));
		if (!sy_lock(fd, 0)) {
			close(fd);
			return sy_fail(err, EBUSY,
			               "a forwarder with this --instance runs already in this "
			               "network namespace: stop it, or give this one another "
			               "--instance NAME");
		}
		if (fstat(fd, &held) == 0 && stat(path, &named) == 0 && held.st_ino == named.st_ino)
			return fd;
		close(fd);
	}
}

/* Lists the files that this forwarder may leave behind. */
static void files_name(const struct options *o, char (*file)[PATH_MAX])
{
	const char *dir = o->balance.store_directory;
	snprintf(file[FILE_SOCKET], PATH_MAX, "%s", o->socket);
	snprintf(file[FILE_EAL], PATH_MAX, "/run/dpdk/%s", o->runtime.instance);
	snprintf(file[FILE_SESSIONS], PATH_MAX, "%s/%s", dir, o->store_name);
	snprintf(file[FILE_REFUSED], PATH_MAX, "%s/%s.refused", dir, o->store_name);
	snprintf(file[FILE_NEXT], PATH_MAX, "%s/%s.next", dir, o->store_name);
}

/* Files named by an existing note stay in it if they exist: an earlier forwarder with other options
 * used other paths. */
static int note_write(int fd, const struct options *o)
{
	char file[FILES_MAX][PATH_MAX], line[PATH_MAX];
	unsigned n = FILES_OWN;
	FILE *f = fdopen(dup(fd), "r+");
	if (!f)
		return -errno;
	files_name(o, file);
	while (n < FILES_MAX && fgets(line, sizeof(line), f)) {
		bool known = false;
		line[strcspn(line, "\n")] = '\0';
		for (unsigned i = 0; i < FILES_OWN; i++)
			known |= !strcmp(file[i], line);
		if (!known && access(line, F_OK) == 0)
			memcpy(file[n++], line, sizeof(line));
	}
	rewind(f);
	int rc = ftruncate(fd, 0) < 0 ? -errno : 0;
	for (unsigned i = 0; i < n; i++)
		fprintf(f, "%s\n", file[i]);
	if (fclose(f) != 0 && rc == 0)
		rc = -errno;
	return rc;
}

int stale_state_note(const struct options *o, struct sy_error *err)
{
	char prefix[64], path[PATH_MAX];
	int rc = note_prefix(prefix, sizeof(prefix));
	if (rc < 0)
		return sy_fail(err, -rc, "reading the network namespace: %s", strerror(-rc));
	if (mkdir(NOTES, 0755) < 0 && errno != EEXIST)
		return sy_fail(err, errno, NOTES ": %s", strerror(errno));
	snprintf(path, sizeof(path), NOTES "/%s%s", prefix, o->runtime.instance);
	int fd = note_open(path, err);
	if (fd < 0)
		return fd;
	rc = note_write(fd, o);
	if (rc < 0) {
		close(fd);
		return sy_fail(err, -rc, "%s: %s", path, strerror(-rc));
	}
	return fd;
}

/* Does a process listen there: another forwarder with the same --socket? */
static bool socket_is_live(const char *path)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || strlen(path) >= sizeof(sun.sun_path)) {
		close(fd);
		return false;
	}
	memcpy(sun.sun_path, path, strlen(path));
	bool live = connect(fd, (struct sockaddr *)&sun, sizeof(sun)) == 0;
	close(fd);
	return live;
}

/* Removes a file, a socket, or a directory that contains only files. */
static bool stale_state_remove(const char *path)
{
	char inner[PATH_MAX + NAME_MAX + 2];
	DIR *dir = opendir(path);
	if (!dir)
		return !socket_is_live(path) && unlink(path) == 0;
	for (struct dirent *e; (e = readdir(dir));) {
		snprintf(inner, sizeof(inner), "%s/%s", path, e->d_name);
		unlink(inner);
	}
	closedir(dir);
	return rmdir(path) == 0;
}

static void note_remove(int fd, const char *note, void (*report)(void *ctx, const char *text),
                        void *ctx)
{
	char line[PATH_MAX], text[PATH_MAX + 8];
	FILE *f = fdopen(fd, "r");
	if (!f) {
		close(fd);
		return;
	}
	rewind(f);
	while (fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		snprintf(text, sizeof(text), "file %s", line);
		if (line[0] == '/' && stale_state_remove(line) && report)
			report(ctx, text);
	}
	unlink(note);
	fclose(f);
}

void stale_state_keep(int note, const struct options *o)
{
	char file[FILES_OWN][PATH_MAX], link[64], path[PATH_MAX], line[PATH_MAX];
	bool needed = false;
	FILE *f = fdopen(note, "r");
	if (!f) {
		close(note);
		return;
	}
	files_name(o, file);
	stale_state_remove(file[FILE_EAL]);
	rewind(f);
	while (!needed && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		needed = strcmp(line, file[FILE_SOCKET]) != 0 && access(line, F_OK) == 0;
	}
	snprintf(link, sizeof(link), "/proc/self/fd/%d", note);
	ssize_t len = readlink(link, path, sizeof(path) - 1);
	if (!needed && len > 0) {
		path[len] = '\0';
		unlink(path);
	}
	fclose(f);
}

void stale_state_cleanup(void (*report)(void *ctx, const char *text), void *ctx)
{
	char prefix[64], path[sizeof(NOTES) + NAME_MAX + 1];
	DIR *dir = opendir(NOTES);
	if (!dir || note_prefix(prefix, sizeof(prefix)) < 0) {
		if (dir)
			closedir(dir);
		return;
	}
	for (struct dirent *e; (e = readdir(dir));) {
		if (strncmp(e->d_name, prefix, strlen(prefix)) != 0)
			continue;
		snprintf(path, sizeof(path), NOTES "/%s", e->d_name);
		int fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd >= 0 && sy_lock(fd, 0))
			note_remove(fd, path, report, ctx);
		else if (fd >= 0)
			close(fd);
	}
	closedir(dir);
}

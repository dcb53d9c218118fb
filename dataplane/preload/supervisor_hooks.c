// SPDX-License-Identifier: Apache-2.0
/* Hooks of the program: those of the command line, and the registry where `steelyard hook` orders
 * others (docs/design/0046-hook-control.md). */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sy_stack_numbers.h>

#include "supervisor.h"

static struct sy_hook_change change[SY_HOOKS]; /* of the command line */
static unsigned changes;

/* ---- the command line, as `steelyard run` writes it ------------------------------------------ */

static int file_read(struct sy_hook_change *w, const char *path, struct sy_error *err)
{
	FILE *f = fopen(path, "re");
	struct stat st;

	if (!f || fstat(fileno(f), &st))
		return sy_fail(err, errno, "--hook %s: %s", path, strerror(errno));
	w->object_len = (size_t)st.st_size;
	uint8_t *bytes = malloc(w->object_len + 1);
	bool whole = bytes && st.st_size <= SY_HOOK_OBJECT_MAX &&
	             fread(bytes, 1, w->object_len, f) == w->object_len;
	fclose(f);
	w->object = bytes;
	return whole ? 0 : sy_fail(err, EINVAL, "--hook %s: it is no eBPF object", path);
}

/* I=VALUE */
static int param_read(struct sy_hook_change *w, const char *text)
{
	char *end;
	unsigned long i = strtoul(text, &end, 10);

	if (end == text || *end != '=' || i >= SY_HOOK_PARAMS)
		return -EINVAL;
	text = end + 1;
	errno = 0;
	w->param[i] = strtoull(text, &end, 10);
	w->params |= (uint8_t)(1u << i);
	return errno || end == text || *end ? -EINVAL : 0;
}

/* [ADDRESS]#PORT; 0: the stack's own */
static int place_read(struct sy_hook_change *w, const char *text)
{
	const char *hash = strchr(text, '#');
	char address[SY_ADDR_TEXT], *end;

	if (w->places == SY_HOOK_PLACES || !hash || hash - text >= (long)sizeof(address))
		return -EINVAL;
	struct sy_hook_place *p = &w->place[w->places++];
	unsigned long port = strtoul(hash + 1, &end, 10);
	if (*end || port > UINT16_MAX)
		return -EINVAL;
	p->port = (uint16_t)port;
	snprintf(address, sizeof(address), "%.*s", (int)(hash - text), text);
	return *address ? sy_addr_parse(address, &p->addr) : 0;
}

int supervisor_hook_option(int option, const char *text, struct sy_error *err)
{
	struct sy_hook_change *w = changes ? &change[changes - 1] : NULL;
	int rc = -EINVAL;

	if (option == SUPERVISOR_HOOK && changes < SY_HOOKS && strlen(text) < SY_HOOK_NAME) {
		strcpy(change[changes++].name, text);
		return 0;
	}
	if (w && option == SUPERVISOR_HOOK_FILE)
		return file_read(w, text, err);
	if (w && option == SUPERVISOR_HOOK_PARAM)
		rc = param_read(w, text);
	else if (w && option == SUPERVISOR_HOOK_PLACE)
		rc = place_read(w, text);
	return rc ? sy_fail(err, -rc, "hook %s: %s", w ? w->name : text, text) : 0;
}

/* ---- start and end --------------------------------------------------------------------------- */

/* Writes PROGRAM-PID, with characters that a name may have. */
static void name_make(char *out, size_t size, const char *program)
{
	snprintf(out, size, "%.40s-%d", program, (int)getpid());
	for (char *c = out; *c; c++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.",
		            *c) ||
		    (*c == '.' && c == out))
			*c = '_';
}

int supervisor_hooks_open(struct supervisor *sv, const char *command, struct sy_error *err)
{
	const char *slash = strrchr(command, '/'), *program = slash ? slash + 1 : command;
	char name[SY_HOOK_REGISTRY_NAME];
	struct sy_hook_count count;
	int rc = sy_hook_registry_open(&sv->hooks, err);

	for (unsigned i = 0; i < changes && !rc; i++) {
		rc = sy_hook_registry_load(sv->hooks, &change[i], &count, err);
		if (rc)
			sy_fail_in(err, "--hook %s", change[i].name);
		free((void *)(uintptr_t)change[i].object);
	}
	if (rc)
		return rc;
	const struct sy_hook_registry_owner owner = {
	        program,          sv->options.config.ifname,
	        sy_stack_numbers, SY_ARRAY_LEN(sy_stack_numbers),
	        sy_stack_states,  SY_ARRAY_LEN(sy_stack_states)};
	name_make(name, sizeof(name), program);
	rc = sy_hook_registry_serve(sv->hooks, sv->options.name ? sv->options.name : name, &owner,
	                            err);
	if (!rc || sv->options.name)
		return rc;
	sy_log(SY_LOG_WARN, "run",
	       "`steelyard hook` and `steelyard stack` do not reach this program: %s", err->text);
	return 0;
}

void supervisor_hooks_close(struct supervisor *sv)
{
	sy_hook_registry_close(sv->hooks);
}

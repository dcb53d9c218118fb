// SPDX-License-Identifier: Apache-2.0
#include "options_peers.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <sy_port_option.h>

#define SECRET_MIN 32

int options_read_node(const char *text, struct sy_peers_options *out, struct sy_error *err)
{
	uint32_t node = 0;
	int rc = sy_u32_option("--node", text, 1, SY_PEERS_NODES - 1, &node, err);
	out->node = (uint8_t)node;
	return rc;
}

int options_read_sync_mode(const char *text, struct sy_peers_options *out, struct sy_error *err)
{
	out->is_ecmp = strcmp(text, "ecmp") == 0;
	return out->is_ecmp || strcmp(text, "pair") == 0
	               ? 0
	               : sy_fail(err, EINVAL,
	                         "--sync-mode %s: must be pair (one node serves) or ecmp (all do, "
	                         "behind routers that spread flows)",
	                         text);
}

/* ADDRESS, ADDRESS:PORT, [IPv6 ADDRESS], [IPv6 ADDRESS]:PORT */
static int read_socket(const char *option, const char *text, struct sy_addr *addr, uint16_t *port,
                       struct sy_error *err)
{
	char host[SY_ADDR_TEXT] = "";
	const bool brackets = *text == '[';
	const char *begin = text + brackets, *end = strchr(begin, brackets ? ']' : ':');
	uint32_t number = SYNC_PORT;
	if (!brackets && end && strchr(end + 1, ':')) /* an IPv6 address without a port */
		end = NULL;
	size_t len = end ? (size_t)(end - begin) : strlen(begin);
	const char *rest = end ? end + brackets : begin + len;
	if (len < sizeof(host))
		memcpy(host, begin, len);
	if ((brackets && !end) || (*rest && *rest != ':') || sy_addr_parse(host, addr) < 0)
		return sy_fail(err, EINVAL,
		               "%s %s: must be an address, or with a port ADDRESS:PORT or "
		               "[ADDRESS]:PORT",
		               option, text);
	int rc = *rest ? sy_u32_option(option, rest + 1, 1, UINT16_MAX, &number, err) : 0;
	*port = (uint16_t)number;
	return rc;
}

int options_read_sync(const char *text, struct sy_peers_options *out, struct sy_error *err)
{
	return read_socket("--sync", text, &out->address, &out->port, err);
}

int options_read_peer(const char *text, struct sy_peers_options *out, struct sy_error *err)
{
	char number[4] = "";
	uint32_t node = 0;
	const char *equals = strchr(text, '=');
	if (!equals || (size_t)(equals - text) >= sizeof(number))
		return sy_fail(err, EINVAL, "--peer %s: must be NODE=ADDRESS or NODE=ADDRESS:PORT",
		               text);
	memcpy(number, text, (size_t)(equals - text));
	int rc = sy_u32_option("--peer", number, 1, SY_PEERS_NODES - 1, &node, err);
	if (rc < 0)
		return rc;
	if (out->peer[node].port)
		return sy_fail(err, EINVAL, "--peer %s: node %u is given twice", text, node);
	return read_socket("--peer", equals + 1, &out->peer[node].addr, &out->peer[node].port, err);
}

/* A line "ID SECRET". */
static int read_line(const char *path, unsigned number, char *line, struct sy_peers_options *out,
                     struct sy_error *err)
{
	char *end;
	struct sy_peers_secret *s = out->secret;
	line[strcspn(line, "\r\n")] = '\0';
	unsigned long id = strtoul(line, &end, 10);
	while (isblank((unsigned char)*end))
		end++;
	size_t len = strlen(end);
	if (id < 1 || id > UINT8_MAX || len < SECRET_MIN || len > sizeof(s->bytes))
		return sy_fail(err, EINVAL,
		               "--sync-secret %s: line %u: must be a number from 1 to 255, a "
		               "space, and a secret of %u to %zu characters",
		               path, number, SECRET_MIN, sizeof(s->bytes));
	while (s < out->secret + SY_PEERS_SECRETS && s->len)
		s++;
	if (s == out->secret + SY_PEERS_SECRETS || (s > out->secret && s[-1].id == id))
		return sy_fail(err, EINVAL,
		               "--sync-secret %s: line %u: at most %u secrets, each with its own "
		               "number",
		               path, number, SY_PEERS_SECRETS);
	s->id = (uint8_t)id;
	s->len = (uint16_t)len;
	memcpy(s->bytes, end, len);
	return 0;
}

int options_read_secret(const char *path, struct sy_peers_options *out, struct sy_error *err)
{
	char line[512];
	struct stat st;
	unsigned number = 0;
	int rc = 0;
	FILE *f = fopen(path, "re");
	if (!f || fstat(fileno(f), &st) < 0) {
		rc = sy_fail(err, errno, "--sync-secret %s: %s", path, strerror(errno));
		if (f)
			fclose(f);
		return rc;
	}
	if (st.st_mode & (S_IRWXG | S_IRWXO))
		sy_log(SY_LOG_WARN, "peers", "%s: others may read this secret: chmod 600", path);
	while (rc == 0 && fgets(line, sizeof(line), f)) {
		number++;
		if (line[0] != '#' && line[strspn(line, " \t\r\n")] != '\0')
			rc = read_line(path, number, line, out, err);
	}
	sy_secret_wipe(line, sizeof(line));
	fclose(f);
	if (rc == 0 && !out->secret[0].len)
		rc = sy_fail(err, EINVAL, "--sync-secret %s: it has no secret", path);
	return rc;
}

int options_check_peers(const struct options *o, struct sy_error *err)
{
	const struct sy_peers_options *p = &o->balance.peers;
	bool peers = false;
	for (unsigned node = 1; node < SY_PEERS_NODES; node++)
		peers |= p->peer[node].port != 0;
	if (!p->node && !p->port && !peers && !p->secret[0].len && !p->is_ecmp)
		return 0;
	if (!p->node || !p->port || !peers || !p->secret[0].len)
		return sy_fail(err, EINVAL,
		               "--node, --sync, --peer and --sync-secret belong together: %s is "
		               "missing",
		               !p->node   ? "--node"
		               : !p->port ? "--sync"
		               : !peers   ? "--peer"
		                          : "--sync-secret");
	if (p->peer[p->node].port)
		return sy_fail(err, EINVAL, "--peer %u=…: this is node %u itself", p->node,
		               p->node);
	if (!o->balance.slot_key)
		return sy_fail(err, EINVAL,
		               "--slot-key is missing: all nodes that keep each other's sessions "
		               "need the same one");
	return 0;
}

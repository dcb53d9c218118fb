// SPDX-License-Identifier: Apache-2.0
/* `group`: the group of which the agent has made this forwarder a node (a Group of
 * forwarder.proto), so that a start needs no agent. It has secrets: mode 0600. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "saved.h"

#define GROUP_MAX  65536 /* bytes of the file */
#define SECRET_MIN 32

typedef Steelyard__Forwarder__V1__Group pb_group;
typedef Steelyard__Forwarder__V1__GroupPeer pb_group_peer;
typedef Steelyard__Forwarder__V1__GroupSecret pb_group_secret;

/* ---- the message ----------------------------------------------------------------------------- */

static int socket_read(const char *what, uint32_t node, const ProtobufCBinaryData *bytes,
                       uint32_t port, struct sy_addr *addr, uint16_t *out, struct sy_error *err)
{
	if (node < 1 || node >= SY_PEERS_NODES)
		return sy_fail(err, EINVAL, "group: %s %u: must be a number from 1 to %u", what,
		               node, SY_PEERS_NODES - 1);
	if (sy_addr_from_bytes(bytes->data, bytes->len, addr) < 0 || port < 1 || port > UINT16_MAX)
		return sy_fail(err, EINVAL,
		               "group: %s %u: its address must have 4 or 16 bytes, and its port be "
		               "a number from 1 to 65535",
		               what, node);
	*out = (uint16_t)port;
	return 0;
}

static int peers_read(const pb_group *g, struct sy_peers_options *out, struct sy_error *err)
{
	int rc = 0;
	for (size_t i = 0; i < g->n_peers && rc == 0; i++) {
		const pb_group_peer *p = g->peers[i];
		if (p->node == g->node || (p->node < SY_PEERS_NODES && out->peer[p->node].port))
			return sy_fail(err, EINVAL, "group: node %u is there twice", p->node);
		/* the number is checked before it is an index */
		rc = p->node < SY_PEERS_NODES
		             ? socket_read("peer", p->node, &p->address, p->port,
		                           &out->peer[p->node].addr, &out->peer[p->node].port, err)
		             : sy_fail(err, EINVAL, "group: peer %u: must be a number from 1 to %u",
		                       p->node, SY_PEERS_NODES - 1);
	}
	if (rc == 0 && g->n_peers == 0)
		return sy_fail(err, EINVAL, "group: it has no other node");
	if (rc == 0 && !g->ecmp && g->n_peers > 1)
		return sy_fail(err, EINVAL, "group: a pair has two nodes");
	return rc;
}

static int secrets_read(const pb_group *g, struct sy_peers_options *out, struct sy_error *err)
{
	if (g->n_secrets < 1 || g->n_secrets > SY_PEERS_SECRETS)
		return sy_fail(err, EINVAL, "group: it must have one or two secrets");
	for (size_t i = 0; i < g->n_secrets; i++) {
		const pb_group_secret *s = g->secrets[i];
		struct sy_peers_secret *to = &out->secret[i];
		if (s->id < 1 || s->id > UINT8_MAX || s->secret.len < SECRET_MIN ||
		    s->secret.len > sizeof(to->bytes) || (i > 0 && s->id == out->secret[0].id))
			return sy_fail(err, EINVAL,
			               "group: a secret must have a number of its own, 1 to 255, "
			               "and %u to %zu bytes",
			               SECRET_MIN, sizeof(to->bytes));
		to->id = (uint8_t)s->id;
		to->len = (uint16_t)s->secret.len;
		memcpy(to->bytes, s->secret.data, s->secret.len);
	}
	return 0;
}

int group_read(const pb_group *g, struct saved_group *out, struct sy_error *err)
{
	*out = (struct saved_group){0};
	if (!*g->version || strlen(g->version) >= sizeof(out->version))
		return sy_fail(err, EINVAL, "group: its version must have 1 to %zu bytes",
		               sizeof(out->version) - 1);
	int rc = socket_read("node", g->node, &g->address, g->port, &out->peers.address,
	                     &out->peers.port, err);
	if (rc == 0)
		rc = peers_read(g, &out->peers, err);
	if (rc == 0 && sy_slot_key_parse(g->slot_key, &out->slot_key) < 0)
		rc = sy_fail(err, EINVAL, "group: its slot key must be 32 hexadecimal digits");
	if (rc == 0)
		rc = secrets_read(g, &out->peers, err);
	if (rc < 0) {
		sy_secret_wipe(out, sizeof(*out));
		return rc;
	}
	snprintf(out->version, sizeof(out->version), "%s", g->version);
	out->peers.node = (uint8_t)g->node;
	out->peers.is_ecmp = g->ecmp;
	return 0;
}

void group_wipe(pb_group *g)
{
	sy_secret_wipe(g->slot_key, strlen(g->slot_key));
	for (size_t i = 0; i < g->n_secrets; i++)
		if (g->secrets[i]->secret.len)
			sy_secret_wipe(g->secrets[i]->secret.data, g->secrets[i]->secret.len);
}

/* ---- the file -------------------------------------------------------------------------------- */

static bool group_path(const char *directory, const char *suffix, char out[PATH_MAX])
{
	return snprintf(out, PATH_MAX, "%s/group%s", directory, suffix) < (int)PATH_MAX;
}

static int bytes_load(const char *path, uint8_t *bytes, size_t *len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	const ssize_t n = read(fd, bytes, GROUP_MAX);
	const int rc = n < 0 ? -errno : 0;
	*len = n < 0 ? 0 : (size_t)n;
	close(fd);
	return rc;
}

int group_file_load(const char *directory, struct saved_group *out, struct sy_error *err)
{
	char path[PATH_MAX];
	size_t len = 0;
	*out = (struct saved_group){0};
	if (!directory || !group_path(directory, "", path))
		return 0;
	uint8_t *bytes = malloc(GROUP_MAX);
	int rc = bytes ? bytes_load(path, bytes, &len) : -ENOMEM;
	pb_group *g = rc == 0 ? steelyard__forwarder__v1__group__unpack(NULL, len, bytes) : NULL;
	if (g) {
		rc = group_read(g, out, err);
		group_wipe(g);
		steelyard__forwarder__v1__group__free_unpacked(g, NULL);
	} else if (rc == 0) {
		rc = sy_fail(err, EINVAL, "group: it cannot be read");
	} else if (rc != -ENOENT) {
		sy_fail(err, -rc, "group: %s", strerror(-rc));
	}
	if (bytes)
		sy_secret_wipe(bytes, len);
	free(bytes);
	if (rc == -ENOENT)
		return 0;
	if (rc == 0)
		return 0;
	/* Without the group, a node of a pair would serve beside its master. */
	const struct sy_error why = *err;
	return sy_fail(err, -rc, "%.160s; remove %.120s: the agent writes it again", why.text,
	               path);
}

static int bytes_save(const char *directory, const uint8_t *bytes, size_t len)
{
	char path[PATH_MAX], fresh[PATH_MAX];
	if (!group_path(directory, "", path) || !group_path(directory, ".new", fresh))
		return -ENAMETOOLONG;
	unlink(fresh); /* an old one could have another mode */
	int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
	if (fd < 0)
		return -errno;
	int rc = saved_write(fd, bytes, len);
	if (rc == 0 && fsync(fd) < 0)
		rc = -errno;
	close(fd);
	if (rc == 0 && rename(fresh, path) < 0)
		rc = -errno;
	return rc == 0 ? saved_directory_sync(directory) : rc;
}

int group_file_save(const char *directory, const pb_group *g)
{
	char path[PATH_MAX];
	if (g->node == 0) {
		if (!group_path(directory, "", path))
			return -ENAMETOOLONG;
		return unlink(path) < 0 && errno != ENOENT ? -errno
		                                           : saved_directory_sync(directory);
	}
	const size_t len = steelyard__forwarder__v1__group__get_packed_size(g);
	uint8_t *bytes = len <= GROUP_MAX ? malloc(len + 1) : NULL;
	if (!bytes)
		return len <= GROUP_MAX ? -ENOMEM : -EMSGSIZE;
	steelyard__forwarder__v1__group__pack(g, bytes);
	const int rc = bytes_save(directory, bytes, len);
	sy_secret_wipe(bytes, len);
	free(bytes);
	return rc;
}

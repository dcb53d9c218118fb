// SPDX-License-Identifier: Apache-2.0
#include "sy_port_option.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- values ---------------------------------------------------------------------------------- */

int sy_number_option(const char *option, const char *text, uint64_t min, uint64_t max,
                     uint64_t *out, struct sy_error *err)
{
	char *end;
	uint64_t n = strtoull(text, &end, 10);
	if (end != text && *end == 'k')
		n *= 1000, end++;
	else if (end != text && *end == 'M')
		n *= 1000000, end++;
	if (end == text || *end || text[0] == '-' || n < min || n > max)
		return sy_fail(err, EINVAL, "%s %s: must be a number from %lu to %lu", option, text,
		               (unsigned long)min, (unsigned long)max);
	*out = n;
	return 0;
}

int sy_u32_option(const char *option, const char *text, uint32_t min, uint32_t max, uint32_t *out,
                  struct sy_error *err)
{
	uint64_t n;
	int rc = sy_number_option(option, text, min, max, &n, err);
	if (rc == 0)
		*out = (uint32_t)n;
	return rc;
}

int sy_text_option(const char *option, const char *text, char *out, size_t size,
                   struct sy_error *err)
{
	if (strlen(text) >= size)
		return sy_fail(err, EINVAL, "%s %.40s…: longer than %zu bytes", option, text,
		               size - 1);
	memcpy(out, text, strlen(text) + 1);
	return 0;
}

static int read_mac(const char *text, uint8_t mac[6], struct sy_error *err)
{
	unsigned b[6];
	char rest;
	if (sscanf(text, "%2x:%2x:%2x:%2x:%2x:%2x%c", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5],
	           &rest) != 6)
		return sy_fail(err, EINVAL, "mac=%s: must be like 02:00:00:00:00:01", text);
	for (unsigned i = 0; i < 6; i++)
		mac[i] = (uint8_t)b[i];
	return 0;
}

static int read_address(const char *text, struct sy_addr *out, struct sy_error *err)
{
	if (sy_addr_parse(text, out) < 0)
		return sy_fail(err, EINVAL, "%s is not an IPv4 or IPv6 address", text);
	return 0;
}

/* ---- NAME,KEY=VALUE,… ------------------------------------------------------------------------ */

typedef int (*key_reader)(void *out, const char *key, const char *value, struct sy_error *err);

/* Splits `text` in place; *first is the part before the first comma. */
static int read_keys(const char *option, char *text, char **first, key_reader read, void *out,
                     struct sy_error *err)
{
	char *save;
	*first = strtok_r(text, ",", &save);
	if (!*first)
		return sy_fail(err, EINVAL, "%s: the value is missing", option);
	for (char *key; (key = strtok_r(NULL, ",", &save));) {
		char *value = strchr(key, '=');
		if (!value)
			return sy_fail(err, EINVAL, "%s %s: \"%s\" must have the form KEY=VALUE",
			               option, *first, key);
		*value++ = '\0';
		if (read(out, key, value, err) < 0)
			return sy_fail_in(err, "%s %s", option, *first);
	}
	return 0;
}

static int port_key(void *out, const char *key, const char *value, struct sy_error *err)
{
	struct sy_port_options *p = out;
	uint32_t n = 0;
	int rc;
	if (!strcmp(key, "backend") && !strcmp(value, "xsk")) {
		p->backend = SY_PORT_XSK;
	} else if (!strcmp(key, "backend") && !strcmp(value, "ethdev")) {
		p->backend = SY_PORT_ETHDEV;
	} else if (!strcmp(key, "mode") && !strcmp(value, "auto")) {
		p->mode = SY_DIRECTOR_AUTO;
	} else if (!strcmp(key, "mode") && !strcmp(value, "native")) {
		p->mode = SY_DIRECTOR_NATIVE;
	} else if (!strcmp(key, "mode") && !strcmp(value, "generic")) {
		p->mode = SY_DIRECTOR_GENERIC;
	} else if (!strcmp(key, "dev")) {
		rc = sy_text_option("dev", value, p->devargs, sizeof(p->devargs), err);
		for (char *c = p->devargs; *c; c++)
			*c = *c == ';' ? ',' : *c;
		return rc;
	} else if (!strcmp(key, "mac")) {
		return read_mac(value, p->mac, err);
	} else if (!strcmp(key, "mtu")) {
		rc = sy_u32_option("mtu", value, 68, 9600, &n, err);
		p->mtu = (uint16_t)n;
		return rc;
	} else if (!strcmp(key, "queues")) {
		return sy_u32_option("queues", value, 1, SY_MAX_QUEUES, &p->queues, err);
	} else if (!strcmp(key, "ring")) {
		rc = sy_u32_option("ring", value, SY_RING_MIN, SY_RING_MAX, &p->ring, err);
		return rc || !(p->ring & (p->ring - 1))
		               ? rc
		               : sy_fail(err, EINVAL, "ring=%s is not a power of 2, such as 4096",
		                         value);
	} else {
		return sy_fail(err, EINVAL, "%s=%s is unknown; see --help", key, value);
	}
	return 0;
}

static int read_port(struct sy_runtime_options *o, char *text, struct sy_error *err)
{
	char *name;
	if (o->ports == SY_MAX_PORTS)
		return sy_fail(err, EINVAL, "--port: at most %d ports are possible", SY_MAX_PORTS);
	struct sy_port_options *p = &o->port[o->ports++];
	int rc = read_keys("--port", text, &name, port_key, p, err);
	return rc < 0 ? rc : sy_text_option("--port", name, p->name, sizeof(p->name), err);
}

static int route_key(void *out, const char *key, const char *value, struct sy_error *err)
{
	struct sy_static_route *r = out;
	if (!strcmp(key, "port"))
		return sy_text_option("port", value, r->port, sizeof(r->port), err);
	if (!strcmp(key, "via"))
		return read_address(value, &r->via, err);
	return sy_fail(err, EINVAL, "%s=%s is unknown; use port= or via=", key, value);
}

static int read_route(struct sy_runtime_options *o, char *text, struct sy_error *err)
{
	struct sy_static_route *grown = realloc(o->route, (o->routes + 1) * sizeof(*grown));
	char *prefix;
	uint32_t len;
	if (!grown)
		return sy_fail(err, ENOMEM, "no memory");
	o->route = grown;
	struct sy_static_route *r = &grown[o->routes++];
	memset(r, 0, sizeof(*r));
	int rc = read_keys("--route", text, &prefix, route_key, r, err);
	if (rc < 0)
		return rc;
	char *slash = strchr(prefix, '/');
	if (!slash || !r->port[0])
		return sy_fail(err, EINVAL, "--route %s: must be PREFIX/LENGTH,port=NAME", prefix);
	*slash++ = '\0';
	rc = read_address(prefix, &r->prefix, err);
	if (rc == 0)
		rc = sy_u32_option("--route", slash, 0, sy_addr_is_v4(&r->prefix) ? 32 : 128, &len,
		                   err);
	if (rc == 0)
		r->prefix_len = (uint8_t)len;
	return rc;
}

static int neigh_key(void *out, const char *key, const char *value, struct sy_error *err)
{
	struct sy_static_neigh *n = out;
	if (!strcmp(key, "port"))
		return sy_text_option("port", value, n->port, sizeof(n->port), err);
	if (!strcmp(key, "mac"))
		return read_mac(value, n->mac, err);
	return sy_fail(err, EINVAL, "%s=%s is unknown; use port= or mac=", key, value);
}

static int read_neighbour(struct sy_runtime_options *o, char *text, struct sy_error *err)
{
	struct sy_static_neigh *grown = realloc(o->neigh, (o->neighs + 1) * sizeof(*grown));
	char *addr;
	if (!grown)
		return sy_fail(err, ENOMEM, "no memory");
	o->neigh = grown;
	struct sy_static_neigh *n = &grown[o->neighs++];
	memset(n, 0, sizeof(*n));
	int rc = read_keys("--neighbour", text, &addr, neigh_key, n, err);
	if (rc == 0 && !n->port[0])
		return sy_fail(err, EINVAL, "--neighbour %s: port=NAME is missing", addr);
	return rc < 0 ? rc : read_address(addr, &n->addr, err);
}

/* Copies the text for readers that modify it: an upgrade needs the command line unchanged. */
static int read_copy(int (*read)(struct sy_runtime_options *o, char *text, struct sy_error *err),
                     struct sy_runtime_options *o, const char *text, struct sy_error *err)
{
	char *copy = strdup(text);
	int rc = copy ? read(o, copy, err) : sy_fail(err, ENOMEM, "no memory");
	free(copy);
	return rc;
}

int sy_port_option(struct sy_runtime_options *o, const char *text, struct sy_error *err)
{
	return read_copy(read_port, o, text, err);
}

int sy_route_option(struct sy_runtime_options *o, const char *text, struct sy_error *err)
{
	return read_copy(read_route, o, text, err);
}

int sy_neighbour_option(struct sy_runtime_options *o, const char *text, struct sy_error *err)
{
	return read_copy(read_neighbour, o, text, err);
}

void sy_port_options_free(struct sy_runtime_options *o)
{
	free(o->route);
	free(o->neigh);
}

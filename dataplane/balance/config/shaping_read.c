// SPDX-License-Identifier: Apache-2.0
/* Reads shaping from a message. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

#include "access_model.h"
#include "shaping_model.h"

typedef Steelyard__Forwarder__V1__ShapingClass pb_class;
typedef Steelyard__Forwarder__V1__ShapingService pb_service_of;
typedef Steelyard__Forwarder__V1__ShapingTenant pb_tenant;

/* By LIMIT_LAYER_*, starting with L3: bytes added to each frame, and min size. A frame has an
 * Ethernet header, which L3 subtracts. */
static const struct {
	int8_t header;
	uint8_t min;
} layers[] = {{-SY_ETH_LEN, 0}, {0, 60}, {4, 64}, {24, 84}};

static int name_copy(char *out, const char *name, struct sy_error *err)
{
	if (strlen(name) >= SY_SHAPE_NAME)
		return sy_fail(err, EINVAL, "a name of shaping is longer than 63 bytes");
	memcpy(out, name, strlen(name) + 1);
	return 0;
}

static int read_weight(uint32_t weight, const char *name, uint8_t *out, struct sy_error *err)
{
	if (weight < 1 || weight > SY_SHAPE_WEIGHT_MAX)
		return sy_fail(err, EINVAL, "%s: its weight is not within 1–%u", name,
		               SY_SHAPE_WEIGHT_MAX);
	*out = (uint8_t)weight;
	return 0;
}

static int read_class(const pb_class *pb, struct sy_shape_config *c, struct sy_error *err)
{
	const unsigned at = c->classes++;
	struct sy_shape_class *class = &c->class[at];
	int rc = name_copy(class->name, pb->name, err);
	if (rc < 0 || (rc = read_weight(pb->weight, pb->name, &class->weight, err)) < 0)
		return rc;
	for (unsigned i = 0; i < at; i++)
		if (strcmp(c->class[i].name, pb->name) == 0)
			return sy_fail(err, EINVAL, "there are two classes %s", pb->name);
	if (pb->priority >= SY_SHAPE_PRIORITIES || pb->early_from > 100 || pb->early_to > 100 ||
	    pb->early_percent > 100)
		return sy_fail(err, EINVAL,
		               "class %s: a priority is 0–7, early drops are within 0–100 %%",
		               pb->name);
	class->priority = (uint8_t)pb->priority;
	class->queue = pb->queue;
	class->guaranteed = pb->guaranteed;
	class->maximum = pb->maximum;
	class->early = (struct sy_shape_early){.from = (uint8_t)pb->early_from,
	                                       .to = (uint8_t)pb->early_to,
	                                       .percent = (uint8_t)pb->early_percent};
	return 0;
}

static int read_classes(const pb_shaping *pb, struct sy_shape_config *c, struct sy_error *err)
{
	uint64_t named = 0;
	int rc = 0;
	if (pb->n_classes < 1 || pb->n_classes > SY_SHAPE_CLASSES)
		return sy_fail(err, EINVAL, "there are 1–%u classes", SY_SHAPE_CLASSES);
	memset(c->class_of, (int)pb->n_classes - 1, sizeof(c->class_of));
	for (size_t i = 0; rc == 0 && i < pb->n_classes; i++) {
		rc = read_class(pb->classes[i], c, err);
		for (size_t k = 0; rc == 0 && k < pb->classes[i]->n_dscp; k++) {
			const uint32_t dscp = pb->classes[i]->dscp[k];
			if (dscp > 63 || named >> dscp & 1)
				return sy_fail(err, EINVAL,
				               "class %s: DSCP %u is another class's, or is above "
				               "63",
				               pb->classes[i]->name, dscp);
			named |= UINT64_C(1) << dscp;
			c->class_of[dscp] = (uint8_t)i;
		}
	}
	return rc;
}

static int class_by_name(const struct sy_shape_config *c, const char *name, uint8_t *out,
                         struct sy_error *err)
{
	*out = SY_SHAPE_BY_DSCP;
	for (unsigned i = 0; i < c->classes; i++)
		if (strcmp(c->class[i].name, name) == 0)
			*out = (uint8_t)i;
	return *name && *out == SY_SHAPE_BY_DSCP
	               ? sy_fail(err, EINVAL, "there is no class %.63s", name)
	               : 0;
}

static int key_compare(const void *a, const void *b)
{
	return memcmp(&((const struct shaped_key *)a)->key, &((const struct shaped_key *)b)->key,
	              sizeof(struct service_key));
}

static int read_keys(const pb_service_of *pb, struct model_shaping *s, struct sy_error *err)
{
	const uint16_t branch = (uint16_t)(s->config.services - 1);
	for (size_t i = 0; i < pb->n_services; i++) {
		struct shaped_key *k = &s->key[s->keys++];
		*k = (struct shaped_key){.branch = branch};
		int rc = read_key(pb->services[i], &k->key, err);
		if (rc < 0)
			return rc;
	}
	for (size_t i = 0; i < pb->n_vips; i++) {
		struct shaped_key *k = &s->key[s->keys++];
		*k = (struct shaped_key){.branch = branch};
		int rc = read_addr(&pb->vips[i], "VIP", &k->key.vip, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int read_service(const pb_service_of *pb, unsigned tenant, struct model_shaping *s,
                        struct sy_error *err)
{
	struct sy_shape_config *c = &s->config;
	const unsigned at = c->services++;
	struct sy_shape_branch *b = &c->service[at];
	*b = (struct sy_shape_branch){
	        .guaranteed = pb->guaranteed, .maximum = pb->maximum, .tenant = (uint16_t)tenant};
	int rc = name_copy(b->name, pb->name, err);
	if (rc < 0 || (rc = read_weight(pb->weight, pb->name, &b->weight, err)) < 0 ||
	    (rc = class_by_name(c, pb->class_, &b->class, err)) < 0)
		return rc;
	for (unsigned i = s->first[tenant]; i < at; i++)
		if (strcmp(c->service[i].name, pb->name) == 0)
			return sy_fail(err, EINVAL, "tenant %s has two services \"%s\"",
			               c->tenant[tenant].name, pb->name);
	return read_keys(pb, s, err);
}

static int read_tenant(const pb_tenant *pb, struct model_shaping *s, struct sy_error *err)
{
	struct sy_shape_config *c = &s->config;
	const unsigned at = c->tenants++;
	struct sy_shape_branch *b = &c->tenant[at];
	*b = (struct sy_shape_branch){
	        .guaranteed = pb->guaranteed, .maximum = pb->maximum, .class = SY_SHAPE_BY_DSCP};
	s->first[at] = (uint16_t)c->services;
	int rc = name_copy(b->name, pb->name, err);
	if (rc == 0)
		rc = read_weight(pb->weight, pb->name, &b->weight, err);
	if (rc == 0 && pb->n_services == 0)
		rc = sy_fail(err, EINVAL, "tenant %s has no services", pb->name);
	for (unsigned i = 0; rc == 0 && i < at; i++)
		if (strcmp(c->tenant[i].name, pb->name) == 0)
			rc = sy_fail(err, EINVAL, "there are two tenants \"%s\"", pb->name);
	for (size_t i = 0; rc == 0 && i < pb->n_services; i++)
		rc = read_service(pb->services[i], at, s, err);
	return rc;
}

static int read_tenants(const pb_shaping *pb, struct model_shaping *s, struct sy_error *err)
{
	size_t services = 0, keys = 0;
	int rc = 0;
	for (size_t i = 0; i < pb->n_tenants; i++) {
		services += pb->tenants[i]->n_services;
		for (size_t k = 0; k < pb->tenants[i]->n_services; k++)
			keys += pb->tenants[i]->services[k]->n_services +
			        pb->tenants[i]->services[k]->n_vips;
	}
	if (pb->n_tenants < 1 || pb->n_tenants > SY_SHAPE_TENANTS || services > SY_SHAPE_SERVICES)
		return sy_fail(err, EINVAL, "there are 1–%u tenants and 1–%u services",
		               SY_SHAPE_TENANTS, SY_SHAPE_SERVICES);
	s->config.tenant = calloc(pb->n_tenants, sizeof(*s->config.tenant));
	s->config.service = calloc(services + 1, sizeof(*s->config.service));
	s->first = calloc(pb->n_tenants, sizeof(*s->first));
	s->key = calloc(keys + 1, sizeof(*s->key));
	if (!s->config.tenant || !s->config.service || !s->first || !s->key)
		return sy_fail(err, ENOMEM, "no memory");
	for (size_t i = 0; rc == 0 && i < pb->n_tenants; i++)
		rc = read_tenant(pb->tenants[i], s, err);
	if (rc < 0)
		return rc;
	qsort(s->key, s->keys, sizeof(*s->key), key_compare);
	for (unsigned i = 1; i < s->keys; i++)
		if (key_compare(&s->key[i - 1], &s->key[i]) == 0)
			return sy_fail(err, EINVAL, "a service or VIP is named twice");
	return 0;
}

static int read_whole(const pb_shaping *pb, struct model_shaping *s, struct sy_error *err)
{
	struct sy_shape *probe;
	const unsigned layer = pb->layer ? pb->layer - 1u : 0;
	if (layer >= SY_ARRAY_LEN(layers))
		return sy_fail(err, EINVAL, "unknown layer");
	s->config.rate = pb->rate;
	s->config.burst = pb->burst;
	s->config.header = layers[layer].header;
	s->config.min = layers[layer].min;
	int rc = read_classes(pb, &s->config, err);
	if (rc < 0 || (rc = read_tenants(pb, s, err)) < 0)
		return rc;
	/* sy_shape_create() checks the rest */
	rc = sy_shape_create(&s->config, 1, 0, &probe, err);
	if (rc == 0)
		sy_shape_destroy(probe);
	return rc;
}

int shaping_read(const pb_shaping *pb, struct model_shaping **out, struct sy_error *err)
{
	struct model_shaping *s = calloc(1, sizeof(*s));
	const size_t len = strlen(pb->port);
	int rc = 0;
	if (!s)
		return sy_fail(err, ENOMEM, "no memory for shaping");
	if (len < 1 || len >= sizeof(s->port))
		rc = sy_fail(err, EINVAL, "shaping names a port of 1–%zu bytes",
		             sizeof(s->port) - 1);
	else
		memcpy(s->port, pb->port, len + 1);
	if (rc == 0 && (rc = read_whole(pb, s, err)) < 0)
		sy_fail_in(err, "shaping of port %s", s->port);
	s->packed_len = steelyard__forwarder__v1__shaping__get_packed_size(pb);
	s->packed = malloc(s->packed_len + 1);
	if (rc == 0 && !s->packed)
		rc = sy_fail(err, ENOMEM, "no memory for shaping");
	if (rc < 0) {
		shaping_free(s);
		return rc;
	}
	steelyard__forwarder__v1__shaping__pack(pb, s->packed);
	*out = s;
	return 0;
}

void shaping_free(struct model_shaping *s)
{
	if (!s)
		return;
	free(s->packed);
	free(s->config.tenant);
	free(s->config.service);
	free(s->key);
	free(s->first);
	free(s);
}

uint16_t shaping_branch(const struct model_shaping *s, const struct service_key *key)
{
	const struct shaped_key one = {.key = *key}, all = {.key = {.vip = key->vip}};
	const struct shaped_key *k = bsearch(&one, s->key, s->keys, sizeof(*s->key), key_compare);
	if (!k)
		k = bsearch(&all, s->key, s->keys, sizeof(*s->key), key_compare);
	return k ? k->branch : 0;
}

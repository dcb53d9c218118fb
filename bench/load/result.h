// SPDX-License-Identifier: Apache-2.0
/* Results as text and JSON. */
#ifndef LOAD_RESULT_H
#define LOAD_RESULT_H

#include <stdio.h>

#include "load_client.h"
#include "load_options.h"
#include "load_server.h"

/* Summed over workers. */
struct result {
	struct client_counts counts;
	struct client_class *class; /* CLASSES_MAX */
	uint64_t measured_ns;
	uint32_t connected; /* at the end of measuring, or the maximum */
	struct server_counts server;
	struct sy_stack_counters stack;
	size_t stack_bytes; /* fixed tables */
	uint64_t drop[SY_DROP_COUNT];
};

/* NULL: no memory. */
struct result *result_new(void);
void result_free(struct result *r);
void result_add_client(struct result *r, const struct client *c, unsigned classes);
void result_add_server(struct result *r, const struct server *v);
void result_add_stack(struct result *r, const struct sy_stack *s);
void result_add_worker(struct result *r, const struct sy_worker *w);

void result_text(const struct result *r, const struct load_options *o, FILE *out);
void result_json(const struct result *r, const struct load_options *o, FILE *out);

#endif

// SPDX-License-Identifier: Apache-2.0
/* SNAT rules as configured and as published. Control thread only. */
#ifndef SNAT_MODEL_H
#define SNAT_MODEL_H

#include <forwarder.pb-c.h>

#include "balance.h"
#include "snat.h"

struct model;
struct model_snat {
	unsigned prefixes, pools;
	uint8_t pool[MAX_LOCALS];  /* ids */
	struct sy_source prefix[]; /* in the director's format */
};

int snat_put(struct sy_balance *b, const Steelyard__Forwarder__V1__Snat *pb, struct sy_error *err);
int snat_delete(struct sy_balance *b, const char *name, struct sy_error *err);
/* Checks at a transaction's end. */
int snat_check(struct sy_balance *b, struct sy_error *err);
/* Returns NULL if s is NULL or without memory. Free with free(). */
struct model_snat *snat_copy(const struct model_snat *s);
/* Adds to the references of these networks: sign 1 or −1. */
void snat_count(struct model *m, const struct model_snat *s, int sign);
/* Publishes the model's rules to the workers. */
void snat_publish(struct sy_balance *b);

#endif

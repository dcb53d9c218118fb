// SPDX-License-Identifier: Apache-2.0
/* Rules of SNAT, as configured and as published. Control thread only. */
#ifndef SNAT_MODEL_H
#define SNAT_MODEL_H

#include <forwarder.pb-c.h>

#include "balance.h"
#include "snat.h"

struct model;
struct model_snat {
	unsigned prefixes, pools;
	uint8_t pool[MAX_LOCALS];  /* ids */
	struct sy_source prefix[]; /* as the director takes them */
};

int snat_put(struct sy_balance *b, const Steelyard__Forwarder__V1__Snat *pb, struct sy_error *err);
int snat_delete(struct sy_balance *b, const char *name, struct sy_error *err);
/* What can only be validated at a transaction's end. */
int snat_check(struct sy_balance *b, struct sy_error *err);
/* NULL: of NULL, or no memory. Freed by free(). */
struct model_snat *snat_copy(const struct model_snat *s);
/* The model has these networks once more (sign 1), or not any more (−1). */
void snat_count(struct model *m, const struct model_snat *s, int sign);
/* Makes the rules of the model visible to the workers. */
void snat_publish(struct sy_balance *b);

#endif

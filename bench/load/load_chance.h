// SPDX-License-Identifier: Apache-2.0
/* Numbers by chance, from a seed: the same seed draws the same. Pure functions. */
#ifndef LOAD_CHANCE_H
#define LOAD_CHANCE_H

#include <sy_base.h>

struct chance {
	uint64_t state;
};

/* 64 even bits (splitmix64). */
uint64_t chance_next(struct chance *c);
/* Above 0, at most 1. */
double chance_unit(struct chance *c);
/* Below count, which is at least 1. */
uint32_t chance_below(struct chance *c, uint32_t count);

/* ---- numbers with units ---------------------------------------------------------------------- */

enum unit {
	UNIT_COUNT, /* k, M, G: thousands */
	UNIT_TIME,  /* ns, us, ms, s, m: nanoseconds; only 0 may be without */
};

/* -EINVAL: it is none, or out of bounds; `what` is named in the error. */
int number_read(const char *what, const char *text, enum unit unit, double least, double most,
                double *out, struct sy_error *err);

/* ---- distributions --------------------------------------------------------------------------- */

struct distribution {
	enum {
		DISTRIBUTION_CONSTANT,
		DISTRIBUTION_UNIFORM,
		DISTRIBUTION_EXPONENTIAL,
		DISTRIBUTION_BIMODAL,
		DISTRIBUTION_PARETO,
		DISTRIBUTION_FILE,
	} kind;
	double a, b, c;
	double *value, *until; /* of a file: values, and the sum of weights up to each */
	size_t count;
};

/*
 * N, const:N, uniform:A:B, exp:MEAN, bimodal:A:B:SHARE (B has this share), pareto:MIN:SHAPE[:MAX],
 * or file:PATH, whose lines are VALUE [WEIGHT], and comments after #.
 */
int distribution_read(struct distribution *d, const char *what, const char *text, enum unit unit,
                      struct sy_error *err);
uint64_t distribution_draw(const struct distribution *d, struct chance *c);
/* Infinite for pareto with a shape of 1 or less and no end. */
double distribution_mean(const struct distribution *d);
void distribution_free(struct distribution *d);

static inline struct distribution distribution_constant(double value)
{
	return (struct distribution){.kind = DISTRIBUTION_CONSTANT, .a = value};
}

static inline bool distribution_is(const struct distribution *d, double value)
{
	return d->kind == DISTRIBUTION_CONSTANT && d->a == value;
}

#endif

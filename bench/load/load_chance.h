// SPDX-License-Identifier: Apache-2.0
/* Reproducible random numbers and distributions. Pure functions. */
#ifndef LOAD_CHANCE_H
#define LOAD_CHANCE_H

#include <sy_base.h>

struct chance {
	uint64_t state;
};

/* 64 uniform bits (splitmix64). */
uint64_t chance_next(struct chance *c);
/* Uniform in (0, 1]. */
double chance_unit(struct chance *c);
/* Uniform in [0, count); count >= 1. */
uint32_t chance_below(struct chance *c, uint32_t count);

/* ---- numbers with units ---------------------------------------------------------------------- */

enum unit {
	UNIT_COUNT, /* k, M, G: thousands */
	UNIT_TIME,  /* ns, us, ms, s, m: in nanoseconds; 0 needs no unit */
};

/* Fails with -EINVAL if it is no number or out of bounds; `what` is its name in errors. */
int number_read(const char *what, const char *text, enum unit unit, double min, double max,
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
	double *value, *until; /* from a file: values, and cumulative weights */
	size_t count;
};

/*
 * N, const:N, uniform:A:B, exp:MEAN, bimodal:A:B:SHARE (B has this share), pareto:MIN:SHAPE[:MAX],
 * or file:PATH, whose lines are VALUE [WEIGHT], and comments after #.
 */
int distribution_read(struct distribution *d, const char *what, const char *text, enum unit unit,
                      struct sy_error *err);
uint64_t distribution_draw(const struct distribution *d, struct chance *c);
/* Infinite for an unbounded pareto with a shape of at most 1. */
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

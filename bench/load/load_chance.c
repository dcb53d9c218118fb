// SPDX-License-Identifier: Apache-2.0
#include "load_chance.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define DRAWN_MAX 1e18

uint64_t chance_next(struct chance *c)
{
	uint64_t z = c->state += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

double chance_unit(struct chance *c)
{
	return ((double)(chance_next(c) >> 11) + 1) * 0x1p-53;
}

uint32_t chance_below(struct chance *c, uint32_t count)
{
	return (uint32_t)((chance_next(c) >> 32) * count >> 32);
}

/* ---- numbers with units ---------------------------------------------------------------------- */

static double suffix_factor(const char *suffix, enum unit unit, double value)
{
	static const struct {
		const char *suffix;
		enum unit unit;
		double factor;
	} known[] = {
	        {"", UNIT_COUNT, 1},    {"k", UNIT_COUNT, 1e3}, {"M", UNIT_COUNT, 1e6},
	        {"G", UNIT_COUNT, 1e9}, {"ns", UNIT_TIME, 1},   {"us", UNIT_TIME, 1e3},
	        {"ms", UNIT_TIME, 1e6}, {"s", UNIT_TIME, 1e9},  {"m", UNIT_TIME, 6e10},
	};
	if (unit == UNIT_TIME && value == 0 && !*suffix)
		return 1;
	for (size_t i = 0; i < SY_ARRAY_LEN(known); i++)
		if (known[i].unit == unit && !strcmp(known[i].suffix, suffix))
			return known[i].factor;
	return 0;
}

int number_read(const char *what, const char *text, enum unit unit, double min, double max,
                double *out, struct sy_error *err)
{
	char *end;
	double value = strtod(text, &end);
	double factor = suffix_factor(end, unit, value);
	bool begins = (*text >= '0' && *text <= '9') || *text == '.';

	if (end == text || !begins || factor == 0)
		return sy_fail(err, EINVAL, "%s: \"%.40s\" is not a %s", what, text,
		               unit == UNIT_TIME ? "time, such as 10us, 5ms or 2s"
		                                 : "number, such as 1000, 64k or 1M");
	value *= factor;
	if (!(value >= min && value <= max))
		return sy_fail(err, EINVAL, "%s: %.40s must be from %.12g to %.12g%s", what, text,
		               min, max, unit == UNIT_TIME ? " ns" : "");
	*out = value;
	return 0;
}

/* ---- distributions --------------------------------------------------------------------------- */

static int file_line(struct distribution *d, const char *what, char *line, enum unit unit,
                     struct sy_error *err)
{
	double value, weight = 1, before = d->count ? d->until[d->count - 1] : 0;
	char *save, *word;
	int rc;

	line[strcspn(line, "#\n")] = '\0';
	word = strtok_r(line, " \t\r", &save);
	if (!word)
		return 0;
	rc = number_read(what, word, unit, 0, DRAWN_MAX, &value, err);
	word = strtok_r(NULL, " \t\r", &save);
	if (rc == 0 && word)
		rc = number_read(what, word, UNIT_COUNT, 0, DRAWN_MAX, &weight, err);
	if (rc)
		return rc;
	if ((d->count & (d->count + 1)) == 0) { /* doubles the capacity, plus one */
		size_t room = 2 * d->count + 1;
		double *values = realloc(d->value, room * sizeof(*values));
		d->value = values ? values : d->value;
		double *untils = realloc(d->until, room * sizeof(*untils));
		d->until = untils ? untils : d->until;
		if (!values || !untils)
			return sy_fail(err, ENOMEM, "%s: no memory", what);
	}
	d->value[d->count] = value;
	d->until[d->count++] = before + weight;
	return 0;
}

static int file_read(struct distribution *d, const char *what, const char *path, enum unit unit,
                     struct sy_error *err)
{
	FILE *file = fopen(path, "re");
	char line[256];
	int rc = 0;

	if (!file)
		return sy_fail(err, errno, "%s: %.100s: %s", what, path, strerror(errno));
	d->kind = DISTRIBUTION_FILE;
	while (rc == 0 && fgets(line, sizeof(line), file))
		rc = file_line(d, what, line, unit, err);
	fclose(file);
	if (rc == 0 && (d->count == 0 || d->until[d->count - 1] <= 0))
		rc = sy_fail(err, EINVAL, "%s: %.100s holds no value with a weight", what, path);
	return rc;
}

/* Parses colon-separated parameters after the name. Returns their number, or a negative errno. */
static int parameters_read(const char *what, const char *text, enum unit unit, unsigned plain,
                           double out[3], struct sy_error *err)
{
	char copy[128], *save, *word;
	int count = 0;

	if (strlen(text) >= sizeof(copy))
		return sy_fail(err, EINVAL, "%s: %.40s… is too long", what, text);
	strcpy(copy, text);
	for (word = strtok_r(copy, ":", &save); word; word = strtok_r(NULL, ":", &save)) {
		if (count == 3)
			return sy_fail(err, EINVAL, "%s: %.60s: too many parameters", what, text);
		int rc = number_read(what, word, plain & 1u << count ? UNIT_COUNT : unit, 0,
		                     DRAWN_MAX, &out[count], err);
		if (rc)
			return rc;
		count++;
	}
	return count;
}

/* least, most: the number of parameters; plain: bits of those that have no unit. */
static const struct {
	const char *name;
	int kind;
	int min, max;
	unsigned plain;
} forms[] = {
        {"const:", DISTRIBUTION_CONSTANT, 1, 1, 0},  {"uniform:", DISTRIBUTION_UNIFORM, 2, 2, 0},
        {"exp:", DISTRIBUTION_EXPONENTIAL, 1, 1, 0}, {"bimodal:", DISTRIBUTION_BIMODAL, 3, 3, 4},
        {"pareto:", DISTRIBUTION_PARETO, 2, 3, 2},
};

int distribution_read(struct distribution *d, const char *what, const char *text, enum unit unit,
                      struct sy_error *err)
{
	double p[3] = {0};
	int count = -1;

	*d = (struct distribution){0};
	if (!strncmp(text, "file:", 5))
		return file_read(d, what, text + 5, unit, err);
	if (!strchr(text, ':')) {
		int rc = number_read(what, text, unit, 0, DRAWN_MAX, &p[0], err);
		*d = distribution_constant(p[0]);
		return rc;
	}
	for (size_t i = 0; i < SY_ARRAY_LEN(forms) && count < 0; i++) {
		size_t length = strlen(forms[i].name);
		if (strncmp(text, forms[i].name, length))
			continue;
		count = parameters_read(what, text + length, unit, forms[i].plain, p, err);
		if (count < 0)
			return count;
		if (count < forms[i].min || count > forms[i].max)
			return sy_fail(err, EINVAL, "%s: %.60s has %d parameters; see --help", what,
			               text, count);
		*d = (struct distribution){.kind = forms[i].kind, .a = p[0], .b = p[1], .c = p[2]};
	}
	if (count < 0)
		return sy_fail(err, EINVAL,
		               "%s: %.60s: const, uniform, exp, bimodal, pareto and file are known",
		               what, text);
	if (d->kind == DISTRIBUTION_UNIFORM && d->b < d->a)
		return sy_fail(err, EINVAL, "%s: %.60s ends before it begins", what, text);
	if (d->kind == DISTRIBUTION_BIMODAL && d->c > 1)
		return sy_fail(err, EINVAL, "%s: %.60s: the share is from 0 to 1", what, text);
	if (d->kind == DISTRIBUTION_PARETO &&
	    (d->a <= 0 || d->b <= 0 || (count == 3 && d->c <= d->a)))
		return sy_fail(err, EINVAL,
		               "%s: %.60s: minimum and shape are above 0, the maximum above the "
		               "minimum",
		               what, text);
	return 0;
}

static double file_draw(const struct distribution *d, double unit)
{
	double at = unit * d->until[d->count - 1];
	size_t low = 0, high = d->count - 1;

	while (low < high) {
		size_t middle = (low + high) / 2;
		if (d->until[middle] < at)
			low = middle + 1;
		else
			high = middle;
	}
	return d->value[low];
}

/* Inverse of the (truncated) distribution function. */
static double pareto_draw(const struct distribution *d, double unit)
{
	double beyond = d->c > 0 ? pow(d->a / d->c, d->b) : 0;
	return d->a / pow(beyond + unit * (1 - beyond), 1 / d->b);
}

uint64_t distribution_draw(const struct distribution *d, struct chance *c)
{
	double value = d->a;

	switch (d->kind) {
	case DISTRIBUTION_CONSTANT:
		break;
	case DISTRIBUTION_UNIFORM:
		value = d->a + (d->b - d->a) * chance_unit(c);
		break;
	case DISTRIBUTION_EXPONENTIAL:
		value = -d->a * log(chance_unit(c));
		break;
	case DISTRIBUTION_BIMODAL:
		value = chance_unit(c) <= d->c ? d->b : d->a;
		break;
	case DISTRIBUTION_PARETO:
		value = pareto_draw(d, chance_unit(c));
		break;
	case DISTRIBUTION_FILE:
		value = file_draw(d, chance_unit(c));
		break;
	}
	return (uint64_t)(value < DRAWN_MAX ? value + 0.5 : DRAWN_MAX);
}

static double pareto_mean(const struct distribution *d)
{
	double beyond = d->c > 0 ? pow(d->a / d->c, d->b) : 0;

	if (d->c <= 0)
		return d->b > 1 ? d->a * d->b / (d->b - 1) : INFINITY;
	if (d->b == 1)
		return d->a / (1 - beyond) * log(d->c / d->a);
	return pow(d->a, d->b) / (1 - beyond) * d->b / (d->b - 1) *
	       (pow(d->a, 1 - d->b) - pow(d->c, 1 - d->b));
}

double distribution_mean(const struct distribution *d)
{
	double sum = 0;

	switch (d->kind) {
	case DISTRIBUTION_UNIFORM:
		return (d->a + d->b) / 2;
	case DISTRIBUTION_BIMODAL:
		return d->a * (1 - d->c) + d->b * d->c;
	case DISTRIBUTION_PARETO:
		return pareto_mean(d);
	case DISTRIBUTION_FILE:
		for (size_t i = 0; i < d->count; i++)
			sum += d->value[i] * (d->until[i] - (i ? d->until[i - 1] : 0));
		return sum / d->until[d->count - 1];
	default:
		return d->a;
	}
}

void distribution_free(struct distribution *d)
{
	free(d->value);
	free(d->until);
}

// SPDX-License-Identifier: Apache-2.0
#include "bench_options.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH       79
#define OPTIONS_MAX 32
#define TEXT        64
#define HELP        (OPTIONS_MAX + 1) /* getopt_long() returns an entry's number plus one */

/* ---- --help ---------------------------------------------------------------------------------- */

/* Prints a text from column `at` on, wrapped, with this indent before each line. */
static void words_print(const char *text, size_t at, size_t indent)
{
	while (*text) {
		size_t length = strcspn(text, " ");
		if (at > indent && at + 1 + length > WIDTH) {
			printf("\n%*s", (int)indent, "");
			at = indent;
		} else if (at > indent) {
			putchar(' ');
			at++;
		}
		printf("%.*s", (int)length, text);
		at += length;
		text += length + strspn(text + length, " ");
	}
	putchar('\n');
}

/* An option's help and its default, if it has one. */
static void help_format(const struct option_entry *e, char *out, size_t size)
{
	char value[TEXT] = "";
	const char *word = e->kind == OPTION_WORD ? *(const char **)e->to : NULL;
	if (word)
		snprintf(value, sizeof(value), "(%s)", word);
	else if (e->kind == OPTION_UNSIGNED && *(unsigned *)e->to)
		snprintf(value, sizeof(value), "(%u)", *(unsigned *)e->to);
	else if (e->kind == OPTION_COUNT && *(uint64_t *)e->to)
		snprintf(value, sizeof(value), "(%llu)", (unsigned long long)*(uint64_t *)e->to);
	else if (e->kind == OPTION_REAL && *(double *)e->to > 0)
		snprintf(value, sizeof(value), "(%g)", *(double *)e->to);
	snprintf(out, size, "%s%s%s", e->help ? e->help : "", e->help && *value ? " " : "", value);
}

static void usage_print(const char *purpose, const struct option_entry *entry, size_t count)
{
	size_t indent = 0;
	char text[512];
	for (size_t i = 0; i < count; i++) {
		size_t length =
		        strlen(entry[i].name) + (entry[i].value ? strlen(entry[i].value) + 1 : 0);
		indent = length > indent ? length : indent;
	}
	indent += strlen("  --") + 2;
	printf("usage: %s [options]\n\n", program_invocation_short_name);
	words_print(purpose, 0, 0);
	putchar('\n');
	for (size_t i = 0; i < count; i++) {
		int at = printf("  --%s%s%s", entry[i].name, entry[i].value ? " " : "",
		                entry[i].value ? entry[i].value : "");
		printf("%*s", (int)indent - at, "");
		help_format(&entry[i], text, sizeof(text));
		words_print(text, indent, indent);
	}
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Whether the word is one of "tcp|udp". */
static bool word_is_in(const char *word, const char *list)
{
	size_t length = strlen(word);
	for (const char *at = list;; at++) {
		size_t next = strcspn(at, "|");
		if (next == length && memcmp(at, word, length) == 0)
			return true;
		at += next;
		if (!*at)
			return false;
	}
}

/* Reads a number; it must start with a digit, so neither -1 nor nan is accepted. */
static bool number_read(const struct option_entry *e, const char *value)
{
	char *end = NULL;
	bool any = e->min == 0 && e->max == 0;
	uint64_t whole = 0;
	double n;
	errno = 0;
	if (!isdigit((unsigned char)*value))
		return false;
	if (e->kind == OPTION_REAL) {
		n = strtod(value, &end);
	} else {
		whole = strtoull(value, &end, 10);
		n = (double)whole;
	}
	if (*end || errno || (any ? n <= 0 : n < e->min || n > e->max) ||
	    (e->kind == OPTION_UNSIGNED && whole > UINT32_MAX))
		return false;
	if (e->kind == OPTION_REAL)
		*(double *)e->to = n;
	else if (e->kind == OPTION_COUNT && *(uint64_t *)e->to)
		*(uint64_t *)e->to = whole;
	else
		*(unsigned *)e->to = (unsigned)whole;
	return true;
}

static bool value_take(const struct option_entry *e, const char *value)
{
	switch (e->kind) {
	case OPTION_FLAG:
		*(bool *)e->to = true;
		return true;
	case OPTION_WORD:
		*(const char **)e->to = value;
		return !strchr(e->value, '|') || word_is_in(value, e->value);
	default:
		return number_read(e, value);
	}
}

static void value_complain(const struct option_entry *e, const char *value)
{
	char want[TEXT];
	if (e->kind == OPTION_WORD)
		snprintf(want, sizeof(want), "one of %s", e->value);
	else if (e->min == 0 && e->max == 0)
		snprintf(want, sizeof(want), "a number above 0");
	else
		snprintf(want, sizeof(want), "a number from %.12g to %.12g", e->min, e->max);
	fprintf(stderr, "%s: --%s %s: it takes %s\n", program_invocation_short_name, e->name, value,
	        want);
}

/* ---- the command line ------------------------------------------------------------------------ */

int options_read(int argc, char **argv, const char *purpose, const struct option_entry *entry,
                 size_t count)
{
	struct option known[OPTIONS_MAX + 2] = {{0}};
	if (count > OPTIONS_MAX)
		abort();
	for (size_t i = 0; i < count; i++)
		known[i] = (struct option){entry[i].name,
		                           entry[i].kind == OPTION_FLAG ? no_argument
		                                                        : required_argument,
		                           NULL, (int)i + 1};
	known[count] = (struct option){"help", no_argument, NULL, HELP};
	optind = 0; /* GNU: restarts the scan */
	for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
		if (c == HELP) {
			usage_print(purpose, entry, count);
			return 0;
		}
		if (c == '?') /* getopt_long() has already reported it */
			return 2;
		if (!value_take(&entry[c - 1], optarg)) {
			value_complain(&entry[c - 1], optarg);
			return 2;
		}
	}
	if (optind == argc)
		return -1;
	fprintf(stderr, "%s: %s: there are only options; see --help\n",
	        program_invocation_short_name, argv[optind]);
	return 2;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * The command line of a benchmark's program, from one table: what is read, what it may be, and what
 * --help says, which tells the defaults too.
 */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum option_kind {
	OPTION_FLAG,     /* bool: has no value */
	OPTION_WORD,     /* const char *: one of `value`, if that is a list as "tcp|udp", or any */
	OPTION_UNSIGNED, /* unsigned */
	OPTION_COUNT,    /* uint64_t */
	OPTION_REAL,     /* double */
};

/* One option. `to` holds its default and gets its value. */
struct option_entry {
	const char *name;  /* "sessions" */
	const char *value; /* "N", as --help calls it; NULL: none */
	enum option_kind kind;
	void *to;
	double least, most; /* of a number; both 0: any above 0 */
	const char *help;   /* NULL: its name says it */
};

/* What --directory is for, where a forwarder runs. */
#define OPTIONS_DIRECTORY                                                                          \
	"the session table's file goes there: hugetlbfs for huge pages, which everything else "    \
	"uses then, too"

/* Reads the whole line, or says on stderr what is wrong with it; `purpose`: a sentence for --help.
 * Returns the status to exit with, or −1: go on. */
int options_read(int argc, char **argv, const char *purpose, const struct option_entry *entry,
                 size_t count);

/* The same, and exits; entry: an array. */
#define OPTIONS_TAKE(argc, argv, purpose, entry)                                                   \
	do {                                                                                       \
		int status_ = options_read(argc, argv, purpose, entry,                             \
		                           sizeof(entry) / sizeof(*(entry)));                      \
		if (status_ >= 0)                                                                  \
			exit(status_);                                                             \
	} while (0)

#endif

// SPDX-License-Identifier: Apache-2.0
/* The command line of a benchmark program, from one table: option names, accepted values, and the
 * text of --help with the defaults. */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum option_kind {
	OPTION_FLAG,     /* bool: takes no value */
	OPTION_WORD,     /* const char *: one of `value` if that is a list "tcp|udp", else any */
	OPTION_UNSIGNED, /* unsigned */
	OPTION_COUNT,    /* uint64_t */
	OPTION_REAL,     /* double */
};

/* One option. `to` has its default, and receives its value. */
struct option_entry {
	const char *name;  /* "sessions" */
	const char *value; /* "N", as shown by --help; NULL: none */
	enum option_kind kind;
	void *to;
	double min, max;  /* limits of a number; both 0: any above 0 */
	const char *help; /* NULL: the name says enough */
};

/* Help text of --directory, for benchmarks that run a forwarder. */
#define OPTIONS_DIRECTORY                                                                          \
	"the session table's file goes there: hugetlbfs for huge pages, which everything else "    \
	"uses then, too"

/* Reads the whole line, or reports the error on stderr; `purpose`: a sentence for --help. Returns
 * the status to exit with, or −1 to continue. */
int options_read(int argc, char **argv, const char *purpose, const struct option_entry *entry,
                 size_t count);

/* The same, but exits itself; entry: an array. */
#define OPTIONS_TAKE(argc, argv, purpose, entry)                                                   \
	do {                                                                                       \
		int status_ = options_read(argc, argv, purpose, entry,                             \
		                           sizeof(entry) / sizeof(*(entry)));                      \
		if (status_ >= 0)                                                                  \
			exit(status_);                                                             \
	} while (0)

#endif

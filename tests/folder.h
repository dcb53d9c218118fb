// SPDX-License-Identifier: Apache-2.0
/* A test's own folder, named after its process: `make test` removes leftovers of tests that were
 * killed or failed halfway (tests/lab/reap.py). */
#ifndef TESTS_FOLDER_H
#define TESTS_FOLDER_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOLDER_NAME   64
#define FOLDER_SUFFIX 40 /* the longest name behind WHERE */

/* Returns where large files belong: TMPDIR, as /tmp may be small; /tmp if its name is too long. */
static inline const char *folder_large(void)
{
	const char *where = getenv("TMPDIR");

	return where && *where && strlen(where) < FOLDER_NAME - FOLDER_SUFFIX ? where : "/tmp";
}

/* Makes WHERE/steelyard-test-PID-…; where: folder_large(), /tmp or /dev/shm. */
static inline bool folder_make(char out[static FOLDER_NAME], const char *where)
{
	snprintf(out, FOLDER_NAME, "%s/steelyard-test-%d-XXXXXX", where, (int)getpid());
	return mkdtemp(out) != NULL;
}

#endif

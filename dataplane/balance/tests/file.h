// SPDX-License-Identifier: Apache-2.0
/* Small files as bytes, for tests that damage them. Include after cmocka.h. */
#ifndef FILE_H
#define FILE_H

#include <stdio.h>
#include <stdlib.h>

#define FILE_MAX (1u << 20) /* bytes */

/* Reads the whole file; the caller frees it. */
static inline uint8_t *file_read(const char *path, size_t *len)
{
	FILE *in = fopen(path, "rb");
	uint8_t *bytes = malloc(FILE_MAX);
	assert_non_null(in);
	*len = fread(bytes, 1, FILE_MAX, in);
	fclose(in);
	return bytes;
}

static inline void file_write(const char *path, const uint8_t *bytes, size_t len)
{
	FILE *out = fopen(path, "wb");
	assert_non_null(out);
	assert_int_equal(fwrite(bytes, 1, len, out), len);
	fclose(out);
}

#endif

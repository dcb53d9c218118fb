// SPDX-License-Identifier: Apache-2.0
/* The steering hash: tables derived from its key. */
#include <sy_base.h>

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "sy_slot_of_port() takes the low byte as first");

struct sy_slot_map sy_slot_map;
const struct sy_slot_key sy_slot_key_fixed = {{0x243f6a8885a308d3, 0x13198a2e03707344}};

/* A pseudo-random sequence that cannot be predicted without the key. */
struct row {
	uint64_t key[2], n;
};

static uint64_t row_next(struct row *r)
{
	uint64_t h = sy_hash_mix(r->key[0] ^ ++r->n * 0x9e3779b97f4a7c15, ~r->key[1]);
	return sy_hash_mix(h ^ r->key[1], r->key[0] ^ 0x94d049bb133111eb);
}

/* Fisher-Yates shuffle. */
static void row_permute(struct row *r, uint8_t out[256])
{
	for (unsigned i = 0; i < 256; i++) {
		unsigned at = (unsigned)((row_next(r) >> 32) * (i + 1) >> 32);
		out[i] = out[at];
		out[at] = (uint8_t)i;
	}
}

void sy_slot_set_key(const struct sy_slot_key *key)
{
	struct sy_slot_map *m = &sy_slot_map;
	struct row row = {{key->k[0], key->k[1]}, 0};

	m->address[0] = row_next(&row);
	m->address[1] = row_next(&row);
	m->address_v4 = m->address[1] ^ sy_addr_v4(0).d[1];
	row_permute(&row, m->first);
	row_permute(&row, m->second);
	for (unsigned byte = 0; byte < 256; byte++)
		m->second_of[m->second[byte]] = (uint8_t)byte;
	sy_secret_wipe(&row, sizeof(row));
	sy_secret_pages(m, sizeof(*m));
}

void sy_slot_init(void)
{
	sy_slot_set_key(&sy_slot_key_fixed);
}

int sy_slot_key_random(struct sy_slot_key *key)
{
	while (getrandom(key, sizeof(*key), 0) < 0) { /* completely, or it fails */
		if (errno != EINTR)
			return -errno;
	}
	return 0;
}

int sy_slot_key_parse(const char *text, struct sy_slot_key *key)
{
	const unsigned digits = 2 * sizeof(*key);
	struct sy_slot_key out = {0};

	for (unsigned i = 0; i < digits; i++, text++) {
		if (!isxdigit((unsigned char)*text))
			return -EINVAL;
		unsigned digit = isdigit((unsigned char)*text)
		                         ? (unsigned)*text - '0'
		                         : (unsigned)tolower((unsigned char)*text) - 'a' + 10;
		out.k[2 * i / digits] = out.k[2 * i / digits] << 4 | digit;
	}
	while (isspace((unsigned char)*text))
		text++;
	if (*text)
		return -EINVAL;
	*key = out;
	sy_secret_wipe(&out, sizeof(out));
	return 0;
}

int sy_slot_key_read(const char *path, struct sy_slot_key *key, struct sy_error *err)
{
	char text[128];
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 || fstat(fd, &st) < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	int code = errno;

	if (fd >= 0)
		close(fd);
	if (n < 0)
		return sy_fail(err, code, "slot key: %.200s: %s", path, strerror(code));
	if (st.st_mode & S_IROTH)
		sy_log(SY_LOG_WARN, "base", "every user can read the slot key: chmod 600 %s", path);
	text[n] = '\0';
	int rc = sy_slot_key_parse(text, key);
	sy_secret_wipe(text, sizeof(text));
	return rc < 0 ? sy_fail(err, EINVAL, "slot key: %.200s: must contain 32 hexadecimal digits",
	                        path)
	              : 0;
}

// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <sy_base.h>
#include <sys/random.h>

int sy_hash_key_random(struct sy_hash_key *key)
{
	/* getrandom(2) returns requests of up to 256 bytes completely or fails. */
	while (getrandom(key, sizeof(*key), 0) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return 0;
}

// SPDX-License-Identifier: Apache-2.0
/* Options that name addresses. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>

#include "load_options.h"

/* ADDRESS:PORT, [ADDRESS]:PORT */
int endpoint_option(const char *what, const char *text, struct sy_stack_endpoint *out,
                    struct sy_error *err)
{
	const char *colon = strrchr(text, ':');
	bool bracket = text[0] == '[';
	uint64_t port;
	char addr[SY_ADDR_TEXT];
	size_t len = colon ? (size_t)(colon - text) : 0;

	if (bracket && len > 1 && text[len - 1] == ']')
		text++, len -= 2;
	if (!colon || len >= sizeof(addr))
		return sy_fail(err, EINVAL, "%s %.60s: must be ADDRESS:PORT or [ADDRESS]:PORT",
		               what, text);
	memcpy(addr, text, len);
	addr[len] = '\0';
	if (sy_addr_parse(addr, &out->addr) || (!bracket && !sy_addr_is_v4(&out->addr)))
		return sy_fail(err, EINVAL,
		               "%s: %s is no address, as in 10.0.0.1:80 or [fd00::1]:80", what,
		               addr);
	int rc = count_option(what, colon + 1, 1, 65535, &port, err);
	out->port = rc ? 0 : htons((uint16_t)port);
	return rc;
}

static int source_add(struct load_options *o, const struct sy_addr *addr, struct sy_error *err)
{
	if (o->sources == SOURCES_MAX)
		return sy_fail(err, EINVAL, "--source: at most %u addresses are possible",
		               SOURCES_MAX);
	o->source[o->sources++] = *addr;
	return 0;
}

static void address_next(struct sy_addr *a)
{
	for (int i = 15; i >= 0 && ++a->b[i] == 0; i--)
		;
}

/* A, A-B or A/LENGTH: of a network of IPv4, not its first and last address. */
static int source_read(struct load_options *o, char *text, struct sy_error *err)
{
	char *slash = strchr(text, '/'), *dash = strchr(text, '-');
	struct sy_addr first, last;
	uint64_t length;

	if (slash)
		*slash = '\0';
	else if (dash)
		*dash = '\0';
	if (sy_addr_parse(text, &first))
		return sy_fail(err, EINVAL, "--source: %.60s is not an address", text);
	last = first;
	if (slash) {
		bool v4 = sy_addr_is_v4(&first);
		unsigned width = v4 ? 32 : 128;
		if (count_option("--source: the length of a prefix", slash + 1, width - 12, width,
		                 &length, err))
			return -EINVAL;
		for (unsigned bit = (unsigned)length; bit < width; bit++) {
			unsigned at = bit + (v4 ? 96 : 0);
			first.b[at / 8] &= (uint8_t) ~(0x80 >> at % 8);
			last.b[at / 8] |= (uint8_t)(0x80 >> at % 8);
		}
		if (length < width - 1)
			address_next(&first);
		if (v4 && length < width - 1)
			last.b[15]--;
	} else if (dash && sy_addr_parse(dash + 1, &last)) {
		return sy_fail(err, EINVAL, "--source: %.60s is not an address", dash + 1);
	}
	if (memcmp(&first, &last, sizeof(first)) > 0)
		return sy_fail(err, EINVAL, "--source: %.60s ends before it begins", text);
	for (struct sy_addr a = first;; address_next(&a)) {
		int rc = source_add(o, &a, err);
		if (rc || sy_addr_equal(&a, &last))
			return rc;
	}
}

int sources_option(struct load_options *o, const char *text, struct sy_error *err)
{
	char *copy = strdup(text), *save, *word;
	int rc = copy ? 0 : sy_fail(err, ENOMEM, "no memory");

	for (word = rc ? NULL : strtok_r(copy, ",", &save); word && rc == 0;
	     word = strtok_r(NULL, ",", &save))
		rc = source_read(o, word, err);
	free(copy);
	return rc;
}

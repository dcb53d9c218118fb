// SPDX-License-Identifier: Apache-2.0
/* IPPROTO_TCP: options that depend on the connection or the context. */
#include <errno.h>
#include <sy_stack_linux.h>

#include "context_option.h"

#define MSS_DEFAULT 536

static int info_get(struct sy_tcp_context *c, const struct descriptor *d, void *value,
                    socklen_t *len)
{
	struct sy_stack_info i = {.state = socket_state(c, d)};
	struct tcp_info out;

	if (d->phase >= PHASE_CONNECTING)
		sy_stack_info(c->stack, d->id, &i);
	sy_stack_linux_info(&i, &out);
	return value_copy(value, len, &out, sizeof(out));
}

static int mss_get(struct sy_tcp_context *c, const struct descriptor *d)
{
	struct sy_stack_info info;

	if (d->phase >= PHASE_CONNECTING && sy_stack_info(c->stack, d->id, &info) == 0 && info.mss)
		return (int)info.mss;
	return d->options.mss ? d->options.mss : MSS_DEFAULT;
}

int tcp_get(struct sy_tcp_context *c, struct descriptor *d, int name, void *value, socklen_t *len)
{
	char text[16] = "";

	switch (name) {
	case TCP_MAXSEG:
		return value_copy(value, len, &(int){mss_get(c, d)}, sizeof(int));
	case TCP_INFO:
		return info_get(c, d, value, len);
	case TCP_CONGESTION:
		memcpy(text, c->congestion, strnlen(c->congestion, sizeof(text) - 1));
		return value_copy(value, len, text, sizeof(text));
	default:
		return -ENOPROTOOPT;
	}
}

int tcp_set(const struct sy_tcp_context *c, int name, const void *value, socklen_t len)
{
	char text[16] = "";

	if (name != TCP_CONGESTION)
		return -ENOPROTOOPT;
	if (len < 1)
		return -EINVAL;
	memcpy(text, value, strnlen(value, len < sizeof(text) ? len : sizeof(text) - 1));
	if (strcmp(text, "reno") == 0) /* Linux' name */
		memcpy(text, "newreno", sizeof("newreno"));
	return strcmp(text, c->congestion) ? -ENOENT : 0; /* one algorithm per context */
}

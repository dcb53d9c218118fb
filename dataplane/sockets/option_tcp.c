// SPDX-License-Identifier: Apache-2.0
/* getsockopt() and setsockopt(): IPPROTO_TCP. */
#include <errno.h>
#include <sy_stack_linux.h>

#include "option.h"

#define SECONDS_MOST 32767
#define PROBES_MOST  127
#define MSS_LEAST    88 /* as on Linux */
#define MSS_DEFAULT  536

/* ---- TCP_INFO -------------------------------------------------------------------------------- */

static int info_get(struct sy_tcp_context *c, const struct descriptor *d, void *value,
                    socklen_t *len)
{
	struct sy_stack_info i = {.state = socket_state(c, d)};
	struct tcp_info out;

	if (d->phase >= PHASE_CONNECTING)
		sy_stack_info(c->stack, d->id, &i);
	sy_stack_linux_info(&i, &out);
	return value_give(value, len, &out, sizeof(out));
}

/* ---- get ------------------------------------------------------------------------------------- */

static int mss_get(struct sy_tcp_context *c, const struct descriptor *d)
{
	struct sy_stack_info info;

	if (d->phase >= PHASE_CONNECTING && sy_stack_info(c->stack, d->id, &info) == 0 && info.mss)
		return (int)info.mss;
	return d->wishes.mss ? d->wishes.mss : MSS_DEFAULT;
}

int tcp_get(struct sy_tcp_context *c, struct descriptor *d, int name, void *value, socklen_t *len)
{
	const struct wishes *w = &d->wishes;
	int number;

	switch (name) {
	case TCP_NODELAY:
		number = w->no_delay;
		break;
	case TCP_CORK:
		number = w->cork;
		break;
	case TCP_QUICKACK:
		number = w->quick_ack;
		break;
	case TCP_MAXSEG:
		number = mss_get(c, d);
		break;
	case TCP_KEEPIDLE:
		number = w->keepalive_s;
		break;
	case TCP_KEEPINTVL:
		number = w->keepalive_interval_s;
		break;
	case TCP_KEEPCNT:
		number = w->keepalive_probes;
		break;
	case TCP_USER_TIMEOUT:
		number = (int)w->user_timeout_ms;
		break;
	case TCP_INFO:
		return info_get(c, d, value, len);
	case TCP_CONGESTION: {
		char text[16] = "";
		memcpy(text, c->congestion, strnlen(c->congestion, sizeof(text) - 1));
		return value_give(value, len, text, sizeof(text));
	}
	default:
		return -ENOPROTOOPT;
	}
	return value_give(value, len, &number, sizeof(number));
}

/* ---- set ------------------------------------------------------------------------------------- */

static bool within(int value, int least, int most)
{
	return value >= least && value <= most;
}

static int keepalive_set(struct sy_tcp_context *c, struct descriptor *d, int name, int value)
{
	struct wishes *w = &d->wishes;

	if (!within(value, 1, name == TCP_KEEPCNT ? PROBES_MOST : SECONDS_MOST))
		return -EINVAL;
	switch (name) {
	case TCP_KEEPIDLE:
		w->keepalive_s = (uint16_t)value;
		if (w->keepalive)
			wish_apply(c, d, SY_STACK_KEEPALIVE_S, (uint32_t)value);
		break;
	case TCP_KEEPINTVL:
		w->keepalive_interval_s = (uint16_t)value;
		wish_apply(c, d, SY_STACK_KEEPALIVE_INTERVAL_S, (uint32_t)value);
		break;
	default:
		w->keepalive_probes = (uint8_t)value;
		wish_apply(c, d, SY_STACK_KEEPALIVE_PROBES, (uint32_t)value);
	}
	return 0;
}

static int congestion_set(const struct sy_tcp_context *c, const void *value, socklen_t len)
{
	char text[16] = "";

	if (len < 1)
		return -EINVAL;
	memcpy(text, value, strnlen(value, len < sizeof(text) ? len : sizeof(text) - 1));
	if (strcmp(text, "reno") == 0) /* Linux' name of it */
		memcpy(text, "newreno", sizeof("newreno"));
	return strcmp(text, c->congestion) ? -ENOENT : 0; /* one for all of a context */
}

int tcp_set(struct sy_tcp_context *c, struct descriptor *d, int name, const void *value,
            socklen_t len)
{
	struct wishes *w = &d->wishes;
	int number, rc;

	if (name == TCP_CONGESTION)
		return congestion_set(c, value, len);
	rc = value_int(value, len, &number);
	if (rc)
		return rc;
	switch (name) {
	case TCP_NODELAY:
		w->no_delay = number != 0;
		wish_apply(c, d, SY_STACK_NO_DELAY, w->no_delay);
		return 0;
	case TCP_CORK:
		w->cork = number != 0;
		wish_apply(c, d, SY_STACK_CORK, w->cork);
		return 0;
	case TCP_QUICKACK:
		w->quick_ack = number != 0;
		wish_apply(c, d, SY_STACK_QUICK_ACK, w->quick_ack);
		return 0;
	case TCP_MAXSEG:
		if (number && !within(number, MSS_LEAST, 32767))
			return -EINVAL;
		w->mss = (uint16_t)number;
		wish_apply(c, d, SY_STACK_MSS, w->mss);
		return 0;
	case TCP_KEEPIDLE:
	case TCP_KEEPINTVL:
	case TCP_KEEPCNT:
		return keepalive_set(c, d, name, number);
	case TCP_USER_TIMEOUT:
		if (number < 0)
			return -EINVAL;
		w->user_timeout_ms = (uint32_t)number;
		wish_apply(c, d, SY_STACK_USER_TIMEOUT_MS, w->user_timeout_ms);
		return 0;
	default:
		return -ENOPROTOOPT;
	}
}

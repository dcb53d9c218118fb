// SPDX-License-Identifier: Apache-2.0
/* getsockopt() and setsockopt(): SOL_SOCKET, and what all levels share. */
#include <errno.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <sy_stack_linux.h>

#include "option.h"

/* As Linux begins: net.ipv4.tcp_wmem and tcp_rmem. */
#define SEND_BYTES          16384
#define RECEIVE_BYTES       131072
#define SEND_BYTES_LEAST    4608
#define RECEIVE_BYTES_LEAST 2304
#define BYTES_MOST          (INT32_MAX / 2)
#define SECONDS_MOST        32767

void wishes_init(struct wishes *w)
{
	*w = (struct wishes){
	        .keepalive_s = 7200,
	        .keepalive_interval_s = 75,
	        .keepalive_probes = 9,
	        .receive_least = 1,
	        .pacing_rate = UINT64_MAX,
	};
}

/* The stack's number: what is more, no port can do. */
static uint32_t pacing_of(const struct wishes *w)
{
	return w->pacing_rate < UINT32_MAX ? (uint32_t)w->pacing_rate : UINT32_MAX;
}

void wish_apply(struct sy_tcp_context *c, const struct descriptor *d, enum sy_stack_option option,
                uint32_t value)
{
	if (d->phase != PHASE_NEW)
		sy_stack_set(c->stack, d->id, option, value, context_now(c));
}

void wishes_apply(struct sy_tcp_context *c, const struct descriptor *d)
{
	const struct wishes *w = &d->wishes;
	const struct {
		enum sy_stack_option option;
		uint32_t value;
		bool wanted;
	} all[] = {
	        {SY_STACK_NO_DELAY, 1, w->no_delay},
	        {SY_STACK_CORK, 1, w->cork},
	        {SY_STACK_QUICK_ACK, 1, w->quick_ack},
	        {SY_STACK_KEEPALIVE_INTERVAL_S, w->keepalive_interval_s, true},
	        {SY_STACK_KEEPALIVE_PROBES, w->keepalive_probes, true},
	        {SY_STACK_KEEPALIVE_S, w->keepalive_s, w->keepalive},
	        {SY_STACK_USER_TIMEOUT_MS, w->user_timeout_ms, w->user_timeout_ms > 0},
	        {SY_STACK_LINGER_ABORT, 1, w->linger && !w->linger_s},
	        {SY_STACK_SEND_BYTES, w->send_bytes, w->send_bytes > 0},
	        {SY_STACK_RECEIVE_BYTES, w->receive_bytes, w->receive_bytes > 0},
	        {SY_STACK_TOS, w->tos, w->tos > 0},
	        {SY_STACK_MSS, w->mss, w->mss > 0},
	        {SY_STACK_PACING_RATE, pacing_of(w), w->pacing_rate < UINT64_MAX},
	        {SY_STACK_PRIORITY, w->priority, w->priority > 0},
	};
	for (unsigned i = 0; i < SY_ARRAY_LEN(all); i++)
		if (all[i].wanted)
			wish_apply(c, d, all[i].option, all[i].value);
}

/* ---- values ---------------------------------------------------------------------------------- */

int value_give(void *to, socklen_t *len, const void *from, size_t size)
{
	if ((int)*len < 0)
		return -EINVAL;
	*len = *len < size ? *len : (socklen_t)size;
	memcpy(to, from, *len);
	return 0;
}

int value_int(const void *value, socklen_t len, int *out)
{
	if (len < (socklen_t)sizeof(*out))
		return -EINVAL;
	memcpy(out, value, sizeof(*out));
	return 0;
}

/* ---- SOL_SOCKET: get ------------------------------------------------------------------------- */

/* -1: it is no number. */
static int64_t socket_number(struct sy_tcp_context *c, struct descriptor *d, int name)
{
	const struct wishes *w = &d->wishes;

	switch (name) {
	case SO_TYPE:
		return SOCK_STREAM;
	case SO_DOMAIN:
		return d->v6 ? AF_INET6 : AF_INET;
	case SO_PROTOCOL:
		return IPPROTO_TCP;
	case SO_ACCEPTCONN:
		return d->phase == PHASE_LISTENING;
	case SO_ERROR:
		return d->phase >= PHASE_CONNECTING ? sy_stack_error(c->stack, d->id) : 0;
	case SO_REUSEADDR:
		return w->reuse_addr;
	case SO_REUSEPORT:
		return w->reuse_port;
	case SO_KEEPALIVE:
		return w->keepalive;
	case SO_BROADCAST:
		return w->broadcast;
	case SO_OOBINLINE:
		return 1;
	case SO_SNDBUF: /* doubled, as Linux does for its own needs */
		return 2 * (int64_t)(w->send_bytes ? w->send_bytes : SEND_BYTES / 2);
	case SO_RCVBUF:
		return 2 * (int64_t)(w->receive_bytes ? w->receive_bytes : RECEIVE_BYTES / 2);
	case SO_RCVLOWAT:
		return w->receive_least;
	case SO_SNDLOWAT:
		return 1;
	case SO_PRIORITY:
		return w->priority;
	case SO_INCOMING_CPU:
		return (int64_t)c->number;
	case SO_DONTROUTE:
	case SO_DEBUG:
	case SO_TIMESTAMP:
	case SO_MARK:
		return 0;
	default:
		return -1;
	}
}

static int socket_get(struct sy_tcp_context *c, struct descriptor *d, int name, void *value,
                      socklen_t *len)
{
	const struct wishes *w = &d->wishes;
	int64_t number = socket_number(c, d, name);

	if (number >= 0)
		return value_give(value, len, &(int){(int)number}, sizeof(int));
	if (name == SO_MAX_PACING_RATE && *len < sizeof(w->pacing_rate))
		return value_give(value, len, &(uint32_t){pacing_of(w)}, sizeof(uint32_t));
	switch (name) {
	case SO_LINGER:
		return value_give(value, len, &(struct linger){w->linger, w->linger_s},
		                  sizeof(struct linger));
	case SO_RCVTIMEO:
		return value_give(value, len, &w->receive_timeout, sizeof(w->receive_timeout));
	case SO_SNDTIMEO:
		return value_give(value, len, &w->send_timeout, sizeof(w->send_timeout));
	case SO_MAX_PACING_RATE:
		return value_give(value, len, &w->pacing_rate, sizeof(w->pacing_rate));
	default:
		return -ENOPROTOOPT;
	}
}

/* ---- SOL_SOCKET: set ------------------------------------------------------------------------- */

static uint32_t bytes_of(int value, uint32_t least)
{
	uint32_t bytes = value < 0 || value > BYTES_MOST ? BYTES_MOST : (uint32_t)value;

	return bytes < least / 2 ? least / 2 : bytes;
}

static int linger_set(struct sy_tcp_context *c, struct descriptor *d, const void *value,
                      socklen_t len)
{
	struct linger l;

	if (len < (socklen_t)sizeof(l))
		return -EINVAL;
	memcpy(&l, value, sizeof(l));
	d->wishes.linger = l.l_onoff != 0;
	if (l.l_onoff)
		d->wishes.linger_s =
		        (uint16_t)(l.l_linger < 0 || l.l_linger > SECONDS_MOST ? SECONDS_MOST
		                                                               : l.l_linger);
	wish_apply(c, d, SY_STACK_LINGER_ABORT, d->wishes.linger && !d->wishes.linger_s);
	return 0;
}

static int timeout_set(struct timeval *to, const void *value, socklen_t len)
{
	struct timeval t;

	if (len < (socklen_t)sizeof(t))
		return -EINVAL;
	memcpy(&t, value, sizeof(t));
	if (t.tv_usec < 0 || t.tv_usec >= 1000000)
		return -EDOM;
	*to = t.tv_sec < 0 ? (struct timeval){0} : t;
	return 0;
}

/* A number of 32 bits, or of 64. */
static int pacing_set(struct sy_tcp_context *c, struct descriptor *d, const void *value,
                      socklen_t len)
{
	int number, rc = value_int(value, len, &number);

	if (rc)
		return rc;
	d->wishes.pacing_rate = (uint32_t)number == UINT32_MAX ? UINT64_MAX : (uint32_t)number;
	if (len >= (socklen_t)sizeof(d->wishes.pacing_rate))
		memcpy(&d->wishes.pacing_rate, value, sizeof(d->wishes.pacing_rate));
	wish_apply(c, d, SY_STACK_PACING_RATE, pacing_of(&d->wishes));
	return 0;
}

static int socket_set_number(struct sy_tcp_context *c, struct descriptor *d, int name, int value)
{
	struct wishes *w = &d->wishes;

	switch (name) {
	case SO_REUSEADDR:
		w->reuse_addr = value != 0;
		return 0;
	case SO_REUSEPORT:
		w->reuse_port = value != 0;
		return 0;
	case SO_BROADCAST: /* of no effect, as on Linux */
		w->broadcast = value != 0;
		return 0;
	case SO_KEEPALIVE:
		w->keepalive = value != 0;
		wish_apply(c, d, SY_STACK_KEEPALIVE_S, value ? w->keepalive_s : 0);
		return 0;
	case SO_OOBINLINE: /* the stack has no other way */
		return value ? 0 : -ENOPROTOOPT;
	case SO_SNDBUF:
	case SO_SNDBUFFORCE:
		w->send_bytes = bytes_of(value, SEND_BYTES_LEAST);
		wish_apply(c, d, SY_STACK_SEND_BYTES, w->send_bytes);
		return 0;
	case SO_RCVBUF:
	case SO_RCVBUFFORCE:
		w->receive_bytes = bytes_of(value, RECEIVE_BYTES_LEAST);
		wish_apply(c, d, SY_STACK_RECEIVE_BYTES, w->receive_bytes);
		return 0;
	case SO_RCVLOWAT:
		w->receive_least = value < 0 ? INT32_MAX : value == 0 ? 1 : (uint32_t)value;
		descriptor_news(c, d);
		return 0;
	case SO_PRIORITY:
		w->priority = (uint32_t)value;
		wish_apply(c, d, SY_STACK_PRIORITY, w->priority);
		return 0;
	default:
		return -ENOPROTOOPT;
	}
}

static int socket_set(struct sy_tcp_context *c, struct descriptor *d, int name, const void *value,
                      socklen_t len)
{
	int number, rc;

	switch (name) {
	case SO_LINGER:
		return linger_set(c, d, value, len);
	case SO_RCVTIMEO:
		return timeout_set(&d->wishes.receive_timeout, value, len);
	case SO_SNDTIMEO:
		return timeout_set(&d->wishes.send_timeout, value, len);
	case SO_MAX_PACING_RATE:
		return pacing_set(c, d, value, len);
	default:
		rc = value_int(value, len, &number);
		return rc ? rc : socket_set_number(c, d, name, number);
	}
}

/* ---- IPPROTO_IP, IPPROTO_IPV6 ---------------------------------------------------------------- */

#define HOPS 64 /* of all packets */

static int ip_get(struct descriptor *d, int level, int name, void *value, socklen_t *len)
{
	bool v6 = level == IPPROTO_IPV6;
	int number;

	if (name == (v6 ? IPV6_TCLASS : IP_TOS))
		number = d->wishes.tos;
	else if (name == (v6 ? IPV6_UNICAST_HOPS : IP_TTL))
		number = HOPS;
	else if (v6 && name == IPV6_V6ONLY)
		number = d->wishes.only_v6;
	else if (!v6 && name == IP_BIND_ADDRESS_NO_PORT)
		number = d->wishes.no_port;
	else
		return -ENOPROTOOPT;
	return value_give(value, len, &number, sizeof(number));
}

static int ip_set(struct sy_tcp_context *c, struct descriptor *d, int level, int name,
                  const void *value, socklen_t len)
{
	bool v6 = level == IPPROTO_IPV6;
	int number, rc = value_int(value, len, &number);

	if (rc)
		return rc;
	if (name == (v6 ? IPV6_TCLASS : IP_TOS)) {
		if (number < -1 || number > UINT8_MAX)
			return -EINVAL;
		d->wishes.tos = (uint8_t)(number < 0 ? 0 : number & ~3); /* ECN is TCP's */
		wish_apply(c, d, SY_STACK_TOS, d->wishes.tos);
		return 0;
	}
	if (v6 && name == IPV6_V6ONLY) {
		if (d->bound || d->phase != PHASE_NEW)
			return -EINVAL;
		d->wishes.only_v6 = number != 0;
		return 0;
	}
	if (!v6 && name == IP_BIND_ADDRESS_NO_PORT) {
		d->wishes.no_port = number != 0;
		return 0;
	}
	return -ENOPROTOOPT;
}

/* ---- calls ----------------------------------------------------------------------------------- */

int sy_tcp_getsockopt(struct sy_tcp_context *c, int fd, int level, int name, void *value,
                      socklen_t *len)
{
	int rc;
	struct descriptor *d = socket_of(c, fd, &rc);

	if (!d)
		return rc;
	switch (level) {
	case SOL_SOCKET:
		return socket_get(c, d, name, value, len);
	case IPPROTO_TCP:
		return tcp_get(c, d, name, value, len);
	case IPPROTO_IPV6:
		if (!d->v6)
			return -EOPNOTSUPP;
		return ip_get(d, level, name, value, len);
	case IPPROTO_IP:
		return ip_get(d, level, name, value, len);
	default:
		return d->v6 ? -ENOPROTOOPT : -EOPNOTSUPP;
	}
}

int sy_tcp_setsockopt(struct sy_tcp_context *c, int fd, int level, int name, const void *value,
                      socklen_t len)
{
	int rc;
	struct descriptor *d = socket_of(c, fd, &rc);

	if (!d)
		return rc;
	switch (level) {
	case SOL_SOCKET:
		return socket_set(c, d, name, value, len);
	case IPPROTO_TCP:
		return tcp_set(c, d, name, value, len);
	case IPPROTO_IPV6:
		if (!d->v6)
			return -ENOPROTOOPT;
		return ip_set(c, d, level, name, value, len);
	case IPPROTO_IP:
		return ip_set(c, d, level, name, value, len);
	default:
		return -ENOPROTOOPT;
	}
}

int sy_tcp_ioctl(struct sy_tcp_context *c, int fd, unsigned long request, int *value)
{
	int rc;
	struct descriptor *d = socket_of(c, fd, &rc);
	struct sy_stack_info info = {0};

	if (!d)
		return rc == -ENOTSOCK ? -ENOTTY : rc;
	if (d->phase >= PHASE_CONNECTING)
		sy_stack_info(c->stack, d->id, &info);
	if (d->phase == PHASE_LISTENING && request != SIOCATMARK)
		return request == FIONREAD || request == SIOCOUTQ || request == SIOCOUTQNSD
		               ? -EINVAL
		               : -ENOTTY;
	return sy_stack_linux_ioctl(&info, request, value);
}

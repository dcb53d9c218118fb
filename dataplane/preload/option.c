// SPDX-License-Identifier: Apache-2.0
/* Socket options of the stack's sockets. */
#include <errno.h>
#include <netinet/tcp.h>

#include "option.h"
#include "real.h"

#define KEEP_IDLE     7200u /* Linux's own, as it comes */
#define KEEP_INTERVAL 75u
#define KEEP_PROBES   9u

/* ---- to the stack ---------------------------------------------------------------------------- */

/* The stack's number: what is more, no port can do. */
static uint32_t pacing_of(const struct sock *s)
{
	uint64_t rate = s->pacing_rate - 1;
	return rate < UINT32_MAX ? (uint32_t)rate : UINT32_MAX;
}

static void set(sy_stack_id id, enum sy_stack_option option, uint32_t value)
{
	if (runner.stack && id != SY_STACK_NONE)
		sy_stack_set(runner.stack, id, option, value, sy_clock_ns());
}

static void keepalive_apply(const struct sock *s, sy_stack_id id)
{
	set(id, SY_STACK_KEEPALIVE_INTERVAL_S, s->keepintvl ? s->keepintvl : KEEP_INTERVAL);
	set(id, SY_STACK_KEEPALIVE_PROBES, s->keepcnt ? s->keepcnt : KEEP_PROBES);
	set(id, SY_STACK_KEEPALIVE_S, !s->keepalive ? 0 : s->keepidle ? s->keepidle : KEEP_IDLE);
}

void options_apply(struct sock *s, sy_stack_id id)
{
	if (s->nodelay)
		set(id, SY_STACK_NO_DELAY, 1);
	if (s->keepalive)
		keepalive_apply(s, id);
	if (s->user_timeout)
		set(id, SY_STACK_USER_TIMEOUT_MS, s->user_timeout);
	if (s->tos)
		set(id, SY_STACK_TOS, s->tos);
	if (s->cork)
		set(id, SY_STACK_CORK, 1);
	if (s->mss)
		set(id, SY_STACK_MSS, s->mss);
	if (s->sndbuf)
		set(id, SY_STACK_SEND_BYTES, s->sndbuf);
	if (s->rcvbuf)
		set(id, SY_STACK_RECEIVE_BYTES, s->rcvbuf);
	if (s->pacing_rate)
		set(id, SY_STACK_PACING_RATE, pacing_of(s));
	if (s->priority)
		set(id, SY_STACK_PRIORITY, s->priority);
}

/* ---- set ------------------------------------------------------------------------------------- */

static void each(struct sock *s, enum sy_stack_option option, uint32_t value)
{
	set(s->id, option, value);
	set(s->id_v4, option, value);
}

/* Has no effect; the kernel's socket has its value. */
static bool is_kept(int name)
{
	/* TCP_DEFER_ACCEPT: the program waits for the first bytes itself. */
	return name == TCP_DEFER_ACCEPT || name == TCP_NOTSENT_LOWAT || name == TCP_LINGER2 ||
	       name == TCP_SYNCNT;
}

static int tcp_set(struct sock *s, int name, uint32_t v)
{
	switch (name) {
	case TCP_NODELAY:
		s->nodelay = v;
		each(s, SY_STACK_NO_DELAY, v != 0);
		return 0;
	case TCP_CORK:
		s->cork = v;
		each(s, SY_STACK_CORK, v != 0);
		return 0;
	case TCP_QUICKACK:
		s->quickack_off = !v;
		each(s, SY_STACK_QUICK_ACK, v != 0);
		return 0;
	case TCP_KEEPIDLE:
	case TCP_KEEPINTVL:
	case TCP_KEEPCNT:
		if (v < 1 || v > (name == TCP_KEEPCNT ? 127 : 32767))
			return -EINVAL;
		*(name == TCP_KEEPIDLE    ? &s->keepidle
		  : name == TCP_KEEPINTVL ? &s->keepintvl
		                          : &s->keepcnt) = v;
		keepalive_apply(s, s->id);
		keepalive_apply(s, s->id_v4);
		return 0;
	case TCP_USER_TIMEOUT:
		if ((int)v < 0)
			return -EINVAL;
		s->user_timeout = v;
		each(s, SY_STACK_USER_TIMEOUT_MS, v);
		return 0;
	case TCP_MAXSEG:
		if (v && (v < 88 || v > 32767))
			return -EINVAL;
		s->mss = v;
		each(s, SY_STACK_MSS, v);
		return 0;
	}
	return is_kept(name) ? 0 : -ENOPROTOOPT;
}

/* Linux has bounds for sizes, and its own socket tells what it makes of one. */
static int buffer_set(struct sock *s, int fd, int name, uint32_t v)
{
	if (fd < 0) /* a relay's: the program's end has buffers of its own */
		return 0;
	if (s->o.kind == OBJECT_CONNECTION && REAL(setsockopt)(fd, SOL_SOCKET, name, &v, sizeof(v)))
		return -errno;
	option_keep(s, fd, SOL_SOCKET, name, (int)v);
	if (name == SO_SNDBUF || name == SO_SNDBUFFORCE)
		each(s, SY_STACK_SEND_BYTES, s->sndbuf);
	else
		each(s, SY_STACK_RECEIVE_BYTES, s->rcvbuf);
	return 0;
}

static int socket_set(struct sock *s, int fd, int name, const void *value, socklen_t len)
{
	uint32_t v;

	memcpy(&v, value, sizeof(v));
	switch (name) {
	case SO_KEEPALIVE:
		s->keepalive = v;
		keepalive_apply(s, s->id);
		keepalive_apply(s, s->id_v4);
		return 0;
	case SO_LINGER:
		if (len < sizeof(s->linger))
			return -EINVAL;
		memcpy(&s->linger, value, sizeof(s->linger));
		return 0;
	case SO_SNDBUF:
	case SO_RCVBUF:
	case SO_SNDBUFFORCE:
	case SO_RCVBUFFORCE:
		return buffer_set(s, fd, name, v);
	case SO_RCVTIMEO:
	case SO_SNDTIMEO:
		if (len < sizeof(struct timeval))
			return -EINVAL;
		*(name == SO_RCVTIMEO ? &s->receive_ns : &s->send_ns) = option_time(value);
		return 0;
	case SO_REUSEADDR:
		s->reuse = v;
		return 0;
	case SO_MAX_PACING_RATE:
		s->pacing_rate = option_rate(value, len);
		each(s, SY_STACK_PACING_RATE, pacing_of(s));
		return 0;
	case SO_PRIORITY:
		s->priority = v;
		each(s, SY_STACK_PRIORITY, v);
		return 0;
	case SO_REUSEPORT:
	case SO_OOBINLINE:
	case SO_RCVLOWAT:
	case SO_DONTROUTE:
	case SO_TIMESTAMP:
	case SO_INCOMING_CPU:
	case SO_BUSY_POLL:
		return 0;
	}
	return -ENOPROTOOPT;
}

static bool is_tos(int level, int name)
{
	return (level == IPPROTO_IP && name == IP_TOS) ||
	       (level == IPPROTO_IPV6 && name == IPV6_TCLASS);
}

static int ip_set(struct sock *s, int level, int name, int v)
{
	if (!is_tos(level, name))
		return -ENOPROTOOPT;
	if (level == IPPROTO_IPV6 && (v < -1 || v > UINT8_MAX))
		return -EINVAL;
	s->tos = v < 0 && level == IPPROTO_IPV6 ? 0 : (uint32_t)v & 0xfc; /* ECN is TCP's */
	each(s, SY_STACK_TOS, s->tos);
	return 0;
}

int option_set(struct sock *s, int fd, int level, int name, const void *value, socklen_t len)
{
	uint32_t v;

	memcpy(&v, value, sizeof(v));
	return level == IPPROTO_TCP  ? tcp_set(s, name, v)
	       : level == SOL_SOCKET ? socket_set(s, fd, name, value, len)
	                             : ip_set(s, level, name, (int)v);
}

PRELOAD_EXPORT int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	struct sock *s = table_sock(fd);
	bool listens = s && s->o.kind == OBJECT_LISTENER;
	int rc;

	if (!s && relay_has(fd))
		return (int)result(relay_option_set(fd, level, name, value, len));
	if (!s)
		return option_plain_set(fd, level, name, value, len);
	if (!value)
		return (int)result(-EFAULT);
	if (listens && option_binds(level, name, value, len))
		return (int)result(-ENOPROTOOPT);
	/* Accepted connections share one socket of the kernel. */
	bool kept = !s->accepted && level == IPPROTO_TCP && is_kept(name);
	if ((listens || kept) && REAL(setsockopt)(fd, level, name, value, len))
		return -1;
	if (len < sizeof(int))
		return listens ? 0 : (int)result(-EINVAL);
	if (!runner_lock())
		return (int)result(-EAGAIN);
	s = table_sock(fd); /* another thread may have closed it */
	if (!s) {
		runner_unlock();
		return (int)result(-EBADF);
	}
	rc = option_set(s, fd, level, name, value, len);
	if (rc == -ENOPROTOOPT && s->o.kind == OBJECT_LISTENER)
		rc = 0; /* the kernel has taken it */
	runner_flush();
	runner_unlock();
	return (int)result(rc);
}

/* ---- get ------------------------------------------------------------------------------------- */

/* An option's value of so many bytes; 0: there is none such. */
static socklen_t tcp_get(const struct sock *s, int name, void *out)
{
	int *v = out;

	switch (name) {
	case TCP_INFO:
		return info_get(s, out);
	case TCP_NODELAY:
		*v = s->nodelay;
		break;
	case TCP_CORK:
		*v = s->cork;
		break;
	case TCP_QUICKACK:
		*v = !s->quickack_off;
		break;
	case TCP_KEEPIDLE:
		*v = (int)(s->keepidle ? s->keepidle : KEEP_IDLE);
		break;
	case TCP_KEEPINTVL:
		*v = (int)(s->keepintvl ? s->keepintvl : KEEP_INTERVAL);
		break;
	case TCP_KEEPCNT:
		*v = (int)(s->keepcnt ? s->keepcnt : KEEP_PROBES);
		break;
	case TCP_USER_TIMEOUT:
		*v = (int)s->user_timeout;
		break;
	case TCP_MAXSEG:
		*v = (int)info_of(s).mss;
		break;
	default:
		return 0;
	}
	return sizeof(int);
}

static socklen_t int_get(int value, void *out)
{
	memcpy(out, &value, sizeof(value));
	return sizeof(value);
}

static socklen_t time_get(uint64_t ns, void *out)
{
	struct timeval t = {(time_t)(ns / 1000000000), (suseconds_t)(ns % 1000000000 / 1000)};
	memcpy(out, &t, sizeof(t));
	return sizeof(t);
}

/* As the kernel does: 64 bits where there is room for them. */
static socklen_t pacing_get(const struct sock *s, void *out, socklen_t len)
{
	uint64_t rate = s->pacing_rate - 1;
	uint32_t least = pacing_of(s);

	memcpy(out, len < sizeof(rate) ? (void *)&least : (void *)&rate,
	       len < sizeof(rate) ? sizeof(least) : sizeof(rate));
	return len < sizeof(rate) ? sizeof(least) : sizeof(rate);
}

static socklen_t socket_get(struct sock *s, int name, void *out, socklen_t len)
{
	int *v = out;

	switch (name) {
	case SO_MAX_PACING_RATE:
		return pacing_get(s, out, len);
	case SO_ERROR:
		*v = runner.stack ? sy_stack_error(runner.stack, s->id) : 0;
		break;
	case SO_TYPE:
		*v = SOCK_STREAM;
		break;
	case SO_DOMAIN:
		*v = s->family;
		break;
	case SO_PROTOCOL:
		*v = IPPROTO_TCP;
		break;
	case SO_ACCEPTCONN:
		*v = 0;
		break;
	case SO_KEEPALIVE:
		*v = s->keepalive;
		break;
	case SO_REUSEADDR:
		*v = s->reuse;
		break;
	case SO_PRIORITY:
		*v = (int)s->priority;
		break;
	case SO_SNDBUF:
		*v = (int)(s->sndbuf ? s->sndbuf : 4u << 20);
		break;
	case SO_RCVBUF:
		*v = (int)(s->rcvbuf ? s->rcvbuf : 6u << 20);
		break;
	case SO_LINGER:
		memcpy(out, &s->linger, sizeof(s->linger));
		return sizeof(s->linger);
	case SO_RCVTIMEO:
		return time_get(s->receive_ns, out);
	case SO_SNDTIMEO:
		return time_get(s->send_ns, out);
	default:
		return 0;
	}
	return sizeof(int);
}

socklen_t option_get(struct sock *s, int level, int name, void *out, socklen_t len)
{
	if (level == IPPROTO_TCP)
		return tcp_get(s, name, out);
	if (level == SOL_SOCKET)
		return socket_get(s, name, out, len);
	return is_tos(level, name) ? int_get((int)s->tos, out) : 0;
}

PRELOAD_EXPORT int getsockopt(int fd, int level, int name, void *restrict value,
                              socklen_t *restrict len)
{
	struct sock *s = table_connection(fd);
	_Alignas(8) char out[INFO_BYTES];
	socklen_t size = 0;

	if (!s && relay_has(fd) && len && value)
		return (int)result(relay_option_get(fd, level, name, value, len));
	if (!s)
		return REAL(getsockopt)(fd, level, name, value, len);
	if (len && (int)*len < 0)
		return (int)result(-EINVAL);
	if (!len || (!value && *len))
		return (int)result(-EFAULT);
	if (!runner_lock())
		return (int)result(-EAGAIN);
	s = table_connection(fd); /* another thread may have closed it */
	if (!s) {
		runner_unlock();
		return (int)result(-EBADF);
	}
	size = option_get(s, level, name, out, *len);
	runner_unlock();
	if (!size) /* a fact of the family, or nothing that the stack has */
		return level == IPPROTO_TCP && !is_kept(name)
		               ? (int)result(-ENOPROTOOPT)
		               : REAL(getsockopt)(fd, level, name, value, len);
	*len = *len < size ? *len : size;
	if (*len)
		memcpy(value, out, *len);
	return 0;
}

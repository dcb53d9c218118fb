// SPDX-License-Identifier: Apache-2.0
/* getsockopt(), setsockopt() and ioctl(): options that only the library has, in front of those of
 * sy_socket_option.h. */
#include <errno.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <sy_stack_linux.h>

#include "context_option.h"

/* Linux's initial net.ipv4.tcp_wmem and tcp_rmem, and its limits. */
#define SEND_BYTES        16384
#define RECEIVE_BYTES     131072
#define MIN_SEND_BYTES    4608
#define MIN_RECEIVE_BYTES 2304
#define MAX_BYTES         (INT32_MAX / 2)
#define HOPS              64 /* of all packets */

/* ---- values ---------------------------------------------------------------------------------- */

int value_copy(void *to, socklen_t *len, const void *from, size_t size)
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

/* ---- get ------------------------------------------------------------------------------------- */

/* Returns -1 if it is no option of SOL_SOCKET here. */
static int64_t socket_number(struct sy_tcp_context *c, struct descriptor *d, int name)
{
	const struct sy_socket_options *o = &d->options;

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
	case SO_SNDBUF: /* doubled, as on Linux */
		return 2 * (int64_t)(o->send_bytes ? o->send_bytes : SEND_BYTES / 2);
	case SO_RCVBUF:
		return 2 * (int64_t)(o->receive_bytes ? o->receive_bytes : RECEIVE_BYTES / 2);
	case SO_RCVLOWAT:
		return o->receive_low_water;
	case SO_INCOMING_CPU:
		return (int64_t)c->number;
	case SO_OOBINLINE:
	case SO_SNDLOWAT:
		return 1;
	case SO_DONTROUTE:
	case SO_DEBUG:
	case SO_TIMESTAMP:
	case SO_MARK:
		return 0;
	default:
		return -1;
	}
}

/* The same for IPPROTO_IP and IPPROTO_IPV6. */
static int64_t ip_number(const struct descriptor *d, bool v6, int name)
{
	if (name == (v6 ? IPV6_UNICAST_HOPS : IP_TTL))
		return HOPS;
	if (v6 && name == IPV6_V6ONLY)
		return d->options.only_v6;
	if (!v6 && name == IP_BIND_ADDRESS_NO_PORT)
		return d->options.no_port;
	return -1;
}

static int number_get(int64_t number, void *value, socklen_t *len)
{
	return number < 0 ? -ENOPROTOOPT : value_copy(value, len, &(int){(int)number}, sizeof(int));
}

int sy_tcp_getsockopt(struct sy_tcp_context *c, int fd, int level, int name, void *value,
                      socklen_t *len)
{
	uint8_t bytes[SY_SOCKET_OPTION_BYTES];
	int rc;
	struct descriptor *d = socket_of(c, fd, &rc);

	if (!d)
		return rc;
	switch (level) {
	case SOL_SOCKET:
		rc = number_get(socket_number(c, d, name), value, len);
		break;
	case IPPROTO_TCP:
		rc = tcp_get(c, d, name, value, len);
		break;
	case IPPROTO_IPV6:
		if (!d->v6)
			return -EOPNOTSUPP;
		/* fall through */
	case IPPROTO_IP:
		rc = number_get(ip_number(d, level == IPPROTO_IPV6, name), value, len);
		break;
	default:
		return d->v6 ? -ENOPROTOOPT : -EOPNOTSUPP;
	}
	if (rc != -ENOPROTOOPT)
		return rc;
	socklen_t size = sy_socket_option_get(&d->options, level, name, *len, bytes);
	return size ? value_copy(value, len, bytes, size) : -ENOPROTOOPT;
}

/* ---- set ------------------------------------------------------------------------------------- */

static uint32_t bytes_of(int value, uint32_t min)
{
	uint32_t bytes = value < 0 || value > MAX_BYTES ? MAX_BYTES : (uint32_t)value;

	return bytes < min / 2 ? min / 2 : bytes;
}

static void buffers_apply(struct sy_tcp_context *c, const struct descriptor *d,
                          enum sy_stack_option option, uint32_t bytes)
{
	if (d->phase != PHASE_NEW)
		sy_stack_set(c->stack, d->id, option, bytes, context_now(c));
}

static int socket_set(struct sy_tcp_context *c, struct descriptor *d, int name, const void *value,
                      socklen_t len)
{
	struct sy_socket_options *o = &d->options;
	int number = 0, rc = value_int(value, len, &number);

	switch (name) {
	case SO_OOBINLINE: /* always on in the stack */
		return rc ? rc : number ? 0 : -ENOPROTOOPT;
	case SO_SNDBUF:
	case SO_SNDBUFFORCE:
		if (rc)
			return rc;
		o->send_bytes = bytes_of(number, MIN_SEND_BYTES);
		buffers_apply(c, d, SY_STACK_SEND_BYTES, o->send_bytes);
		return 0;
	case SO_RCVBUF:
	case SO_RCVBUFFORCE:
		if (rc)
			return rc;
		o->receive_bytes = bytes_of(number, MIN_RECEIVE_BYTES);
		buffers_apply(c, d, SY_STACK_RECEIVE_BYTES, o->receive_bytes);
		return 0;
	case SO_RCVLOWAT:
		if (rc)
			return rc;
		o->receive_low_water = number < 0 ? INT32_MAX : number == 0 ? 1 : (uint32_t)number;
		descriptor_news(c, d);
		return 0;
	default:
		return -ENOPROTOOPT;
	}
}

static int ip_set(struct descriptor *d, int level, int name, const void *value, socklen_t len)
{
	bool v6 = level == IPPROTO_IPV6;
	int number, rc = value_int(value, len, &number);

	if (rc)
		return rc;
	if (v6 && name == IPV6_V6ONLY) {
		if (d->bound || d->phase != PHASE_NEW)
			return -EINVAL;
		d->options.only_v6 = number != 0;
		return 0;
	}
	if (!v6 && name == IP_BIND_ADDRESS_NO_PORT) {
		d->options.no_port = number != 0;
		return 0;
	}
	return -ENOPROTOOPT;
}

void options_apply(struct sy_tcp_context *c, const struct descriptor *d)
{
	sy_socket_options_apply(&d->options, c->stack, d->id, context_now(c));
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
		rc = socket_set(c, d, name, value, len);
		break;
	case IPPROTO_TCP:
		rc = tcp_set(c, name, value, len);
		break;
	case IPPROTO_IPV6:
		if (!d->v6)
			return -ENOPROTOOPT;
		/* fall through */
	case IPPROTO_IP:
		rc = ip_set(d, level, name, value, len);
		break;
	default:
		return -ENOPROTOOPT;
	}
	if (rc != -ENOPROTOOPT)
		return rc;
	rc = sy_socket_option_set(&d->options, level, name, value, len);
	if (rc == 0 && d->phase != PHASE_NEW)
		sy_socket_option_apply(&d->options, level, name, c->stack, d->id, context_now(c));
	return rc;
}

/* ---- ioctl() --------------------------------------------------------------------------------- */

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

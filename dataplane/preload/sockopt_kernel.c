// SPDX-License-Identifier: Apache-2.0
/* Options of a socket that is still the kernel's: those that the stack copies later, and those that
 * leave the socket to Linux. */
#include <errno.h>
#include <net/if.h>
#include <netinet/tcp.h>

#include "real.h"
#include "sockopt.h"

#ifndef TCP_AO_ADD_KEY /* Linux 6.7 */
#define TCP_AO_ADD_KEY 38
#endif

static int kernel_int(int fd, int level, int name)
{
	int value = 0;
	socklen_t len = sizeof(value);

	REAL(getsockopt)(fd, level, name, &value, &len);
	return value;
}

/* Omits sizes of buffers and segments: Linux reports them even if none was set, and the stack
 * adjusts its own. option_keep() stores those that are set. */
void options_read(struct sock *s, int fd)
{
	static const struct {
		int level, name;
	} all[] = {{SOL_SOCKET, SO_REUSEADDR},
	           {SOL_SOCKET, SO_REUSEPORT},
	           {SOL_SOCKET, SO_BROADCAST},
	           {SOL_SOCKET, SO_KEEPALIVE},
	           {SOL_SOCKET, SO_LINGER},
	           {SOL_SOCKET, SO_PRIORITY},
	           {SOL_SOCKET, SO_RCVTIMEO},
	           {SOL_SOCKET, SO_SNDTIMEO},
	           {IPPROTO_TCP, TCP_NODELAY},
	           {IPPROTO_TCP, TCP_CORK},
	           {IPPROTO_TCP, TCP_KEEPIDLE},
	           {IPPROTO_TCP, TCP_KEEPINTVL},
	           {IPPROTO_TCP, TCP_KEEPCNT},
	           {IPPROTO_TCP, TCP_USER_TIMEOUT},
	           {IPPROTO_IP, IP_TOS},
	           {IPPROTO_IPV6, IPV6_TCLASS},
	           {SOL_SOCKET, SO_MAX_PACING_RATE}};
	uint8_t value[SY_SOCKET_OPTION_BYTES];

	for (unsigned i = 0; i < SY_ARRAY_LEN(all); i++) {
		socklen_t len = sizeof(value);
		if (all[i].level == (s->family == AF_INET6 ? IPPROTO_IP : IPPROTO_IPV6))
			continue;
		if (REAL(getsockopt)(fd, all[i].level, all[i].name, value, &len) == 0)
			sy_socket_option_set(&s->options, all[i].level, all[i].name, value, len);
	}
}

void option_keep(struct sock *s, int fd, int level, int name, int value)
{
	if (level == IPPROTO_TCP && name == TCP_MAXSEG)
		s->options.mss = (uint16_t)value;
	if (level != SOL_SOCKET)
		return;
	if (name == SO_SNDBUF || name == SO_SNDBUFFORCE)
		s->options.send_bytes = (uint32_t)kernel_int(fd, level, SO_SNDBUF);
	if (name == SO_RCVBUF || name == SO_RCVBUFFORCE)
		s->options.receive_bytes = (uint32_t)kernel_int(fd, level, SO_RCVBUF);
}

static bool is_served(const char *interface, socklen_t len)
{
	const struct message_answer *c = supervisor_config();
	size_t size = strnlen(interface, len);

	return c && strlen(c->ifname) == size && memcmp(c->ifname, interface, size) == 0;
}

/* Options that the program relies on and the stack does not implement: where packets go, and which
 * are accepted. Linux reports these, as 0 when they are off... */
static const struct {
	int level, name;
} binding[] = {{SOL_SOCKET, SO_MARK},
               {IPPROTO_IP, IP_MINTTL},
               {IPPROTO_IP, IP_TRANSPARENT},
               {IPPROTO_IP, IP_OPTIONS},
               {IPPROTO_IPV6, IPV6_MINHOPCOUNT},
               {IPPROTO_IPV6, IPV6_TRANSPARENT},
               {IPPROTO_TCP, TCP_REPAIR}};
#define BINDING (sizeof(binding) / sizeof(*binding))

/* ... and these it does not report. */
static bool option_is_hidden(int level, int name)
{
	if (level == IPPROTO_TCP)
		return name == TCP_MD5SIG || name == TCP_MD5SIG_EXT || name == TCP_AO_ADD_KEY;
	return level == SOL_SOCKET && (name == SO_ATTACH_FILTER || name == SO_ATTACH_BPF);
}

bool option_binds(int level, int name, const void *value, socklen_t len)
{
	char interface[IFNAMSIZ] = {0};
	int v = 0;

	memcpy(&v, value, len < sizeof(v) ? len : sizeof(v));
	if (level == SOL_SOCKET && name == SO_BINDTODEVICE)
		return len > 0 && *(const char *)value && !is_served(value, len);
	if (level == SOL_SOCKET && name == SO_BINDTOIFINDEX)
		return v > 0 && !(if_indextoname((unsigned)v, interface) &&
		                  is_served(interface, sizeof(interface)));
	for (unsigned i = 0; i < BINDING; i++)
		if (level == binding[i].level && name == binding[i].name)
			return name == TCP_REPAIR && level == IPPROTO_TCP ? v > 0 : v != 0;
	return option_is_hidden(level, name);
}

bool options_bind(int fd)
{
	const struct sock *s = table_plain(fd);
	char interface[IFNAMSIZ] = {0};
	socklen_t len = sizeof(interface);

	if (s && s->linux_only)
		return true;
	for (unsigned i = 0; i < BINDING; i++)
		if (kernel_int(fd, binding[i].level, binding[i].name))
			return true;
	return REAL(getsockopt)(fd, SOL_SOCKET, SO_BINDTODEVICE, interface, &len) == 0 && len > 0 &&
	       !is_served(interface, len);
}

int option_plain_set(int fd, int level, int name, const void *value, socklen_t len)
{
	int v = 0;

	if (REAL(setsockopt)(fd, level, name, value, len))
		return -1;
	if (!table_plain(fd) || !runner_lock())
		return 0;
	struct sock *s = table_plain(fd); /* another thread may have closed it */
	if (value && len >= sizeof(v))    /* for some options Linux accepts no value as 0 */
		memcpy(&v, value, sizeof(v));
	if (s && option_is_hidden(level, name))
		s->linux_only = true;
	else if (s)
		option_keep(s, fd, level, name, v);
	runner_unlock();
	return 0;
}

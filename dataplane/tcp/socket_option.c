// SPDX-License-Identifier: Apache-2.0
#include <sy_socket_option.h>

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <string.h>
#include <sys/time.h>

#include <sy_base.h>

#define NONE        (-1) /* no option of the stack */
#define MAX_SECONDS (INT64_MAX / 1000000000)

/* How a value is stored. */
enum form {
	FLAG,    /* any number but 0 is 1 */
	NUMBER,  /* within the limits */
	NUMBER0, /* likewise, or 0 */
	DSCP,    /* likewise; ECN bits are TCP's */
	QUICK_ACK,
	LINGER,
	TIMEOUT,
	RATE, /* 32 or 64 bits; all ones: no limit */
};

struct option {
	int level, name;
	enum form form;
	size_t at, bytes; /* of the field */
	int min, max;     /* Linux fails with EINVAL beyond these */
	int stack;        /* enum sy_stack_option */
};

#define FIELD(f) offsetof(struct sy_socket_options, f), sizeof(((struct sy_socket_options *)0)->f)
#define ANY      INT32_MIN, INT32_MAX
#define SECONDS  1, 32767
#define OPTION(...)                                                                                \
	{                                                                                          \
		__VA_ARGS__                                                                        \
	}

static const struct option options[] = {
        OPTION(SOL_SOCKET, SO_REUSEADDR, FLAG, FIELD(reuse_addr), ANY, NONE),
        OPTION(SOL_SOCKET, SO_REUSEPORT, FLAG, FIELD(reuse_port), ANY, NONE),
        OPTION(SOL_SOCKET, SO_BROADCAST, FLAG, FIELD(broadcast), ANY, NONE),
        OPTION(SOL_SOCKET, SO_KEEPALIVE, FLAG, FIELD(keepalive), ANY, SY_STACK_KEEPALIVE_S),
        OPTION(SOL_SOCKET, SO_LINGER, LINGER, FIELD(linger), ANY, SY_STACK_LINGER_ABORT),
        OPTION(SOL_SOCKET, SO_PRIORITY, NUMBER, FIELD(priority), ANY, SY_STACK_PRIORITY),
        OPTION(SOL_SOCKET, SO_RCVTIMEO, TIMEOUT, FIELD(receive_timeout_ns), ANY, NONE),
        OPTION(SOL_SOCKET, SO_SNDTIMEO, TIMEOUT, FIELD(send_timeout_ns), ANY, NONE),
        OPTION(SOL_SOCKET, SO_MAX_PACING_RATE, RATE, FIELD(pacing_rate), ANY, SY_STACK_PACING_RATE),
        OPTION(IPPROTO_TCP, TCP_NODELAY, FLAG, FIELD(no_delay), ANY, SY_STACK_NO_DELAY),
        OPTION(IPPROTO_TCP, TCP_CORK, FLAG, FIELD(cork), ANY, SY_STACK_CORK),
        OPTION(IPPROTO_TCP, TCP_QUICKACK, QUICK_ACK, FIELD(quick_ack), ANY, SY_STACK_QUICK_ACK),
        OPTION(IPPROTO_TCP, TCP_MAXSEG, NUMBER0, FIELD(mss), 88, 32767, SY_STACK_MSS),
        OPTION(IPPROTO_TCP, TCP_KEEPIDLE, NUMBER, FIELD(keepalive_s), SECONDS,
               SY_STACK_KEEPALIVE_S),
        OPTION(IPPROTO_TCP, TCP_KEEPINTVL, NUMBER, FIELD(keepalive_interval_s), SECONDS,
               SY_STACK_KEEPALIVE_INTERVAL_S),
        OPTION(IPPROTO_TCP, TCP_KEEPCNT, NUMBER, FIELD(keepalive_probes), 1, 127,
               SY_STACK_KEEPALIVE_PROBES),
        OPTION(IPPROTO_TCP, TCP_USER_TIMEOUT, NUMBER, FIELD(user_timeout_ms), 0, INT32_MAX,
               SY_STACK_USER_TIMEOUT_MS),
        OPTION(IPPROTO_IP, IP_TOS, DSCP, FIELD(tos), ANY, SY_STACK_TOS),
        OPTION(IPPROTO_IPV6, IPV6_TCLASS, DSCP, FIELD(tos), -1, UINT8_MAX, SY_STACK_TOS),
};

static const struct option *option_find(int level, int name)
{
	for (unsigned i = 0; i < SY_ARRAY_LEN(options); i++)
		if (options[i].name == name && options[i].level == level)
			return &options[i];
	return NULL;
}

void sy_socket_options_init(struct sy_socket_options *o)
{
	*o = (struct sy_socket_options){.keepalive_s = 7200,
	                                .keepalive_interval_s = 75,
	                                .keepalive_probes = 9,
	                                .receive_low_water = 1,
	                                .pacing_rate = UINT64_MAX};
}

/* ---- set ------------------------------------------------------------------------------------- */

static int linger_set(struct sy_socket_options *o, const void *value, socklen_t len)
{
	struct linger l;

	if (len < sizeof(l))
		return -EINVAL;
	memcpy(&l, value, sizeof(l));
	o->linger = l.l_onoff != 0;
	if (o->linger)
		o->linger_s = (uint32_t)l.l_linger;
	return 0;
}

/* A negative time is over at once, and one beyond the clock never. */
static int timeout_set(uint64_t *ns, const void *value, socklen_t len)
{
	struct timeval t;

	if (len < sizeof(t))
		return -EINVAL;
	memcpy(&t, value, sizeof(t));
	if (t.tv_usec < 0 || t.tv_usec >= 1000000)
		return -EDOM;
	if (t.tv_sec < 0)
		*ns = 1;
	else if (t.tv_sec >= MAX_SECONDS)
		*ns = 0;
	else
		*ns = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_usec * 1000;
	return 0;
}

static void rate_set(uint64_t *rate, const void *value, socklen_t len)
{
	uint32_t low;

	memcpy(&low, value, sizeof(low));
	*rate = low == UINT32_MAX ? UINT64_MAX : low;
	if (len >= sizeof(*rate))
		memcpy(rate, value, sizeof(*rate));
}

static int number_set(struct sy_socket_options *o, const struct option *p, int value)
{
	uint32_t stored = (uint32_t)value;

	if ((value < p->min || value > p->max) && !(p->form == NUMBER0 && value == 0))
		return -EINVAL;
	if (p->form == FLAG)
		stored = value != 0;
	else if (p->form == QUICK_ACK)
		stored = value ? SY_QUICK_ACK_ON : SY_QUICK_ACK_OFF;
	else if (p->form == DSCP)
		stored = value == -1 && p->level == IPPROTO_IPV6 ? 0 : (uint32_t)value & 0xfc;
	memcpy((char *)o + p->at, &stored, p->bytes); /* little-endian */
	return 0;
}

int sy_socket_option_set(struct sy_socket_options *o, int level, int name, const void *value,
                         socklen_t len)
{
	const struct option *p = option_find(level, name);
	int number;

	if (len < sizeof(number))
		return -EINVAL;
	if (!p)
		return -ENOPROTOOPT;
	switch (p->form) {
	case LINGER:
		return linger_set(o, value, len);
	case TIMEOUT:
		return timeout_set((uint64_t *)((char *)o + p->at), value, len);
	case RATE:
		rate_set(&o->pacing_rate, value, len);
		return 0;
	default:
		memcpy(&number, value, sizeof(number));
		return number_set(o, p, number);
	}
}

/* ---- get ------------------------------------------------------------------------------------- */

static uint32_t rate_low(const struct sy_socket_options *o)
{
	return o->pacing_rate < UINT32_MAX ? (uint32_t)o->pacing_rate : UINT32_MAX;
}

static socklen_t value_copy(void *to, const void *from, size_t size)
{
	memcpy(to, from, size);
	return (socklen_t)size;
}

static socklen_t timeout_get(uint64_t ns, void *value)
{
	struct timeval t = {(time_t)(ns / 1000000000), (suseconds_t)(ns % 1000000000 / 1000)};

	return value_copy(value, &t, sizeof(t));
}

socklen_t sy_socket_option_get(const struct sy_socket_options *o, int level, int name,
                               socklen_t len, uint8_t value[static SY_SOCKET_OPTION_BYTES])
{
	const struct option *p = option_find(level, name);
	uint32_t number = 0;
	uint64_t ns;

	if (!p)
		return 0;
	switch (p->form) {
	case LINGER:
		return value_copy(value, &(struct linger){o->linger, (int)o->linger_s},
		                  sizeof(struct linger));
	case TIMEOUT:
		memcpy(&ns, (const char *)o + p->at, sizeof(ns));
		return timeout_get(ns, value);
	case RATE:
		number = rate_low(o);
		return len < sizeof(o->pacing_rate)
		               ? value_copy(value, &number, sizeof(number))
		               : value_copy(value, &o->pacing_rate, sizeof(o->pacing_rate));
	case QUICK_ACK:
		number = o->quick_ack != SY_QUICK_ACK_OFF;
		break;
	default:
		memcpy(&number, (const char *)o + p->at, p->bytes);
	}
	return value_copy(value, &number, sizeof(number));
}

/* ---- to the stack ---------------------------------------------------------------------------- */

static uint32_t stack_value(const struct sy_socket_options *o, enum sy_stack_option option)
{
	switch (option) {
	case SY_STACK_NO_DELAY:
		return o->no_delay;
	case SY_STACK_CORK:
		return o->cork;
	case SY_STACK_QUICK_ACK:
		return o->quick_ack == SY_QUICK_ACK_ON;
	case SY_STACK_KEEPALIVE_S:
		return o->keepalive ? o->keepalive_s : 0;
	case SY_STACK_KEEPALIVE_INTERVAL_S:
		return o->keepalive_interval_s;
	case SY_STACK_KEEPALIVE_PROBES:
		return o->keepalive_probes;
	case SY_STACK_USER_TIMEOUT_MS:
		return o->user_timeout_ms;
	case SY_STACK_LINGER_ABORT:
		return o->linger && !o->linger_s;
	case SY_STACK_SEND_BYTES:
		return o->send_bytes;
	case SY_STACK_RECEIVE_BYTES:
		return o->receive_bytes;
	case SY_STACK_TOS:
		return o->tos;
	case SY_STACK_MSS:
		return o->mss;
	case SY_STACK_PACING_RATE:
		return rate_low(o); /* more is beyond any port */
	case SY_STACK_PRIORITY:
		return o->priority;
	default:
		return 0;
	}
}

void sy_socket_option_apply(const struct sy_socket_options *o, int level, int name,
                            struct sy_stack *s, sy_stack_id id, uint64_t now_ns)
{
	const struct option *p = option_find(level, name);
	enum sy_stack_option option;

	if (p && p->stack != NONE) {
		option = (enum sy_stack_option)p->stack;
		sy_stack_set(s, id, option, stack_value(o, option), now_ns);
	}
}

/* In this order: the probes' time and number before they are turned on. */
void sy_socket_options_apply(const struct sy_socket_options *o, struct sy_stack *s, sy_stack_id id,
                             uint64_t now_ns)
{
	static const enum sy_stack_option all[] = {
	        SY_STACK_NO_DELAY,
	        SY_STACK_CORK,
	        SY_STACK_QUICK_ACK,
	        SY_STACK_KEEPALIVE_INTERVAL_S,
	        SY_STACK_KEEPALIVE_PROBES,
	        SY_STACK_KEEPALIVE_S,
	        SY_STACK_USER_TIMEOUT_MS,
	        SY_STACK_LINGER_ABORT,
	        SY_STACK_SEND_BYTES,
	        SY_STACK_RECEIVE_BYTES,
	        SY_STACK_TOS,
	        SY_STACK_MSS,
	        SY_STACK_PACING_RATE,
	        SY_STACK_PRIORITY,
	};
	struct sy_socket_options initial;

	sy_socket_options_init(&initial);
	for (unsigned i = 0; i < SY_ARRAY_LEN(all); i++)
		if (stack_value(o, all[i]) != stack_value(&initial, all[i]))
			sy_stack_set(s, id, all[i], stack_value(o, all[i]), now_ns);
}

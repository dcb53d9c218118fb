// SPDX-License-Identifier: Apache-2.0
/* TCP_INFO as the kernel's header defines it, which is longer than the C library's; and ioctls. */
#include <errno.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <sy_stack_linux.h>

/* Linux' numbers of states. */
static uint8_t state_number(enum sy_stack_state state)
{
	static const uint8_t number[SY_STACK_STATE_COUNT] = {
	        [SY_STACK_ESTABLISHED] = 1, [SY_STACK_SYN_SENT] = 2,   [SY_STACK_SYN_RECEIVED] = 3,
	        [SY_STACK_FIN_WAIT_1] = 4,  [SY_STACK_FIN_WAIT_2] = 5, [SY_STACK_TIME_WAIT] = 6,
	        [SY_STACK_CLOSED] = 7,      [SY_STACK_CLOSE_WAIT] = 8, [SY_STACK_LAST_ACK] = 9,
	        [SY_STACK_LISTEN] = 10,     [SY_STACK_CLOSING] = 11,
	};
	return number[state];
}

static uint32_t segments(uint32_t bytes, uint32_t mss)
{
	return mss ? (bytes + mss - 1) / mss : 0;
}

static uint32_t bytes_not_sent(const struct sy_stack_info *i)
{
	return i->unsent > i->unacked ? i->unsent - i->unacked : 0;
}

int sy_stack_linux_ioctl(const struct sy_stack_info *i, unsigned long request, int *value)
{
	switch (request) {
	case FIONREAD:
		*value = (int)i->unread;
		return 0;
	case SIOCOUTQ: /* unacknowledged */
		*value = (int)i->unsent;
		return 0;
	case SIOCOUTQNSD:
		*value = (int)bytes_not_sent(i);
		return 0;
	case SIOCATMARK: /* at the urgent mark */
		*value = i->urgent == 1;
		return 0;
	default:
		return -ENOTTY;
	}
}

void sy_stack_linux_info(const struct sy_stack_info *i, struct tcp_info *out)
{
	*out = (struct tcp_info){
	        .tcpi_state = state_number(i->state),
	        .tcpi_retransmits = i->retries,
	        .tcpi_options =
	                (uint8_t)((i->timestamps ? TCPI_OPT_TIMESTAMPS : 0) |
	                          (i->sack ? TCPI_OPT_SACK : 0) | (i->scale ? TCPI_OPT_WSCALE : 0) |
	                          (i->ecn ? TCPI_OPT_ECN : 0)),
	        .tcpi_rto = i->rto_ms * 1000,
	        .tcpi_snd_mss = i->mss,
	        .tcpi_rcv_mss = i->mss,
	        .tcpi_advmss = i->mss,
	        .tcpi_unacked = segments(i->unacked, i->mss),
	        .tcpi_pmtu = i->path_mtu,
	        .tcpi_rtt = i->rtt_us,
	        .tcpi_rttvar = i->rtt_var_us,
	        .tcpi_min_rtt = i->rtt_min_us,
	        .tcpi_snd_cwnd = segments(i->window, i->mss),
	        .tcpi_snd_ssthresh = segments(i->threshold, i->mss),
	        .tcpi_rcv_space = i->receive_window,
	        .tcpi_total_retrans = i->retransmitted,
	        .tcpi_bytes_acked = i->sent,
	        .tcpi_bytes_received = i->received,
	        .tcpi_notsent_bytes = bytes_not_sent(i),
	        .tcpi_snd_wnd = i->peer_window,
	};
}

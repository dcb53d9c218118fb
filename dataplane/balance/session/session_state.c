// SPDX-License-Identifier: Apache-2.0
#include "session.h"

const char *session_state_name(enum session_state state)
{
	static const char *const names[SESSION_STATES] = {
	        [SESSION_FREE] = "free",
	        [SESSION_SYN_SENT] = "syn-sent",
	        [SESSION_SYN_RECEIVED] = "syn-received",
	        [SESSION_ESTABLISHED] = "established",
	        [SESSION_FIN_WAIT] = "fin-wait",
	        [SESSION_CLOSING] = "closing",
	        [SESSION_TIME_WAIT] = "time-wait",
	        [SESSION_RESET] = "reset",
	        [SESSION_UDP_ONE_WAY] = "udp-one-way",
	        [SESSION_UDP_BOTH_WAYS] = "udp",
	        [SESSION_ECHO] = "echo",
	        [SESSION_PAIR_RECORD] = "pair record",
	        [SESSION_RESET_BY_CLIENT] = "reset-by-client",
	        [SESSION_RESET_BY_SERVER] = "reset-by-server",
	        [SESSION_DYING] = "dying",
	        [SESSION_OPENING] = "opening",
	        [SESSION_UDP_ANSWERED] = "udp-answered",
	        [SESSION_AWAY] = "away",
	};
	return state < SESSION_STATES ? names[state] : "?";
}

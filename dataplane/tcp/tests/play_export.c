// SPDX-License-Identifier: Apache-2.0
/* Steps about connections that another TCP goes on with. */
#include "play.h"

#define BYTES 4096

void do_retire(struct play *p, char *words)
{
	WANT(p, sy_stack_retire(p->s, p->listener) == 0);
}

static void number_check(struct play *p, const char *name, uint32_t got, uint32_t want)
{
	if (got != want)
		FAIL(p, "%s is %u, not %u", name, got, want);
}

/* SND RCV WND UNREAD MSS SCALE TIME [sack] [ts] [ws] */
void do_export(struct play *p, char *words)
{
	struct sy_stack_export e;
	unsigned snd, rcv, wnd, unread, mss, scale, time;
	uint8_t bytes[BYTES];

	WANT(p, sscanf(words, "%u %u %u %u %u %u %u", &snd, &rcv, &wnd, &unread, &mss, &scale,
	               &time) == 7);
	WANT(p, sy_stack_export(p->s, p->c, &e, bytes, sizeof(bytes), p->now) == 0);
	number_check(p, "SND.NXT", e.snd_nxt - p->ours[0], snd);
	number_check(p, "RCV.NXT", e.rcv_nxt - PEER_ISS, rcv);
	number_check(p, "SND.WND", e.snd_wnd, wnd);
	number_check(p, "unread", e.unread, unread);
	number_check(p, "MSS", e.peer_mss, mss);
	number_check(p, "the peer's scale", e.snd_scale, scale);
	WANT(p, e.snd_wnd_max >= e.snd_wnd && e.rcv_wnd <= 65535 - e.unread);
	WANT(p, e.sack == (strstr(words, "sack") != NULL));
	WANT(p, e.timestamps == (strstr(words, "ts") != NULL));
	WANT(p, e.scale == (strstr(words, "ws") != NULL));
	WANT(p, !e.timestamps || e.time - p->ts_base == time);
	WANT(p, sy_addr_equal(&e.local.addr, &p->local.addr) && e.local.port == p->local.port);
	WANT(p, sy_addr_equal(&e.peer.addr, &p->peer.addr) && e.peer.port == p->peer.port);
	for (uint32_t i = 0; i < e.unread; i++)
		if (bytes[i] != script_byte(rcv - unread + i))
			FAIL(p, "byte %u is wrong", i);
}

void do_stays(struct play *p, char *words)
{
	struct sy_stack_export e;
	uint8_t bytes[BYTES];
	int rc = sy_stack_export(p->s, p->c, &e, bytes, sizeof(bytes), p->now);

	if (rc != -(int)strtoul(words, NULL, 0))
		FAIL(p, "export says %d", rc);
}

void do_forget(struct play *p, char *words)
{
	WANT(p, sy_stack_forget(p->s, p->c) == 0);
}

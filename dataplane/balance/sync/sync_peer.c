// SPDX-License-Identifier: Apache-2.0
#include "sync_peer.h"

#include "sync_seal.h"

void sync_peer_begin(struct sync_peer *peer, uint8_t node)
{
	*peer = (struct sync_peer){
	        .node = node, .refusal = SYNC_NO_HELLO, .timeout_ns = SYNC_TIMEOUT_MAX_NS};
}

bool sync_hello_make(struct sync_peer *peer, const struct sync_self *self, uint64_t now_ns,
                     struct sync_hello *out)
{
	if (now_ns < peer->hello_at_ns)
		return false;
	peer->hello_at_ns = now_ns + SYNC_HELLO_NS;
	/* Alternate between the two while they differ: replays of a former incarnation must not
	 * keep this node from answering the accepted one. */
	peer->echoed = !peer->echoed && sync_peer_is_alive(peer, now_ns);
	const struct sync_hello_time *last = peer->echoed || peer->candidate == peer->incarnation
	                                             ? &peer->accepted_time
	                                             : &peer->other_time;
	*out = (struct sync_hello){
	        .echo = peer->echoed ? peer->incarnation : peer->candidate,
	        .slot_key = self->slot_key,
	        .sent_ns = now_ns,
	        .echo_ns = last->sent_ns,
	        .delay_ns = now_ns - last->at_ns,
	        .sessions = self->sessions,
	        .version_min = SYNC_VERSION,
	        .version_max = SYNC_VERSION,
	        .role = self->role,
	};
	memcpy(out->name, self->name, sizeof(out->name));
	return true;
}

/* Updates SRTT and RTTVAR (RFC 6298 2). The next hello answers a hello, and states its delay. */
static void rtt_note(struct sync_peer *peer, uint64_t rtt_ns)
{
	uint64_t off = rtt_ns > peer->srtt_ns ? rtt_ns - peer->srtt_ns : peer->srtt_ns - rtt_ns;

	if (rtt_ns > SYNC_ALIVE_NS)
		return;
	if (peer->srtt_ns == 0) {
		peer->srtt_ns = rtt_ns;
		peer->rttvar_ns = rtt_ns / 2;
	} else {
		peer->rttvar_ns = (3 * peer->rttvar_ns + off) / 4;
		peer->srtt_ns = (7 * peer->srtt_ns + rtt_ns) / 8;
	}
	uint64_t timeout = peer->srtt_ns + 4 * peer->rttvar_ns;
	timeout = timeout > SYNC_TIMEOUT_MIN_NS ? timeout : SYNC_TIMEOUT_MIN_NS;
	peer->timeout_ns = timeout < SYNC_TIMEOUT_MAX_NS ? timeout : SYNC_TIMEOUT_MAX_NS;
}

static enum sync_refusal refusal_of(const struct sync_self *self, const struct sync_hello *hello)
{
	if (hello->version_min > SYNC_VERSION || hello->version_max < SYNC_VERSION)
		return SYNC_OTHER_VERSION;
	if (hello->slot_key != self->slot_key)
		return SYNC_OTHER_KEY;
	return hello->echo == self->incarnation ? SYNC_ACCEPTED : SYNC_NO_HELLO;
}

/* Returns true if the hello was sent recently by a current incarnation, not replayed. */
static bool is_fresh(const struct sync_peer *peer, uint64_t from, const struct sync_hello *hello,
                     uint64_t now_ns)
{
	for (unsigned i = 0; i < SYNC_FORMER; i++)
		if (peer->former[i] == from)
			return false;
	return hello->echo_ns && now_ns - hello->echo_ns < SYNC_FRESH_NS;
}

/* Returns true if the peer has received a recent hello of this node: the link may have failed in
 * one direction. */
static bool is_heard(const struct sync_hello *hello, uint64_t now_ns)
{
	return hello->echo_ns && now_ns - hello->echo_ns < SYNC_ALIVE_NS;
}

bool sync_hello_receive(struct sync_peer *peer, const struct sync_self *self, uint64_t from,
                        const struct sync_hello *hello, uint64_t now_ns)
{
	enum sync_refusal refusal = refusal_of(self, hello);

	if (peer->candidate != from) { /* answer at once */
		peer->candidate = from;
		peer->hello_at_ns = now_ns;
	}
	*(peer->incarnation == from ? &peer->accepted_time : &peer->other_time) =
	        (struct sync_hello_time){hello->sent_ns, now_ns};
	if (refusal != SYNC_ACCEPTED) {
		if (peer->incarnation != from)
			peer->refusal = (uint8_t)refusal;
		return false;
	}
	bool other = peer->incarnation != from;
	if (other && !is_fresh(peer, from, hello, now_ns))
		return false;
	if (hello->role == SYNC_ROLE_LEAVING) {
		if (!other)
			peer->received_ns = now_ns - 2 * SYNC_ALIVE_NS;
		return !other;
	}
	peer->refusal = SYNC_ACCEPTED;
	if (is_heard(hello, now_ns))
		peer->received_ns = now_ns;
	peer->kept = hello->kept;
	peer->refused = hello->refused;
	peer->lacking = hello->lacking;
	peer->role = hello->role;
	peer->sessions = hello->sessions;
	memcpy(peer->name, hello->name, sizeof(peer->name) - 1);
	for (unsigned i = 0; i < SYNC_NAME - 1; i++) /* reports are UTF-8 */
		if (peer->name[i] && (peer->name[i] < 0x20 || peer->name[i] > 0x7e))
			peer->name[i] = '?';
	if (hello->echo_ns && now_ns - hello->echo_ns >= hello->delay_ns)
		rtt_note(peer, now_ns - hello->echo_ns - hello->delay_ns);
	if (other) {
		peer->accepted_time = peer->other_time;
		peer->former[peer->epoch % SYNC_FORMER] = peer->incarnation;
		__atomic_store_n(&peer->epoch, peer->epoch + 1, __ATOMIC_RELAXED);
		__atomic_store_n(&peer->incarnation, from, __ATOMIC_RELEASE);
	}
	return other;
}

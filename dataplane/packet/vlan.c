// SPDX-License-Identifier: Apache-2.0
/* Tags that name no VLAN: switches send them to give a frame's priority (802.1Q 9.6: VID 0). */
#include <arpa/inet.h>
#include <sy_packet.h>

#define VID_MASK 0x0fff

uint8_t *sy_packet_untag(uint8_t *frame, struct sy_view *v)
{
	unsigned len = v->vlans * SY_VLAN_LEN;

	for (unsigned at = SY_ETH_LEN; at < SY_ETH_LEN + len; at += SY_VLAN_LEN) {
		uint16_t tag;
		memcpy(&tag, frame + at, sizeof(tag));
		if (tag & htons(VID_MASK))
			return NULL;
	}
	memmove(frame + len, frame, 2 * sizeof(((struct sy_eth *)0)->dst));
	v->vlans = 0;
	v->l3 = (uint16_t)(v->l3 - len);
	v->l4 = (uint16_t)(v->l4 - len);
	v->frame_len = (uint16_t)(v->frame_len - len);
	return frame + len;
}

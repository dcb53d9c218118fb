// SPDX-License-Identifier: Apache-2.0
#include "sync_window.h"

static size_t entry_len(const uint8_t *entry)
{
	return ((const struct sync_entry_head *)entry)->len;
}

void sync_window_begin(struct sync_window *w)
{
	w->first = w->cursor = w->next = w->sent = 1;
	w->cursor_at = w->used = 0;
}

bool sync_window_add(struct sync_window *w, const void *entry)
{
	size_t len = entry_len(entry);

	if (len > sync_window_space(w))
		return false;
	memcpy(w->bytes + w->used, entry, len);
	w->used = (uint16_t)(w->used + len);
	w->next++;
	return true;
}

size_t sync_window_read(struct sync_window *w, uint8_t *to, size_t space, uint32_t *number)
{
	size_t at = w->cursor_at, len = 0;

	*number = w->cursor;
	while (at + len < w->used && len + entry_len(w->bytes + at + len) <= space) {
		len += entry_len(w->bytes + at + len);
		w->cursor++;
	}
	memcpy(to, w->bytes + at, len);
	w->cursor_at = (uint16_t)(at + len);
	if ((int32_t)(w->cursor - w->sent) > 0)
		w->sent = w->cursor;
	return len;
}

uint32_t sync_window_acknowledge(struct sync_window *w, uint32_t next)
{
	uint32_t count = next - w->first;
	size_t len = 0;

	if (count == 0 || count > w->sent - w->first)
		return 0;
	for (uint32_t i = 0; i < count; i++)
		len += entry_len(w->bytes + len);
	w->used = (uint16_t)(w->used - len);
	memmove(w->bytes, w->bytes + len, w->used);
	w->first = next;
	if ((int32_t)(w->cursor - next) < 0) { /* it was scheduled for retransmission */
		w->cursor = next;
		w->cursor_at = 0;
	} else {
		w->cursor_at = (uint16_t)(w->cursor_at - len);
	}
	return count;
}

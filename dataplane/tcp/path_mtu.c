// SPDX-License-Identifier: Apache-2.0
#include "path_mtu.h"

/* RFC 1191 7.1: plateaus for routers that report no MTU; with common sizes of tunnels. */
static const uint16_t plateaus[] = {32000, 17914, 8166, 4352, 2002, 1492, 1006, 576};
/* Likely path MTUs, probed first: RFC 4821 7.3. */
static const uint16_t likely[] = {9000, 4352, 1500, 1492, 1480, 1460, 1440, 1420, 1400, 1280};

static uint16_t min(uint16_t a, uint16_t b)
{
	return a < b ? a : b;
}

static uint16_t max(uint16_t a, uint16_t b)
{
	return a > b ? a : b;
}

static uint16_t floor_of(const struct path_mtu *m)
{
	return min(m->v4 ? PATH_MTU_FLOOR_V4 : PATH_MTU_FLOOR_V6, m->link);
}

static uint16_t base_of(const struct path_mtu *m)
{
	return min(m->v4 ? PATH_MTU_BASE_V4 : PATH_MTU_BASE_V6, m->link);
}

void path_mtu_init(struct path_mtu *m, uint16_t link, bool v4)
{
	*m = (struct path_mtu){.link = link, .size = link, .high = link, .v4 = v4};
}

/* Ends the search until the raise timer. */
static void search_end(struct path_mtu *m, uint64_t now_ms)
{
	m->searching = m->raising = m->reported = m->fell = false;
	m->probe = 0;
	m->tries = 0;
	m->raise_ms = m->size < m->link ? now_ms + PATH_MTU_RAISE_MS : 0;
}

static void search_begin(struct path_mtu *m, uint16_t high)
{
	m->high = high;
	m->searching = true;
	m->raising = m->reported = m->fell = false;
	m->probe = 0;
	m->tries = 0;
	m->raise_ms = 0;
}

void path_mtu_link(struct path_mtu *m, uint16_t link, uint64_t now_ms)
{
	bool whole = m->size == m->link;
	m->link = link;
	if (link < m->size || whole)
		m->size = link;
	m->lost = 0;
	m->high = m->size;
	search_end(m, now_ms);
}

/* ---- reports of routers ---------------------------------------------------------------------- */

/* Interprets a reported size; 0: not usable. */
static uint16_t size_from_router(const struct path_mtu *m, uint16_t sent, uint16_t reported)
{
	unsigned n = 0;
	if (!m->v4) /* RFC 8201 4: discard reports below the minimum */
		return reported < sent && reported >= PATH_MTU_FLOOR_V6 ? reported : 0;
	if (reported > 0 && reported < sent)
		return max(reported, floor_of(m));
	while (n + 1 < sizeof(plateaus) / sizeof(*plateaus) && plateaus[n] >= sent)
		n++;
	return max(plateaus[n], floor_of(m));
}

bool path_mtu_too_big(struct path_mtu *m, uint16_t sent, uint16_t reported, uint64_t now_ms)
{
	reported = size_from_router(m, sent, reported);
	if (reported == 0)
		return false;
	if (reported < m->size) {
		m->size = m->high = reported;
		m->lost = 0;
		search_end(m, now_ms); /* RFC 1191 6.3: next attempt in 10 minutes */
		return true;
	}
	if (m->probe == 0 || sent < m->probe || reported >= m->probe)
		return false;
	/* RFC 8899 4.6.2: for a probe. Probe the reported size next. */
	search_begin(m, reported);
	m->reported = true;
	if (reported == m->size)
		search_end(m, now_ms);
	return false;
}

/* Returns true if a packet is evidence of large sizes: a full one, and also a smaller one above the
 * base, which does not shrink when it is retransmitted. */
static bool is_large(const struct path_mtu *m, uint16_t bytes)
{
	return bytes >= m->size || bytes > base_of(m);
}

/* ---- evidence by packets --------------------------------------------------------------------- */

bool path_mtu_passed(struct path_mtu *m, uint16_t bytes, uint64_t now_ms)
{
	if (is_large(m, bytes))
		m->lost = 0;
	/* Without a search it was sent before a router reported a smaller size. */
	if (bytes <= m->size || bytes > m->link || !m->searching)
		return false;
	m->size = bytes;
	m->high = m->raising ? m->link : max(m->high, bytes);
	m->raising = false;
	m->tries = 0;
	if (bytes >= m->probe)
		m->probe = 0;
	if (m->high < m->size + PATH_MTU_NEAR)
		search_end(m, now_ms);
	return true;
}

/* RFC 8899 4.3: a black hole. Falls to the base, then to the floor. Often the path was down for a
 * while: the old size is probed first afterwards. */
static bool size_fall(struct path_mtu *m, uint64_t now_ms)
{
	uint16_t size = m->size > base_of(m) ? base_of(m) : floor_of(m), high = m->size;
	m->lost = 0;
	if (size >= m->size)
		return false;
	if (m->fell) /* and nothing was delivered since */
		high = m->high;
	m->size = size;
	search_begin(m, high);
	m->fell = true;
	if (high < size + PATH_MTU_NEAR)
		search_end(m, now_ms);
	return true;
}

bool path_mtu_late(struct path_mtu *m, uint64_t now_ms)
{
	m->lost = 0;
	if (!m->fell)
		return false;
	m->size = m->high;
	search_end(m, now_ms);
	return true;
}

bool path_mtu_lost(struct path_mtu *m, uint16_t bytes, uint64_t now_ms)
{
	if (m->probe && bytes == m->probe) {
		m->probe = 0;
		if (++m->tries < PATH_MTU_TRIES)
			return false;
		m->tries = 0;
		m->reported = m->fell = false;
		m->high = bytes - 1;
		if (m->raising || m->high < m->size + PATH_MTU_NEAR)
			search_end(m, now_ms);
		return false;
	}
	if (!is_large(m, bytes) || ++m->lost < PATH_MTU_TRIES)
		return false;
	return size_fall(m, now_ms);
}

/* Returns the next likely size while raising; in a search the largest candidate, or the middle of
 * the interval. */
static uint16_t probe_choose(const struct path_mtu *m)
{
	const unsigned count = sizeof(likely) / sizeof(*likely);
	unsigned n = 0;
	if (m->reported || m->fell)
		return m->high;
	if (m->raising) {
		for (n = count; n > 0; n--)
			if (likely[n - 1] > m->size)
				return min(likely[n - 1], m->link);
		return m->link;
	}
	while (n < count && likely[n] > m->high)
		n++;
	if (n < count && likely[n] > m->size)
		return likely[n];
	return (uint16_t)(m->size + (m->high - m->size + 1) / 2);
}

uint16_t path_mtu_probe(struct path_mtu *m, uint64_t now_ms)
{
	if (m->raise_ms && now_ms >= m->raise_ms) {
		search_begin(m, m->link);
		m->raising = true;
	}
	return m->searching && !m->probe && !m->lost ? probe_choose(m) : 0;
}

// SPDX-License-Identifier: Apache-2.0
#include "path_mtu.h"

/* RFC 1191, 7.1: sizes of links that routers too old to say may have had; and those of tunnels. */
static const uint16_t plateaus[] = {32000, 17914, 8166, 4352, 2002, 1492, 1006, 576};
/* Sizes that paths are likely to have, which are tried first: RFC 4821, 7.3. */
static const uint16_t likely[] = {9000, 4352, 1500, 1492, 1480, 1460, 1440, 1420, 1400, 1280};

static uint16_t least(uint16_t a, uint16_t b)
{
	return a < b ? a : b;
}

static uint16_t most(uint16_t a, uint16_t b)
{
	return a > b ? a : b;
}

static uint16_t floor_of(const struct path_mtu *m)
{
	return least(m->v4 ? PATH_MTU_FLOOR_V4 : PATH_MTU_FLOOR_V6, m->link);
}

static uint16_t base_of(const struct path_mtu *m)
{
	return least(m->v4 ? PATH_MTU_BASE_V4 : PATH_MTU_BASE_V6, m->link);
}

void path_mtu_init(struct path_mtu *m, uint16_t link, bool v4)
{
	*m = (struct path_mtu){.link = link, .size = link, .high = link, .v4 = v4};
}

/* Nothing more to find out before the raise timer. */
static void search_end(struct path_mtu *m, uint64_t now_ms)
{
	m->searching = m->raising = m->told = m->fell = false;
	m->probe = 0;
	m->tries = 0;
	m->raise_ms = m->size < m->link ? now_ms + PATH_MTU_RAISE_MS : 0;
}

static void search_begin(struct path_mtu *m, uint16_t high)
{
	m->high = high;
	m->searching = true;
	m->raising = m->told = m->fell = false;
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

/* ---- what routers say ------------------------------------------------------------------------ */

/* What a router meant; 0: nothing that helps. */
static uint16_t size_told(const struct path_mtu *m, uint16_t sent, uint16_t told)
{
	unsigned n = 0;
	if (!m->v4) /* RFC 8201, 4: less than the minimum is to be discarded */
		return told < sent && told >= PATH_MTU_FLOOR_V6 ? told : 0;
	if (told > 0 && told < sent)
		return most(told, floor_of(m));
	while (n + 1 < sizeof(plateaus) / sizeof(*plateaus) && plateaus[n] >= sent)
		n++;
	return most(plateaus[n], floor_of(m));
}

bool path_mtu_too_big(struct path_mtu *m, uint16_t sent, uint16_t told, uint64_t now_ms)
{
	told = size_told(m, sent, told);
	if (told == 0)
		return false;
	if (told < m->size) {
		m->size = m->high = told;
		m->lost = 0;
		search_end(m, now_ms); /* RFC 1191, 6.3: not again for 10 minutes */
		return true;
	}
	if (m->probe == 0 || sent < m->probe || told >= m->probe)
		return false;
	/* RFC 8899, 4.6.2: of a probe. What the router told is tried next. */
	search_begin(m, told);
	m->told = true;
	if (told == m->size)
		search_end(m, now_ms);
	return false;
}

/* Says whether the path takes more than what it surely takes: a full packet, and one that is not,
 * too, for it will not become smaller when it is sent again. */
static bool is_large(const struct path_mtu *m, uint16_t bytes)
{
	return bytes >= m->size || bytes > base_of(m);
}

/* ---- what packets say ------------------------------------------------------------------------ */

bool path_mtu_passed(struct path_mtu *m, uint16_t bytes, uint64_t now_ms)
{
	if (is_large(m, bytes))
		m->lost = 0;
	/* Without a search it was sent before a router refused its like. */
	if (bytes <= m->size || bytes > m->link || !m->searching)
		return false;
	m->size = bytes;
	m->high = m->raising ? m->link : most(m->high, bytes);
	m->raising = false;
	m->tries = 0;
	if (bytes >= m->probe)
		m->probe = 0;
	if (m->high < m->size + PATH_MTU_NEAR)
		search_end(m, now_ms);
	return true;
}

/* RFC 8899, 4.3: a black hole. The base, and if that is one as well, the floor. Mostly the path was
 * gone for a while, and nothing passed: the old size is tried first when something does again. */
static bool size_fall(struct path_mtu *m, uint64_t now_ms)
{
	uint16_t size = m->size > base_of(m) ? base_of(m) : floor_of(m), high = m->size;
	m->lost = 0;
	if (size >= m->size)
		return false;
	if (m->fell) /* and nothing has passed since */
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
		m->told = m->fell = false;
		m->high = bytes - 1;
		if (m->raising || m->high < m->size + PATH_MTU_NEAR)
			search_end(m, now_ms);
		return false;
	}
	if (!is_large(m, bytes) || ++m->lost < PATH_MTU_TRIES)
		return false;
	return size_fall(m, now_ms);
}

/* The next likely size while raising; in a search the largest one that may pass, or else the middle
 * of what is left. */
static uint16_t probe_choose(const struct path_mtu *m)
{
	const unsigned count = sizeof(likely) / sizeof(*likely);
	unsigned n = 0;
	if (m->told || m->fell)
		return m->high;
	if (m->raising) {
		for (n = count; n > 0; n--)
			if (likely[n - 1] > m->size)
				return least(likely[n - 1], m->link);
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

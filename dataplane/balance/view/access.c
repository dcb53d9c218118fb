// SPDX-License-Identifier: Apache-2.0
#include "access.h"

#include <arpa/inet.h>

#include <rte_acl.h>

struct access_key access_key_of(const struct sy_tuple *client, uint32_t sets)
{
	struct access_key k = {.proto = (uint8_t)client->proto,
	                       .sets = htonl(sets),
	                       .sport = client->sport,
	                       .dport = client->dport};
	if (sy_addr_is_v4(&client->src))
		k.client[0] = client->src.w[3];
	else
		memcpy(k.client, client->src.w, sizeof(k.client));
	return k;
}

/* A short list: the first condition that holds decides. Counts n identical sessions. */
static uint16_t list_decide(const struct access_list *l, uint32_t sets, uint8_t proto, unsigned n,
                            uint64_t *hits, uint16_t *counted)
{
	uint16_t rule = l->rules;
	*counted = 0;
	for (unsigned i = 0; i < l->tests && rule == l->rules; i++) {
		const struct access_test *t = &l->test[i];
		if ((t->sets && !(t->sets & sets)) || (t->proto && t->proto != proto))
			continue;
		if (t->category == 0)
			rule = t->rule;
		else if (hits)
			SY_COUNT(hits[l->rule[t->rule].counter], n);
		*counted |= (uint16_t)(1u << t->category);
	}
	if (hits)
		SY_COUNT(hits[rule < l->rules ? l->rule[rule].counter : l->counter], n);
	return rule;
}

/* Evaluates runs of identical sessions once; mostly the whole burst is one run. */
static uint64_t list_evaluate_linear(const struct access_list *l, const struct access_query *query,
                                     uint64_t *hits, struct access_answer *answer)
{
	const bool alike = !query->members && !l->protocols; /* all sessions are alike */
	uint64_t refused = 0;
	uint16_t counted;
	for (unsigned first = 0, end; first < query->count; first = end) {
		const uint32_t sets = query->sets[first];
		const uint8_t proto = query->proto[first];
		for (end = SY_LIKELY(alike) ? query->count : first + 1;
		     end < query->count && query->sets[end] == sets && query->proto[end] == proto;
		     end++)
			;
		const uint16_t decides = list_decide(l, sets, proto, end - first, hits, &counted);
		for (unsigned i = first; i < end; i++)
			answer->rule[i] = decides;
		for (unsigned i = first; SY_UNLIKELY(l->counting_logs) && i < end; i++)
			answer->counted[i] = counted;
		if (access_list_action(l, decides) != ACCESS_ALLOW)
			refused |= UINT64_MAX >> (64 - (end - first)) << first;
	}
	return refused;
}

/* Counts the count-only rules before the deciding one. Returns them, one bit per category. */
static uint16_t list_count(const struct access_list *l, const uint32_t *result, uint16_t decided,
                           uint64_t *hits)
{
	uint16_t counted = 0;
	for (unsigned c = 1; c < l->categories; c++) {
		if (!result[c] || result[c] - 1 >= decided)
			continue;
		SY_COUNT(hits[l->rule[result[c] - 1].counter], 1);
		counted |= (uint16_t)(1u << c);
	}
	return counted;
}

/* Evaluates the sessions of one family. */
static void list_evaluate_acl(const struct access_list *l, const struct rte_acl_ctx *acl,
                              const uint8_t **data, const uint8_t *at, unsigned n, uint64_t *hits,
                              struct access_answer *answer)
{
	uint32_t result[SY_BURST * (ACCESS_COUNTING + 1)];
	if (!acl || rte_acl_classify(acl, data, result, n, l->categories) != 0)
		return;
	for (unsigned i = 0; i < n; i++) {
		const uint32_t *r = &result[i * l->categories];
		if (r[0])
			answer->rule[at[i]] = (uint16_t)(r[0] - 1);
		if (hits && l->categories > 1)
			answer->counted[at[i]] = list_count(l, r, answer->rule[at[i]], hits);
	}
}

uint64_t access_list_evaluate(const struct access_list *l, const struct access_query *query,
                              uint64_t *hits, struct access_answer *answer)
{
	struct access_key key[SY_BURST];
	const uint8_t *data[2][SY_BURST];
	uint8_t at[2][SY_BURST];
	unsigned count[2] = {0, 0};
	uint64_t refused = 0;
	if (l->linear)
		return list_evaluate_linear(l, query, hits, answer);
	for (unsigned i = 0; i < query->count; i++) {
		const bool v4 = sy_addr_is_v4(query->client[i]);
		key[i] = access_key_of(SY_CONTAINER_OF(query->client[i], struct sy_tuple, src),
		                       query->sets[i]);
		answer->rule[i] = l->rules;
		answer->counted[i] = 0; /* no rule of this family, or DPDK failed */
		at[v4][count[v4]] = (uint8_t)i;
		data[v4][count[v4]++] = (const uint8_t *)&key[i];
	}
	for (unsigned f = 0; f < 2; f++)
		if (count[f])
			list_evaluate_acl(l, l->acl[f], data[f], at[f], count[f], hits, answer);
	for (unsigned i = 0; i < query->count; i++) {
		const uint16_t rule = answer->rule[i];
		refused |= (uint64_t)(access_list_action(l, rule) != ACCESS_ALLOW) << i;
		if (hits)
			SY_COUNT(hits[rule < l->rules ? l->rule[rule].counter : l->counter], 1);
	}
	return refused;
}

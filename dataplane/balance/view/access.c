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

/* A list of few conditions: the first that holds decides. */
static uint16_t list_ask_linear(const struct access_list *l, const struct access_key *key,
                                uint64_t *hits)
{
	for (unsigned i = 0; i < l->tests; i++) {
		const struct access_test *t = &l->test[i];
		if ((t->sets && !(t->sets & key->sets)) || (t->proto && t->proto != key->proto))
			continue;
		if (l->rule[t->rule].action != ACCESS_COUNT)
			return t->rule;
		if (hits && !(i > 0 && l->test[i - 1].rule == t->rule))
			SY_COUNT(hits[l->rule[t->rule].counter], 1);
	}
	return l->rules;
}

/* Counts the rules that only count and stand before the one that decides. */
static void list_count(const struct access_list *l, const uint32_t *result, uint16_t decided,
                       uint64_t *hits)
{
	for (unsigned c = 1; c < l->categories; c++)
		if (result[c] && result[c] - 1 < decided)
			SY_COUNT(hits[l->rule[result[c] - 1].counter], 1);
}

/* The sessions of one family. */
static void list_ask_acl(const struct access_list *l, const struct rte_acl_ctx *acl,
                         const uint8_t **data, const uint8_t *at, unsigned n, uint64_t *hits,
                         uint16_t *rule)
{
	uint32_t result[SY_BURST * (ACCESS_COUNTING + 1)];
	if (!acl || rte_acl_classify(acl, data, result, n, l->categories) != 0)
		return;
	for (unsigned i = 0; i < n; i++) {
		const uint32_t *r = &result[i * l->categories];
		if (r[0])
			rule[at[i]] = (uint16_t)(r[0] - 1);
		if (hits && l->categories > 1)
			list_count(l, r, rule[at[i]], hits);
	}
}

void access_list_ask(const struct access_list *l, const struct access_key *key, const bool *v4,
                     unsigned n, uint64_t *hits, uint16_t *rule)
{
	const uint8_t *data[2][SY_BURST];
	uint8_t at[2][SY_BURST];
	unsigned count[2] = {0, 0};
	if (l->linear) {
		for (unsigned i = 0; i < n; i++)
			rule[i] = list_ask_linear(l, &key[i], hits);
	} else {
		for (unsigned i = 0; i < n; i++) {
			rule[i] = l->rules;
			at[v4[i]][count[v4[i]]] = (uint8_t)i;
			data[v4[i]][count[v4[i]]++] = (const uint8_t *)&key[i];
		}
		for (unsigned f = 0; f < 2; f++)
			if (count[f])
				list_ask_acl(l, l->acl[f], data[f], at[f], count[f], hits, rule);
	}
	for (unsigned i = 0; hits && i < n; i++)
		SY_COUNT(hits[rule[i] < l->rules ? l->rule[rule[i]].counter : l->counter], 1);
}

// SPDX-License-Identifier: Apache-2.0
/* Builds an access list from its message: rte_acl contexts, one per family. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_acl.h>

#include "access_model.h"

typedef Steelyard__Forwarder__V1__AccessList pb_list;
typedef Steelyard__Forwarder__V1__AccessRule pb_rule;

#define CONDITIONS_MAX 8192u       /* of a list: combinations of a rule's prefixes and ports */
#define CONTEXT_BYTES  (64u << 20) /* max size of an rte_acl context */

/* The fields of struct access_key. Groups of four bytes have one input index. */
enum { FIELD_PROTO, FIELD_SETS, FIELD_SPORT, FIELD_DPORT, FIELD_CLIENT, FIELDS4, FIELDS6 = 8 };

RTE_ACL_RULE_DEF(acl_rule, FIELDS6);

#define FIELD(index, kind, group, member)                                                          \
	{                                                                                          \
		.type = RTE_ACL_FIELD_TYPE_##kind,                                                 \
		.size = sizeof(((struct access_key *)0)->member), .field_index = (index),          \
		.input_index = (group), .offset = offsetof(struct access_key, member)              \
	}

static const struct rte_acl_field_def fields[FIELDS6] = {
        FIELD(FIELD_PROTO, BITMASK, 0, proto),       FIELD(FIELD_SETS, BITMASK, 1, sets),
        FIELD(FIELD_SPORT, RANGE, 2, sport),         FIELD(FIELD_DPORT, RANGE, 2, dport),
        FIELD(FIELD_CLIENT, MASK, 3, client[0]),     FIELD(FIELD_CLIENT + 1, MASK, 4, client[1]),
        FIELD(FIELD_CLIENT + 2, MASK, 5, client[2]), FIELD(FIELD_CLIENT + 3, MASK, 6, client[3]),
};

/* A list under construction. */
struct build {
	const pb_list *pb;
	const struct access_version *sets;
	struct access_list *list;
	struct acl_rule *rule[2]; /* conditions; [0]: IPv6, [1]: IPv4 */
	unsigned count[2];
	unsigned counting;
	bool linear;
};

static int rule_fail(const struct build *b, unsigned rule, struct sy_error *err, const char *why)
{
	return sy_fail(err, EINVAL, "access list %s, rule %u: %s", b->pb->name, rule + 1, why);
}

/* Adds a condition of one family. */
static int condition_add(struct build *b, bool v4, const struct acl_rule *condition,
                         struct sy_error *err)
{
	if (b->count[v4] == CONDITIONS_MAX)
		return sy_fail(err, ENOSPC,
		               "access list %s: more than %u combinations of prefixes and ports",
		               b->pb->name, CONDITIONS_MAX);
	struct acl_rule *grown = realloc(b->rule[v4], (b->count[v4] + 1) * sizeof(*grown));
	if (!grown)
		return sy_fail(err, ENOMEM, "access list %s: no memory", b->pb->name);
	b->rule[v4] = grown;
	grown[b->count[v4]++] = *condition;
	return 0;
}

static int condition_from(struct build *b, unsigned rule, const Steelyard__Forwarder__V1__Prefix *p,
                          struct acl_rule *condition, struct sy_error *err)
{
	struct sy_addr addr;
	if (!read_prefix_addr(p, &addr))
		return rule_fail(b, rule, err, "a prefix is wrong");
	const bool v4 = sy_addr_is_v4(&addr);
	unsigned left = p->length;
	for (unsigned i = 0; i < (v4 ? 1 : 4); i++) {
		struct rte_acl_field *f = &condition->field[FIELD_CLIENT + i];
		f->mask_range.u32 = left < 32 ? left : 32;
		f->value.u32 = ntohl(addr.w[v4 ? 3 : i]);
		if (left < 32 && f->value.u32 & (left ? UINT32_MAX >> left : UINT32_MAX))
			return rule_fail(b, rule, err, "a prefix has bits behind its length");
		left -= left < 32 ? left : 32;
	}
	return condition_add(b, v4, condition, err);
}

/* Any client in the set of this mask; 0: any client. */
static int condition_set(struct build *b, uint32_t set, struct acl_rule *condition,
                         struct sy_error *err)
{
	int rc = 0;
	for (unsigned i = 0; i < 4; i++)
		condition->field[FIELD_CLIENT + i] = (struct rte_acl_field){0};
	condition->field[FIELD_SETS] =
	        (struct rte_acl_field){.value.u32 = set, .mask_range.u32 = set};
	for (unsigned v4 = 0; rc == 0 && v4 < 2; v4++)
		rc = condition_add(b, v4, condition, err);
	condition->field[FIELD_SETS] = (struct rte_acl_field){0};
	return rc;
}

/* Adds the combinations of one port range with the rule's clients. */
static int rule_add_clients(struct build *b, unsigned rule, uint32_t sets,
                            struct acl_rule *condition, struct sy_error *err)
{
	const pb_rule *pb = b->pb->rules[rule];
	int rc = 0;
	if (pb->n_from == 0 && !sets)
		rc = condition_set(b, 0, condition, err);
	for (; rc == 0 && sets; sets &= sets - 1)
		rc = condition_set(b, sets & -sets, condition, err);
	for (size_t i = 0; rc == 0 && i < pb->n_from; i++)
		rc = condition_from(b, rule, pb->from[i], condition, err);
	return rc;
}

/* Bitmap of the sets that a rule names. */
static int rule_sets(const struct build *b, unsigned rule, uint32_t *sets, struct sy_error *err)
{
	const pb_rule *pb = b->pb->rules[rule];
	*sets = 0;
	for (size_t i = 0; i < pb->n_from_sets; i++) {
		unsigned bit = access_set_find(b->sets, pb->from_sets[i]);
		if (bit == ADDRESS_SETS)
			return sy_fail(err, EINVAL,
			               "access list %s, rule %u: there is no access set %.63s",
			               b->pb->name, rule + 1, pb->from_sets[i]);
		*sets |= UINT32_C(1) << bit;
	}
	b->list->sets |= *sets;
	return 0;
}

static int rule_add(struct build *b, unsigned rule, struct sy_error *err)
{
	const pb_rule *pb = b->pb->rules[rule];
	struct access_rule *out = &b->list->rule[rule];
	if (pb->action < STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_ALLOW ||
	    pb->action > STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_COUNT)
		return rule_fail(b, rule, err, "unknown action; known: allow, drop, reset, count");
	if (pb->protocol && pb->protocol != STEELYARD__FORWARDER__V1__PROTOCOL__PROTOCOL_TCP &&
	    pb->protocol != STEELYARD__FORWARDER__V1__PROTOCOL__PROTOCOL_UDP)
		return rule_fail(b, rule, err, "its protocol is neither TCP nor UDP");
	out->action = (uint8_t)(pb->action - 1);
	out->log_every = pb->log_every;
	b->list->logs |= pb->log_every != 0;
	uint32_t category = 0;
	if (out->action == ACCESS_COUNT) {
		if (b->counting == ACCESS_COUNTING)
			return rule_fail(b, rule, err, "more than 15 rules count");
		category = ++b->counting;
		b->list->counting[category] = (uint16_t)rule;
		b->list->counting_logs |= (uint16_t)((pb->log_every != 0) << category);
	}
	struct acl_rule condition = {
	        .data = {.category_mask = UINT32_C(1) << category,
	                 .priority = (int32_t)(ACCESS_RULES - rule),
	                 .userdata = rule + 1},
	        .field = {[FIELD_SPORT] = {.mask_range.u16 = UINT16_MAX},
	                  [FIELD_DPORT] = {.mask_range.u16 = UINT16_MAX}},
	};
	if (pb->protocol)
		condition.field[FIELD_PROTO] = (struct rte_acl_field){
		        .value.u8 = (uint8_t)pb->protocol, .mask_range.u8 = UINT8_MAX};
	uint32_t sets;
	int rc = rule_sets(b, rule, &sets, err);
	b->linear &= pb->n_from == 0 && pb->n_ports == 0 && b->list->tests < ACCESS_TESTS;
	b->list->protocols |= pb->protocol != 0;
	if (b->linear)
		b->list->test[b->list->tests++] =
		        (struct access_test){.rule = (uint16_t)rule,
		                             .proto = (uint8_t)pb->protocol,
		                             .category = (uint8_t)category,
		                             .sets = sets};
	if (rc == 0 && pb->n_ports == 0)
		rc = rule_add_clients(b, rule, sets, &condition, err);
	for (size_t i = 0; rc == 0 && i < pb->n_ports; i++) {
		const Steelyard__Forwarder__V1__PortRange *ports = pb->ports[i];
		if (ports->first == 0 || ports->last > UINT16_MAX || ports->last < ports->first)
			return rule_fail(b, rule, err, "its ports are not within 1–65535");
		condition.field[FIELD_DPORT] =
		        (struct rte_acl_field){.value.u16 = (uint16_t)ports->first,
		                               .mask_range.u16 = (uint16_t)ports->last};
		rc = rule_add_clients(b, rule, sets, &condition, err);
	}
	return rc;
}

/* Builds one family's context. */
static int context_build(struct build *b, bool v4, uint64_t number, struct sy_error *err)
{
	char name[32];
	struct rte_acl_config config = {.num_categories = b->list->categories,
	                                .num_fields = v4 ? FIELDS4 : FIELDS6,
	                                .max_size = CONTEXT_BYTES};
	snprintf(name, sizeof(name), "sy_access_%" PRIu64, number);
	const struct rte_acl_param param = {.name = name,
	                                    .socket_id = SOCKET_ID_ANY,
	                                    .rule_size = RTE_ACL_RULE_SZ(FIELDS6),
	                                    .max_rule_num = b->count[v4]};
	if (b->count[v4] == 0)
		return 0;
	memcpy(config.defs, fields, sizeof(fields));
	struct rte_acl_ctx *acl = rte_acl_create(&param);
	b->list->acl[v4] = acl;
	int rc =
	        acl ? rte_acl_add_rules(acl, (const struct rte_acl_rule *)b->rule[v4], b->count[v4])
	            : -ENOMEM;
	if (rc == 0)
		rc = rte_acl_build(acl, &config);
	if (rc == 0)
		return 0;
	return sy_fail(err, rc == -ENOMEM || rc == -ERANGE ? ENOSPC : EINVAL,
	               "access list %s: its rules do not fit into memory: raise --memory, or use "
	               "fewer combinations of prefixes and ports",
	               b->pb->name);
}

static int list_build(struct build *b, uint64_t *contexts, struct sy_error *err)
{
	const pb_list *pb = b->pb;
	int rc = 0;
	if (pb->otherwise < STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_ALLOW ||
	    pb->otherwise > STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_RESET)
		return sy_fail(err, EINVAL, "access list %s: otherwise is allow, drop or reset",
		               pb->name);
	if ((unsigned)pb->existing >
	    STEELYARD__FORWARDER__V1__EXISTING_SESSIONS__EXISTING_SESSIONS_END)
		return sy_fail(err, EINVAL, "access list %s: existing is keep or end", pb->name);
	b->list->ends =
	        pb->existing == STEELYARD__FORWARDER__V1__EXISTING_SESSIONS__EXISTING_SESSIONS_END;
	b->list->otherwise = (uint8_t)(pb->otherwise - 1);
	b->list->rules = (uint16_t)pb->n_rules;
	b->linear = true;
	for (unsigned i = 0; rc == 0 && i < pb->n_rules; i++)
		rc = rule_add(b, i, err);
	b->list->linear = b->linear;
	b->list->categories = b->counting ? (uint8_t)((b->counting + 4) / 4 * 4) : 1;
	for (unsigned v4 = 0; rc == 0 && !b->linear && v4 < 2; v4++)
		rc = context_build(b, v4, ++*contexts, err);
	return rc;
}

int access_list_build(const pb_list *pb, const struct access_version *sets, uint64_t *contexts,
                      struct access_list **out, struct sy_error *err)
{
	if (pb->n_rules > ACCESS_RULES)
		return sy_fail(err, EINVAL, "access list %s has %zu rules, at most %u are possible",
		               pb->name, pb->n_rules, ACCESS_RULES);
	struct build b = {.pb = pb, .sets = sets};
	b.list = calloc(1, sizeof(*b.list) + pb->n_rules * sizeof(b.list->rule[0]));
	int rc = b.list ? list_build(&b, contexts, err)
	                : sy_fail(err, ENOMEM, "access list %s: no memory", pb->name);
	free(b.rule[0]);
	free(b.rule[1]);
	if (rc < 0) {
		access_list_free(b.list);
		return rc;
	}
	*out = b.list;
	return 0;
}

void access_list_free(void *list)
{
	struct access_list *l = list;
	if (!l)
		return;
	rte_acl_free(l->acl[0]);
	rte_acl_free(l->acl[1]);
	free(l);
}

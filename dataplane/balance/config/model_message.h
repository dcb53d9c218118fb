// SPDX-License-Identifier: Apache-2.0
/* The model as messages, for list replies and the saved configuration. All memory comes from the
 * arena. Each function returns 0, or a negative errno with err. */
#ifndef MODEL_MESSAGE_H
#define MODEL_MESSAGE_H

#include "arena.h"
#include "model.h"

#define LIST_SERVERS 20000u /* a reply ends here, to fit one message */

/* MESSAGE_NEW(arena, pb_type, init): allocates a message on the arena; on lack of memory the caller
 * returns -ENOMEM. */
#define MESSAGE_NEW(a, out, init_function)                                                         \
	do {                                                                                       \
		(out) = arena_alloc((a), sizeof(*(out)));                                          \
		if (!(out))                                                                        \
			return sy_fail(err, ENOMEM, "no memory for the answer");                   \
		init_function(out);                                                                \
	} while (0)

#define MESSAGE_NEW_LIST(a, out, count)                                                            \
	do {                                                                                       \
		(out) = arena_alloc((a), ((count) + 1) * sizeof(*(out)));                          \
		if (!(out))                                                                        \
			return sy_fail(err, ENOMEM, "no memory for the answer");                   \
	} while (0)

int reply_addr(struct arena *a, const struct sy_addr *addr, ProtobufCBinaryData *out);
int reply_key(struct arena *a, const struct service_key *key,
              Steelyard__Forwarder__V1__ServiceKey **out, struct sy_error *err);
int reply_service(const struct sy_balance *b, struct arena *a, const struct model_service *s,
                  Steelyard__Forwarder__V1__Service **out, struct sy_error *err);
int reply_server(struct arena *a, const struct model_server *s,
                 Steelyard__Forwarder__V1__Server **out, struct sy_error *err);
/* model_rules: the number of SNAT rules; reply_rule: one of them. */
unsigned model_rules(const struct model *m);
int reply_rule(const struct sy_balance *b, const struct model_service *s, struct arena *a,
               Steelyard__Forwarder__V1__Snat **out);
/* Up to `limit` services from id `cursor` on; fewer if their servers would not fit one message.
 * REPLY_ALL: all services, of any size. */
#define REPLY_ALL UINT32_MAX
/* Limits follow on pages of their own, from this cursor on. */
#define LIMITS_CURSOR    (UINT32_C(1) << 31)
#define LIST_LIMIT_BYTES (1u << 20)
int reply_config(struct sy_balance *b, uint32_t cursor, uint32_t limit, struct arena *a,
                 Steelyard__Forwarder__V1__Config **out, struct sy_error *err);

#endif

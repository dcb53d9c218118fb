// SPDX-License-Identifier: Apache-2.0
#ifndef KERNEL_MIRROR_RULE_H
#define KERNEL_MIRROR_RULE_H

#include <libmnl/libmnl.h>

#include "mirror_parse.h"

/* Returns true if the rule can match packets that ports receive, and is not one of the rules of
 * every host: *policy is set. uses: is it a port's interface? NULL: all are. */
bool rule_parse(const struct nlmsghdr *nlh, bool (*uses)(void *ctx, const char *name), void *ctx,
                struct sy_policy *out);
/* Widens the last rule in the list to all packets of its family, for rules that do not fit. */
void rule_widen(struct sy_policy *last);
/* The packets of a route by source address or type of service. */
void route_policy(const struct route_msg *msg, struct sy_policy *out);

#endif

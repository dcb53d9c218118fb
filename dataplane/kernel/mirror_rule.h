// SPDX-License-Identifier: Apache-2.0
#ifndef KERNEL_MIRROR_RULE_H
#define KERNEL_MIRROR_RULE_H

#include <libmnl/libmnl.h>

#include "mirror_parse.h"

/* Returns true if the rule concerns packets that ports receive, other than the rules of every host:
 * those packets. uses: is it a port's interface? NULL: all are. */
bool rule_parse(const struct nlmsghdr *nlh, bool (*uses)(void *ctx, const char *name), void *ctx,
                struct sy_policy *out);
/* Makes the last rule that has a slot concern all packets of its family, for those that have none.
 */
void rule_widen(struct sy_policy *last);
/* The packets that a route by source address or type of service concerns. */
void route_policy(const struct route_msg *msg, struct sy_policy *out);

#endif

// SPDX-License-Identifier: Apache-2.0
/* The request that sets measured shares. */
#include <errno.h>

#include "control.h"
#include "model_message.h"
#include "shares.h"

int control_set_shares(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
                       struct sy_error *err)
{
	Steelyard__Forwarder__V1__SharesResult *result;
	MESSAGE_NEW(a, result, steelyard__forwarder__v1__shares_result__init);
	out->body_case = STEELYARD__FORWARDER__V1__RESPONSE__BODY_SET_SHARES;
	out->set_shares = result;
	return shares_set(b, q->set_shares, result, err);
}

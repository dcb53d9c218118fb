// SPDX-License-Identifier: Apache-2.0
#include "client_options.h"

__attribute__((noinline)) void client_options_blank(struct sy_worker *w, struct sy_burst *burst,
                                                    unsigned i, const struct endpoint *e)
{
	const struct service *service = endpoint_service(w->app, e);
	uint8_t *frame = sy_frame(burst->mbuf[i]);

	if (e->mode == MODE_SNAT || (service && service->policy.keep_client_options))
		return;
	forward_view(burst, i);
	sy_tcp_blank_toa(frame, &burst->view[i]);
	if (SY_UNLIKELY(!burst->plain[i]))
		sy_ipv4_blank_uoa(frame, &burst->view[i]);
}

// SPDX-License-Identifier: Apache-2.0
/* Changes of local addresses, the source addresses of sessions to servers. */
#include "address_set.h"
#include "model.h"

int local_put(struct sy_balance *b, const Steelyard__Forwarder__V1__LocalAddress *pb,
              struct sy_error *err)
{
	struct model *m = b->ctl->model;
	struct sy_addr addr;
	int rc = read_addr(&pb->address, "local address", &addr, err);
	if (rc < 0)
		return rc;
	for (unsigned id = 0; id < MAX_LOCALS; id++) {
		struct model_local *l = &m->local[id];
		if (!l->used || l->pools || !sy_addr_equal(&l->addr, &addr))
			continue;
		m->local_touched |= l->of_peer != pb->of_peer;
		l->of_peer = pb->of_peer;
		return 0;
	}
	unsigned place = local_id_find(b, &addr);
	if (place == MAX_LOCALS)
		return sy_fail(err, ENOSPC, "there may be %u local addresses", MAX_LOCALS);
	rc = address_acquire(b, &addr, ADDRESS_SET_LOCAL, err);
	if (rc < 0)
		return rc;
	m->local[place] = (struct model_local){addr, true, 0, pb->of_peer};
	m->local_touched = true;
	return 0;
}

int local_delete(struct sy_balance *b, const Steelyard__Forwarder__V1__LocalAddress *pb,
                 struct sy_error *err)
{
	struct model *m = b->ctl->model;
	struct sy_addr addr;
	char text[SY_ADDR_TEXT];
	int rc = read_addr(&pb->address, "local address", &addr, err);
	if (rc < 0)
		return rc;
	for (unsigned id = 0; id < MAX_LOCALS; id++) {
		if (!m->local[id].used || m->local[id].pools ||
		    !sy_addr_equal(&m->local[id].addr, &addr))
			continue;
		m->local[id].used = false;
		m->local_touched = true;
		address_release(b, &addr);
		return 0;
	}
	return sy_fail(err, EINVAL, "there is no local address %s", sy_addr_format(&addr, text));
}

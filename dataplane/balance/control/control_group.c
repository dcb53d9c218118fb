// SPDX-License-Identifier: Apache-2.0
/* Makes this forwarder a node of a group (docs/design/0072-groups.md). Structures of peers, and
 * the session tables' key, are fixed when a process starts: a new process applies the group. */
#include "control.h"
#include "model_message.h"
#include "peers.h"
#include "saved.h"

typedef Steelyard__Forwarder__V1__Group pb_group;
typedef Steelyard__Forwarder__V1__GroupResult pb_group_result;

static int is_possible(const struct sy_balance *b, struct sy_error *err)
{
	const struct sy_balance_options *o = &b->options;
	if (o->peers.node && !*b->ctl->group)
		return sy_fail(err, EINVAL,
		               "this forwarder is node %u by its options: remove --node, --sync, "
		               "--peer, --sync-secret and --slot-key, and restart it",
		               o->peers.node);
	if (!o->upgrade || !o->state_directory)
		return sy_fail(
		        err, EINVAL,
		        "this forwarder cannot apply a group while it runs: it needs --state");
	if (b->ctl->control->upgrade.running)
		return sy_fail(err, EINVAL, "an upgrade is under way: wait for its end");
	return 0;
}

static bool has_key(const struct sy_balance *b, const struct sy_slot_key *key)
{
	return !memcmp(session_store_slot_key(b->ctl->store), key, sizeof(*key));
}

static int group_apply(struct sy_balance *b, const pb_group *g, pb_group_result *result,
                       struct sy_error *err)
{
	const struct sy_balance_options *o = &b->options;
	struct sy_balance_upgrade wanted = {0};
	struct saved_group group = {0};
	int rc = 0;
	if (g->node) {
		rc = group_read(g, &group, err);
		wanted.restart = rc == 0 && !has_key(b, &group.slot_key);
	}
	result->changed = strcmp(group.version, b->ctl->group) != 0;
	result->restarts = wanted.restart;
	if (rc == 0 && result->changed && g->node)
		rc = peers_address_check(&group.peers.address, group.peers.port, err);
	sy_secret_wipe(&group, sizeof(group));
	if (rc < 0 || !result->changed)
		return rc;
	rc = group_file_save(o->state_directory, g);
	if (rc < 0)
		return sy_fail(err, -rc, "%s/group: %s", o->state_directory, strerror(-rc));
	sy_log(SY_LOG_INFO, "peers", "group: %s; applied by %s",
	       g->node ? g->version : "this node leaves it",
	       wanted.restart ? "a restart, as the slot key differs" : "an upgrade");
	b->ctl->control->upgrade = (struct upgrade){.running = true};
	rc = o->upgrade(o->upgrade_ctx, &wanted, err);
	if (rc < 0)
		b->ctl->control->upgrade = (struct upgrade){0};
	return rc;
}

int control_set_group(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
                      struct sy_error *err)
{
	pb_group_result *result;
	pb_group *g = q->set_group->group;
	MESSAGE_NEW(a, result, steelyard__forwarder__v1__group_result__init);
	if (!g)
		return sy_fail(err, EINVAL, "the group is missing");
	int rc = is_possible(b, err);
	if (rc == 0)
		rc = group_apply(b, g, result, err);
	group_wipe(g);
	out->body_case = STEELYARD__FORWARDER__V1__RESPONSE__BODY_SET_GROUP;
	out->set_group = result;
	return rc;
}

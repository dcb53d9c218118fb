// SPDX-License-Identifier: Apache-2.0
/* steelyard-forwarder processes packets only. Its configuration comes by netlink and the control
 * socket. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#include <sy_phase.h>

#include "process.h"
#include "stale_state.h"
#include "upgrade_message.h"

static void report_removed(void *ctx, const char *text)
{
	printf("removed %s\n", text);
}

int main(int argc, char **argv)
{
	struct options o;
	struct sy_error err = {0};
	sy_phases_begin();
	/* Return tables of large sets, and their input, to the kernel when they are freed. By
	 * default malloc() raises its threshold, and keeps blocks of up to 32 MiB. */
	mallopt(M_MMAP_THRESHOLD, 1 << 20);
	int rc = options_read(argc, argv, &o, &err);
	o.balance.build = SY_BUILD;
	sy_log_set_level(o.log);
	if (rc == 0) {
		switch (o.action) {
		case ACTION_RUN:
			rc = process_run(&o, argv, &err);
			break;
		case ACTION_RELEASE:
		case ACTION_CLEANUP:
			rc = o.action == ACTION_RELEASE
			             ? sy_kernel_release(report_removed, NULL, &err)
			             : sy_kernel_cleanup(report_removed, NULL, &err);
			if (rc == 0 && o.action == ACTION_CLEANUP)
				stale_state_cleanup(report_removed, NULL);
			/* either way another node is to serve now */
			if (rc == 0 && (rc = sy_balance_resign(o.state)) < 0)
				sy_fail(&err, -rc, "%s/role: %s", o.state, strerror(-rc));
			break;
		case ACTION_VERSION:
			printf("steelyard-forwarder %s\n", SY_BUILD);
			break;
		case ACTION_HELP:
			options_help();
			break;
		}
	}
	if (rc < 0 && o.inherit >= 0)
		upgrade_message_send(o.inherit, UPGRADE_MESSAGE_FAILED, err.text, NULL);
	if (rc < 0)
		fprintf(stderr, "steelyard-forwarder: %s\n", err.text);
	options_free(&o);
	return rc < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

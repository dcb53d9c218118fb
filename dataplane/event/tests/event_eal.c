// SPDX-License-Identifier: Apache-2.0
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_eal.h>
#include <rte_errno.h>

#include "event_eal.h"

void event_eal_start(void)
{
	static bool started;
	char lcores[4096];
	cpu_set_t set;
	size_t at = (size_t)snprintf(lcores, sizeof(lcores), "0@(");
	if (started)
		return;
	sched_getaffinity(0, sizeof(set), &set);
	for (unsigned i = 0, n = 0; i < CPU_SETSIZE && at < sizeof(lcores) - 8; i++)
		if (CPU_ISSET(i, &set))
			at += (size_t)snprintf(lcores + at, sizeof(lcores) - at, "%s%u",
			                       n++ ? "," : "", i);
	snprintf(lcores + at, sizeof(lcores) - at, ")");
	char *argv[] = {"steelyard", "--no-huge",      "-m",          "512",
	                "--no-pci",  "--no-telemetry", "--no-shconf", "--iova-mode=va",
	                "--lcores",  lcores,           "--log-level", "critical",
	                NULL};
	if (rte_eal_init((int)(sizeof(argv) / sizeof(*argv)) - 1, argv) < 0) {
		fprintf(stderr, "EAL does not start: %s\n", rte_strerror(rte_errno));
		exit(EXIT_FAILURE);
	}
	started = true;
}

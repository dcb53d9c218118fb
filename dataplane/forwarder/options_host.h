// SPDX-License-Identifier: Apache-2.0
/* Options that depend on the host: mounts, users and groups; system call filters. */
#ifndef OPTIONS_HOST_H
#define OPTIONS_HOST_H

#include "options.h"

/* Where the session tables are kept across restarts: a mounted hugetlbfs, else shared memory. */
void options_find_store(struct options *o);
/* Sets the group `steelyard` and the user of that name, if this host has them. */
void options_default_group(struct sy_control_access *out);
/* Reads a group by name in /etc/group or by number; by name, the user of the same name is the
 * agent's. Returns 0, or -EINVAL with err. */
int options_read_group(const char *text, struct sy_control_access *out, struct sy_error *err);
/* on, trap or off. Returns 0, or -EINVAL with err. */
int options_read_confine(const char *text, enum sy_confine *out, struct sy_error *err);
/* drop, reset or icmp. Returns 0, or -EINVAL with err. */
int options_read_unavailable(const char *text, enum sy_unavailable *out, struct sy_error *err);
/* A model of an event device's queue. Returns 0, or -EINVAL with err. */
int options_read_event_model(const char *text, const char **out, struct sy_error *err);

#endif

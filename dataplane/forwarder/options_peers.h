// SPDX-License-Identifier: Apache-2.0
/* --node, --sync, --peer, --sync-secret: session synchronisation. */
#ifndef OPTIONS_PEERS_H
#define OPTIONS_PEERS_H

#include "options.h"

#define SYNC_PORT 8849 /* UDP */

int options_read_node(const char *text, struct sy_peers_options *out, struct sy_error *err);
int options_read_sync_mode(const char *text, struct sy_peers_options *out, struct sy_error *err);
int options_read_sync(const char *text, struct sy_peers_options *out, struct sy_error *err);
int options_read_peer(const char *text, struct sy_peers_options *out, struct sy_error *err);
int options_read_secret(const char *path, struct sy_peers_options *out, struct sy_error *err);
/* Do the options belong together? */
int options_check_peers(const struct options *o, struct sy_error *err);

#endif

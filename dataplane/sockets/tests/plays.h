// SPDX-License-Identifier: Apache-2.0
/* What plays share. */
#ifndef PLAYS_H
#define PLAYS_H

#include <netinet/in.h>

#include "both.h"

#define PORT 20077

struct pair {
	int listener, client, server;
};

struct sockaddr_storage address_at(const struct both *b, bool v6, int port);
socklen_t address_len(bool v6);
void note_ready(const struct both *b, int side, const char *who, int fd);
/* Waits for one of these events. */
void await(const struct both *b, int side, int fd, short events);
int listener_make(const struct both *b, bool v6, int port);
/* Not yet connected. */
int client_make(const struct both *b, bool v6, int port);
struct pair pair_make(const struct both *b, bool v6);
void pair_close(const struct both *b, const struct pair *p);

#endif

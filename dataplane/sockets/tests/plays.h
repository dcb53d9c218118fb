// SPDX-License-Identifier: Apache-2.0
/* Helpers of plays. */
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
/* Receives, and logs result and bytes. */
void note_recv(const struct both *b, int side, int fd, int flags);
/* Logs a numeric option. */
void note_number(const struct both *b, int side, int fd, const char *name, int level, int option);
/* Waits for one of these events. */
void await(const struct both *b, int side, int fd, short events);
int listener_make(const struct both *b, bool v6, int port);
/* Not yet connected. */
int client_make(const struct both *b, bool v6, int port);
struct pair pair_make(const struct both *b, bool v6);
void pair_close(const struct both *b, const struct pair *p);

#endif

// SPDX-License-Identifier: Apache-2.0
/* What the files of relays share (docs/design/0062-relays.md). */
#ifndef PRELOAD_RELAY_H
#define PRELOAD_RELAY_H

#include <sys/un.h>

#include "preload.h"

/* The own end's abstract name: sy/PID/4/ADDRESS:PORT/ADDRESS:PORT, the local address first. PID is
 * the process that has, or had (exec.c), the stack, with a number behind it if its name was in use;
 * 4 or 6 the family of the program's socket. */
#define RELAY_NAME    sizeof(((struct sockaddr_un *)0)->sun_path)
#define RELAY_SERVICE 24

/* Locked. Of the process that has the stack. */
struct relay {
	struct sock *s;          /* the stack's connection */
	int fd;                  /* the own end: the other one is the program's */
	bool readable, writable; /* fd, as far as is known: it is watched edge-triggered */
	bool hung_up;            /* no process has the other end any more */
	bool reset;              /* and bytes were left unread there */
	bool in_done;            /* the peer's end of data was passed on */
	bool out_done;           /* and the program's */
	bool discard;            /* the program has shut its receiving side down */
	int error;               /* why the connection has ended, a positive errno; 0: it has not */
	bool queued;             /* for relays_move() */
	struct relay *after;     /* in that queue */
	struct relay *next, *previous;
	char name[RELAY_NAME];
};

struct relay_name {
	char service[RELAY_SERVICE]; /* the name of the socket for requests */
	int family;
	struct sy_stack_endpoint local, peer;
};

enum relay_request_type { RELAY_SET = 1, RELAY_GET, RELAY_ERROR };

/* To the service's socket, a datagram with two descriptors: the connection's, and a socket for the
 * answer. */
struct relay_request {
	uint32_t type;
	int32_t level, name;
	uint32_t len;
	uint8_t value[INFO_BYTES];
};

struct relay_answer {
	int32_t rc; /* negative errno; ERROR: the connection's, 0: none */
	uint32_t len;
	_Alignas(8) uint8_t value[INFO_BYTES];
};

/* ---- relay.c --------------------------------------------------------------------------------- */

extern struct relay *all_relays;
/* Sends at once what the program has written. */
void relay_no_delay(const struct relay *r);
/* Ends it, and the connection. error: why, for the program; 0: it ended in order. */
void relay_end(struct relay *r, int error);

/* ---- relay_move.c ---------------------------------------------------------------------------- */

/* Moves what can be moved now. true: there is more. */
bool relay_move(struct relay *r);

/* ---- relay_name.c ---------------------------------------------------------------------------- */

/* service: this process's. */
int relay_name_make(const struct sock *s, const char *service, char out[RELAY_NAME]);
/* The abstract address of this name; returns its length. */
socklen_t relay_address(struct sockaddr_un *a, const char *name);
int relay_bind(int fd, const char *name);
/* The same; adds a number to a name that is in use. */
int relay_name_bind(int fd, char name[RELAY_NAME]);
int relay_name_parse(const char *text, struct relay_name *out);
/* The name that the other end of this descriptor has. False: it is not a relay's. */
bool relay_name_of(int fd, char out[RELAY_NAME]);

/* ---- relay_serve.c --------------------------------------------------------------------------- */

/* The socket for requests, once for a process. Returns it, or a negative errno. */
int relay_serve_open(void);
/* Its name. */
const char *relay_service(void);
/* A child: it is the parent's. */
void relay_serve_forget(void);
void relay_serve(int socket);
void relay_answer(const char *name, const struct relay_request *q, struct relay_answer *a);
/* A program that reads the end of its data learns this error. */
void relay_note(const char *name, int error);

#endif

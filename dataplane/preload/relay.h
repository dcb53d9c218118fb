// SPDX-License-Identifier: Apache-2.0
/* Shared by the files of relays (docs/design/0062-relays.md). */
#ifndef PRELOAD_RELAY_H
#define PRELOAD_RELAY_H

#include <sys/un.h>

#include "preload.h"

/* The abstract name of the library's end: sy/PID/4/ADDRESS:PORT/ADDRESS:PORT, the local address
 * first. PID is the process that has, or had (exec.c), the stack, with a number behind it if its
 * name was in use; 4 or 6 is the family of the program's socket. */
#define RELAY_NAME    sizeof(((struct sockaddr_un *)0)->sun_path)
#define RELAY_SERVICE 24

/* A relay, in the process that has the stack. Locked. */
struct relay {
	struct sock *s;          /* the stack's connection */
	int fd;                  /* the library's end; the program has the other one */
	bool readable, writable; /* of fd, which is watched edge-triggered */
	bool hung_up;            /* all processes have closed the other end */
	bool reset;              /* they left bytes unread */
	bool in_done;            /* the peer's end of data was forwarded */
	bool out_done;           /* the program's end of data was forwarded */
	bool discard;            /* the program has shut its receiving side down */
	int error;               /* a positive errno that has ended the connection; 0: none */
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

/* A datagram to the service's socket, with two descriptors: the connection's, and a socket for the
 * answer. */
struct relay_request {
	uint32_t type;
	int32_t level, name;
	uint32_t len;
	uint8_t value[INFO_BYTES];
};

struct relay_answer {
	int32_t rc; /* a negative errno; of RELAY_ERROR: the connection's error, 0: none */
	uint32_t len;
	_Alignas(8) uint8_t value[INFO_BYTES];
};

/* ---- relay.c --------------------------------------------------------------------------------- */

extern struct relay *all_relays;
/* Disables Nagle's algorithm. */
void relay_no_delay(const struct relay *r);
/* Ends the relay and the connection. error: for the program; 0: it ended in order. */
void relay_end(struct relay *r, int error);

/* ---- relay_move.c ---------------------------------------------------------------------------- */

/* Moves the bytes that can be moved now. Returns true if there are more. */
bool relay_move(struct relay *r);

/* ---- relay_name.c ---------------------------------------------------------------------------- */

/* service: the name of this process's service. */
int relay_name_make(const struct sock *s, const char *service, char out[RELAY_NAME]);
/* Stores the abstract address of this name. Returns its length. */
socklen_t relay_address(struct sockaddr_un *a, const char *name);
int relay_bind(int fd, const char *name);
/* The same; adds a number to a name that is in use. */
int relay_name_bind(int fd, char name[RELAY_NAME]);
int relay_name_parse(const char *text, struct relay_name *out);
/* Stores the name of the descriptor's other end. Returns false if it is no relay's. */
bool relay_name_of(int fd, char out[RELAY_NAME]);

/* ---- relay_serve.c --------------------------------------------------------------------------- */

/* Opens the socket for requests, once per process. Returns it, or a negative errno. */
int relay_serve_open(void);
/* Returns its name. */
const char *relay_service(void);
/* In a child: the socket is the parent's. */
void relay_serve_forget(void);
void relay_serve(int socket);
void relay_answer(const char *name, const struct relay_request *q, struct relay_answer *a);
/* Records the error that a program gets when it reads the end of its data. */
void relay_note(const char *name, int error);

#endif

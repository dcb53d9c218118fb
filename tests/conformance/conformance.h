// SPDX-License-Identifier: Apache-2.0
/*
 * Socket calls in each state of a TCP socket, one line a case: "state mode call: result".
 *
 *   conformance.c: states × modes × calls
 *       ├▶ call_states.c: brings a socket into a state, with the peer's help
 *       ├▶ call_queries.c: calls that leave the socket as it is; they share one
 *       ├▶ call_actions.c, call_bytes.c, call_several.c: calls that change it; each has its own
 *       ├▶ call_variants.c: other forms of calls
 *       └▶ call_exec.c, executed.c: programs that are executed with it
 *
 * The peer is the Puppet of tests/lab/run.py: the first line of a connection is its order.
 */
#ifndef CONFORMANCE_H
#define CONFORMANCE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#define SHORT_MS   10    /* a blocking call that nothing ends */
#define PATIENCE   60000 /* ms: deadline of expected events, on a busy machine */
#define MORE_BYTES 256

/* Arguments that the compiler would warn of. */
extern void *volatile const null, *volatile const bad, *volatile const kernel;
extern volatile const int minus_one;

struct peer {
	const char *address, *own, *unreachable, *unused;
	int port, silent, refused, listen;
	int family;
};
extern struct peer peer;

/* Appends to a call's result. */
void more(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Closes the pipe after reading the report of a child, which has the writing end. The buffer must
 * be zero. */
void pipe_report(const int ends[2], char report[MORE_BYTES]);
/* An address without its port, by the name of its host. */
const char *address_name(const struct sockaddr_storage *a, socklen_t len);
const char *error_name(int error);
/* "POLLIN|POLLHUP" */
const char *events_name(unsigned events);

/* Ends the program: the lab is at fault. */
void require(bool holds, const char *what);

struct call {
	const char *name;
	long (*run)(int fd); /* the result; negative: errno */
	bool blocks;         /* run in both modes */
	bool few;            /* run in some states only */
};

/* clang-format off */
#define ONCE(name)  {#name, name, false, false}
#define MODES(name) {#name, name, true, false}
#define FEW(name)   {#name, name, false, true}
/* clang-format on */

struct state {
	const char *name;
	int (*open)(void);
	bool all; /* run also calls that mostly do not depend on the state */
	/* The only calls that run in this state, of those that change it; NULL: all. Its sockets
	 * are made together, because each takes seconds, or a router limits its errors per second.
	 */
	const char *only[4];
};

extern const struct state states[];
extern const size_t state_count;
extern const struct call queries[], actions[], transfers[], several[], executing[], variants[];
extern const size_t query_count, action_count, transfer_count, several_count, executing_count,
        variant_count;

/* A process brings a socket into a state, and then executes another program. */
struct replacement {
	const char *name;
	void (*run)(int fd, int out,
	            short before); /* before: events that the socket is ready for */
	bool few;
};

extern const struct replacement replacements[];
extern const size_t replacement_count;

/* In a process of its own: the stack is that process's. */
void replacement_run(const struct state *s, const struct replacement *r);
/* Runs as the executed program, with its arguments. */
int executed(char **arg);
/* Returns the socket's poll() events, once they include those from before the execution. */
unsigned settled(int fd, short before);

socklen_t address_of(const char *host, int port, struct sockaddr_storage *out);
int connect_to(int fd, const char *host, int port);
int stream_socket(int flags);
/* A connection to the peer that has this order. */
int dial(const char *order);
/* Until poll() reports one of these events, or an error or a hang-up. */
void await(int fd, short events);
/* Runs before any case: starts the states of a pool. */
void pools_open(void);
int state_open(const struct state *s);
void state_close(int fd);
/* A blocking call on it ends soon. */
void mode_set(int fd, bool nonblocking);

#endif

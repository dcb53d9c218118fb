// SPDX-License-Identifier: Apache-2.0
/*
 * The supervisor: the parent of a program on the stack. It holds what takes privileges, and what
 * more than one process of the program shares: the XDP program, the queues, the ports that are
 * steered.
 */
#ifndef SUPERVISOR_H
#define SUPERVISOR_H

#include <sys/types.h>

#include <sy_hook_registry.h>
#include <sy_patience.h>

#include "message.h"
#include "steer.h"

#define SUPERVISOR_PEERS 128 /* processes */
#define SUPERVISOR_POLLS (2 * SUPERVISOR_PEERS + 2)
#define SUPERVISOR_PORTS 256 /* of one process */

struct supervisor_options {
	struct message_answer config; /* what every process is told */
	unsigned queues;              /* of the interface */
	const char *library;
	const char *name; /* of the registry's socket; NULL: the program's and a number */
};

/* A worker's memory, and its sockets until they are its own (supervisor_packets.c). */
struct packets {
	int memory; /* -1: none */
	unsigned sockets, bound;
	int xsk[MESSAGE_QUEUES];
	int large; /* the packet socket for large segments; -1: none */
};

/* Allocates them for the queues that the answer names. */
int packets_open(struct packets *p, struct message_answer *a);
/* Fails with -EBUSY if a queue still belongs to an earlier socket; repeat it then. */
int packets_bind(struct packets *p, struct message_answer *a);
/* Closes the sockets here. The worker's copies stay open. */
void packets_close(struct packets *p);
/* Also frees the memory, whichever process maps it. */
void packets_release(struct packets *p);

struct supervisor {
	struct supervisor_options options;
	struct steer *steer;
	struct sy_hook_registry *hooks;
	int listener;
	int inbox[MESSAGE_WORKERS][2]; /* of each worker: it reads from the first */
	uint8_t secret[MESSAGE_SECRET];
	char name[64]; /* of its abstract socket, and the secret: MESSAGE_ENV */
};

struct port {
	struct sy_addr addr;
	uint16_t port;
	uint16_t v6_only;
	bool serves;       /* the process waits there for connections */
	bool closed;       /* a worker takes no more connections, and goes on with those it has */
	bool yielded;      /* it does not accept what waits */
	bool warned;       /* that Linux serves the port */
	uint64_t since_ns; /* the process listens there */
};

struct peer {
	int fd;      /* 0: free */
	int process; /* a pidfd */
	pid_t pid;
	uid_t uid;             /* when it connected */
	bool warned;           /* of a port that it may not have */
	bool known;            /* it has told the secret */
	bool waits;            /* for a queue */
	bool bound;            /* its stack gets packets */
	bool stalled;          /* and does not run */
	uint64_t heartbeat_ns; /* when it last did */
	uint64_t request;      /* the number of its last one; at first its connection's */
	int worker;            /* -1: none */
	struct packets packets;
	bool binds;                     /* START has no answer yet: a queue is not free */
	struct sy_patience patience;    /* for that */
	struct message_answer answer;   /* to START */
	int registry;                   /* its number at the hooks' registry; -1: none */
	struct sy_hook_channel channel; /* until it is its own */
	struct port port[SUPERVISOR_PORTS];
	unsigned ports;
};
extern struct peer peer[SUPERVISOR_PEERS];

/* Ports (supervisor_ports.c). */
/* fd: the socket that listens, or -1. Returns -EACCES if the process has no right to the port. */
int port_listen(struct supervisor *sv, struct peer *p, const struct port *port, bool on, int fd);
int port_yield(struct supervisor *sv, struct peer *p, const struct port *port);
/* Brings the XDP program in line for all ports of a process. */
void ports_steer(struct supervisor *sv, const struct peer *p);
/* Does a process wait there for connections? */
bool port_is_served(const struct port *port);
/* Looks for ports at which Linux has no connection any more. Each MESSAGE_HEARTBEAT_MS. */
void ports_check(struct supervisor *sv, uint64_t now_ns);

/* Does the process listen there, or did it, as a worker that still has connections? */
bool port_is_of(const struct peer *p, const struct sy_addr *addr, uint16_t port);
/* Linux is about to have a connection there. */
int port_share(struct supervisor *sv, const struct sy_addr *addr, uint16_t port);

/* Connections of the stack that become Linux's (supervisor_repair.c). */
int repair_open(struct sy_error *err);
/* An epoll instance: readable when repair_serve() is to be called. */
int repair_fd(void);
void repair_serve(struct supervisor *sv);
/* Makes a socket of the connection, with what it has received, and a ticket for it. Fails with
 * -EACCES if the process is no worker, or may not have such a connection; -ECONNREFUSED if no
 * process listens there; -ENOSPC. */
int repair_add(struct supervisor *sv, const struct peer *p, const struct message_request *q,
               const struct message_connection *c, const uint8_t *unread);
/* fd: an accepted ticket, or -1. Returns the socket of its connection, and ends the ticket. Fails
 * with -ENOENT if it is none. */
int repair_redeem(const struct supervisor *sv, const struct peer *p, int fd);

/* Workers (supervisor_workers.c). */
/* Both fail with -EINPROGRESS if a queue is not free yet: call worker_bind() later. */
int worker_start(struct supervisor *sv, struct peer *p);
int worker_bind(struct supervisor *sv, struct peer *p);
/* The worker has filled its rings: from here on packets reach them. */
int worker_bound(struct supervisor *sv, struct peer *p);
void worker_end(struct supervisor *sv, struct peer *p);
/* What `steelyard stack list` warns of. */
void workers_note(struct supervisor *sv);

/* Opens the socket that the program's processes connect to. */
int supervisor_listen_open(struct supervisor *sv, struct sy_error *err);
/* Answers those who are readable in this set of poll(), of SUPERVISOR_POLLS; the first is the
 * listener.
 */
struct pollfd;
unsigned supervisor_poll_fill(struct supervisor *sv, struct pollfd *p);
/* The timeout of that poll(). */
int supervisor_wait_ms(void);
void supervisor_serve(struct supervisor *sv, const struct pollfd *p, unsigned count);
/* Which ports do the program's processes serve? Linux takes the others' new connections
 * (supervisor_watch.c). After supervisor_serve(), and at the latest so many ms later; -1: at any
 * time. */
void supervisor_watch(struct supervisor *sv);
int supervisor_watch_ms(void);
/* What the program begins with, and what is ordered later (supervisor_hooks.c). */
enum {
	SUPERVISOR_HOOK = 256,
	SUPERVISOR_HOOK_FILE,
	SUPERVISOR_HOOK_PARAM,
	SUPERVISOR_HOOK_PLACE,
	SUPERVISOR_NAME
};
int supervisor_hook_option(int option, const char *text, struct sy_error *err);
/* Checks and keeps the command line's hooks, and serves others. */
int supervisor_hooks_open(struct supervisor *sv, const char *command, struct sy_error *err);
void supervisor_hooks_close(struct supervisor *sv);

/* io_uring_setup() fails in this process and its children (supervisor_filter.c). */
int supervisor_filter(void);
/* Is a socket of this process's network namespace? */
bool is_in_namespace(const struct supervisor *sv, int fd);

int supervisor_options_parse(int argc, char **argv, struct supervisor_options *out, char ***command,
                             struct sy_error *err);

#endif

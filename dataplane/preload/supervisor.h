// SPDX-License-Identifier: Apache-2.0
/*
 * The supervisor: the parent of a program on the stack. It owns what requires privileges, and what
 * several processes of the program share: the XDP program, the queues, the steered ports.
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
#define SUPERVISOR_PORTS STEER_SERVED /* of one process */

struct supervisor_options {
	struct message_answer config; /* the answer to CONFIG */
	unsigned queues;              /* of the interface */
	const char *library;
	const char *name; /* of the registry's socket; NULL: the program's name and a number */
};

/* A worker's memory, and its sockets until the worker has them (supervisor_packets.c). */
struct packets {
	int memory; /* -1: none */
	unsigned sockets, bound;
	int xsk[MESSAGE_QUEUES];
	int large; /* the packet socket for large segments; -1: none */
};

/* Allocates memory and sockets for the queues of the answer. */
int packets_open(struct packets *p, struct message_answer *a);
/* Fails with -EBUSY while a queue still belongs to an earlier socket: the caller retries. */
int packets_bind(struct packets *p, struct message_answer *a);
/* Closes the supervisor's sockets. The worker's copies stay open. */
void packets_close(struct packets *p);
/* Also frees the memory, even if a process still maps it. */
void packets_release(struct packets *p);

struct supervisor {
	struct supervisor_options options;
	struct steer *steer;
	struct sy_hook_registry *hooks;
	int listener;
	int inbox[MESSAGE_WORKERS][2]; /* of each worker, which reads from the first */
	uint8_t secret[MESSAGE_SECRET];
	char name[64]; /* of its abstract socket, and the secret: MESSAGE_ENV */
};

struct port {
	struct sy_addr addr;
	uint16_t port;
	uint16_t v6_only;
	bool serves;       /* the process waits there for connections */
	bool closed;       /* a worker accepts no more connections, and continues those it has */
	bool yielded;      /* it does not accept pending connections */
	bool warned;       /* that Linux serves the port */
	uint64_t since_ns; /* since when the process listens there */
};

struct peer {
	int fd;      /* 0: the slot is free */
	int process; /* a pidfd */
	pid_t pid;
	uid_t uid;             /* when it connected */
	bool warned;           /* of a port to which it has no right */
	bool authenticated;    /* it has sent the secret */
	bool waits;            /* for a queue */
	bool bound;            /* its stack gets packets */
	bool stalled;          /* and its heartbeat is late */
	uint64_t heartbeat_ns; /* its last heartbeat */
	uint64_t request;      /* the number of its last request; at first of its connection */
	int worker;            /* -1: none */
	struct packets packets;
	bool binds;                     /* START is not answered yet: a queue is not free */
	struct sy_patience patience;    /* for that */
	struct message_answer answer;   /* to START */
	int registry;                   /* its number at the hooks' registry; -1: none */
	struct sy_hook_channel channel; /* until the worker has it */
	struct port port[SUPERVISOR_PORTS];
	unsigned ports;
};
extern struct peer peer[SUPERVISOR_PEERS];

/* Ports (supervisor_ports.c). */
/* fd: the listening socket, or -1. Fails with -EACCES if the process has no right to the port. */
int port_listen(struct supervisor *sv, struct peer *p, const struct port *port, bool on, int fd);
int port_yield(struct supervisor *sv, struct peer *p, const struct port *port);
/* Frees the entry of a port that the process has closed: its stack expects no more segments. */
int port_forget(struct supervisor *sv, struct peer *p, const struct port *port);
/* Updates the XDP program's map for all ports of a process. */
void ports_steer(struct supervisor *sv, const struct peer *p);
/* Returns whether a process waits there for connections. */
bool port_is_served(const struct port *port);
/* Finds ports at which Linux has no connection any more. Called every MESSAGE_HEARTBEAT_MS. */
void ports_check(struct supervisor *sv, uint64_t now_ns);

/* Returns whether the process listens there, or did as a worker that still has connections. */
bool port_is_of(const struct peer *p, const struct sy_addr *addr, uint16_t port);
/* Marks the port as shared: Linux is about to have a connection there. */
int port_share(struct supervisor *sv, const struct sy_addr *addr, uint16_t port);

/* Connections of the stack that become Linux's (supervisor_repair.c). */
int repair_open(struct sy_error *err);
/* Returns an epoll instance, readable when repair_serve() is due. */
int repair_fd(void);
void repair_serve(struct supervisor *sv);
/* Creates a socket of Linux's with the connection's state and unread bytes, and a ticket
 * (backlog.c) for it. Fails with -EACCES if the process is no worker, or has no right to the
 * connection; -ECONNREFUSED if no process listens there; -ENOSPC. */
int repair_add(struct supervisor *sv, const struct peer *p, const struct message_request *q,
               const struct message_connection *c, const uint8_t *unread);
/* fd: an accepted ticket, or -1. Returns the socket of its connection, and ends the ticket. Fails
 * with -ENOENT if it is no ticket. */
int repair_redeem(const struct supervisor *sv, const struct peer *p, int fd);

/* Workers (supervisor_workers.c). */
/* Both fail with -EINPROGRESS while a queue is not free: the caller calls worker_bind() later. */
int worker_start(struct supervisor *sv, struct peer *p);
int worker_bind(struct supervisor *sv, struct peer *p);
/* The worker has filled its rings: packets are steered to them from here on. */
int worker_bound(struct supervisor *sv, struct peer *p);
void worker_end(struct supervisor *sv, struct peer *p);
/* Updates the warnings of `steelyard stack list`. */
void workers_note(struct supervisor *sv);

/* Opens the socket that the program's processes connect to. */
int supervisor_listen_open(struct supervisor *sv, struct sy_error *err);
/* Fills in a set of SUPERVISOR_POLLS for poll(); the first is the listener. supervisor_serve()
 * answers those that are readable. */
struct pollfd;
unsigned supervisor_poll_fill(struct supervisor *sv, struct pollfd *p);
/* Returns the time-out of that poll(). */
int supervisor_wait_ms(void);
void supervisor_serve(struct supervisor *sv, const struct pollfd *p, unsigned count);
/* Leaves ports that no process serves to Linux (supervisor_watch.c). Called after
 * supervisor_serve(), at the latest after supervisor_watch_ms(); -1: at any time. */
void supervisor_watch(struct supervisor *sv);
int supervisor_watch_ms(void);
/* Hooks of the command line, and those ordered later (supervisor_hooks.c). */
enum {
	SUPERVISOR_HOOK = 256,
	SUPERVISOR_HOOK_FILE,
	SUPERVISOR_HOOK_PARAM,
	SUPERVISOR_HOOK_PLACE,
	SUPERVISOR_NAME
};
int supervisor_hook_option(int option, const char *text, struct sy_error *err);
/* Loads the command line's hooks, and serves requests for others. */
int supervisor_hooks_open(struct supervisor *sv, const char *command, struct sy_error *err);
void supervisor_hooks_close(struct supervisor *sv);

/* Makes io_uring_setup() fail in this process and its children (supervisor_filter.c). */
int supervisor_filter(void);
/* Returns whether a socket is in this process's network namespace. */
bool is_in_namespace(const struct supervisor *sv, int fd);

int supervisor_options_parse(int argc, char **argv, struct supervisor_options *out, char ***command,
                             struct sy_error *err);

#endif

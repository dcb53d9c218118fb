// SPDX-License-Identifier: Apache-2.0
/* A child process in a network namespace of its own, at the other end of a veth:
 *
 *     this process                       the child
 *     NEAR, 10.77.0.1, 2001:db8:77::1 ═══ FAR
 *
 * Test and child wait for each other by a byte, in turn. */
#ifndef VETH_PEER_H
#define VETH_PEER_H

#include <sys/types.h>

struct veth_peer {
	pid_t pid; /* 0: none */
	int ready, go;
	const char *near;
};

/* Starts the child, which runs body() and must not return. body() writes a byte once it has its
 * namespace, reads one, and writes another once FAR is up. The veth has so many queues. */
void veth_peer_open(struct veth_peer *p, const char *near, const char *far, unsigned queues,
                    void (*body)(int ready, int go));
/* Waits for the child's byte; sends it one. */
void veth_peer_await(struct veth_peer *p);
void veth_peer_go(struct veth_peer *p);
/* Ends the child by closing `go`; kills it if the veth is gone already. Returns 0 if it exited with
 * 0, or if there is none. */
int veth_peer_close(struct veth_peer *p);

#endif

// SPDX-License-Identifier: Apache-2.0
#include "veth_peer.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime_fixture.h"

void veth_peer_await(struct veth_peer *p)
{
	char byte;
	assert_int_equal(read(p->ready, &byte, 1), 1);
}

void veth_peer_go(struct veth_peer *p)
{
	char byte = 0;
	assert_int_equal(write(p->go, &byte, 1), 1);
}

void veth_peer_open(struct veth_peer *p, const char *near, const char *far, unsigned queues,
                    void (*body)(int ready, int go))
{
	int ready[2], go[2];
	char text[400];
	assert_int_equal(pipe(ready), 0);
	assert_int_equal(pipe(go), 0);
	*p = (struct veth_peer){.ready = ready[0], .go = go[1], .near = near};
	p->pid = fork();
	if (!p->pid) {
		close(go[1]); /* or the child would never see the close */
		body(ready[1], go[0]);
	}
	assert_true(p->pid > 0);
	close(ready[1]);
	close(go[0]);
	veth_peer_await(p);
	snprintf(text, sizeof(text),
	         "ip link add %s numrxqueues %u numtxqueues %u type veth peer name %s "
	         "numrxqueues %u numtxqueues %u netns %d && ip addr add 10.77.0.1/24 dev %s && "
	         "ip addr add 2001:db8:77::1/64 dev %s nodad && ip link set %s up",
	         near, queues, queues, far, queues, queues, (int)p->pid, near, near, near);
	assert_int_equal(system(text), 0);
	veth_peer_go(p);
	veth_peer_await(p);
}

int veth_peer_close(struct veth_peer *p)
{
	int status = 0;
	char text[60];
	if (!p->pid)
		return 0;
	snprintf(text, sizeof(text), "ip link del %s", p->near);
	int rc = system(text);
	close(p->go);
	close(p->ready);
	if (rc)
		kill(p->pid, SIGKILL);
	waitpid(p->pid, &status, 0);
	p->pid = 0;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

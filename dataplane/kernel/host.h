// SPDX-License-Identifier: Apache-2.0
/* Where a forwarder's traces lie on the host. Everything is named by the inode of the network
 * namespace: interface indices repeat between namespaces. */
#ifndef KERNEL_HOST_H
#define KERNEL_HOST_H

#include <sy_kernel.h>

#define HOST_RUN_DIR "/run/steelyard"
#define HOST_BPF_DIR "/sys/fs/bpf/steelyard"
#define HOST_PATH    128

/* Protocol number of routes and addresses that are ours. */
#define HOST_PROTOCOL 201

/* Inode of the calling thread's network namespace, 0 if it cannot be read. */
uint64_t host_netns(void);
/* Mounts bpffs where it is missing and creates our folder in it. */
int host_bpffs(struct sy_error *err);
void host_pin_path(char out[static HOST_PATH], uint64_t netns, int ifindex);

/* Takes the lock lock-<netns>-<what>; `what` names an interface index or "claims", `held` what a
 * person calls it, `also` ends the remedy: "" or ", or …". Waits up to wait_ms for it. Returns a
 * descriptor that holds it until it is closed, or -EBUSY with a text that names the holder. */
int host_lock(const char *what, const char *held, const char *also, unsigned wait_ms,
              struct sy_error *err);
void host_lock_path(char out[static HOST_PATH], uint64_t netns, const char *what);

#endif

// SPDX-License-Identifier: Apache-2.0
/* Files of a forwarder on the host. All names contain the inode of the network namespace: interface
 * indices repeat between namespaces. */
#ifndef KERNEL_HOST_H
#define KERNEL_HOST_H

#include <sy_kernel.h>

#define HOST_RUN_DIR "/run/steelyard"
#define HOST_BPF_DIR "/sys/fs/bpf/steelyard"
#define HOST_PATH    128

/* Protocol number of the forwarder's routes and addresses. */
#define HOST_PROTOCOL 201

/* Inode of the calling thread's network namespace; 0 if it cannot be read. */
uint64_t host_netns(void);
/* Refuses to pin where pins would not outlive this process. */
int host_bpffs_check(struct sy_error *err);
/* Mounts bpffs if necessary and creates the forwarder's folder in it. */
int host_bpffs(struct sy_error *err);
void host_pin_path(char out[static HOST_PATH], uint64_t netns, int ifindex);

/* Acquires the lock lock-<netns>-<what>, waiting up to wait_ms. what: an interface index or
 * "claims"; held: its name in error messages; also: end of the remedy in the message, "" or ", or
 * …". Returns a descriptor that holds the lock until it is closed, or -EBUSY with a text that names
 * the holder. */
int host_lock(const char *what, const char *held, const char *also, unsigned wait_ms,
              struct sy_error *err);
void host_lock_path(char out[static HOST_PATH], uint64_t netns, const char *what);

#endif

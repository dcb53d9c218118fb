// SPDX-License-Identifier: Apache-2.0
#ifndef KERNEL_CHECK_H
#define KERNEL_CHECK_H

#include <sy_kernel.h>

/* Removes the programs from all interfaces of this namespace and restores the sysctl. The caller
 * ensures that no forwarder runs. */
void checks_remove(void (*report)(void *ctx, const char *text), void *ctx);

#endif

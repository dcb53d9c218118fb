// SPDX-License-Identifier: Apache-2.0
#ifndef KERNEL_CHECK_H
#define KERNEL_CHECK_H

#include <sy_kernel.h>

/* Takes the programs of this namespace off all interfaces, and the sysctl back. No forwarder runs.
 */
void checks_remove(void (*told)(void *ctx, const char *text), void *ctx);

#endif

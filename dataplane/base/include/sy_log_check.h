/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SY_LOG_CHECK_H
#define SY_LOG_CHECK_H

#include <stdbool.h>

/* Lines are logged only while is_log() returns true: standard error may be a client's
 * connection. */
void sy_log_set_check(bool (*is_log)(void));

#endif

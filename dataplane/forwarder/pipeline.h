// SPDX-License-Identifier: Apache-2.0
#ifndef PIPELINE_H
#define PIPELINE_H

#include <sy_runtime.h>

/* The stages of a worker in order; the last entry has a NULL name. */
extern const struct sy_stage pipeline[];

#endif

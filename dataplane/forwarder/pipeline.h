// SPDX-License-Identifier: Apache-2.0
#ifndef PIPELINE_H
#define PIPELINE_H

#include <sy_runtime.h>

/* The stages of a worker in their order; ends with a NULL name. */
extern const struct sy_stage pipeline[];

#endif

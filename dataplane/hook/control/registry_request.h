/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of `steelyard hook` and `steelyard stack`: api/steelyard/stack/v1/stack.proto. */
#ifndef REGISTRY_REQUEST_H
#define REGISTRY_REQUEST_H

#include "registry.h"

/* Executes a request. Returns the encoded response, which the caller frees, or NULL if there is no
 * memory or the request is malformed. */
uint8_t *request_answer(struct sy_hook_registry *d, const uint8_t *bytes, size_t len,
                        size_t *out_len);

#endif

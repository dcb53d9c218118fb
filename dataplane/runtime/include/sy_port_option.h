// SPDX-License-Identifier: Apache-2.0
/* Command-line options for ports, and for routes and neighbours of ports without a kernel
 * interface. Errors name the option and the remedy. Option texts are not modified. */
#ifndef SY_PORT_OPTION_H
#define SY_PORT_OPTION_H

#include <sy_runtime.h>

/* --port NAME[,KEY=VALUE…] */
int sy_port_option(struct sy_runtime_options *o, const char *text, struct sy_error *err);
/* --route PREFIX/LENGTH,port=NAME[,via=ADDRESS] */
int sy_route_option(struct sy_runtime_options *o, const char *text, struct sy_error *err);
/* --neighbour ADDRESS,port=NAME,mac=MAC */
int sy_neighbour_option(struct sy_runtime_options *o, const char *text, struct sy_error *err);
/* Frees what they have allocated. */
void sy_port_options_free(struct sy_runtime_options *o);

/* Numbers with k or M; options' texts. */
int sy_number_option(const char *option, const char *text, uint64_t min, uint64_t max,
                     uint64_t *out, struct sy_error *err);
int sy_u32_option(const char *option, const char *text, uint32_t min, uint32_t max, uint32_t *out,
                  struct sy_error *err);
int sy_text_option(const char *option, const char *text, char *out, size_t size,
                   struct sy_error *err);

#endif

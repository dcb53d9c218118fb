/* SPDX-License-Identifier: Apache-2.0 */
/* An array of clients by descriptor. Define struct client before including this; free `client` at
 * the end. */
#ifndef EXAMPLES_CLIENTS_H
#define EXAMPLES_CLIENTS_H

#include <stdlib.h>
#include <string.h>

static struct client *client;
static int clients; /* capacity */

/* Returns a client; new ones are zero. NULL: no memory. */
static struct client *client_of(int fd)
{
	if (fd >= clients) {
		struct client *more = realloc(client, (size_t)(fd + 1) * sizeof(*more));
		if (!more)
			return NULL;
		memset(more + clients, 0, (size_t)(fd + 1 - clients) * sizeof(*more));
		client = more;
		clients = fd + 1;
	}
	return &client[fd];
}

#endif

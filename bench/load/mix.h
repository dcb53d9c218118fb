// SPDX-License-Identifier: Apache-2.0
/* The request mix: classes with shares, distributions of lengths and service times; and each
 * protocol's encoding of a request. */
#ifndef LOAD_MIX_H
#define LOAD_MIX_H

#include "load_chance.h"
#include "raw_protocol.h"

#define CLASSES_MAX 16

enum protocol { PROTOCOL_RAW, PROTOCOL_ECHO, PROTOCOL_HTTP, PROTOCOL_REDIS };

struct request_class {
	char name[32];
	double share; /* weight among the classes */
	struct distribution length, answer, service;
	bool has_length;
	uint16_t type;
	uint64_t unsent_ns; /* not 0: requests are not sent but occupy the client this long */
	char method[16], path[200]; /* of HTTP */
	char key[64];               /* of redis */
};

struct mix {
	enum protocol protocol;
	struct request_class class[CLASSES_MAX];
	unsigned classes;
	char host[100];   /* of HTTP */
	char fields[512]; /* further header fields, each with CRLF */
	bool close;       /* of HTTP: one request per connection */
	bool stamp;       /* raw: the request's number is the client's time of sending */
};

struct request {
	uint64_t due_ns, sent_ns, service_ns;
	uint32_t length, answer; /* of messages; HTTP: of the request body */
	uint32_t number;         /* of its connection */
	uint8_t class;
	bool measured;
};

/* NAME[,share=N][,length=D][,answer=D][,service=D][,type=N][,unsent=TIME][,path=/…][,method=M]
 * [,key=K], D as in distribution_read(). */
int class_read(struct mix *m, const char *text, struct sy_error *err);
/* Adds a default class if there is none, and validates all for the protocol. */
int mix_complete(struct mix *m, struct sy_error *err);
void mix_free(struct mix *m);

/* The number in the headers of request and response. */
static inline uint64_t request_number(const struct mix *m, const struct request *r)
{
	return m->stamp ? r->sent_ns : r->number;
}

/* Draws class, lengths and service time of the next request. */
void request_draw(const struct mix *m, struct chance *c, struct request *r);

#define REQUEST_HEADER 1280u /* max. */

/* Writes the bytes before the pattern. Returns their number. */
size_t request_header(const struct mix *m, const struct request *r,
                      char out[static REQUEST_HEADER]);
/* Returns the length of the pattern. */
uint64_t request_rest(const struct mix *m, const struct request *r);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * Settings of a newer version, in messages of an agent or of a forwarder that ran before: fields
 * that this build does not know. Without a look at them they would be lost without a word.
 */
#ifndef NEWER_H
#define NEWER_H

#include <protobuf-c/protobuf-c.h>
#include <sy_base.h>

struct newer {
	unsigned count;
	const char *in; /* name of the message with the first one; NULL: there is none */
	unsigned tag;   /* number of its field */
};

/* Adds those of a message and of the messages in it. Their depth is the schema's. */
void newer_find(const ProtobufCMessage *m, struct newer *out);
/* -ENOTSUP with err, if the message has one. */
int newer_refuse(const ProtobufCMessage *m, struct sy_error *err);

#endif

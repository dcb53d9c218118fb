// SPDX-License-Identifier: Apache-2.0
/*
 * Settings of a newer version in messages of an agent or of an earlier forwarder: fields unknown to
 * this build. Without this check they would be lost silently.
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

/* Finds those of a message and of nested ones. The schema bounds their depth. */
void newer_find(const ProtobufCMessage *m, struct newer *out);
/* Fails with -ENOTSUP and err if the message has one. */
int newer_refuse(const ProtobufCMessage *m, struct sy_error *err);

#endif

// SPDX-License-Identifier: Apache-2.0
#include "newer.h"

#include <errno.h>

/* Calls newer_find() for the messages in a field. */
static void field_search(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f,
                         struct newer *out)
{
	const uint8_t *bytes = (const uint8_t *)m, *at = bytes + f->offset;
	const void *quantifier = bytes + f->quantifier_offset;
	if (f->label == PROTOBUF_C_LABEL_REPEATED) {
		ProtobufCMessage *const *list = *(ProtobufCMessage *const *const *)(const void *)at;
		for (size_t i = 0, n = *(const size_t *)quantifier; i < n; i++)
			newer_find(list[i], out);
		return;
	}
	if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF && *(const uint32_t *)quantifier != f->id)
		return;
	const ProtobufCMessage *inner = *(ProtobufCMessage *const *)(const void *)at;
	if (inner)
		newer_find(inner, out);
}

void newer_find(const ProtobufCMessage *m, struct newer *out)
{
	if (m->n_unknown_fields > 0 && !out->in) {
		out->in = m->descriptor->short_name;
		out->tag = m->unknown_fields[0].tag;
	}
	out->count += m->n_unknown_fields;
	for (unsigned i = 0; i < m->descriptor->n_fields; i++)
		if (m->descriptor->fields[i].type == PROTOBUF_C_TYPE_MESSAGE)
			field_search(m, &m->descriptor->fields[i], out);
}

int newer_refuse(const ProtobufCMessage *m, struct sy_error *err)
{
	struct newer found = {0};
	newer_find(m, &found);
	if (!found.in)
		return 0;
	return sy_fail(err, ENOTSUP,
	               "%s has a setting (field %u) that this forwarder does not know: upgrade it, "
	               "or do without the setting",
	               found.in, found.tag);
}

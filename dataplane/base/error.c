// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sy_base.h>

int sy_fail(struct sy_error *err, int code, const char *fmt, ...)
{
	if (err) {
		va_list args;
		err->code = code;
		va_start(args, fmt);
		vsnprintf(err->text, sizeof(err->text), fmt, args);
		va_end(args);
	}
	return -code;
}

int sy_fail_in(struct sy_error *err, const char *fmt, ...)
{
	char context[sizeof(err->text)];
	struct sy_error inner;
	va_list args;

	if (!err)
		return -EIO;
	va_start(args, fmt);
	vsnprintf(context, sizeof(context), fmt, args);
	va_end(args);
	inner = *err;
	if (snprintf(err->text, sizeof(err->text), "%s: %s", context, inner.text) >=
	    (int)sizeof(err->text))
		memcpy(err->text + sizeof(err->text) - 4, "...", 4); /* marks the text as cut */
	return -err->code;
}

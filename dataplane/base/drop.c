// SPDX-License-Identifier: Apache-2.0
#include <sy_base.h>

static const struct {
	const char *name, *help;
} drops[] = {
#define X(id, drop_name, drop_help) [SY_DROP_##id] = {drop_name, drop_help},
        SY_DROPS(X)
#undef X
};

const char *sy_drop_name(enum sy_drop reason)
{
	return (size_t)reason < SY_ARRAY_LEN(drops) ? drops[reason].name : "unknown";
}

const char *sy_drop_help(enum sy_drop reason)
{
	return (size_t)reason < SY_ARRAY_LEN(drops) ? drops[reason].help : "unknown";
}

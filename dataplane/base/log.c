// SPDX-License-Identifier: Apache-2.0
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sy_base.h>
#include <sy_log_check.h>
#include <unistd.h>

static _Atomic int level_max = SY_LOG_INFO;

static bool (*stderr_is_log)(void);

void sy_log_set_check(bool (*is_log)(void))
{
	stderr_is_log = is_log;
}

void sy_log_set_level(enum sy_log_level max)
{
	atomic_store_explicit(&level_max, (int)max, memory_order_relaxed);
}

/* Text may quote names and messages from outside; these must not forge a log line. */
static void text_flatten(char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
			text[i] = ' ';
	}
}

void sy_log(enum sy_log_level level, const char *area, const char *fmt, ...)
{
	static const char *const names[] = {"error", "warning", "info", "debug"};
	char line[1024];
	va_list args;
	size_t len;
	int n;

	if ((int)level > atomic_load_explicit(&level_max, memory_order_relaxed) ||
	    (stderr_is_log && !stderr_is_log()))
		return;
	/* The last byte is reserved for the newline; a longer text is cut. */
	n = snprintf(line, sizeof(line) - 1, "%s %s: ", names[level], area);
	len = n < 0 ? 0 : (size_t)n < sizeof(line) - 2 ? (size_t)n : sizeof(line) - 2;
	va_start(args, fmt);
	n = vsnprintf(line + len, sizeof(line) - 1 - len, fmt, args);
	va_end(args);
	if (n > 0)
		len += (size_t)n < sizeof(line) - 2 - len ? (size_t)n : sizeof(line) - 2 - len;
	text_flatten(line, len);
	line[len++] = '\n';
	/* One write per line keeps the lines of several threads apart. A failed write cannot be
	 * reported anywhere. */
	if (write(STDERR_FILENO, line, len) < 0)
		return;
}

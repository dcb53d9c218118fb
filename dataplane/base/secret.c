// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <sy_base.h>
#include <sys/mman.h>

void sy_secret_pages(void *pages, size_t len)
{
	if (madvise(pages, len, MADV_DONTDUMP) < 0)
		sy_log(SY_LOG_WARN, "base", "a core dump of this process would contain keys: %s",
		       strerror(errno));
}

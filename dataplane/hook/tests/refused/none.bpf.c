/* SPDX-License-Identifier: Apache-2.0 */
#include <sy_hook_program.h>

uint64_t nothing(void *p)
{
	return 0;
}

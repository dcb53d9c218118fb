// SPDX-License-Identifier: Apache-2.0
/* The compiler's intrinsics, without those of instructions that the target lacks.
 *
 * DPDK's packet header includes <x86intrin.h>. GCC parses it in 0.4 s, most of it for AVX, in each
 * of hundreds of files. The instruction set of DPDK's target, corei7, ends with SSE4.2. */
#ifndef X86INTRIN_H
#define X86INTRIN_H

#if defined(__SSE4_2__) && !defined(__AVX__)
#include <nmmintrin.h>
#else
#include_next <x86intrin.h>
#endif

#endif

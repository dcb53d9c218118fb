# SPDX-License-Identifier: Apache-2.0
"""Functions that only prefetch must be declared so that the compiler keeps their calls."""

import pytest
from checks.lint import lost_prefetches


@pytest.mark.parametrize(
    "line, lost",
    [
        ("static inline void table_prefetch(const struct table *t)", True),
        ("static void prefetch_next(void);", True),
        ("static SY_PREFETCH_INLINE void table_prefetch(const struct table *t)", False),
        ("void sy_steer_prefetch(struct sy_worker *w, unsigned n);", False),
        ("static unsigned prefetched(void)", False),
    ],
)
def test_lost_prefetches_are_found(line, lost):
    assert lost_prefetches(f"/* x */\n{line}\n") == ([2] if lost else [])

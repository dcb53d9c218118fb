# SPDX-License-Identifier: Apache-2.0
"""Rulers of sections fill their lines."""

import pytest
from checks.rulers import COLUMN, fixed_text

TITLE = "/* ---- what was found "


@pytest.mark.parametrize(
    "broken",
    [
        "/* ---- what was found ---- */",
        "/* ---- what was found */",
        "/* ---- what was found ------------------------------------------------------- */",
        "/* ---- what was found\n * ------------------------------------------------ */",
    ],
)
def test_ruler_fills_its_line(broken):
    ruler = fixed_text(broken)
    assert ruler == TITLE + "-" * (COLUMN - len(TITLE) - 3) + " */"
    assert fixed_text(ruler) == ruler


def test_indented_ruler_ends_in_the_same_column():
    assert fixed_text("    # ---- values ----") == "    # ---- values ".ljust(COLUMN, "-")


def test_other_lines_are_unchanged():
    text = "x = 1 # -- no ruler\n/* a comment --------- */\n# a list:\n# -- first\n"
    assert fixed_text(text) == text

# SPDX-License-Identifier: Apache-2.0
"""The table of programs in docs/run.md matches what their tests verify."""

from tests.programs.checks import COLUMNS
from tests.programs.table import PAGE, PROGRAMS, replaced, rows


def test_page_has_the_current_table():
    """`python -m tests.programs.table` writes it."""
    text = PAGE.read_text()
    assert text == replaced(text)


def test_programs_are_described():
    assert len(rows()) >= 30
    for program in PROGRAMS:
        assert program.cells.keys() <= set(COLUMNS), program.name
        assert program.notes.keys() <= set(COLUMNS), program.name
    assert len({one.port for one in PROGRAMS}) == len({one.id for one in PROGRAMS}) == len(PROGRAMS)

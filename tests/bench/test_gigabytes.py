# SPDX-License-Identifier: Apache-2.0
"""The table of gigabytes over bad links keeps rows of other runs, in the test's order."""

from tests.peer.gigabytes import HEAD, MARKS, amount, cells_of, replaced


def row(name, family, rate):
    return [name, family, "4 GB", rate, "1,000", "2,000", "3,000 0 0"]


def test_rows_are_replaced_and_ordered():
    page = f"before\n{MARKS[0]}{MARKS[1]}after\n"
    for one in (row("loss", "6", "1"), row("copies", "4", "2"), row("loss", "4", "3")):
        page = replaced(page, one, "a machine")
    page = replaced(page, row("loss", "6", "4"), "another machine")
    assert page.startswith("before\n") and page.endswith("after\n")
    assert "On a machine and another machine; each row" in page  # both rows exist
    assert replaced(page, row("loss", "6", "4"), "a machine") == page
    assert [cells[:2] + cells[3:4] for cells in cells_of(page).values()] == [
        ["loss", "4", "3"],
        ["loss", "6", "4"],
        ["copies", "4", "2"],
    ]
    assert page.count(" | ".join(HEAD)) == 1


def test_removed_links_are_left_out():
    page = f"{MARKS[0]}| a |\n|---|\n| gone | 4 | x |\n{MARKS[1]}"
    assert list(cells_of(page)) == [("gone", "4")]
    assert list(cells_of(replaced(page, row("loss", "4", "1"), "a machine"))) == [("loss", "4")]


def test_amounts_have_units():
    assert amount(4_000_000_000) == "4 GB" and amount(2.4e9) == "2.4 GB"
    assert amount(400_000_000) == "400 MB"

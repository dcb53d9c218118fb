# SPDX-License-Identifier: Apache-2.0
"""Names of segment scripts say which sections they follow."""

import pytest
from checks import mechanisms
from checks.mechanisms import belongs, names, sections, shown, written


def test_names_are_read_from_a_file():
    text = '{"RFC 1 2: a \\"b\\"", "",\n "listen"},\n{"plain",\n "sack",\n OPEN "x"},\n{"x", y}'
    assert names(text) == ['RFC 1 2: a \\"b\\"', "plain"]


@pytest.mark.parametrize(
    "name, found",
    [
        ("RFC 6298 2.4, 5.5: the time-out", ["6298 2.4", "6298 5.5"]),
        ("RFC 9293 3.5, figure 7: both open", ["9293 3.5, figure 7"]),
        ("RFC 9293 3.10.7.4, fifth: what", ["9293 3.10.7.4"]),
        ("RFC 9293 3.10.7.4, SHLD-31: what", ["9293 3.10.7.4, SHLD-31"]),
        ("RFC 6582 3.2, step 2: in recovery", ["6582 3.2"]),
        ("RFC 5681 4.1, RFC 2861 3: a window", ["5681 4.1", "2861 3"]),
        ("RFC 896: of RFC 1 2 nothing", ["896"]),
        ("a forged cookie of 3 is reset", []),
    ],
)
def test_sections_are_read_from_a_name(name, found):
    assert sections(name) == found


def test_section_includes_its_subsections():
    assert all(belongs(one, "7323 2") for one in ("7323 2", "7323 2.3", "7323 2, figure 1"))
    assert not any(belongs(one, "7323 2") for one in ("7323 22", "7323 3", "732 2"))


def test_sections_are_shown_in_order():
    seen = {"9293 3.10", "9293 3.5, figure 7", "9293 3.5", "896", "9293 3.9"}
    assert shown(seen) == "RFC 896; RFC 9293 3.5, 3.9, 3.10"


def test_table_is_replaced():
    first, last = mechanisms.MARKS
    page = f"a\n{first}old\n{last}b\n"
    assert written(page, "new\n") == f"a\n{first}new\n{last}b\n"


def test_mechanism_without_scripts_is_reported(monkeypatch):
    monkeypatch.setattr(mechanisms, "MECHANISMS", {"TCP": ["9293"], "flying": ["1925"]})
    assert list(mechanisms.too_few()) == ["flying: 0 scripts name its sections"]

# SPDX-License-Identifier: Apache-2.0
"""A test that fails only beside others is named and refuses nothing; one that fails alone does."""

import pytest
from checks import alone
from checks.base import Count, Failure
from checks.schedule import Suite

REPORT = """<testsuites><testsuite tests="3" failures="1" errors="1" skipped="0">
<testcase classname="tests.wire.test_attack" name="test_flood[v4]" time="1">
  <failure message="lost"/></testcase>
<testcase classname="tests.checks.test_alone.TestClass" name="test_it" time="1">
  <error message="drops"/></testcase>
<testcase classname="tests.wire.test_attack" name="test_other" time="1"/>
</testsuite></testsuites>"""


def suite_of(tmp_path, monkeypatch, ends):
    """A suite with one failed test, whose next runs end as `ends` says: True if passed."""
    monkeypatch.setattr("checks.schedule.RESULTS", tmp_path)
    runs = iter(ends)
    again = lambda: Count(passed=1) if next(runs) else Count(failed=1)  # noqa: E731
    failure = Failure("t", ["t (failure)\nlost"], again)
    count = Count(passed=4, failed=1, notes=failure.notes, failures=[failure])
    return Suite("wire", "wire", 1, count, begun=0)


def test_one_that_passes_alone_is_named(tmp_path, monkeypatch):
    suite = suite_of(tmp_path, monkeypatch, [True] * alone.TIMES)
    assert alone.settle([suite]) == ["wire: t"]
    assert (suite.count.passed, suite.count.failed, suite.count.notes) == (5, 0, [])


@pytest.mark.parametrize("failing", range(alone.TIMES))
def test_one_that_fails_alone_stays_failed(tmp_path, monkeypatch, failing):
    suite = suite_of(tmp_path, monkeypatch, [n != failing for n in range(alone.TIMES)])
    assert alone.settle([suite]) == []
    assert (suite.count.passed, suite.count.failed) == (4, 1)


def test_many_failures_are_no_chance(tmp_path, monkeypatch):
    suites = [suite_of(tmp_path, monkeypatch, [True] * 9) for _ in range(alone.MOST + 1)]
    assert alone.settle(suites) == []
    assert all(suite.count.failed == 1 for suite in suites)


def test_tests_of_a_report_can_be_called(tmp_path):
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    assert alone.broken_tests(report) == {
        "tests/wire/test_attack.py::test_flood[v4]": [
            "tests.wire.test_attack::test_flood[v4] (failure)\nlost"
        ],
        "tests/checks/test_alone.py::TestClass::test_it": [
            "tests.checks.test_alone.TestClass::test_it (error)\ndrops"
        ],
    }

# SPDX-License-Identifier: Apache-2.0
"""A failed test runs again alone: the summary reports the result there, and the failure still
counts."""

import json
import subprocess

import pytest
from checks import alone, suites
from checks.base import Count, Failure
from checks.schedule import Suite

REPORT = """<testsuites><testsuite tests="3" failures="1" errors="1" skipped="0">
<testcase classname="tests.wire.test_attack" name="test_flood[v4]" time="1">
  <failure message="lost"/></testcase>
<testcase classname="tests.checks.test_alone.TestClass" name="test_it" time="1">
  <error message="drops"/></testcase>
<testcase classname="tests.wire.test_attack" name="test_other" time="1"/>
</testsuite></testsuites>"""

BUSY = "in its 9 s: tasks waited for a core 98 %, steal 4 %"


def suite_of(tmp_path, monkeypatch, ends, said="lost"):
    """A suite with one failed test, whose next runs end as `ends` says: True if passed."""
    monkeypatch.setattr("checks.schedule.RESULTS", tmp_path)
    runs = iter(ends)
    again = lambda: Count(passed=1) if next(runs) else Count(failed=1)  # noqa: E731
    failure = Failure("t", [f"t (failure)\n{said}"], again)
    count = Count(passed=4, failed=1, notes=failure.notes, failures=[failure])
    return Suite("wire", "wire", 1, count, begun=0)


def test_test_that_passes_alone_is_reported(tmp_path, monkeypatch):
    suite = suite_of(tmp_path, monkeypatch, [True] * alone.TIMES, f"lost\n{BUSY}")
    assert alone.diagnose([suite]) == [f"wire: t: disturbed, passes alone ({BUSY})"]
    assert (suite.count.passed, suite.count.failed) == (4, 1)


@pytest.mark.parametrize("failing", range(alone.TIMES))
def test_test_that_fails_alone_is_reported(tmp_path, monkeypatch, failing):
    suite = suite_of(tmp_path, monkeypatch, [n != failing for n in range(alone.TIMES)])
    assert alone.diagnose([suite]) == ["wire: t: fails alone, too"]
    assert (suite.count.passed, suite.count.failed) == (4, 1)


def test_many_failures_are_not_repeated(tmp_path, monkeypatch):
    suites = [suite_of(tmp_path, monkeypatch, [True] * 9) for _ in range(alone.MAX_FAILURES + 1)]
    assert alone.diagnose(suites) == []
    assert all(suite.count.failed == 1 for suite in suites)


@pytest.mark.parametrize(
    "said",
    (
        "==7==ERROR: AddressSanitizer: heap-use-after-free",
        "store.c:7:3: runtime error: index 4 out of bounds",
        "steelyard-forwarder (--port front; exit status -11)",
        "Test failed with exception: Bus error(7)",
        "kernel claim: FAIL, exit status -6\ndouble free or corruption",
        "fatal error: concurrent map writes",
        "=== RUN TestIt\npanic: index out of range",
    ),
)
def test_crash_is_not_repeated(tmp_path, monkeypatch, said):
    suite = suite_of(tmp_path, monkeypatch, [True] * alone.TIMES, said)
    assert alone.diagnose([suite]) == []
    assert (suite.count.passed, suite.count.failed) == (4, 1)


MESON = (
    {"name": "steelyard:unit / base", "result": "FAIL", "stdout": "[  FAILED  ] 1 test(s)"},
    {"name": "steelyard:root / kernel claim", "result": "FAIL", "stdout": "[  FAILED  ] 2 test(s)"},
    {"name": "steelyard:root / kernel check", "result": "OK", "stdout": "[  PASSED  ] 5 test(s)"},
)


def test_kernel_programs_run_again(tmp_path, monkeypatch):
    """With the same options, by their name."""
    log = tmp_path / "meson-logs/testlog.json"
    log.parent.mkdir()
    log.write_text(
        "".join(json.dumps(one | {"duration": 1, "returncode": 1}) + "\n" for one in MESON)
    )
    monkeypatch.setattr(suites, "ROOT", tmp_path)
    asked = []
    count = suites.meson_count("", lambda name: asked.append(name) or Count(passed=2))
    assert (count.passed, count.failed) == (5, 3)
    (failure,) = count.failures
    assert failure.test == "steelyard:root / kernel claim"
    assert alone.passes_alone(failure)
    assert asked == ["kernel claim"] * alone.TIMES


GO = """
{"Action":"run","Package":"p","Test":"TestIt"}
{"Action":"output","Package":"p","Test":"TestIt","Output":"late"}
{"Action":"fail","Package":"p","Test":"TestIt/one"}
{"Action":"fail","Package":"p","Test":"TestIt"}
{"Action":"pass","Package":"p","Test":"TestOther"}
{"Action":"fail","Package":"p"}
"""
GO_AGAIN = '{"Action":"pass","Package":"p","Test":"TestIt"}'


def test_go_tests_run_again(monkeypatch):
    """The top-level test of a failed subtest runs."""
    asked, answers = [], iter([(1, GO), (0, GO_AGAIN), (0, GO_AGAIN), (0, GO_AGAIN), (0, "")])

    def run(*command):
        asked.append(command[command.index("-parallel") + 2 :])
        returncode, stdout = next(answers)
        return subprocess.CompletedProcess(command, returncode, stdout)

    monkeypatch.setattr(suites, "run", run)
    count = suites.go_suite("./...")
    assert (count.passed, count.failed) == (1, 2)
    part, whole = count.failures
    assert (part.test, whole.test) == ("p TestIt/one", "p TestIt")
    assert alone.passes_alone(part)
    assert asked == [("./...",)] + [("-run", "^TestIt$", "p")] * alone.TIMES
    assert not alone.passes_alone(whole), "none of that name ran"


GO_DIES = """
{"Action":"run","Package":"p","Test":"TestIt"}
{"Action":"fail","Package":"p","Test":"TestIt"}
{"Action":"run","Package":"p","Test":"TestNext"}
{"Action":"fail","Package":"p"}
"""


def test_crashed_package_is_not_repeated(monkeypatch):
    """The results of its other tests are unknown."""
    died = subprocess.CompletedProcess([], 2, GO_DIES)
    monkeypatch.setattr(suites, "run", lambda *_: died)
    count = suites.go_suite("./...")
    assert count.failed == 2
    assert [failure.test for failure in count.failures] == ["p TestIt"]
    assert any("p ended in the middle of TestNext" in note for note in count.notes)


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

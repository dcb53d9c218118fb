# SPDX-License-Identifier: Apache-2.0
"""Diagnoses tests that failed while other suites ran in parallel: runs each TIMES times alone.

A test that passes alone was disturbed: product, test or schedule depends on an idle machine. A test
that also fails alone shows what the change has broken. Both failures count. Crashes and sanitizer
reports need no diagnosis."""

import re
import xml.etree.ElementTree as ET

from checks.base import ROOT

TIMES = 3
MAX_FAILURES = 12  # more failures in a run have a common cause
# What no busy machine causes: sanitizer reports, and ends by SIGILL, ABRT, BUS, FPE or SEGV (cmocka
# reports most of these as exceptions).
CRASH = re.compile(
    r"Sanitizer|runtime error: |Segmentation fault|Test failed with exception|"
    r"^panic: |^fatal error: |exit status -(?:4|6|7|8|11)\b",
    re.M,
)


def node_id(case):
    """Returns pytest's name of a test case in a JUnit report: FILE::CLASS::NAME."""
    parts, classes = case.get("classname").split("."), []
    while parts and not (ROOT / "/".join(parts)).with_suffix(".py").is_file():
        classes.insert(0, parts.pop())
    return "::".join(["/".join(parts) + ".py", *classes, case.get("name")])


def broken_tests(report):
    """Returns failed and broken tests of a JUnit report with their messages."""
    found = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        machine = [
            one.get("value") for one in case.iter("property") if one.get("name") == "machine"
        ]
        for problem in [*case.iter("failure"), *case.iter("error")]:
            where = f"{case.get('classname')}::{case.get('name')}"
            note = "\n".join(
                [f"{where} ({problem.tag})", str(problem.get("message")), *machine[:1]]
            )
            found.setdefault(node_id(case), []).append(note)
    return found


def passes_alone(failure):
    return all(not failure.again().failed for _ in range(TIMES))


def machine_of(notes):
    """Returns what failures report of the machine (machine_load.Interval), in brackets."""
    found = re.search(r"^in its \d+ s: .*$", "\n".join(notes), re.M)
    return f" ({found[0]})" if found else ""


def diagnose(suites):
    """Runs failed tests again; returns a line for each: the test, whether it fails alone, and how
    busy the machine was."""
    failures = [
        (suite, failure)
        for suite in suites
        for failure in suite.count.failures
        if not any(map(CRASH.search, failure.notes))
    ]
    if len(failures) > MAX_FAILURES:
        return []
    found = []
    for suite, failure in failures:
        print(f"…  {suite.name}: {failure.test} failed; it runs {TIMES} times alone", flush=True)
        alone = "disturbed, passes alone" if passes_alone(failure) else "fails alone, too"
        machine = machine_of(failure.notes)
        found.append(f"{suite.name}: {failure.test}: {alone}{machine}")
    return found

# SPDX-License-Identifier: Apache-2.0
"""The test suites, and the order in which their parts start."""

import functools
import json
import os
import re
import xml.etree.ElementTree as ET
from pathlib import Path

from checks.alone import broken_tests
from checks.base import (
    RESULTS,
    ROOT,
    SCRATCH,
    VENV,
    Count,
    Failure,
    check_of,
    complaints,
    parallel,
    run,
)
from checks.machine_load import MAX_LANES, lane_pages

# C programs that need the kernel, and so may run again alone: alone.py. All others are
# deterministic or randomised: a failure of theirs counts even if it does not recur.
DISTURBED = re.compile(r"[:+]root[ +]")


def meson_count(build, again=None):
    """Counts cases where a program reports them (cmocka), programs otherwise. again: runs a program
    by its name."""
    count = Count()
    for line in (ROOT / build / "meson-logs/testlog.json").read_text().splitlines():
        entry = json.loads(line)
        count.cases.append((entry["duration"], entry["name"]))
        output = entry.get("stdout", "") + entry.get("stderr", "")
        passed = sum(map(int, re.findall(r"\[  PASSED  \] (\d+) test", output)))
        failed = sum(map(int, re.findall(r"\[  FAILED  \].*?(\d+) test", output)))
        result = entry["result"]
        if result == "SKIP":
            count += Count(skipped=1)
        elif result == "OK":
            count += Count(passed=max(passed, 1))
        else:
            count += Count(passed=passed, failed=max(failed, 1))
            said = f"{result}, exit status {entry['returncode']}"
            count.notes.append(f"{entry['name']}: {said}\n{output[-6000:]}")
            if again and DISTURBED.search(entry["name"]):
                one = functools.partial(ran, again, entry["name"].split(" / ")[1])
                failure = Failure(entry["name"], count.notes[-1:], one)
                count.failures.append(failure)
    return count


def ran(again, name):
    """Runs a test again; a run without any test counts as failed."""
    count = again(name)
    return count if count.passed or count.failed else Count(failed=1)


def meson_suite(build, *options, env=None, yielding=False):
    log = ROOT / build / "meson-logs/testlog.json"
    log.unlink(missing_ok=True)
    SCRATCH.mkdir(exist_ok=True)
    env = {**(env or {}), "TMPDIR": str(SCRATCH)}
    command = ["meson", "test", "-C", build, "--no-rebuild", "--print-errorlogs", *options]
    process = run(*command, env=env, yielding=yielding)
    if not log.exists():
        return check_of(process, "meson test") if process.returncode else Count()
    count = meson_count(build, functools.partial(meson_suite, build, *options, env=env))
    if process.returncode and not count.failed:
        count += check_of(process, "meson test")
    return count


SANITIZER = {
    "ASAN_OPTIONS": "abort_on_error=1:detect_leaks=1:detect_stack_use_after_return=0",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
}


def meson_suites(build, *options, env=None):
    """Computing tests yield to tests of traffic. Tests of the kernel, which has timeouts, do not.
    The limit is long: no test may fail for lack of a core."""
    options = (*options, "--timeout-multiplier", "20")
    count = meson_suite(build, "--suite", "root", *options, env=env)
    options = ("--num-processes", os.cpu_count(), "--no-suite", "root", *options)
    count += meson_suite(build, *options, env=env, yielding=True)
    return count


def test_c():
    # The soak test is a suite of its own.
    return meson_suites("build/dev", "--no-suite", "soak")


def test_asan():
    return meson_suites("build/asan", env=SANITIZER)


FUZZ_S = 3  # per target; `make soak` runs each for ten minutes
GO_FUZZ = {
    "FuzzParse": "./internal/config",
    "FuzzGroup": "./internal/config",
    "FuzzReadFrame": "./internal/dpclient",
}


def fuzz_one(build, target, seconds):
    """Runs one target for a while."""
    name = Path(target).name
    # libFuzzer writes findings into the first folder, and only reads the others.
    found, seeds = build / "found" / name, ROOT / "tests/fuzz/corpus" / name.removeprefix("fuzz_")
    found.mkdir(parents=True, exist_ok=True)
    folders = [found] + ([seeds] if seeds.is_dir() else [])
    limits = [f"-max_total_time={seconds}", "-max_len=2000", f"-artifact_prefix={found}/"]
    return check_of(run(build / target, *limits, *folders, yielding=True), target)


def go_fuzz(name, package, seconds):
    command = ["go", "test", "-run", "^$", "-fuzz", f"^{name}$", "-fuzztime", f"{seconds}s"]
    process = run(*command, "-parallel", "1", package, yielding=True)
    count = check_of(process, f"{package} {name}")
    if "no fuzz tests to fuzz" in process.stdout:
        count += Count(failed=1)
    return count


def build_fuzz(build, targets):
    """Returns the targets that could be built, and a count of the others."""
    run("ninja", "-C", build, "-k", "0", *targets, yielding=True)
    built, count = [], Count()
    for target in targets:
        # Either it is built, or this prints the error: one broken target hides no other.
        process = run("ninja", "-C", build, target)
        if process.returncode:
            count += check_of(process, f"building {target}")
        else:
            built.append(target)
    return built, count


def test_fuzz(seconds=FUZZ_S):
    """Runs each fuzz target for some seconds, as many in parallel as there are cores.

    A short run tries the seeds and their neighbours: without optimisation, compiling takes less
    than half the time. Go's targets search in the long run only: the suite `go` runs their seeds,
    and to search, the compiler builds all packages that they use once more, with counters."""
    is_long = seconds > FUZZ_S
    build, level = (ROOT / "build/fuzz-long", "2") if is_long else (ROOT / "build/fuzz", "0")
    if not (build / "build.ninja").exists():
        options = ("-Dfuzz=true", f"-Doptimization={level}")
        process = run("meson", "setup", build, *options, env={"CC": "ccache clang"})
        if process.returncode:
            return check_of(process, f"meson setup {build.name}")
    process = run("ninja", "-C", build, "build.ninja")
    if process.returncode:
        return check_of(process, f"configuring {build.name} again")
    listed = run("ninja", "-C", build, "-t", "targets", "all").stdout
    targets = sorted(re.findall(r"^(\S*/fuzz_[a-z]+): ", listed, re.M))
    if not targets:
        return complaints([listed[-2000:]], f"no fuzz targets in {build.name}")
    built, count = build_fuzz(build, targets)
    calls = [functools.partial(fuzz_one, build, target, seconds) for target in built]
    if is_long:
        calls += [functools.partial(go_fuzz, *target, seconds) for target in GO_FUZZ.items()]
    for result in parallel(calls):
        count += result
    return count


def test_soak():
    """Ten million frames of all kinds against a model of the expected results."""
    process = run("build/dev/tests/soak/steelyard-soak", yielding=True)
    count = check_of(process, "steelyard-soak")
    if not count.failed:
        count.notes.append(process.stdout.rstrip())
    return count


def test_go():
    # Fetches what only tests import: they run without a network.
    fetched = run("go", "list", "-test", "-deps", "./...")
    return check_of(fetched, "go list") if fetched.returncode else go_suite("./...")


def go_again(package, test):
    """Runs one test of a package with its subtests."""
    count = go_suite("-run", f"^{test}$", package)
    return count if count.passed or count.failed else Count(failed=1)


# Go tests have a loopback interface of their own: the host's may lack IPv6, and its ports may be in
# use.
LOOPBACK = 'ip link set lo up && sysctl -qw net.ipv6.conf.lo.disable_ipv6=0 && exec "$@"'


def go_suite(*arguments):
    """Failed tests may run again alone: alone.py."""
    # Slow tests of a package mostly wait. The limit is long: no test may fail for lack of a core.
    # `make lint` vets.
    options = ("-json", "-count=1", "-vet=off", "-timeout", "40m", "-parallel", "4")
    command = ("go", "test", *options, *arguments)
    process = run("unshare", "--net", "sh", "-c", LOOPBACK, "sh", *command)
    count, output, begun = Count(), {}, set()
    for line in process.stdout.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            count.notes.append(line)
            continue
        key = (event.get("Package"), event.get("Test"))
        output.setdefault(key, []).append(event.get("Output", ""))
        if event["Action"] == "run":
            begun.add(key)
        elif event["Action"] in ("pass", "fail", "skip"):
            begun.discard(key)
        if event["Action"] == "fail":
            # A package fails along with its tests; it counts only if it could not be built or run.
            if key[1] or not any(p == key[0] and t for p, t in output if t):
                count += Count(failed=1)
                count.notes.append(f"{key[0]} {key[1] or ''}\n{''.join(output[key])[-6000:]}")
                if key[1]:
                    again = functools.partial(go_again, key[0], key[1].split("/")[0])
                    count.failures.append(Failure(" ".join(key), count.notes[-1:], again))
            # Unfinished tests ended with the program, and others did not start.
            for _, test in [] if key[1] else [one for one in begun if one[0] == key[0]]:
                said = "".join(output[key] + output[key[0], test])[-6000:]
                note = f"{key[0]} ended in the middle of {test}\n{said}"
                count += Count(failed=1, notes=[note])
        elif key[1] and event["Action"] in ("pass", "skip"):
            count.cases.append((event.get("Elapsed", 0), f"{key[0]} {key[1]}"))
            count += Count(**{"passed" if event["Action"] == "pass" else "skipped": 1})
    if process.returncode and not count.failed:
        count += Count(failed=1)
    if not count.failed:
        count.notes.clear()
    return count


def read_junit(report):
    count, root = Count(), ET.parse(report).getroot()
    for suite in root.iter("testsuite"):
        broken = int(suite.get("failures")) + int(suite.get("errors"))
        skipped = int(suite.get("skipped"))
        count += Count(int(suite.get("tests")) - broken - skipped, broken, skipped)
    for case in root.iter("testcase"):
        where = f"{case.get('classname')}::{case.get('name')}"
        count.cases.append((float(case.get("time")), where))
    for notes in broken_tests(report).values():
        count.notes += notes
    return count


# Each lane compiles all test files, with pytest's assertions, unless one has stored the result. An
# empty variable is one that is not set.
BYTECODE = {"PYTHONPYCACHEPREFIX": str(ROOT / "build/pycache"), "PYTHONDONTWRITEBYTECODE": ""}


def pytest_suite(name, *arguments, env=None):
    """Failed tests may run again alone: alone.py."""
    report, log = RESULTS / f"{name}.xml", RESULTS / f"{name}.log"
    report.unlink(missing_ok=True)
    command = [VENV / "python", "-m", "pytest", f"--junitxml={report}", "-q", *arguments]
    process = run(*command, env={**BYTECODE, **(env or {})})
    log.write_text(process.stdout)
    if not report.exists():
        return check_of(process, "pytest") if process.returncode else Count(failed=1)
    count = read_junit(report)
    for test, notes in broken_tests(report).items():
        again = functools.partial(pytest_suite, f"{name}-alone", test, env=env)
        count.failures.append(Failure(test, notes, again))
    if process.returncode and not count.failed:
        count += Count(failed=1, notes=[f"pytest ended with {process.returncode}: see {log}"])
    return count


def shared_suite(name, part, *arguments, env=None):
    """One of several processes that share a suite's files; see tests/conftest.py."""
    share = [f"--share={RESULTS / name}.share", f"--lane={part}"]
    env = {**(env or {}), "SY_LANE_PAGES": str(lane_pages())}
    return pytest_suite(f"{name}-{part}", *share, *arguments, env=env)


def test_bench():
    """Checks that the benchmarks still run, without judging figures, and tests scripts/check."""
    return pytest_suite("bench", "tests/bench", "tests/checks")


WIRE = ("tests/wire", "tests/golden")


def test_wire(part):
    return shared_suite("wire", part, "-m", "both_builds", *WIRE)


def test_wire_asan(part):
    env = {"SY_BUILD": "build/asan", **SANITIZER}
    return shared_suite("wire-asan", part, *WIRE, env=env)


def test_programs():
    """Servers that are large, or not in Debian."""
    names = ("programs", "sessions", "matrix")
    files = [f"tests/wire/test_run_{name}.py" for name in names]
    return pytest_suite("programs", "-m", "programs", *files)


# Suites that run as many parts in parallel as there are lanes.
TRAFFIC = ("wire-asan", "wire")
TESTS = {
    "c": ("C unit and kernel tests", [test_c]),
    "asan": ("the same under AddressSanitizer and UBSan", [test_asan]),
    "fuzz": ("fuzz targets, a short run each", [test_fuzz]),
    "go": ("Go tests", [test_go]),
    "bench": ("the benchmarks, their smallest cells, and the checks themselves", [test_bench]),
    "soak": ("ten million frames through the pipeline", [test_soak]),
    "wire": (
        "real traffic in network namespaces: what optimisation and timing may change",
        [functools.partial(test_wire, part) for part in range(MAX_LANES)],
    ),
    "wire-asan": (
        "all real traffic, with the forwarder under AddressSanitizer and UBSan",
        [functools.partial(test_wire_asan, part) for part in range(MAX_LANES)],
    ),
    "programs": (
        "38 programs on the user-space stack: the table in docs/run.md",
        [test_programs],
    ),
}

OPTIONAL = ("programs",)  # run only if named


def schedule_of(lanes):
    """Returns which part starts next when a lane is free. The longest suite starts at once in all
    lanes except one, because it waits three quarters of its time. The computing suites run one by
    one in the last lane, on the remaining cores; then all lanes share the rest."""
    return (
        *(("wire-asan", part) for part in range(lanes - 1)),
        *((name, 0) for name in ("asan", "fuzz", "c", "soak", "go", "bench")),
        ("wire-asan", lanes - 1),
        *(("wire", part) for part in range(lanes)),
        ("programs", 0),
    )


# Suites that must not run in parallel: their tests of the kernel pin the same objects.
APART = ({"c", "asan"},)

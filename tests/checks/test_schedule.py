# SPDX-License-Identifier: Apache-2.0
"""Every part of every suite runs once, and exclusive suites run apart."""

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from checks import alone, disturb, schedule
from checks.base import Count, parallel, run, used
from checks.machine_load import MAX_LANES, lanes
from checks.suites import TESTS, TRAFFIC, schedule_of

from tests import conftest

ROOT = Path(__file__).resolve().parents[2]
TEST = """
def test_first(): pass
def test_second(): pass
"""


def test_parts_run_once_and_exclusive_ones_apart(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(schedule, "RESULTS", tmp_path)
    ran, running, together, lock = [], set(), set(), threading.Lock()

    def part(name, number):
        def perform():
            with lock:
                running.add(name)
                together.update((name, other) for other in running)
                ran.append((name, number))
            threading.Event().wait(0.01)
            with lock:
                running.discard(name)
            return Count(passed=1)

        return perform

    queue = [("c", 0), ("asan", 0), ("wire", 0), ("wire", 1)]
    names = {"c": 1, "asan": 1, "wire": 2}
    checks = {name: (name, [part(name, n) for n in range(count)]) for name, count in names.items()}
    schedule.Schedule(checks, queue, ({"c", "asan"},)).run(lanes=2)
    assert sorted(ran) == sorted(queue)
    assert not together & {("c", "asan"), ("asan", "c")}
    assert "2 passed" in capsys.readouterr().out
    assert json.loads((tmp_path / "wire.json").read_text())["passed"] == 2


def test_exception_in_a_part_is_a_failure(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(schedule, "RESULTS", tmp_path)
    schedule.Schedule({"c": ("c", [lambda: 1 / 0])}, [("c", 0)]).run(lanes=1)
    assert "0 passed, 1 failed" in capsys.readouterr().out


@pytest.mark.parametrize("count", range(2, MAX_LANES + 1))
def test_every_lane_has_a_part_of_every_suite(count):
    parts = [(name, n) for name in TESTS for n in range(count if name in TRAFFIC else 1)]
    assert sorted(schedule_of(count)) == sorted(parts)
    assert all(len(TESTS[name][1]) >= count for name in TRAFFIC)


@pytest.mark.parametrize(
    ("cores", "memory_gb", "count"), ((1, 16, 2), (2, 16, 5), (2, 5, 2), (16, 64, 8), (2, 0, 2))
)
def test_lanes_follow_cores_and_memory(cores, memory_gb, count):
    assert lanes(cores, memory_gb) == count


def test_further_lane_pauses_on_a_busy_machine(tmp_path, monkeypatch):
    shares, slept = [0.1, 0.1, 0.9], []
    monkeypatch.setattr(conftest, "core_share", lambda: shares.pop(0))
    monkeypatch.setattr(conftest.time, "sleep", slept.append)
    assert conftest.Share(tmp_path, 1).take(Path("tests/wire/test_a.py"))
    assert len(slept) == 2
    assert conftest.Share(tmp_path, 0).take(Path("tests/wire/test_b.py"))  # skips the measurement


def test_yielding_commands_have_the_lowest_priority():
    command = ("sh", "-c", "nice; cat /proc/self/autogroup 2>/dev/null || echo nice 19")
    nice, group = run(*command, yielding=True).stdout.split("\n")[:2]
    assert nice == "19"
    assert group.endswith("nice 19")


def test_failed_test_reports_how_busy_the_machine_was(tmp_path):
    (tmp_path / "test_it.py").write_text("def test_it(): assert not 'true'\n")
    report = tmp_path / "report.xml"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.conftest",
        f"--rootdir={tmp_path}",
    ]
    command += ["-o", "pythonpath=", f"--junitxml={report}", tmp_path]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/scripts"}
    subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, check=False)
    ((note,),) = alone.broken_tests(report).values()
    assert "assert not 'true'" in note
    assert re.search(r"in its \d+ s: .*steal \d+ %", note)


def test_stalls_reach_processes_in_their_own_sessions():
    child = subprocess.Popen(["setsid", "sleep", "1000"])
    try:
        found = disturb.descendants(os.getpid())
        assert found[0] == os.getpid()
        assert child.pid in found
        assert child.pid not in disturb.descendants(os.getpid(), (child.pid,))
    finally:
        child.kill()
        child.wait()


def test_load_computes_until_the_run_ends():
    with disturb.disturbed(["load"]):
        name = "stress-ng"
        assert any(
            Path(f"/proc/{one}/comm").read_text().startswith(name)
            for one in disturb.descendants(os.getpid())
        )
    running = disturb.descendants(os.getpid())
    assert not any(Path(f"/proc/{one}/comm").read_text().startswith(name) for one in running)


def test_calls_run_in_parallel():
    used.processor_s = 0
    busy = "import time; e = time.process_time() + 0.05\nwhile time.process_time() < e: pass"
    calls = [lambda n=n: (run(sys.executable, "-c", busy), n)[1] for n in range(4)]
    assert parallel(calls) == [0, 1, 2, 3]
    assert used.processor_s >= 4 * 0.05


def test_processes_share_the_files(tmp_path):
    """Two processes run in parallel and a third starts late: each test runs once."""
    tests, share = tmp_path / "tests", tmp_path / "share"
    tests.mkdir()
    share.mkdir()
    for n in range(6):
        (tests / f"test_{n}.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "--share", share]
    command += ["--rootdir", tests, "-o", "pythonpath=", tests]

    def start():
        env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/scripts"}
        return subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)

    said = [one.communicate()[0] for one in [start(), start()]] + [start().communicate()[0]]
    passed = [
        int(text.split(" passed")[0].split()[-1]) if " passed" in text else 0 for text in said
    ]
    assert sum(passed) == 12, said
    assert len(list(share.iterdir())) == 6

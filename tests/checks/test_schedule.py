# SPDX-License-Identifier: Apache-2.0
"""Every part of every suite runs once, and suites that must be apart are."""

import json
import subprocess
import sys
import threading
from pathlib import Path

from checks import schedule
from checks.base import Count, beside, run, used
from checks.suites import LANES, PARTS, SCHEDULE, TESTS

ROOT = Path(__file__).resolve().parents[2]
TEST = """
def test_first(): pass
def test_second(): pass
"""


def test_parts_run_once_and_apart(tmp_path, monkeypatch, capsys):
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


def test_a_part_that_breaks_is_a_failure(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(schedule, "RESULTS", tmp_path)
    schedule.Schedule({"c": ("c", [lambda: 1 / 0])}, [("c", 0)]).run(lanes=1)
    assert "0 passed, 1 failed" in capsys.readouterr().out


def test_every_part_of_every_suite_is_scheduled():
    parts = [(name, n) for name, (_, calls) in TESTS.items() for n in range(len(calls))]
    assert sorted(SCHEDULE) == sorted(parts)
    assert PARTS == LANES  # otherwise a lane could stay without work


def test_calls_beside_each_other():
    used.processor_s = 0
    busy = "import time; e = time.process_time() + 0.05\nwhile time.process_time() < e: pass"
    calls = [lambda n=n: (run(sys.executable, "-c", busy), n)[1] for n in range(4)]
    assert beside(calls) == [0, 1, 2, 3]
    assert used.processor_s >= 4 * 0.05


def test_processes_share_the_files(tmp_path):
    """Two that run beside each other and one that comes late: each test runs once."""
    tests, share = tmp_path / "tests", tmp_path / "share"
    tests.mkdir()
    share.mkdir()
    for n in range(6):
        (tests / f"test_{n}.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "--share", share]
    command += ["--rootdir", tests, "-o", "pythonpath=", tests]

    def start():
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)

    said = [one.communicate()[0] for one in [start(), start()]] + [start().communicate()[0]]
    passed = [
        int(text.split(" passed")[0].split()[-1]) if " passed" in text else 0 for text in said
    ]
    assert sum(passed) == 12, said
    assert len(list(share.iterdir())) == 6

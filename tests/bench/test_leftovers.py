# SPDX-License-Identifier: Apache-2.0
"""What a benchmark leaves: nothing when it is interrupted, a word where memory is short."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench import __main__ as bench
from bench import machine
from tests.lab import reap
from tests.lab.wait import wait_until


def processes_of(session):
    """Of this session, or of one that a process of it began."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z" and session in (int(fields[1]), int(fields[3])):
            found.add(int(stat.parent.name))
    return found


def test_an_interrupted_one_leaves_nothing():
    command = [sys.executable, "-m", "bench", "--smoke", "wire"]
    with subprocess.Popen(
        command,
        cwd=machine.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as run:
        try:
            lab = f"sy-{run.pid}-"
            running = wait_until(
                lambda: len(children := processes_of(run.pid)) >= 3 and children,
                "generator and forwarder run",
            )
            # As Ctrl-C does, and once more while it cleans up.
            os.killpg(run.pid, signal.SIGINT)
            os.killpg(run.pid, signal.SIGINT)
            said, _ = run.communicate(timeout=30)
        finally:
            run.kill()
    assert run.returncode == 130 and "interrupted" in said, said
    assert not any(machine.alive(pid) for pid in running)
    assert not list(reap.LABS.glob(f"{lab}*"))
    assert not list(Path("/run/netns").glob(f"{lab}*"))
    for huge in ("/dev/hugepages", "/mnt/huge"):
        assert not list(Path(huge).glob(f"{machine.FOLDER}{run.pid}-*"))


@pytest.mark.parametrize("name", [n for n in bench.names() if n not in ("wire", "latency")])
def test_cells_without_memory_are_named(name, monkeypatch, capsys):
    monkeypatch.setattr(machine, "memory_suffices", lambda wanted: False)
    monkeypatch.setattr(machine, "run_program", None)  # would fail
    module = __import__(f"bench.run_{name}", fromlist=["rows"])
    assert list(module.rows(True)) == []
    said = capsys.readouterr().out.splitlines()
    assert said and all("left out" in line and "MB of memory are not free" in line for line in said)


@pytest.mark.parametrize("name", ["wire", "latency"])
def test_stands_without_memory_say_so(name, monkeypatch, capsys):
    monkeypatch.setattr(machine, "memory_suffices", lambda wanted: False)
    module = __import__(f"bench.run_{name}", fromlist=["rows"])
    with pytest.raises(machine.Failed, match="too little memory"):
        list(module.rows(True))
    assert "left out" in capsys.readouterr().out

# SPDX-License-Identifier: Apache-2.0
"""An interrupted benchmark leaves nothing; one without memory prints why."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from bench import __main__ as bench
from bench import machine
from tests.lab import pages, reap
from tests.lab.wait import wait_until


def processes_of(session):
    """Returns the processes of this session, or of a session that one of them created."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z" and session in (int(fields[1]), int(fields[3])):
            found.add(int(stat.parent.name))
    return found


def nothing_is_left(lab, processes):
    assert not any(Path(f"/proc/{pid}").exists() for pid in processes)
    huge = [where for where, _ in pages.mounts()]
    for place in (reap.LABS, Path("/run/netns"), Path("/run/dpdk"), Path("/dev/shm"), *huge):
        assert not list(place.glob(f"*{lab}*")), place


def test_interrupted_benchmark_leaves_nothing():
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
            # Like Ctrl-C, and once more during the cleanup.
            os.killpg(run.pid, signal.SIGINT)
            os.killpg(run.pid, signal.SIGINT)
            said, _ = run.communicate(timeout=30)
        finally:
            run.kill()
    assert run.returncode == 130 and "interrupted" in said, said
    nothing_is_left(lab, running)


@pytest.mark.parametrize("name", [n for n in bench.names() if n not in ("wire", "latency")])
def test_skipped_cells_are_named(name, monkeypatch, capsys):
    monkeypatch.setattr(machine, "memory_suffices", lambda wanted: False)
    monkeypatch.setattr(machine, "run_program", None)  # running the cell would fail
    module = __import__(f"bench.run_{name}", fromlist=["rows"])
    assert list(module.rows(True)) == []
    said = capsys.readouterr().out.splitlines()
    assert said and all("left out" in line and "MB of memory are not free" in line for line in said)


@pytest.mark.parametrize("name", ["wire", "latency"])
def test_skipped_testbeds_are_named(name, monkeypatch, capsys):
    monkeypatch.setattr(machine, "memory_suffices", lambda wanted: False)
    module = __import__(f"bench.run_{name}", fromlist=["rows"])
    with pytest.raises(machine.Failed, match="too little memory"):
        list(module.rows(True))
    assert "left out" in capsys.readouterr().out


KILLED = """
import pathlib, sys, time
from bench import machine, testbed
from tests.lab import pages, reap
pages.POOLS = reap.LABS = pathlib.Path(sys.argv[1])
with machine.huge_pages(7 * (2 << 20)) as taken:
    open(taken.directory + "/table", "w").truncate(2 << 20)
    with testbed.Testbed() as place:
        place.generator("testpmd", place.testpmd())
        print("they run", flush=True)
        time.sleep(1000)
"""


@pytest.fixture
def kernel(monkeypatch):
    """Kernel settings that no other test changes meanwhile, and labs that no other test removes;
    the path is short, because sockets need short paths."""
    with tempfile.TemporaryDirectory(prefix="sy-test-", dir="/run") as place:
        monkeypatch.setattr(pages, "POOLS", Path(place))
        monkeypatch.setattr(reap, "LABS", Path(place))
        yield Path(place)


def test_next_benchmark_restores_what_a_killed_one_changed(kernel):
    folder = kernel / "hugepages-2048kB"
    folder.mkdir()
    for name, number in (("nr", 10), ("free", 4), ("resv", 0)):
        (folder / f"{name}_hugepages").write_text(str(number))
    pool = pages.Pool(2 << 20)
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, kernel],
        cwd=machine.ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as run:
        try:
            assert run.stdout.readline()
            running = processes_of(run.pid)
            assert len(running) >= 3 and pool.number() == 13
        finally:
            run.kill()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in running), "all of them end")
    assert pool.number() == 13
    reap.reap_dead()
    assert pool.number() == 10
    nothing_is_left(f"sy-{run.pid}-", running)


def test_folders_of_killed_tests_are_removed():
    ended = subprocess.Popen(["true"])
    ended.wait()
    of = [Path(f"/tmp/steelyard-test-{pid}-abcdef") for pid in (ended.pid, os.getpid())]
    try:
        for folder in of:
            folder.mkdir()
            (folder / "config").touch()
        reap.reap_tests()
        assert [folder.exists() for folder in of] == [False, True]
    finally:
        shutil.rmtree(of[1])

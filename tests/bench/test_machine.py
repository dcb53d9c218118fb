# SPDX-License-Identifier: Apache-2.0
"""Programs and huge pages: pages are returned, failures are explained."""

import os
from pathlib import Path

import pytest

from bench import machine
from tests.lab import pages, reap


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Makes a program from shell lines."""
    monkeypatch.setattr(machine, "PROGRAMS", tmp_path)

    def make(*lines):
        file = tmp_path / "program"
        file.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        file.chmod(0o755)
        return "program"

    return make


def test_lines_are_parsed_as_objects(program):
    name = program("echo '{\"value\": 1}'", 'echo "{\\"value\\": $1}"')
    assert list(machine.run_program(name, 2)) == [{"value": 1}, {"value": 2}]


def test_failing_program_raises_its_error_text(program):
    name = program("echo '{}'", "echo no such thing >&2", "exit 3")
    with pytest.raises(machine.Failed, match=r"(?s)exit status 3\nno such thing"):
        list(machine.run_program(name))


def test_invalid_json_fails(program):
    with pytest.raises(machine.Failed, match="not a line of JSON: 'hello"):
        list(machine.run_program(program("echo hello")))


def test_program_ends_with_its_reader(program):
    runs = machine.run_program(program('echo "{\\"pid\\": $$}"', "exec sleep 1000"))
    pid = next(runs)["pid"]
    runs.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_program_runs_on_the_given_cores(program):
    core = machine.cpus()[-1]
    name = program(
        'echo "{\\"cpu\\": \\"$(sed -n \'s/^Cpus_allowed_list:.//p\' /proc/self/status)\\"}"'
    )
    assert list(machine.run_program(name, cpus=[core])) == [{"cpu": str(core)}]


class FakePool:
    """A kernel with 10 pages, 4 of them free, that finds at most 100."""

    pages, free_pages, most = 10, 4, 100

    def __init__(self, size):
        self.size = size

    def free(self):
        return FakePool.free_pages if self.size < machine.GB else 0

    def number(self):
        return FakePool.pages

    def resize(self, number):
        FakePool.pages = min(number, FakePool.most)


@pytest.fixture
def pool(monkeypatch, tmp_path):
    monkeypatch.setattr(pages, "Pool", FakePool)
    monkeypatch.setattr(reap, "LABS", tmp_path / "labs")  # real folders are left alone
    monkeypatch.setattr(FakePool, "pages", 10)
    return FakePool


def test_pages_are_added_and_returned(pool):
    with pytest.raises(KeyboardInterrupt), machine.huge_pages(20 << 20) as taken:
        assert taken.size == 2 << 20 and os.path.isdir(taken.directory)
        assert pool.pages == 16
        (Path(taken.directory) / "of a killed program").touch()
        raise KeyboardInterrupt
    assert pool.pages == 10 and not os.path.exists(taken.directory)


def test_enough_free_pages_change_nothing(pool):
    with machine.huge_pages(8 << 20) as taken:
        assert taken.size == 2 << 20
        assert pool.pages == 10


@pytest.mark.skipif(
    not (pages.POOLS / "hugepages-1048576kB").exists(), reason="a machine without such pages"
)
def test_larger_pages_are_preferred(pool, monkeypatch):
    monkeypatch.setattr(pool, "free", lambda self: 4)
    with machine.huge_pages(3 << 30) as taken:
        assert taken.size == 1 << 30
        assert "pagesize=1024M" in Path("/proc/mounts").read_text()
        Path(taken.directory, "file").touch()
    assert "pagesize=1024M" not in Path("/proc/mounts").read_text()
    with machine.huge_pages(3 << 20, largest=2 << 20) as taken:
        assert taken.size == 2 << 20


def test_too_few_pages_yield_none(pool):
    with machine.huge_pages(400 << 20) as taken:
        assert taken == machine.Pages(0, None) and taken.options() == []
        assert pool.pages == 10, "what came is given back, as ordinary memory is taken"
    assert pool.pages == 10


def test_pages_of_a_killed_process_are_returned_once(pool, tmp_path):
    assert pages.raise_by(tmp_path, 2 << 20, 5) == 5
    other = tmp_path / "other"
    other.mkdir()
    assert pages.raise_by(other, 2 << 20, 200) == 85
    pages.put_back(tmp_path)
    pages.put_back(tmp_path)
    assert pool.pages == 95
    pages.put_back(other)
    assert pool.pages == 10


def test_pages_of_a_process_killed_during_allocation_are_returned(pool, tmp_path):
    pages.note(tmp_path, size=2 << 20, count=50, before=10)
    pool.pages = 30
    pages.put_back(tmp_path)
    assert pool.pages == 10

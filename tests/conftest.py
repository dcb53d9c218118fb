# SPDX-License-Identifier: Apache-2.0
"""Several processes share the tests of one run: --share DIR.

`make test` runs every test with the sanitized forwarder, and those that timing or optimisation may
affect also with the optimised one: @pytest.mark.both_builds."""

import contextlib
import itertools
import time
from pathlib import Path

import pytest
from checks.machine_load import MIN_CORE_SHARE, Interval, core_share

INTERVAL = pytest.StashKey()  # of a test, since its start
LOOK_S = 2  # between two measurements of the machine's load


def pytest_addoption(parser):
    parser.addoption(
        "--share",
        type=Path,
        metavar="DIR",
        help="run only what no other process with this DIR has taken: whole files, one at a time",
    )
    parser.addoption(
        "--lane",
        type=int,
        default=0,
        help="the process's number with --share; all but 0 pause between files on a busy machine",
    )


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "both_builds: what timing or optimisation may change: run it with both builds"
    )
    config.addinivalue_line(
        "markers",
        "programs: it needs large programs: only with `-m programs` (the suite of that name)",
    )
    config.addinivalue_line(
        "markers", "soak: it has a long form, for `make soak` (lab/long_form.py)"
    )


def pytest_collection_modifyitems(config, items):
    if "programs" not in config.option.markexpr:
        chosen = {True: [], False: []}
        for item in items:
            chosen[item.get_closest_marker("programs") is None].append(item)
        config.hook.pytest_deselected(items=chosen[False])
        items[:] = chosen[True]


class Share:
    """The files that this process has claimed; DIR has an empty file for each claimed one."""

    def __init__(self, folder, lane):
        self.folder, self.lane, self.mine = folder, lane, set()

    def is_taken(self, file):
        return (self.folder / "-".join(file.parts[-2:])).exists()

    def pause(self, file):
        """Waits while the machine is too busy for this lane, unless another lane claims the
        file."""
        while self.lane and not self.is_taken(file) and core_share() < MIN_CORE_SHARE:
            time.sleep(LOOK_S)

    def take(self, file):
        """Returns whether this process runs the tests of a file."""
        if file in self.mine:
            return True
        self.pause(file)
        with contextlib.suppress(FileExistsError):
            (self.folder / "-".join(file.parts[-2:])).touch(exist_ok=False)
            self.mine.add(file)
            return True
        return False


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    """Like pytest's own, but claims each file when its turn comes."""
    folder = session.config.option.share
    if folder is None or session.testsfailed or session.config.option.collectonly:
        return None
    share = Share(folder, session.config.option.lane)
    ours = filter(lambda item: share.take(item.path), session.items)
    for item, following in itertools.pairwise(itertools.chain(ours, [None])):
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    item.stash[INTERVAL] = Interval()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Records in the JUnit report how busy the machine was during a failed test."""
    report = yield
    if report.failed:
        note = ("machine", item.stash[INTERVAL].describe())
        item.user_properties.append(note)
        if report.when == "teardown":  # runs after the report has copied the item's properties
            report.user_properties.append(note)
    return report

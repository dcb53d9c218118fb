# SPDX-License-Identifier: Apache-2.0
"""Several processes share the tests of one run: --share DIR.

`make test` runs everything with the sanitized forwarder, and with the optimised one what timing and
optimisation may change: @pytest.mark.both_builds.
"""

import contextlib
import itertools
from pathlib import Path

import pytest


def pytest_addoption(parser):
    parser.addoption(
        "--share",
        type=Path,
        metavar="DIR",
        help="run only what no other process with this DIR has taken: whole files, one at a time",
    )


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "both_builds: what timing or optimisation may change: run it with both builds"
    )


class Share:
    """The files that this process has taken; DIR has an empty file for each one that is taken."""

    def __init__(self, folder):
        self.folder, self.mine = folder, set()

    def take(self, file):
        """Whether the tests of a file are ours to run."""
        if file in self.mine:
            return True
        with contextlib.suppress(FileExistsError):
            (self.folder / "-".join(file.parts[-2:])).touch(exist_ok=False)
            self.mine.add(file)
            return True
        return False


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    """As pytest's own, but each file is taken when its turn comes."""
    folder = session.config.option.share
    if folder is None or session.testsfailed or session.config.option.collectonly:
        return None
    share = Share(folder)
    ours = filter(lambda item: share.take(item.path), session.items)
    for item, following in itertools.pairwise(itertools.chain(ours, [None])):
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
    return True

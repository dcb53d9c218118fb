# SPDX-License-Identifier: Apache-2.0
"""Stages that tests share, and the accounting after each test.

A test that causes drops names their reasons: @pytest.mark.drops("nat-stray"). Any other reason
fails it."""

import signal

import pytest

from tests.lab.flood import provide_internet
from tests.wire.drop_log import DropLog
from tests.wire.interop import interop, interop_stage  # noqa: F401
from tests.wire.joined import joined  # noqa: F401
from tests.wire.link_stage import link, link_lab, one_link  # noqa: F401
from tests.wire.mode_stage import ModeStage
from tests.wire.running import run_lab, stack  # noqa: F401
from tests.wire.stage import Accounting, Stage

LOADS = ("attack-", "paced-", "slow-", "traffic-", "wrk-")


def pytest_configure(config):
    config.addinivalue_line("markers", "drops(*reasons): drops that the test causes")
    config.addinivalue_line(
        "markers", "workers(number): with so many workers only, where their number changes nothing"
    )
    config.addinivalue_line(
        "markers", "sanitized: programs get the preloaded library of SY_BUILD (running.py)"
    )
    # pytest would count SystemExit as one test's failure and continue with the next test.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end_run)


def end_run(number, _frame):
    pytest.exit(f"signal {number}", 128 + number)


def pytest_collection_modifyitems(config, items):
    def is_wanted(item):
        marker = item.get_closest_marker("workers")
        has = getattr(item, "callspec", None) and item.callspec.params.get("shared_stage")
        return not marker or has in (None, *marker.args)

    left_out = [item for item in items if not is_wanted(item)]
    items[:] = filter(is_wanted, items)
    config.hook.pytest_deselected(items=left_out)
    # The shared stage remains until the end, and costs processor time: other files come first.
    shared = {item.path for item in items if "shared_stage" in item.fixturenames}
    items.sort(key=lambda item: item.path in shared)


@pytest.fixture(scope="session", params=(1, 2), ids=("1-worker", "2-workers"))
def shared_stage(request):
    """Two-armed, one queue per interface. Each test restores its changes."""
    with Stage(workers=request.param) as stage:
        yield stage


@pytest.fixture
def stage(shared_stage, request):
    yield from check_accounting(shared_stage, request)


@pytest.fixture(scope="module")
def unchecked_stage():
    """A stage whose servers have no health checks, for tests of restarts. One per file."""
    with Stage(checked=False) as stage:
        yield stage


@pytest.fixture(scope="module", params=(1, 2), ids=("1-worker", "2-workers"))
def mode_stage(request):
    """A stage with a service of every mode, family and protocol, one per file."""
    with ModeStage(arms=1, workers=request.param) as stage:
        yield stage


@pytest.fixture
def modes(mode_stage, request):
    yield from check_accounting(mode_stage, request)


@pytest.fixture(scope="module", params=(1, 2), ids=("1-worker", "2-workers"))
def flood_stage(request):
    """A stage for floods that create sessions: one queue per worker, and routes to the forged
    sources. One per file."""
    with Stage(workers=request.param, queues=request.param) as stage:
        provide_internet(stage.lab)
        stage.default.without_defence()
        stage.restore()
        yield stage


def check_accounting(stage, request):
    """Yields the stage with `accounting` started; checks the accounting afterwards and restores the
    stage."""
    stage.accounting = Accounting(stage)
    log = DropLog(stage.steelyard.forwarder_socket)
    first = len(stage.lab.processes)
    try:
        yield stage
        # What a failed test left behind must not fail the next ones.
        for process in stage.lab.processes[first:]:
            if process.name.startswith(LOADS):
                process.kill()
        stage.lab.close_captures()
        stage.lab.check_programs()
        stage.revive()
        marker = request.node.get_closest_marker("drops")
        stage.accounting.close(marker.args if marker else (), log)
    except BaseException:
        for process in (stage.steelyard.forwarder, stage.steelyard.agent):
            print(process.describe())
        raise
    finally:
        log.close()
        stage.lab.close_captures()
        stage.restore()

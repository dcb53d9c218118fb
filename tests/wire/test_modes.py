# SPDX-License-Identifier: Apache-2.0
"""The table: every mode, family and protocol, with one worker and with two, all side by side."""

import pytest

from tests.lab.modes import PROTOCOLS, TABLE
from tests.wire.conftest import check_accounting
from tests.wire.modes import ModeStage

pytestmark = pytest.mark.both_builds


@pytest.fixture(scope="module", params=(1, 2), ids=("1-worker", "2-workers"))
def mode_stage(request):
    with ModeStage(arms=1, workers=request.param) as stage:
        yield stage


@pytest.fixture
def modes(mode_stage, request):
    yield from check_accounting(mode_stage, request)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("row", TABLE, ids=str)
def test_cell(modes, row, protocol):
    modes.hosts.check(row, protocol)

# SPDX-License-Identifier: Apache-2.0
"""The table: every mode, family and protocol, with one worker and with two, all side by side."""

import copy

import pytest

from tests.lab.modes import PROTOCOLS, ROWS, ModeHosts, config
from tests.lab.steelyard import Steelyard
from tests.wire.conftest import keep_books
from tests.wire.stage import Stage


class ModeStage(Stage):
    def start(self):
        self.hosts = ModeHosts(self.lab)
        self.hosts.start()
        self.steelyard = Steelyard(self.lab, config(self.lab.network), workers=self.workers)
        self.default = copy.deepcopy(self.steelyard.config)
        self.steelyard.start()
        self.steelyard.wait_all_up()

    def __exit__(self, *error):
        self.hosts.close()
        super().__exit__(*error)


@pytest.fixture(scope="module", params=(1, 2), ids=("1-worker", "2-workers"))
def mode_stage(request):
    with ModeStage(arms=1, workers=request.param) as stage:
        yield stage


@pytest.fixture
def modes(mode_stage, request):
    yield from keep_books(mode_stage, request)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_cell(modes, row, protocol):
    modes.hosts.check(row, protocol)

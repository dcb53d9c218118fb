# SPDX-License-Identifier: Apache-2.0
"""The table: every mode, family and protocol, with one worker and with two, all side by side."""

import pytest

from tests.lab.modes import PROTOCOLS, TABLE

pytestmark = pytest.mark.both_builds


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("row", TABLE, ids=str)
def test_cell(modes, row, protocol):
    modes.hosts.check(row, protocol)

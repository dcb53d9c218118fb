# SPDX-License-Identifier: Apache-2.0
"""Every mode, family and protocol, with one worker and with two, all on one stage."""

import pytest

from tests.lab.mode_table import PROTOCOLS, TABLE

pytestmark = pytest.mark.both_builds


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("row", TABLE, ids=str)
def test_cell_works(modes, row, protocol):
    modes.hosts.check(row, protocol)

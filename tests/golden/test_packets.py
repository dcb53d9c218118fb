# SPDX-License-Identifier: Apache-2.0
"""packets.golden is up to date."""

from tests.golden.make_packets import FILE, lines


def test_golden_frames_equal_scapys():
    assert FILE.read_text() == "".join(lines())

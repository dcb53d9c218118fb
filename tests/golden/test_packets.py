# SPDX-License-Identifier: Apache-2.0
"""The frames that the packet module's own test compares with are still what scapy builds."""

from tests.golden.make_packets import FILE, lines


def test_packets_are_what_scapy_builds():
    assert FILE.read_text() == "".join(lines())

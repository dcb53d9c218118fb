# SPDX-License-Identifier: Apache-2.0
"""Flows of Steelyard's TCP stack share a bottleneck fairly with each other, and with Linux's CUBIC.
tests/peer/fairness.py prints the figures over a longer time.

    client: the kernel receives ◀── link: 20 Mbit/s, 40 ms ◀── far: the stack and the kernel send
"""

import pytest

from tests.lab.wait import wait_until
from tests.peer.fairness import Bottleneck, jain

RATE_MBIT, RTT_MS = 20, 40
QUEUE = RATE_MBIT * 1000 * RTT_MS // 8 // 1514  # packets of one round trip
FIRST = 100_000  # bytes of each flow until slow start is over
VOLUME = 30_000_000  # bytes of all flows over which shares are computed


def shares(stage, stack, kernel):
    """Returns the bytes of each flow, of the stack first, while all flows together transferred a
    given amount. Not over a given time, because the machine may stand still."""
    peer = stage.peer(congestion="cubic")
    stage.link.set("ba", rate_mbit=RATE_MBIT, queue_packets=QUEUE, delay_ms=RTT_MS / 2)
    stage.link.set("ab", delay_ms=RTT_MS / 2)
    flows = Bottleneck(stage, peer, stack, kernel, "cubic")
    try:
        wait_until(lambda: min(flows.received()) > FIRST, "every flow runs")
        for volume in (VOLUME / 5, VOLUME):  # the first part does not count
            before = flows.received()
            end = sum(before) + volume
            wait_until(lambda end=end: sum(flows.received()) > end, "they continue")
        after = flows.received()
    finally:
        flows.close()
    return [b - a for a, b in zip(before, after, strict=True)]


def test_ten_flows_share_alike(interop):
    """Jain's index of ten flows of the stack is at least 0.95."""
    each = shares(interop, 10, 0)
    assert jain(each) >= 0.95, each


@pytest.mark.parametrize("count", (5, 1), ids=("five", "one"))
def test_neither_stack_starves_the_other(interop, count):
    """The stack's CUBIC beside the kernel's: each side gets at least a third of its fair share."""
    each = shares(interop, count, count)
    for side in (each[:count], each[count:]):
        assert sum(side) > sum(each) / 2 / 3, each

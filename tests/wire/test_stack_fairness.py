# SPDX-License-Identifier: Apache-2.0
"""How flows of Steelyard's TCP stack share a bottleneck with each other, and with Linux's CUBIC.
tests/peer/fairness.py prints the same in numbers, over a longer time.

    client: the kernel receives ◀── link: 20 Mbit/s, 40 ms ◀── far: the stack and the kernel send
"""

import pytest

from tests.lab.wait import wait_until
from tests.peer.fairness import Bottleneck, jain

RATE_MBIT, RTT_MS = 20, 40
QUEUE = RATE_MBIT * 1000 * RTT_MS // 8 // 1514  # packets: a round trip's
FIRST = 100_000  # bytes of each flow, after which slow start is over
VOLUME = 30_000_000  # of all flows, by which shares are taken


def shares(stage, stack, kernel):
    """The bytes that each flow brought while all of them brought so many: first those of the stack,
    then those of the kernel. Not of a time: this machine may stand still."""
    peer = stage.peer(congestion="cubic")
    stage.link.set("ba", rate_mbit=RATE_MBIT, queue_packets=QUEUE, delay_ms=RTT_MS / 2)
    stage.link.set("ab", delay_ms=RTT_MS / 2)
    flows = Bottleneck(stage, peer, stack, kernel, "cubic")
    try:
        wait_until(lambda: min(flows.received()) > FIRST, "every flow runs")
        for volume in (VOLUME / 5, VOLUME):  # the first part does not count
            before = flows.received()
            end = sum(before) + volume
            wait_until(lambda end=end: sum(flows.received()) > end, "they go on")
        after = flows.received()
    finally:
        flows.close()
    return [b - a for a, b in zip(before, after, strict=True)]


def test_ten_flows_share_alike(interop):
    """Jain's index of ten flows of the stack is 0.95 at least."""
    each = shares(interop, 10, 0)
    assert jain(each) >= 0.95, each


@pytest.mark.parametrize("count", (5, 1), ids=("five", "one"))
def test_neither_starves_the_other(interop, count):
    """The stack's CUBIC beside the kernel's: each side has a third of a fair share at least."""
    each = shares(interop, count, count)
    for side in (each[:count], each[count:]):
        assert sum(side) > sum(each) / 2 / 3, each

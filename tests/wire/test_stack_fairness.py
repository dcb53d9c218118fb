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


WINDOWS = 6  # at most; a busy machine, which delays some flows' ACKs, may need more than one


def shares(stage, stack, kernel, is_fair):
    """Returns the bytes of each flow, of the stack first, since all flows run alike: after a volume
    for which they are fair, or after the maximum. Not over a given time, because the machine may
    stand still."""
    peer = stage.peer(congestion="cubic")
    stage.link.set("ba", rate_mbit=RATE_MBIT, queue_packets=QUEUE, delay_ms=RTT_MS / 2)
    stage.link.set("ab", delay_ms=RTT_MS / 2)
    flows = Bottleneck(stage, peer, stack, kernel, "cubic")

    def continue_for(volume):
        end = sum(flows.received()) + volume
        wait_until(lambda: sum(flows.received()) > end, "they continue")

    try:
        wait_until(lambda: min(flows.received()) > FIRST, "every flow runs")
        continue_for(VOLUME / 5)
        before = flows.received()
        for _ in range(WINDOWS):
            continue_for(VOLUME)
            each = [b - a for a, b in zip(before, flows.received(), strict=True)]
            if is_fair(each):
                break
    finally:
        flows.close()
    return each


def test_ten_flows_share_alike(interop):
    """Jain's index of ten flows of the stack is at least 0.95."""

    def is_fair(each):
        return jain(each) >= 0.95

    each = shares(interop, 10, 0, is_fair)
    assert is_fair(each), (jain(each), each)


@pytest.mark.parametrize("count", (5, 1), ids=("five", "one"))
def test_neither_stack_starves_the_other(interop, count):
    """The stack's CUBIC beside the kernel's: each side gets at least a third of its fair share."""

    def is_fair(each):
        return min(sum(each[:count]), sum(each[count:])) > sum(each) / 2 / 3

    each = shares(interop, count, count, is_fair)
    assert is_fair(each), each

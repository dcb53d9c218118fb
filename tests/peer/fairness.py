# SPDX-License-Identifier: Apache-2.0
"""Measures how connections of the stack share a bottleneck with each other, and with the kernel's.

    .venv/bin/python -m tests.peer.fairness                      # 50 Mbit/s, 20 ms, 60 s a row
    .venv/bin/python -m tests.peer.fairness --seconds 20 --rate 20 --delay 40

The stack and a kernel are behind the same interface, and send through the link's one queue to
another kernel. A flow's share is what its receiver reads between two times. Its exit status says
whether ten flows of the stack are fair to each other (Jain's index of at least 0.95), and whether
neither side starves the other (a third of a fair share at least).
"""

import argparse
import contextlib
import sys
import time

from tests.demo.show import Show, say
from tests.lab.lab import catch_signals
from tests.lab.peer import KernelEnd
from tests.lab.wait import wait_until
from tests.wire.interop import InteropStage, difference, port

PICTURE = """
   client: the kernel ◀── link: {rate} Mbit/s, {rtt} ms, {queue} packets ◀── far: the stack and
   receives                                                             the kernel send
"""
HEAD = ["flows", "of the link", "stack", "kernel", "Jain", "of the stack", "sent again", "lost"]
ENDLESS = 1 << 40
# Name, flows of the stack and of the kernel, congestion control of the stack and of the kernel.
CASES = (
    ("10 stack", 10, 0, "cubic", "cubic"),
    ("10 stack, NewReno", 10, 0, "newreno", "cubic"),
    ("10 kernel (yardstick)", 0, 10, "cubic", "cubic"),
    ("5 stack, 5 kernel", 5, 5, "cubic", "cubic"),
    ("5 stack NewReno, 5 kernel Reno", 5, 5, "newreno", "reno"),
    ("1 stack, 1 kernel", 1, 1, "cubic", "cubic"),
)


def jain(shares):
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 0


class Bottleneck:
    """The flows of one row."""

    def __init__(self, stage, peer, stack, kernel, congestion):
        self.stage, self.peer, self.ends = stage, peer, []
        self.senders, self.jobs = [], []
        for number in range(stack + kernel):
            end = KernelEnd(stage.kernel, 4, seed=number)
            if number < stack:
                address, at = stage.stack_address[4], port()
                self.jobs.append(peer.listen(address, at, send=ENDLESS, seed=number))
                end.connect(address, at)
            else:
                sender = KernelEnd(
                    stage.lab["far"].ns, 4, send=ENDLESS, seed=number, congestion=congestion
                )
                self.senders.append(sender.listen(stage.link.address("b"), at := port()))
                end.connect(stage.link.address("b"), at)
            self.ends.append(end)

    def received(self):
        return [end.received for end in self.ends]

    def close(self):
        for job in self.jobs:
            self.peer.close(job)
        for one in [*self.ends, *self.senders]:
            with contextlib.suppress(OSError):
                one.one.shutdown(2)
        for one in [*self.ends, *self.senders]:
            one.join()


def wait(seconds):
    end = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= end, "the time is over", seconds + 60)


def measure(stage, case, options):
    """Returns a row of the table, and the missed goals."""
    name, stack, kernel, of_stack, of_kernel = case
    peer = stage.peer(congestion=of_stack)
    link = {"rate_mbit": options.rate, "queue_packets": options.queue}
    stage.link.set("ba", **link, delay_ms=options.delay / 2)
    stage.link.set("ab", delay_ms=options.delay / 2)
    flows = Bottleneck(stage, peer, stack, kernel, of_kernel)
    wait_until(lambda: all(one > 100_000 for one in flows.received()), "every flow runs")
    wait(options.seconds / 4)
    counters, drops = peer.counters(), stage.link.stats("ba")
    before = flows.received()
    begun = time.monotonic()
    wait(options.seconds)
    seconds = time.monotonic() - begun
    shares = [8e-6 * (b - a) / seconds for a, b in zip(before, flows.received(), strict=True)]
    link = difference(stage.link.stats("ba")["drops"], drops["drops"])
    counters = difference(peer.counters(), counters)
    flows.close()
    stage.reset()
    fair, missed = sum(shares) / len(shares), []
    if stack == 10 and jain(shares) < 0.95:
        missed.append(f"{name}: Jain's index is {jain(shares):.3f}, not 0.95")
    for side, of in (("stack", shares[:stack]), ("kernel", shares[stack:])):
        if of and sum(of) / len(of) < fair / 3:
            missed.append(f"{name}: the {side} starves")
    row = [name, f"{100 * sum(shares) / options.rate:.0f} %"]
    for of in (shares[:stack], shares[stack:]):
        row.append(f"{sum(of):.1f} Mbit/s ({min(of):.1f} to {max(of):.1f})" if of else "")
    row += [f"{jain(shares):.3f}", f"{jain(shares[:stack]):.3f}" if stack else ""]
    return [*row, str(counters["retransmitted"]), str(link["tail"])], missed


def main():
    catch_signals()
    parse = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parse.add_argument("--seconds", type=float, default=60, help="of a row")
    parse.add_argument("--rate", type=int, default=50, help="Mbit/s of the bottleneck")
    parse.add_argument("--delay", type=int, default=20, help="ms, there and back")
    parse.add_argument("--queue", type=int, help="packets (one round trip's)")
    parse.add_argument("--realtime", action="store_true", help="the link runs before others")
    parse.add_argument("--case", type=int, action="append", help="rows, from 0 on (all)")
    options = parse.parse_args()
    options.queue = options.queue or max(10, options.rate * 1000 * options.delay // 8 // 1514)
    say(PICTURE.format(rate=options.rate, rtt=options.delay, queue=options.queue))
    rows, missed = [], []
    with InteropStage(["--realtime"] if options.realtime else []) as stage:
        for number in options.case or range(len(CASES)):
            row, short = measure(stage, CASES[number], options)
            rows.append(row)
            missed += short
    return Show().verdict(HEAD, rows, missed)


if __name__ == "__main__":
    sys.exit(main())

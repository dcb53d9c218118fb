# SPDX-License-Identifier: Apache-2.0
"""Measures the link emulator itself: rate, losses, and lateness of packets.

    .venv/bin/python -m tests.link.measure

Its exit status says whether the link sustained 1 Gbit/s of 1500-byte packets, and 100 000 of them
in flight, without unintended losses.
"""

import json
import sys

from tests.demo.show import Show, say
from tests.lab import Lab
from tests.lab.lab import catch_signals
from tests.lab.link import Link, balance
from tests.lab.servers import wait_listening

PICTURE = """
   client ── veth ──[ steelyard-link ]── veth ── far        iperf3, 1500-byte packets
"""
IPERF, SECONDS = 5201, 4
HEAD = ["case", "packets", "lost by the link", "most on the way", "late: p50", "p99", "CPU"]
CASES = (
    # Name, parameters, iperf3's options, packets that must have been in flight at once.
    ("UDP, 1 Gbit/s, 1 ms", {"delay_ms": 1}, ["-u", "-b", "1G", "-l", 1472], 0),
    ("UDP, 1 Gbit/s, 1.4 s", {"delay_ms": 1400}, ["-u", "-b", "1G", "-l", 1472], 100_000),
    ("TCP, 1 Gbit/s, 1 ms", {"delay_ms": 1, "rate_gbit": 1, "overhead": 24}, [], 0),
    ("TCP, any rate, 1 ms", {"delay_ms": 1}, [], 0),
)
# Losses by the emulator itself; the others were requested.
OWN = ("no-memory", "receive-ring", "send", "oversize", "unfinished-sum")


def measure(lab, name, parameters, options, wanted, realtime):
    """Returns a row of the table, and the missed goals."""
    room = ["--packets", 1 << 18]
    with Link(lab, "client", "far", options=[*room, *realtime], **parameters) as link:
        argv = ["iperf3", "-J", "-c", link.address("b"), "-p", IPERF, "-t", SECONDS, *options]
        before = link.process.cpu_seconds()
        end = json.loads(lab["client"].ns.run(argv))["end"]
        seconds = (end["sum_sent"] if "sum_sent" in end else end["sum"])["seconds"]
        busy = (link.process.cpu_seconds() - before) / seconds
        stats = link.settle()["ab"]
    lost = sum(stats["drops"][why] for why in OWN)
    most, late = stats["on_the_way_most"], stats["late_us"]
    name += ", realtime" if realtime else ""
    missed = []
    if lost or balance(stats):
        missed.append(f"{name}: the link lost {lost} packets of itself")
    if most < wanted:
        missed.append(f"{name}: {most} packets on their way, not {wanted}")
    rate = f"{stats['delivered'] / seconds / 1000:.0f} k/s"
    times = [f"{late[share]:.0f} us" for share in ("p50", "p99")]
    return [name, rate, str(lost), str(most), *times, f"{100 * busy:.0f} %"], missed


def main():
    catch_signals()
    say(PICTURE)
    rows, missed = [], []
    with Lab(arms=1, servers=0) as lab:
        lab.start("far", "iperf3", ["iperf3", "-s", "-p", IPERF])
        wait_listening(lab["far"].ns, IPERF)
        for realtime in ([], ["--realtime"]):
            for case in CASES:
                row, short = measure(lab, *case, realtime)
                rows.append(row)
                missed += short
    return Show().verdict(HEAD, rows, missed)


if __name__ == "__main__":
    sys.exit(main())

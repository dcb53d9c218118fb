# SPDX-License-Identifier: Apache-2.0
"""Complete TCP connections through the forwarder from another process, over memif: a part of `cps`.

The generator plays both ends of 512 connections at once, as in `cps` without a device. It warms up
for longer than a session stays after its last packet: as many sessions are deleted as begin.
The baseline is what testpmd's macswap makes of as many packets on a link of the same kind.
Evidence is that of `wire`, and `lost`, the share of connections that a packet was missing from.
"""

from bench import machine, testbed
from bench.run_wire import Cell, Pair

CONNECTIONS = 512  # at once
PACKETS = 10  # of a connection
SESSIONS = 6_000_000
WARM_S, SECONDS = 2.5, 0.5
BASELINE = "testpmd macswap, as many packets"


def rows(quick):
    wanted = testbed.needs(SESSIONS)
    if not machine.memory_suffices(wanted):
        print(f"   connections over memif: left out, {machine.lacking(wanted)}")
        return
    with Pair(SESSIONS) as pair:
        for family in (4,) if quick else (4, 6):
            pair.ours.ask("connections", family=family, window=CONNECTIONS, warm=WARM_S, seconds=0)
            for _ in range(3 if quick else 7):
                yield from one(pair, family, SECONDS)


def smoke():
    with Pair(500_000) as pair:
        yield from one(pair, 4, 0.2)


def one(pair, family, seconds):
    """A run of each."""
    cell = Cell(family=family, frame=80 if family == 6 else 64)
    line = pair.ours.ask("line", core=pair.testbed.far)["line_ns"]
    warm = 0.1
    got, busy = testbed.busy_share(
        pair.forwarder,
        lambda: pair.ours.ask(
            "connections",
            link="forwarder",
            family=family,
            window=CONNECTIONS,
            seconds=seconds,
            warm=warm,
        ),
        seconds + warm,
    )
    if got["completed"] == 0 or got["strange"] or got["resets"]:
        raise machine.Failed(f"{got}; the forwarder dropped {pair.forwarder.drops()}")
    pair.theirs.ask("invent", **cell.keys())
    swapped = pair.of_testpmd("trial", **cell.keys(), rate="max", seconds=0.2, warm=0.02)
    run = {
        "bench": "cps",
        "params": {
            "link": "memif",
            "mode": "fnat",
            "family": str(family),
            "concurrent": CONNECTIONS,
            "packets": PACKETS,
            "time_wait_s": testbed.TIME_WAIT_S,
            "table": pair.sessions,
        },
        "evidence": {
            "busy": busy,
            "full": got["full"],
            "lost": got["lost"] / got["begun"],
            "line_ns": line,
        },
    }
    connections, most = got["connections"], swapped["mpps"] * 1e6 / PACKETS
    for metric, unit, values in (
        ("rate", "connections/s", (connections, most)),
        ("cost", "ns/connection", (1e9 / connections, 1e9 / most)),
    ):
        baseline = {"name": BASELINE, "value": values[1]}
        yield run | {"metric": metric, "unit": unit, "value": values[0], "baseline": baseline}

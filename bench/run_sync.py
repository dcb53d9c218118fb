# SPDX-License-Identifier: Apache-2.0
"""What session synchronisation costs the node that serves, and what its peer has by when."""

import contextlib

from bench import machine, picture, report

TITLE = "session synchronisation: cost, bytes on the wire, delay, full copy, completeness"
MINUTES = 7
BYTES = 64  # per session, in each node's table
OTHERS = 400 << 20  # of each node: packet buffers, routes, marks
LOAD = 100_000  # new sessions a second


def rows(quick):
    pairs, copies, large = (8, 1, 1_000_000) if quick else (24, 2, 10_000_000)
    yield from cell("packets", "--no-rate", "--run", 20, "--runs", 100 if quick else 200)
    yield from cell("packets", "--busy", "--run", 200, "--warm", 400, "--runs", pairs)
    if not quick:
        yield from cell("connections", "--busy", "--warm", 1000, "--runs", 3)
    for family in ("4",) if quick else ("4", "6"):
        yield from cell("bytes", "--warm", 1000, "--runs", 2 if quick else 7, family=family)
    yield from cell("delay", "--rate", 50, "--warm", 100, "--runs", 3 if quick else 10)
    yield from cell("delay", "--warm", 1000, "--runs", 3 if quick else 10)
    for _ in range(copies):
        yield from cell("copy", sessions=large)
    yield from cell("completeness", "--runs", 5 if quick else 15, sessions=large)


def smoke():
    small = {"sessions": 5000, "table": 100_000, "huge": False}
    yield from cell("packets", "--rate", 5000, "--run", 20, "--warm", 20, "--runs", 1, **small)
    yield from cell(
        "bytes", "--rate", 5000, "--run", 50, "--warm", 10, "--runs", 1, family="6", **small
    )
    yield from cell("delay", "--rate", 500, "--run", 200, "--warm", 10, "--runs", 1, **small)
    yield from cell("copy", **small)


def cell(measure, *options, family="4", sessions=0, table=4 << 20, huge=True):
    """Two forwarders; a table has room for what a second of connections leaves."""
    table = max(table, sessions + sessions // 4)
    wanted = 2 * (table * BYTES + OTHERS)
    if not machine.memory_suffices(wanted):
        print(f"   {measure}, {sessions:,} sessions: left out, {machine.lacking(wanted)}")
        return
    existing = ["--sessions", sessions] if sessions else []
    without = contextlib.nullcontext(machine.Pages(0, None))
    with machine.huge_pages(table * BYTES + OTHERS, largest=0) if huge else without as pages:
        yield from machine.run_program(
            "steelyard-sync",
            *("--measure", measure, "--family", family, "--table", table),
            *existing,
            *options,
            *pages.options(),
        )


def plot(made, path):
    picture.lines(
        path,
        "sync: sessions at the peer while all of them are copied",
        report.select(made, "sessions at the peer while they are copied"),
        "second",
        ["sessions"],
    )

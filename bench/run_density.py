# SPDX-License-Identifier: Apache-2.0
"""The bytes that a session costs, and the cost of finding one in a table that is nearly full."""

from bench import machine, picture, report

TITLE = "sessions until the table is full, every one verified: bytes a session, cost of look-ups"
MINUTES = 12
BYTES = 64  # per session, at most


def rows(quick):
    sizes = (4_000_000, 20_000_000) if quick else (4_000_000, 20_000_000, 200_000_000)
    for sessions in sizes:
        for family in ("4",) if quick else ("4", "6"):
            yield from cell(sessions, family)


def smoke():
    yield from cell(100_000, "4", packets=6400, runs=2)


def cell(sessions, family, packets=1 << 14, runs=128):
    """One fill of a table, with the baseline beside it, or before it if memory is short."""
    size = sessions * BYTES + (16 << 20)
    before = not machine.memory_suffices(2 * size)
    if before and not machine.memory_suffices(size):
        print(f"   IPv{family}, {sessions:,} sessions: left out, {machine.lacking(size)}")
        return
    options = ["--sessions", sessions, "--family", family]
    options += ["--look-ups", runs, "--packets", packets, *(["--before"] if before else [])]
    with machine.huge_pages(size if before else 2 * size) as pages:
        yield from machine.run_program("steelyard-density", *options, *pages.options())


def plot(made, path):
    picture.bars(
        path,
        "density: bytes a session, ports included, when the table is full",
        report.select(made, "memory"),
        "sessions",
        ["family"],
        goals={200_000_000: BYTES},
    )
    picture.bars(
        path.with_stem("density-look-up"),
        "density: finding the session of a random packet, by how full the table is",
        report.select(made, "look-up"),
        "sessions",
        ["fill"],
        ["family"],
    )

# SPDX-License-Identifier: Apache-2.0
"""Complete TCP connections: the cost of one, and the number per second and core."""

from bench import cps_memif, machine, picture, report

TITLE = (
    "TCP connections from SYN to the deleted session, one core: without a device, and over memif"
)
MINUTES = 6
SESSIONS = 8 << 20  # capacity of the table: some seconds' sessions
BYTES = 64  # per session, at most
OTHERS = 320 << 20  # packet buffers, routes


def rows(quick):
    for family in ("4",) if quick else ("4", "6"):
        for concurrent in (1_000, 1_000_000):
            # The table, and the baseline's memory beside it.
            wanted = 2 * SESSIONS * BYTES + OTHERS
            if not machine.memory_suffices(wanted):
                print(
                    f"   IPv{family}, {concurrent:,} connections: left out, "
                    f"{machine.lacking(wanted)}"
                )
                continue
            with machine.huge_pages(wanted) as pages:
                yield from cell(family, concurrent, SESSIONS, *pages.options())
    yield from cps_memif.rows(quick)


def smoke():
    short = ["--warm", 100, "--runs", 3, "--run", 100]
    yield from cell("4", 1_000, 1 << 20, *short)
    yield from cps_memif.smoke()


def cell(family, concurrent, sessions, *options):
    options = ["--family", family, "--concurrent", concurrent, "--sessions", sessions, *options]
    return machine.run_program("steelyard-cps", *options)


def plot(made, path):
    connections = [row for row in report.select(made, "cost") if row["baseline"]]
    picture.bars(
        path,
        "cps: a complete TCP connection, ten packets, on one core",
        connections,
        "concurrent",
        ["family"],
        ["link"],
    )

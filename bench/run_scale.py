# SPDX-License-Identifier: Apache-2.0
"""The total rate of several workers, by where packets arrive."""

from bench import machine, picture, report

TITLE = "workers together: packets a second, as a multiple of one worker's"
MINUTES = 2
SESSIONS = 100_000
BYTES = 512  # per session: its records, its packets in every order
RUN_MS = 50  # shorter than the time for which two virtual cores keep their distance
OTHERS = 320 << 20  # packet buffers, routes


def rows(quick):
    most = len(machine.cpus())
    if most < 2:
        print("   left out: there is one core")
        return
    wanted = SESSIONS * BYTES + OTHERS
    if not machine.memory_suffices(wanted):
        print(f"   left out, {machine.lacking(wanted)}")
        return
    for workers in [n for n in (2, 4, 8, 16) if n <= most]:
        for family in ("4",) if quick else ("4", "6"):
            with machine.huge_pages(wanted) as pages:
                options = ["--family", family, "--run", RUN_MS, "--runs", 60 if quick else 150]
                yield from cell(workers, SESSIONS, *options, *pages.options())


def smoke():
    yield from cell(2, 2_000, "--runs", 1, "--run", 100)


def cell(workers, sessions, *options):
    options = ["--workers", workers, "--sessions", sessions, *options]
    return machine.run_program("steelyard-scale", *options)


def plot(made, path):
    rates = [row for row in report.select(made, "rate") if row["baseline"]]
    title = "scale: workers together, by whom packets arrive at: owner, a random worker, one"
    picture.lines(path, title, rates, "workers", ["arrival"], ["family"])

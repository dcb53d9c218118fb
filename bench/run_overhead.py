# SPDX-License-Identifier: Apache-2.0
"""What sweeps, changes of configuration and statistics cost the packet path."""

from bench import machine, picture, report

TITLE = "a packet beside sweeps, changes of configuration and statistics: ns, and without them"
BYTES = 256  # of a session: its records, its packets in both directions, with a margin
OTHERS = 320 << 20  # packet buffers, routes


def rows(quick):
    sessions = 1_000_000 if quick else 10_000_000
    wanted = sessions * BYTES + OTHERS
    if not machine.memory_suffices(wanted):
        print(f"   {sessions:,} sessions: left out, {machine.lacking(wanted)}")
        return
    with machine.huge_pages(wanted) as pages:
        yield from cell(sessions, "--runs", 3 if quick else 11, *pages.options())


def smoke():
    yield from cell(2_000, "--runs", 1, "--run", 50)


def cell(sessions, *options):
    return machine.run_program("steelyard-overhead", "--sessions", sessions, *options)


def plot(made, path):
    title = "overhead: a packet beside other work, and without it"
    picture.bars(path, title, report.select(made, "cost"), "with")

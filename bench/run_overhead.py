# SPDX-License-Identifier: Apache-2.0
"""What sweeps, changes of configuration and statistics cost the packet path."""

from bench import machine, picture, report

TITLE = "what expiry, changes of configuration and statistics cost a packet, against none of them"
MINUTES = 6
BYTES = 256  # per session: records and packets of both directions, with a margin
OTHERS = 384 << 20  # packet buffers, routes, packets of new sessions
# Live sessions, and how many of them end per second.
SIZES = ((1_000_000, 20_000), (10_000_000, 50_000))


def rows(quick):
    for sessions, due in SIZES[:1] if quick else SIZES:
        wanted = sessions * BYTES + OTHERS
        if not machine.memory_suffices(wanted):
            print(f"   {sessions:,} sessions: left out, {machine.lacking(wanted)}")
            continue
        with machine.huge_pages(wanted) as pages:
            yield from cell(sessions, due, "--runs", 60 if quick else 200, *pages.options())


def smoke():
    yield from cell(2_000, 1_000, "--runs", 1)


def cell(sessions, due, *options):
    return machine.run_program("steelyard-overhead", "--sessions", sessions, "--due", due, *options)


def plot(made, path):
    title = "overhead: a packet beside other work, and without it"
    picture.bars(path, title, report.select(made, "cost"), "with", [], ["sessions"])

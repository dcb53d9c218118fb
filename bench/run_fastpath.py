# SPDX-License-Identifier: Apache-2.0
"""The worker time of a packet of an established session, on one core and without a device."""

from bench import machine, picture, report

TITLE = "one core without a device: a packet of an established session, by mode and sessions"
MINUTES = 20
FRAME = {"4": 64, "6": 128, "64": 128}  # bytes injected per packet
FRAMES, DRAWN = 1 << 24, 1 << 22  # at most: bench/fixture.h, bench/fastpath.c
MODES = [
    *(("fnat", family) for family in ("4", "6", "64")),
    *((mode, family) for mode in ("nat", "dr", "ipip", "snat") for family in ("4", "6")),
]
SIZES = (1, 1000, 1_000_000, 10_000_000, 50_000_000)


def rows(quick):
    if quick:
        for sessions in (1000, 1_000_000, 10_000_000):
            yield from cell("fnat", "4", sessions, runs=150)
        for mode, family in (("fnat", "6"), ("nat", "4"), ("dr", "4"), ("ipip", "4")):
            yield from cell(mode, family, 1000, runs=60)
        return
    for sessions in SIZES:
        for mode, family in MODES:
            yield from cell(mode, family, sessions, "--direction", "all", "--zipf", runs=100)


def smoke():
    # The fastest run counts: one alone may be interrupted while it times what it subtracts.
    yield from cell("fnat", "4", 1000, runs=20)


def cell(mode, family, sessions, *options, runs):
    """One forwarder with its sessions. A run is short, so that the fastest run is undisturbed,
    and long enough to use other sessions each time."""
    records = sessions * (2 if mode == "snat" else 1)
    table = int(records / 0.85 + (1 << 15)) * 64
    # Both directions' frames, and one direction that is being drawn.
    streams = (2 * min(sessions, FRAMES) + DRAWN) * FRAME[family]
    wanted = 2 * table + streams + (300 << 20)
    if not machine.memory_suffices(wanted):
        print(f"   {mode} IPv{family}, {sessions:,} sessions: left out, {machine.lacking(wanted)}")
        return
    with machine.huge_pages(wanted, largest=0) as pages:
        yield from machine.run_program(
            "steelyard-fastpath",
            *("--mode", mode, "--family", family, "--sessions", sessions),
            *("--packets", 12_800, "--runs", runs),
            *options,
            *pages.options(),
            cpus=machine.cpus()[-1:],
        )


def plot(made, path):
    fnat = [r for r in made if r["params"]["mode"] == "fnat" and r["params"]["family"] == "4"]
    picture.lines(
        path,
        "fastpath: an established FNAT session's packet, IPv4, by the number of sessions",
        report.select(fnat, "cost"),
        "sessions",
        ["flows", "direction"],
        goals={1000: 30, 1_000_000: 45},
    )
    thousand = [r for r in made if r["params"]["sessions"] == 1000]
    picture.bars(
        path.with_stem("fastpath-modes"),
        "fastpath: all modes, 1000 sessions",
        [r for r in thousand if r["params"]["flows"] == "uniform"],
        "mode",
        ["family"],
        ["direction"],
    )

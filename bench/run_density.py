# SPDX-License-Identifier: Apache-2.0
"""How many bytes a session costs."""

from bench import machine, picture, report

TITLE = "sessions until the table is full, every one verified: bytes a session"
BYTES = 64  # that a session takes at most


def rows(quick):
    for sessions in (4_000_000, 20_000_000) if quick else (4_000_000, 20_000_000, 200_000_000):
        if not machine.memory_suffices(sessions * BYTES):
            print(
                f"   {sessions:,} sessions are left out: {sessions * BYTES >> 20:,} MB are not free"
            )
            continue
        for family in ("4", "6"):
            yield from memory(sessions, family)


def smoke():
    yield from memory(100_000, "4")


def memory(sessions, family):
    with machine.huge_pages(sessions * BYTES) as pages:
        options = ["--sessions", sessions, "--family", family, *pages.options()]
        yield from machine.run_program("steelyard-density", *options)


def plot(made, path):
    picture.bars(
        path,
        "density: bytes a session, ports included, when the table is full",
        report.select(made, "memory"),
        "sessions",
        ["family"],
        goals={200_000_000: BYTES},
    )

# SPDX-License-Identifier: Apache-2.0
"""The rates of a shaped port, the delay of its highest class beside floods, and the cost."""

from bench import machine, picture, report

TITLE = "shaping: errors of rates by level, delay of the high class, cost of a packet"
MINUTES = 3
PROGRAM = "steelyard-shaping"
MEMORY = 512 << 20
RATES = (100_000_000, 1_000_000_000, 10_000_000_000)
SERVICES = (8, 1000)


def rows(quick):
    if not machine.memory_suffices(MEMORY):
        print(f"   shaping: left out, {machine.lacking(MEMORY)}")
        return
    yield from rate("--runs", 3, "--milliseconds", 2000 if quick else 5000)
    for port in RATES[1:2] if quick else RATES:
        yield from delay(port, "--runs", 5 if quick else 15)
    for services in SERVICES:
        for rates in ((), ("--rates",)):
            yield from cost(services, *rates, "--runs", 11 if quick else 51)
    yield from path("--runs", 32 if quick else 256)


def smoke():
    yield from rate("--runs", 1, "--milliseconds", 20)
    yield from delay(1_000_000_000, "--runs", 1, "--milliseconds", 20)
    yield from cost(8, "--rates", "--runs", 1, "--packets", 3200)


def rate(*options):
    return machine.run_program(PROGRAM, "--experiment", "rate", *options)


def delay(port, *options):
    return machine.run_program(PROGRAM, "--experiment", "delay", "--rate", port, *options)


def cost(services, *options):
    options = ("--services", services, *options)
    return machine.run_program(PROGRAM, "--experiment", "cost", *options)


def path(*options):
    """The whole packet path, with a shaped port and without."""
    for shaped in ((), ("--shaped",)):
        for row in machine.run_program("steelyard-fastpath", "--sessions", 1000, *shaped, *options):
            # Rows of this benchmark, beside those of fastpath.
            state = "shaped" if shaped else "not shaped"
            yield row | {"bench": "shaping", "params": {"port": state}, "metric": "packet path"}


def plot(made, path):
    picture.bars(
        path,
        "shaping: delay of the high class beside floods of all others",
        report.select(made, "delay of the high class, 99th percentile"),
        "rate",
        [],
    )
    picture.bars(
        path.with_stem("shaping-rates"),
        "shaping: how far rates are off, by level",
        report.select(made, "error of a rate"),
        "level",
        [],
    )
    picture.bars(
        path.with_stem("shaping-cost"),
        "shaping: cost of a packet",
        report.select(made, "cost"),
        "services",
        ["rates"],
    )

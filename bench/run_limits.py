# SPDX-License-Identifier: Apache-2.0
"""How exact the engines of rate limits are, and what they cost."""

from bench import machine, picture, report

TITLE = "rate limits: errors of samples of 2 s (the paper's experiment, virtual time), and costs"
MINUTES = 2
PROGRAM = "steelyard-limits"
MEMORY = 64 << 20
ENGINES = ("own", "cas", "lock", "light-lock")
CONSUMERS = (1, 2, 8, 16)
BUCKETS = (1, 20_000)


def rows(quick):
    if not machine.memory_suffices(MEMORY):
        print(f"   limits: left out, {machine.lacking(MEMORY)}")
        return
    for consumers in (1, 16) if quick else CONSUMERS:
        for engine in ENGINES:
            if engine != "own" or consumers == 1:
                yield from exactness(engine, consumers, 5 if quick else 20)
    for threads in range(1, len(machine.cpus()) + 1):
        for engine in ENGINES:
            if engine != "own" or threads == 1:
                for buckets in BUCKETS:
                    yield from cost(engine, threads, buckets, "--runs", 11 if quick else 51)


def smoke():
    yield from cost("cas", 1, 100, "--runs", 1, "--packets", 3200)
    yield from cost("light-lock", 2, 100, "--runs", 1, "--packets", 3200)


def exactness(engine, consumers, samples):
    options = ("--engine", engine, "--consumers", consumers, "--samples", samples)
    return machine.run_program(PROGRAM, *options)


def cost(engine, threads, buckets, *options):
    options = ("--consumers", threads, "--buckets", buckets, *options)
    return machine.run_program(PROGRAM, "--experiment", "cost", "--engine", engine, *options)


def plot(made, path):
    errors = report.select(made, "error of a sample, observed user")
    picture.bars(
        path,
        "limits: error of a 2 s sample of the observed user, by engine and consumers",
        errors,
        "engine",
        [],
        ["consumers"],
    )
    picture.bars(
        path.with_stem("limits-cost"),
        "limits: what a limited packet costs more than one without a limit",
        report.select(made, "cost"),
        "engine",
        ["buckets"],
        ["threads"],
    )

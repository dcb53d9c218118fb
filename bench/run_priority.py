# SPDX-License-Identifier: Apache-2.0
"""The experiments of the paper "User-space network stack with application-defined priority
scheduling". Programs: bench/priority/. What is measured, scaled and simulated:
docs/design/0047-priority-experiments.md.

    figure 1         where urgent requests of a burst wait; the ideal: the others are dropped
    figure 5         no hook, DARC, our hook; repeated with longer service times
    figures 2 and 6  short requests beside long ones: none, LNS, ours with a core for long ones
    figure 7         requests in one packet and in three
    controls, costs  wrong hooks, hooks that assign no level
    redis, nginx     unmodified: GET beside scans, an API beside downloads; not in the paper
    table 1          unmodified lighttpd, clients behind good and bad links

Four rounds (quick: two); confidence interval: Student's t on the log ratios.
"""

from bench import machine
from bench.priority import apps, figures, plots
from bench.priority.priority_bed import PriorityBed

TITLE = "priorities: the paper's figures as ratios, on the stack with hooks"
MINUTES = 15
MEMORY = 1 << 30


def rows(quick):
    if not machine.memory_suffices(MEMORY):
        print(f"   priority: left out, {machine.lacking(MEMORY)}")
        return
    yield from machine.run_program("priority/steelyard-hook-cost")
    # Both processes on one core: each wakes the other up after each instruction.
    yield from machine.run_program("priority/steelyard-hook-instructions", cpus=machine.cpus()[:1])
    rounds = 2 if quick else 4
    seconds = 1 if quick else 2
    with PriorityBed(aside=True) as bed:
        for pace in (figures.OWN, figures.SLOW):
            yield from figures.in_bursts(bed, rounds, seconds, pace)
        loads = figures.LOADS[1:2] if quick else figures.LOADS
        yield from figures.figure6(bed, rounds, 1 + seconds, loads)
        yield from figures.figure7(bed, rounds, seconds, (4096,) if quick else (1024, 4096))
        yield from figures.controls(bed, rounds, 1)
        with PriorityBed() as plain:
            yield from figures.costs(bed, plain, 4 if quick else 8, 0.3 if quick else 0.5)
    yield from apps.redis(rounds, 100 if quick else 200)
    yield from apps.nginx(rounds, seconds)
    yield from apps.lighttpd(rounds, swapped=not quick)


def smoke():
    yield from machine.run_program("priority/steelyard-hook-cost", "--runs", "1", "--rounds", "1")
    yield from machine.run_program("priority/steelyard-hook-instructions", "--connections", "1")
    with PriorityBed() as bed:
        load = figures.steady(0.1, 1000) | {"class": figures.classes(1, 1)}
        value = figures.urgent(bed.ask(figures.BOTH, **load))
        yield figures.run({"figure": "smoke"}, "urgent p99", value)


def plot(made, path):
    plots.draw(made, path)

# SPDX-License-Identifier: Apache-2.0
"""Servers that no machine is needed for: requests that wait for a core, in virtual time.

A request has the time of its arrival, its service time and its level, 0 first. A core takes the
first request of the lowest level that it may take; with `preempts`, a request of a lower level
interrupts one of a higher level, which goes on later where it was (preemptive resume). Switching
costs nothing, and so does everything that is not service: these are bounds, not machines.

All times have one unit, which is the caller's. All draws have a seed.
"""

import heapq
from collections import deque

import numpy as np


def poisson(rng, rate, count):
    """Times of `count` arrivals, `rate` in a unit of time."""
    return np.cumsum(rng.exponential(1 / rate, count))


def bursts(count, size, period):
    """Times of arrivals in bursts of `size`, all of one at one time."""
    return np.repeat(np.arange(-(-count // size)) * float(period), size)[:count]


def classes(rng, count, share):
    """Levels: 0 with probability `share`, else 1."""
    return (rng.random(count) >= share).astype(int)


def in_order(arrive, service):
    """When each leaves one core that takes them in the order of their arrival."""
    work = np.cumsum(service)
    return work + np.maximum.accumulate(arrive - (work - service))


class Core:
    """What it may take, and what it does now."""

    def __init__(self, levels):
        self.levels = sorted(levels)
        self.job = None
        self.since = self.turn = 0


def serve(arrive, service, level, preempts=False, cores=None):
    """When each leaves. cores: for each, the levels that it takes; None: one core for all of
    them. A core that takes fewer levels is asked first."""
    cores = [Core(levels) for levels in cores or [set(map(int, level))]]
    cores.sort(key=lambda core: len(core.levels))
    waiting = {number: deque() for core in cores for number in core.levels}
    left = np.array(service, dtype=float)
    leave = np.full(len(left), np.nan)
    ends = []  # (time, number of the core, its turn): out of date where its turn is over

    def begin(core, job, now):
        core.job, core.since = job, now
        core.turn += 1
        heapq.heappush(ends, (now + left[job], cores.index(core), core.turn))

    def take(core, now):
        """Returns the next waiting request."""
        core.job = None
        for number in core.levels:
            if waiting[number]:
                begin(core, waiting[number].popleft(), now)
                return

    def place(job, now):
        """A core for one that arrives; or else it waits."""
        able = [core for core in cores if level[job] in core.levels]
        for core in able:
            if core.job is None:
                begin(core, job, now)
                return
        if preempts:
            core = max(able, key=lambda core: level[core.job])
            if level[core.job] > level[job]:
                left[core.job] -= now - core.since
                waiting[level[core.job]].appendleft(core.job)
                begin(core, job, now)
                return
        waiting[level[job]].append(job)

    def finish(until):
        while ends and ends[0][0] <= until:
            now, number, turn = heapq.heappop(ends)
            core = cores[number]
            if core.turn == turn and core.job is not None:
                leave[core.job] = now
                take(core, now)

    for job in np.argsort(arrive, kind="stable"):
        finish(arrive[job])
        place(int(job), arrive[job])
    finish(np.inf)
    return leave


def alone(arrive, service, level, wanted=0):
    """When those of one level would leave if there were no others; of one core."""
    chosen = level == wanted
    leave = np.full(len(arrive), np.nan)
    leave[chosen] = in_order(arrive[chosen], service[chosen])
    return leave


def burst_waits(size, share, driver, stack, service, scheduler, gap=0.0):
    """The 99th percentile of what urgent requests of one burst take, on one core that does three
    things for each: fetch its packet (`driver`), TCP (`stack`), and the service. They arrive with
    this gap in between, and the urgent ones are evenly spread.

    none: each passes all three before the next does. darc: all pass the stack as they come, and an
    urgent one is served as soon as it has. ours: all are fetched as they come, and an urgent one
    passes the stack and is served at once. What darc and ours leave for later disturbs no request
    here: it would be interrupted, at no cost."""
    arrive = np.arange(1, size + 1) * gap
    count = max(1, round(size * share))
    urgent = (np.arange(1, count + 1) / count * size).round().astype(int) - 1
    each = {"none": driver + stack + service, "darc": driver + stack, "ours": driver}[scheduler]
    work = np.full(size, each)
    work[urgent] = driver + stack + service
    return float(np.percentile((in_order(arrive, work) - arrive)[urgent], 99))

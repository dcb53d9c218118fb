# SPDX-License-Identifier: Apache-2.0
"""The delay of packets through the forwarder at 10, 50 and 90 % of its PDR, from the generator and
back to it, beside testpmd's macswap at the same rates.

Each frame contains the time stamp counter at its creation; delays are known to 0.8 %. They include
both directions over memif: `added` is the difference to macswap's. A trial is repeated while the
machine takes a core away from it. In the evidence, `mpps` is the rate, `lost` the share that did
not come back, and `away_us` how long a core was away nevertheless.
"""

from statistics import median

from bench import machine, picture, report
from bench.run_wire import (
    MACSWAP,
    PDR,
    WARM_S,
    Cell,
    Pair,
    affordable,
    capacity,
    difference,
    search,
)

TITLE = "delay through the forwarder at 10, 50 and 90 % of its PDR, beside testpmd"
MINUTES = 3
LOADS = (10, 50, 90)  # percent
SECONDS = 0.1
TRIES, PATIENCE_US = 8, 25  # a worker without packets backs off after 30
PERCENTILES = {"p50": "p50_ns", "p99": "p99_ns", "p99.9": "p999_ns"}


def rows(quick):
    cells = [Cell()]
    if not quick:
        cells += [Cell(sessions=1_000_000), Cell(family=6, frame=80)]
    cells = affordable(cells)
    with Pair(capacity(cells)) as pair:
        for cell in cells:
            yield from delays(pair, cell, LOADS, 3 if quick else 7)


def smoke():
    with Pair(10_000) as pair:
        cell = Cell()
        pair.prepare(cell)
        yield from at_rate(pair, cell, cell.params() | {"load": 10}, 0.5, 1)


def delays(pair, cell, loads, pairs):
    pair.prepare(cell)
    got, _ = pair.trial(cell)
    pdr = search(pair.of_forwarder, cell, got["mpps"], PDR)
    if not pdr:
        raise machine.Failed("no rate passed: the machine takes the cores away in every trial")
    for load in loads:
        params = cell.params() | {"load": load}
        yield from at_rate(pair, cell, params, pdr * load / 100, pairs)


def at_rate(pair, cell, params, mpps, pairs):
    keys = {"rate": f"{mpps:.6f}", "stamped": 1, "seconds": SECONDS, "warm": WARM_S}
    added = {metric: [] for metric in PERCENTILES}
    for _ in range(pairs):
        ours = undisturbed(pair.of_forwarder, cell, keys)
        pair.check(ours)
        theirs = undisturbed(pair.of_testpmd, cell, keys)
        line = pair.ours.ask("line")["line_ns"]
        evidence = {"mpps": ours["offered_mpps"], "lost": ours["lost"], "line_ns": line}
        evidence["away_us"] = max(away(ours), away(theirs))
        for metric, key in PERCENTILES.items():
            values = ours[key] / 1000, theirs[key] / 1000
            added[metric].append(values[0] - values[1])
            yield record(params, metric, values[0], (MACSWAP, values[1]), evidence)
    for metric, values in added.items():
        yield from difference(record(params, f"added {metric}", median(values)))


def undisturbed(ask, cell, keys):
    """The first trial in which no core was away for long, otherwise the one in which a core was
    away least."""
    least = None
    for _ in range(TRIES):
        got = ask("trial", **cell.keys(), **keys)
        if least is None or away(got) < away(least):
            least = got
        if away(least) < PATIENCE_US:
            break
    return least


def away(got):
    return max(got["held_us"], got["waited_us"])


def record(params, metric, value, baseline=None, evidence=None):
    run = {"bench": "latency", "params": params, "metric": metric, "unit": "µs", "value": value}
    if baseline:
        run["baseline"] = {"name": baseline[0], "value": baseline[1]}
    if evidence:
        run["evidence"] = evidence
    return run


def plot(made, path):
    p99 = report.select(made, "p99")
    picture.lines(
        path, "latency: 99 % of delays over memif are below", p99, "load", ["family", "sessions"]
    )

# SPDX-License-Identifier: Apache-2.0
"""Throughput and round-trip times under several schedulers, with late links and loaded servers."""

import json
from statistics import mean, quantiles

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from bench import machine, picture, report
from bench.capability_bed import BLOCK, FLOWS, POLICIES, RATE, SLOWER, WINDOW, Bed, Flows

TITLE = f"shares by capability: ten servers behind five links, 60 flows (times x {SLOWER})"
MINUTES = 24
ROUNDS = 4
MEMORY = 2 * machine.GB
SERIES = machine.ROOT / "build/bench/capability-series.json"
QUICK = ("rr", "maglev", "capability", "least latency")  # 4 minutes
BASELINES = ("rr", "maglev")
OFFERED = FLOWS * RATE * BLOCK * 8 / 1e6  # Mbit/s
# The paper on HVLB, section 5.4: Mbit/s, and ms.
PAPER = {
    "steady": {"throughput": 2820, "round-trip time": 2.5},
    "rr": {"throughput": 1901.9, "round-trip time": 14.9},
    "maglev": {"throughput": 2044.5, "round-trip time": 11.9},
    "capability": {"throughput": 2648.7, "round-trip time": 6.8},
}


def rows(quick):
    if not machine.memory_suffices(MEMORY):
        print(f"   capability: left out, {machine.lacking(MEMORY)}")
        return
    with Bed() as bed:
        series = {}
        for _ in range(1 if quick else ROUNDS):
            yield from one_round(bed, QUICK if quick else POLICIES, series)
        SERIES.parent.mkdir(parents=True, exist_ok=True)
        SERIES.write_text(json.dumps(series))


def smoke():
    """Whether the bed works: half a second of one scheduler."""
    machine.preferring = False
    with Bed() as bed:
        bed.use("p2c")
        with Flows(bed.lab["client"]) as flows:
            blocks = flows.run(1.5)
        yield run("throughput", "Mbit/s", "steady", "p2c", throughput(blocks, 1.5) + 1e-9, {})


def one_round(bed, policies, series):
    got = {}
    for policy in policies:
        got[policy] = measure(bed, policy)
        if got[policy]["steady"]["throughput"] < 0.9 * OFFERED:
            print(f"   capability: the machine was too busy for {policy}: look at its steady state")
        series[policy] = got[policy]["series"]
    for state in ("steady", "disturbed"):
        for policy in policies:
            for metric, unit in (("throughput", "Mbit/s"), ("round-trip time", "ms")):
                for baseline in BASELINES:
                    if baseline == policy:
                        continue
                    one = run(
                        metric,
                        unit,
                        state,
                        policy,
                        got[policy][state][metric],
                        got[policy][state]["evidence"],
                    )
                    yield one | {
                        "baseline": {"name": baseline, "value": got[baseline][state][metric]}
                    }


def run(metric, unit, state, policy, value, evidence):
    params = {"state": state, "scheduler": policy}
    return {
        "bench": "capability",
        "params": params,
        "metric": metric,
        "unit": unit,
        "value": value,
        "evidence": evidence,
    }


def throughput(blocks, seconds):
    return len(blocks) * BLOCK * 8 / seconds / 1e6


def measure(bed, policy, warm=5, steady=6, settle=36, disturbed=8):
    """settle: six times the lag of shares, as in the simulation (bench/shares)."""
    bed.use(policy)
    with Flows(bed.lab["client"]) as flows:
        flows.run(warm)
        states = {"steady": state_of(flows, flows.run(steady), steady)}
        bed.disturb()
        try:
            flows.run(settle)
            before = bed.used()
            states["disturbed"] = state_of(flows, flows.run(disturbed), disturbed)
            evidence, used = states["disturbed"]["evidence"], bed.used()
            for host, share in bed.shares().items():
                evidence[f"share of host {host}"] = share
                evidence[f"processors of host {host}"] = (used[host] - before[host]) / disturbed
        finally:
            bed.calm()
        first = flows.done[0][0]
        bins = [0] * int(warm + steady + settle + disturbed + 1)
        for at, _ in flows.done:
            bins[min(len(bins) - 1, int(at - first))] += BLOCK * 8 / 1e6
    times = sorted(states["disturbed"].pop("times"))
    states["steady"].pop("times")
    cdf = [times[min(len(times) - 1, len(times) * i // 200)] * 1e3 for i in range(201)]
    return states | {"series": {"throughput": bins[:-1], "cdf": cdf, "disturbed at": warm + steady}}


def state_of(flows, blocks, seconds):
    times = [time for _, time in blocks]
    parts = quantiles(times, n=100)
    evidence = {
        "p50, ms": parts[49] * 1e3,
        "p99, ms": parts[98] * 1e3,
        "failed connections": flows.failed,
    }
    return {
        "throughput": throughput(blocks, seconds),
        "round-trip time": mean(times) * 1e3,
        "evidence": evidence,
        "times": times,
    }


def plot(made, path):
    if not any(row["params"]["state"] == "disturbed" for row in made):
        return
    against_paper(made, path)
    for metric, name in (("throughput", "throughput"), ("round-trip time", "rtt")):
        chosen = [
            r
            for r in report.select(made, metric)
            if r["baseline"]["name"] != "maglev" or r["params"]["scheduler"] == "rr"
        ]
        picture.bars(
            path.with_stem(f"capability-{name}"),
            f"capability: {metric}",
            chosen,
            "scheduler",
            [],
            ["state"],
        )
    over_time(path.with_stem("capability-series"))


def against_paper(made, path):
    """Both as parts of what rr has in steady state, so that scales do not matter."""
    with mpl.rc_context(picture.STYLE):
        figure = Figure(figsize=(9, 3.6), layout="constrained")
        FigureCanvasSVG(figure)
        figure.suptitle(
            "disturbed, as a multiple of rr's steady state: measured here, and in the paper\n"
            f"({WINDOW} blocks under way are chosen such that rr's bars equal the paper's; only the"
            " others' are results)",
            fontsize=10,
            x=0.01,
            ha="left",
        )
        for axes, metric in zip(
            figure.subplots(1, 2), ("throughput", "round-trip time"), strict=True
        ):
            steady = report.select(made, metric, state="steady", scheduler="rr")[0]["median"]
            names, here, there = [], [], []
            for policy in POLICIES:
                found = report.select(made, metric, state="disturbed", scheduler=policy)
                if not found:
                    continue
                names.append(policy)
                here.append(found[0]["median"] / steady)
                there.append(PAPER.get(policy, {}).get(metric, 0) / PAPER["steady"][metric])
            places = range(len(names))
            for values, shift, label in ((here, -0.2, "measured"), (there, 0.2, "the paper")):
                bars = axes.bar(
                    [p + shift for p in places],
                    values,
                    0.38,
                    label=label,
                    color=picture.COLOURS[shift > 0],
                )
                axes.bar_label(bars, [f"{v:.2f}" if v else "" for v in values], fontsize=7)
            axes.set_xticks(list(places), names, fontsize=7)
            axes.set_title(metric, fontsize=9)
            axes.legend(fontsize=8)
        picture.save(figure, path)


def over_time(path):
    series = json.loads(SERIES.read_text())
    with mpl.rc_context(picture.STYLE):
        figure = Figure(figsize=(9, 3.6), layout="constrained")
        FigureCanvasSVG(figure)
        left, right = figure.subplots(1, 2)
        for i, (policy, one) in enumerate(series.items()):
            colour = picture.COLOURS[i % len(picture.COLOURS)]
            left.plot(one["throughput"], label=policy, color=colour, linewidth=1.2)
            right.plot(
                one["cdf"],
                [n / (len(one["cdf"]) - 1) for n in range(len(one["cdf"]))],
                label=policy,
                color=colour,
                linewidth=1.2,
            )
        left.axvline(next(iter(series.values()))["disturbed at"], color=picture.GREY, linestyle=":")
        left.set_xlabel("s; dotted: links get late, servers loaded")
        left.set_ylabel("throughput, Mbit/s")
        left.set_ylim(bottom=0)
        right.set_xlabel("round-trip time while disturbed, ms")
        right.set_ylabel("part of all blocks")
        right.legend(fontsize=8)
        picture.save(figure, path)

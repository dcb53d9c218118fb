# SPDX-License-Identifier: Apache-2.0
"""The paper's figures on the synthetic server: docs/design/0047-priority-experiments.md.

Each is a function of a bed and the number of rounds that yields runs (bench/report.py). Latencies
are in µs since a request was sent; a round has all variants, one after the other, in an order that
turns from round to round.
"""

import math
from statistics import mean, median, stdev

import numpy as np

from bench.priority import simulate
from bench.priority.bed import lost, p99

NONE = {"schedule": "none", "driver": 0, "transport": 0, "aside": 0}
NOTED = {"schedule": "ours", "rule": "type", "driver": 0, "transport": 2, "aside": 0}
LNS = {"schedule": "lns", "rule": "type", "driver": 1, "transport": 0, "aside": 0}
LABEL = LNS | {"rule": "label"}
DARC = {"schedule": "darc", "rule": "type", "driver": 0, "transport": 0, "aside": 0}
DRIVER = {"schedule": "ours", "rule": "type", "driver": 1, "transport": 0, "aside": 0}
REQUEST = {"schedule": "ours", "rule": "type", "driver": 0, "transport": 1, "aside": 0}
BOTH = DRIVER | {"transport": 1}

SHARE = 5  # percent of all requests are urgent
BURST, PERIOD_MS = 2000, 100
SERVICE_US = 10
TURN = 4  # the generator looks for answers so often, that it adds little to what they took
LOADS = (25, 50, 75)  # percent of what the server can do
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}


# ---- statistics ----------------------------------------------------------------------------------


def interval(ratios):
    """The 95 % confidence interval of a ratio of which there are few: Student's, of logarithms.
    None: too few, or they are no ratios."""
    if len(ratios) < 3 or len(ratios) not in STUDENT or min(ratios) <= 0:
        return None
    logs = [math.log(ratio) for ratio in ratios]
    half = STUDENT[len(logs)] * stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean(logs) - half), math.exp(mean(logs) + half)


def run(params, metric, value, unit="µs", **more):
    return {
        "bench": "priority",
        "params": params,
        "metric": metric,
        "unit": unit,
        "value": value,
        **more,
    }


def pairs(params, metric, name, values, others, evidence=None, unit="µs"):
    """Runs of values with those of a baseline in the same rounds; the interval is of all."""
    between = interval([one / other for one, other in zip(values, others, strict=True)])
    seen = dict(evidence or {})
    if between:
        seen |= {"low": between[0], "high": between[1]}
    for one, other in zip(values, others, strict=True):
        more = {"baseline": {"name": name, "value": other}}
        yield run(params, metric, one, unit, **more, **({"evidence": seen} if seen else {}))


def in_turn(variants, rounds, measure):
    """measure(name, variant) of each, `rounds` times; by name, in the order of rounds."""
    names = list(variants)
    found = {name: [] for name in names}
    for turn in range(rounds):
        for i in range(len(names)):
            name = names[(turn + i) % len(names)]
            found[name].append(measure(name, variants[name]))
    return found


# ---- what is asked -------------------------------------------------------------------------------


def classes(urgent_us, other_us, share=SHARE, length=64):
    """Urgent requests, of type 1, and others."""
    return [
        f"urgent,share={share},type=1,length={length},service={urgent_us}us",
        f"other,share={100 - share},type=2,length={length},service={other_us}us",
    ]


def bursts(seconds, size=BURST, period_ms=PERIOD_MS, **more):
    return {
        "rate": size * 1000 / period_ms,
        "burst": size,
        "arrivals": "even",
        "connections": 3 * size,
        "duration": f"{seconds}s",
        "warmup": f"{2 * period_ms}ms",
        "reset": True,
        "turn": TURN,
        **more,
    }


def steady(seconds, rate, connections=2000, **more):
    return {
        "rate": f"{rate:.0f}",
        "connections": connections,
        "duration": f"{seconds}s",
        "warmup": "0.2s",
        "reset": True,
        "turn": TURN,
        **more,
    }


def closed(seconds, connections, **more):
    return {
        "connections": connections,
        "duration": f"{seconds}s",
        "warmup": "0.2s",
        "reset": True,
        **more,
    }


def urgent(seen):
    return p99(seen, "urgent")


def half(seen):
    """The median of urgent ones."""
    (found,) = (one for one in seen["classes"] if one["name"] == "urgent")
    return found["since_sent_us"]["p50"]


def all_lost(found):
    return {"lost": sum(lost(seen) for runs in found.values() for seen in runs)}


def line_rate(seen):
    """Requests a second, in a burst: who is sent last has waited for all before it."""
    (one,) = (one for one in seen["classes"] if one["name"] == "other")
    took_us = one["latency_us"]["p99"] - one["since_sent_us"]["p99"]
    return 0.99 * BURST / max(took_us, 1) * 1e6


# ---- figures -------------------------------------------------------------------------------------


def figure1(bed, rounds, seconds):
    """Where urgent requests wait. The ideal: they come alone, as often as in a burst."""
    load = bursts(seconds) | {"class": classes(SERVICE_US, SERVICE_US)}
    rates = []

    def measure(name, setting):
        if name != "ideal":
            seen = bed.ask(setting, **load)
            rates.append(line_rate(seen))
            return seen
        alone = steady(seconds, median(rates) * SHARE / 100)
        return bed.ask(setting, **alone, **{"class": f"urgent,type=1,service={SERVICE_US}us"})

    found = in_turn({"none": NOTED, "ours": BOTH}, rounds, measure)
    found |= in_turn({"ideal": NOTED}, rounds, measure)
    ideal = [urgent(seen) for seen in found["ideal"]]
    for name in ("none", "ours"):
        values = [urgent(seen) for seen in found[name]]
        seen = all_lost({name: found[name]}) | {"line_rate": median(rates)}
        yield from pairs(
            {"figure": "1", "schedule": name}, "urgent p99", "ideal", values, ideal, seen
        )
    for name, runs in found.items():
        for part in ("before_tcp", "before_application", "service"):
            for seen in runs:
                what = part.replace("tcp", "TCP").replace("_", " ")
                took = seen["server"]["classes"][0][f"{part}_us"]["p99"]
                yield run({"figure": "1", "schedule": name}, f"urgent p99 {what}", took)


def figure5(bed, rounds, seconds):
    """The driver hook against none, and against a scheduler behind TCP."""
    load = bursts(seconds) | {"class": classes(SERVICE_US, SERVICE_US)}
    variants = {"none": NONE, "DARC": DARC, "ours": DRIVER}
    found = in_turn(variants, rounds, lambda _, setting: bed.ask(setting, **load))
    values = {name: [urgent(seen) for seen in runs] for name, runs in found.items()}
    for name in ("DARC", "ours"):
        yield from pairs(
            {"figure": "5", "schedule": name},
            "urgent p99",
            "none",
            values[name],
            values["none"],
            all_lost({name: found[name]}),
        )
    params = {"figure": "5", "schedule": "DARC"}
    yield from pairs(params, "urgent p99", "ours", values["DARC"], values["ours"])
    medians = {name: [half(seen) for seen in runs] for name, runs in found.items()}
    for name in ("DARC", "ours"):
        params = {"figure": "5", "schedule": name}
        yield from pairs(params, "urgent p50", "none", medians[name], medians["none"])


MIX = {"class": classes(1, 1000, share=99.5)}


def figure6(bed, rounds, seconds, loads=LOADS):
    """Short and long requests: unscheduled against the optimum (figure 2), and with a core for long
    ones (figure 6)."""
    capacity = bed.ask(NONE, **closed(1, 64), **MIX)["rate"]
    bare = bed.ask(NONE, **closed(0.5, 64), **{"class": "urgent,type=1"})["rate"]
    quiet = bed.ask(NONE, **steady(0.5, 1000), **{"class": "urgent,type=1"})
    for load in loads:
        rate = capacity * load / 100
        asked = steady(seconds, rate) | MIX
        variants = {"none": NONE, "LNS": LNS, "ours": DRIVER | {"aside": 1}, "alone": NONE}
        variants["swapped"] = DRIVER | {"rule": "swapped"}
        alone = {"rate": f"{rate * 0.995:.0f}", "class": "urgent,type=1,service=1us"}

        def measure(name, setting, asked=asked, alone=alone):
            return bed.ask(setting, **(asked | alone if name == "alone" else asked))

        found = in_turn(variants, rounds, measure)
        values = {name: [urgent(seen) for seen in runs] for name, runs in found.items()}
        ideal = optimum(rate, 1e6 / bare, half(quiet))
        seen = all_lost({"none": found["none"]}) | {"offered": rate, "capacity": capacity}
        yield from pairs(
            {"figure": "2", "busy": load},
            "urgent p99",
            "optimum, simulated",
            values["none"],
            [ideal] * rounds,
            seen,
        )
        for name in ("LNS", "ours", "swapped"):
            seen = all_lost({name: found[name]})
            yield from pairs(
                {"figure": "6", "schedule": name, "busy": load},
                "urgent p99",
                "none",
                values[name],
                values["none"],
                seen,
            )
        for value in values["alone"]:
            params = {"figure": "6", "schedule": "alone", "busy": load}
            yield run(params, "urgent p99 without others", value)
        for name in ("none", "LNS", "ours"):
            for seen in found[name]:
                params = {"figure": "6", "schedule": name, "busy": load}
                yield run(params, "p99 of long requests", p99(seen, "other"))
        for name, ratio in two_cores(rate, 1e6 / bare).items():
            params = {"figure": "6", "schedule": f"{name}, two cores, simulated", "busy": load}
            yield run(params, "urgent p99 against none on two cores", ratio, unit="×")


def mix_drawn(rate, cost_us, count, seed):
    """Arrivals, work and levels of the mix; µs."""
    rng = np.random.default_rng(seed)
    level = simulate.classes(rng, count, 0.995)
    work = np.where(level == 0, 1.0, 1000.0) + cost_us
    return simulate.poisson(rng, rate / 1e6, count), work, level


def optimum(rate, cost_us, quiet_us, count=400_000):
    """p99 of urgent ones if they interrupt the others at no cost: what an unloaded server takes,
    and their wait for each other. cost_us: of the stack, for each request."""
    arrive, work, level = mix_drawn(rate, cost_us, count, 1)
    took = simulate.alone(arrive, work, level) - arrive
    waits = (took - work)[level == 0]
    return quiet_us + 1 + float(np.percentile(waits, 99))


def two_cores(rate, cost_us, count=150_000):
    """By how much a reserved core is better, if none and LNS have two cores as well; all have twice
    the load."""
    arrive, work, level = mix_drawn(2 * rate, cost_us, count, 2)
    schedules = {
        "none": (np.zeros(count, int), [{0}, {0}]),
        "LNS": (level, [{0, 1}, {0, 1}]),
        "ours": (level, [{0}, {1}]),
    }
    took = {}
    for name, (levels, cores) in schedules.items():
        leave = simulate.serve(arrive, work, levels, cores=cores)
        took[name] = float(np.percentile((leave - arrive)[level == 0], 99))
    return {name: took[name] / took["none"] for name in ("LNS", "ours")}


def figure7(bed, rounds, seconds, lengths=(1024, 4096)):
    """Requests in one packet and in three. LNS sees labels in first packets alone."""
    for length in lengths:
        load = bursts(seconds, 1000, 200) | {"class": classes(100, 100, length=length)}
        variants = {"none": NONE, "LNS": LABEL, "DARC": DARC, "ours": REQUEST}
        variants["swapped"] = REQUEST | {"rule": "swapped"}
        found = in_turn(variants, rounds, lambda _, s, load=load: bed.ask(s, **load))
        values = {name: [urgent(seen) for seen in runs] for name, runs in found.items()}
        for name in list(variants)[1:]:
            yield from pairs(
                {"figure": "7", "schedule": name, "length": length},
                "urgent p99",
                "none",
                values[name],
                values["none"],
                all_lost({name: found[name]}),
            )
        params = {"figure": "7", "schedule": "LNS", "length": length}
        yield from pairs(params, "urgent p99", "ours", values["LNS"], values["ours"])


def controls(bed, rounds, seconds):
    """Hooks that are wrong must harm, and hooks that say nothing must change nothing."""
    load = bursts(seconds) | {"class": classes(SERVICE_US, SERVICE_US)}
    variants = {"none": NONE}
    for rule in ("type", "swapped", "equal", "nothing"):
        variants[rule] = BOTH | {"rule": rule}
    found = in_turn(variants, rounds, lambda _, setting: bed.ask(setting, **load))
    for metric, of in (("urgent p99", urgent), ("urgent p50", half)):
        values = {name: [of(seen) for seen in runs] for name, runs in found.items()}
        for name in ("type", "swapped", "equal", "nothing"):
            params = {"figure": "controls", "hooks": name}
            seen = all_lost({name: found[name]})
            yield from pairs(params, metric, "none", values[name], values["none"], seen)


def costs(bed, plain, rounds, seconds):
    """What hooks take of the rate of a server that does nothing else. plain: a bed whose server has
    never had any."""
    load = closed(seconds, 256) | {"class": "urgent,type=1"}
    variants = {
        "never": None,
        "not asked": NONE,
        "packets": BOTH | {"rule": "nothing", "transport": 0},
        "segments": BOTH | {"rule": "nothing", "driver": 0},
        "both": BOTH | {"rule": "nothing"},
    }

    def measure(_, setting):
        return (bed if setting else plain).ask(setting, **load)["rate"]

    found = in_turn(variants, rounds, measure)
    for name in list(variants)[1:]:
        params = {"figure": "costs", "hooks": name}
        yield from pairs(params, "answers", "without", found[name], found["never"], unit="1/s")

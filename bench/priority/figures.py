# SPDX-License-Identifier: Apache-2.0
"""The paper's figures on the synthetic server: docs/design/0047-priority-experiments.md.

Each is a function of a bed and the number of rounds that yields runs (bench/report.py). Latencies
are in µs since a request was sent; a round has all variants, one after the other, in an order that
turns from round to round.
"""

import math
from dataclasses import dataclass
from statistics import mean, stdev

import numpy as np

from bench.priority import simulate
from bench.priority.priority_bed import lost, p99

PLAIN = {"driver": 0, "transport": 0, "aside": 0, "awake": 0, "stack": 0, "sleep": 0}
NONE = PLAIN | {"schedule": "none"}
NOTED = PLAIN | {"schedule": "ours", "rule": "type", "transport": 2}
LNS = PLAIN | {"schedule": "lns", "rule": "type", "driver": 1}
LABEL = LNS | {"rule": "label"}
DARC = PLAIN | {"schedule": "darc", "rule": "type"}
DRIVER = PLAIN | {"schedule": "ours", "rule": "type", "driver": 1}
REQUEST = PLAIN | {"schedule": "ours", "rule": "type", "transport": 1}
BOTH = DRIVER | {"transport": 1}

SHARE = 5  # percent of all requests are urgent
BURST = 2000
TURN = 4  # the generator looks for answers so often, that it adds little to what they took
LOADS = (25, 50, 75)  # percent of what the server can do
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}


@dataclass(frozen=True)
class Pace:
    """Of bursts: how long requests take, and by how much the stack is slowed down.

    This machine's line brings a packet in some 2.8 µs, 10 Gbit/s in 0.12: the burst is over before
    a stack has looked at it, which is where the paper's third of the wait comes from. In slow
    motion, the stack and the requests are as much slower than this line as the paper's were."""

    name: str
    service_us: int
    stack_us: int  # that TCP takes longer for a request
    period_ms: int

    def asked(self):
        return classes(self.service_us, self.service_us)

    def alone(self, line_rate):
        """The urgent ones of the same bursts, whose others are dropped on their way."""
        urgent_ones, others = self.asked()
        return [urgent_ones, f"{others},unsent={1e9 / line_rate:.0f}ns"]

    def of(self, setting):
        """What the server is told: parts of the wait are noted, and it looks for packets all the
        time, as the paper's does."""
        transport = setting["transport"] or 2
        return setting | {"awake": 1, "stack": self.stack_us, "transport": transport}


OWN = Pace("as it is", 10, 0, 100)
SLOW = Pace("slow motion", 6, 6, 80)


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


def bursts(seconds, size=BURST, period_ms=OWN.period_ms, **more):
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
    """Requests a second, in a burst: the last request has waited for all earlier ones."""
    (one,) = (one for one in seen["classes"] if one["name"] == "other")
    took_us = one["latency_us"]["p99"] - one["since_sent_us"]["p99"]
    return 0.99 * BURST / max(took_us, 1) * 1e6


# ---- figures -------------------------------------------------------------------------------------


PARTS = ("before_tcp", "before_application", "service")


def part(seen, name):
    """p99 of urgent ones, as the server measures it; µs."""
    return seen["server"]["classes"][0][f"{name}_us"]["p99"]


def in_bursts(bed, rounds, seconds, pace=OWN):
    """Figures 1 and 5: urgent requests in bursts. The ideal: they come as they do, and the others
    do not; the line's rate, which says when, is measured before the rounds."""
    load = bursts(seconds, period_ms=pace.period_ms) | {"class": pace.asked()}
    rate = line_rate(bed.ask(pace.of(NOTED), **load))
    alone = load | {"class": pace.alone(rate)}

    def measure(name, setting):
        return bed.ask(pace.of(setting), **(alone if name == "ideal" else load))

    variants = {"none": NOTED, "DARC": DARC, "ours": DRIVER, "ideal": NOTED}
    found = in_turn(variants, rounds, measure)
    yield from figure1(found, {"pace": pace.name}, {"line_rate": rate})
    yield from figure5(found, {"pace": pace.name})


def figure1(found, params, evidence):
    """Where they wait, and against the ideal."""
    ideal = [urgent(seen) for seen in found["ideal"]]
    for name in ("none", "ours"):
        values = [urgent(seen) for seen in found[name]]
        seen = all_lost({name: found[name]}) | evidence
        what = {"figure": "1", "schedule": name} | params
        yield from pairs(what, "urgent p99", "ideal", values, ideal, seen)
    for name in ("none", "ours", "ideal"):
        for one in PARTS:
            what = one.replace("tcp", "TCP").replace("_", " ")
            for seen in found[name]:
                of = {"figure": "1", "schedule": name} | params
                yield run(of, f"urgent p99 {what}", part(seen, one))
    for seen in found["none"]:
        waits = [part(seen, one) for one in PARTS[:2]]
        of = {"figure": "1", "schedule": "none"} | params
        yield run(of, "share of the wait that is before TCP", waits[0] / sum(waits), unit="of 1")


def figure5(found, params):
    """The driver hook against none, and against a scheduler behind TCP."""
    values = {name: [urgent(seen) for seen in runs] for name, runs in found.items()}
    for name in ("DARC", "ours"):
        what = {"figure": "5", "schedule": name} | params
        seen = all_lost({name: found[name]})
        yield from pairs(what, "urgent p99", "none", values[name], values["none"], seen)
    what = {"figure": "5", "schedule": "DARC"} | params
    yield from pairs(what, "urgent p99", "ours", values["DARC"], values["ours"])
    medians = {name: [half(seen) for seen in runs] for name, runs in found.items()}
    for name in ("DARC", "ours"):
        what = {"figure": "5", "schedule": name} | params
        yield from pairs(what, "urgent p50", "none", medians[name], medians["none"])


# Figures 2 and 6, ten times slower than the paper's: 1 µs and 1 ms. The stack here takes for a
# request some 4 µs, the paper's several hundred ns. Long ones sleep: their thread does nothing
# else.
SHORT_US, LONG_US = 10, 10_000
SHORT_SHARE = 0.995
MIX = {"class": classes(SHORT_US, LONG_US, share=100 * SHORT_SHARE)}
SLEEP = {"sleep": LONG_US}


def mean_us(cost_us):
    """What a request takes a core. cost_us: of the stack."""
    return SHORT_SHARE * SHORT_US + (1 - SHORT_SHARE) * LONG_US + cost_us


def figure6(bed, rounds, seconds, loads=LOADS):
    """Short and long requests: unscheduled against the optimum (figure 2), and with a core for long
    ones (figure 6). With two cores, none and LNS have half of the requests on each: what one of
    them sees is measured, with half of the load, on as many connections. Ours has one core for
    short ones of all connections, and the other for long ones."""
    bare = bed.ask(NONE, **closed(0.5, 64), **{"class": "urgent,type=1"})["rate"]
    quiet = bed.ask(NONE, **steady(0.5, 1000), **{"class": "urgent,type=1"})
    cost_us = 1e6 / bare
    capacity = 1e6 / mean_us(cost_us)
    short = f"urgent,type=1,service={SHORT_US}us"
    variants = {
        "none": (NONE, 1, MIX),
        "LNS": (LNS, 1, MIX),
        "ours": (DRIVER | {"aside": 1}, 2, MIX),
        "alone": (NONE, 2 * SHORT_SHARE, {"class": short}),
        "swapped": (DRIVER | {"rule": "swapped"}, 1, MIX),
        "equal": (DRIVER | {"rule": "equal"}, 1, MIX),
    }
    for load in loads:
        rate = capacity * load / 100
        chosen = [*variants][: 6 if load == loads[-1] else 4]  # once is enough for wrong hooks

        def measure(_, variant, rate=rate):
            setting, times, asked = variant
            return bed.ask(setting | SLEEP, **steady(seconds, times * rate), **asked)

        found = in_turn({name: variants[name] for name in chosen}, rounds, measure)
        values = {name: [urgent(seen) for seen in runs] for name, runs in found.items()}
        ideal = optimum(rate, cost_us, half(quiet))
        seen = all_lost({"none": found["none"]}) | {"offered": rate, "capacity": capacity}
        yield from pairs(
            {"figure": "2", "busy": load},
            "urgent p99",
            "optimum, simulated",
            values["none"],
            [ideal] * rounds,
            seen,
        )
        for name in (name for name in found if name not in ("none", "alone")):
            seen = all_lost({name: found[name]}) | {"offered": variants[name][1] * rate}
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
        yield from simulated(load, rate, cost_us)


def simulated(load, rate, cost_us):
    """Figure 6 without what machines add: the same two cores; as if none and LNS had a queue for
    both; and ten, one of them for long ones, with which they keep it as busy as `load` says."""
    of_ten = load / 100 / ((1 - SHORT_SHARE) * (LONG_US + cost_us)) * 1e6 / 10
    for what, ratios in (
        ("two cores", apart(rate, cost_us, 2)),
        ("two cores, one queue", together(rate, cost_us)),
        ("ten cores", apart(of_ten, cost_us, 10)),
    ):
        for name, ratio in ratios.items():
            params = {"figure": "6", "schedule": f"{name}, {what}, simulated", "busy": load}
            yield run(params, "urgent p99 against none", ratio, unit="×")


def mix_drawn(rate, cost_us, count, seed):
    """Arrivals, work and levels of the mix; µs."""
    rng = np.random.default_rng(seed)
    level = simulate.classes(rng, count, SHORT_SHARE)
    work = np.where(level == 0, SHORT_US, LONG_US) + cost_us
    return simulate.poisson(rng, rate / 1e6, count), work, level


def optimum(rate, cost_us, quiet_us, count=400_000):
    """p99 of urgent ones if they interrupt the others at no cost: what an unloaded server takes,
    and their wait for each other. cost_us: of the stack, for each request."""
    arrive, work, level = mix_drawn(rate, cost_us, count, 1)
    took = simulate.alone(arrive, work, level) - arrive
    waits = (took - work)[level == 0]
    return quiet_us + SHORT_US + float(np.percentile(waits, 99))


def urgent_took(drawn, levels, cores=None):
    """p99 of short ones."""
    arrive, work, level = drawn
    leave = simulate.serve(arrive, work, levels, cores=cores)
    return float(np.percentile((leave - arrive)[level == 0], 99))


def apart(rate, cost_us, cores, count=150_000):
    """p99 against none of LNS and ours, with a queue of its own for each core, which has this rate
    with none and LNS. With ours, one core has all long ones, and the others the short ones."""
    drawn = arrive, work, level = mix_drawn(rate, cost_us, count, 2)
    none = urgent_took(drawn, np.zeros(count, int))
    times = cores / (cores - 1)
    leave = simulate.alone(arrive / times, work, level)
    took = (leave - arrive / times)[level == 0]
    return {
        "LNS": urgent_took(drawn, level) / none,
        "ours": float(np.percentile(took, 99)) / none,
    }


def together(rate, cost_us, count=150_000):
    """The same of two cores, if none and LNS have one queue for both."""
    drawn = mix_drawn(2 * rate, cost_us, count, 2)
    level = drawn[2]
    none = urgent_took(drawn, np.zeros(count, int), [{0}, {0}])
    return {
        "LNS": urgent_took(drawn, level, [{0, 1}, {0, 1}]) / none,
        "ours": urgent_took(drawn, level, [{0}, {1}]) / none,
    }


def figure7(bed, rounds, seconds, lengths=(1024, 4096)):
    """Requests in one packet and in three. LNS sees labels in first packets alone."""
    for length in lengths:
        load = bursts(seconds, 1000, 200) | {"class": classes(100, 100, length=length)}
        variants = {"none": NONE, "LNS": LABEL, "DARC": DARC, "ours": REQUEST}
        for rule in ("swapped", "equal"):
            variants[rule] = REQUEST | {"rule": rule}
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
    load = bursts(seconds) | {"class": OWN.asked()}
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

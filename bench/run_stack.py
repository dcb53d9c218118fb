# SPDX-License-Identifier: Apache-2.0
"""Servers on the TCP stack and on the kernel's, over veth, with one generator: bench/stack_bed.py.

    echo         64 bytes there and back: on connections that stay, and on one for each request;
                 `both cores`: the kernel's half of receiving is on the generator's
    frames       there and back by AF_XDP alone, without TCP: no stack on it can echo more often,
                 for it sends as many. Echoes are compared with that, too: the ceiling
    half load    an open loop at half of what the server did in the same round; latency counts from
                 when a request was due. `half of the kernel's`: both servers at that rate
    machine      what it takes of each core from a program that only reads the clock, in the same
                 round: clients wait through that, too
    bulk         one connection, answers of 64 MB, or requests of 64 MB; `both cores` as for echo
    burst        requests of one time, as the receiver's end of the cable stamps them; the baseline
                 is as fast as the generator sends for long, with answers to be taken meanwhile
    idle         a million connections, any of which is asked, 100 000 times a second in all: each
                 run with servers of its own, whose memory has not been touched yet
    programs     unmodified nginx and redis by `steelyard run` and as they are: bench/program_bed.py
    threads      servers with several threads, likewise: bench/thread_bed.py
    chain        client, forwarder and server on one host, by memif: bench/chain_bed.py

Rounds: the stack's server and then the kernel's. The evidence has requests without an answer.
"""

from bench import machine, picture, report, stamps
from bench.chain_bed import ChainBed
from bench.program_bed import PAGE, ProgramBed
from bench.stack_bed import PORT, SOURCES, StackBed, lost
from bench.thread_bed import SERVERS, SIDES, ThreadBed, missing

TITLE = (
    "servers on the TCP stack beside the kernel's, over veth: echo, latency, bulk, idle, programs"
)
MINUTES = 12
KERNEL = "kernel"
CORES = {1: "one core", 2: "both cores"}
CONNECTIONS = 256
SENT = {"keep-alive": 1, "short": 4}  # frames that the generator sends for each echo
SECONDS = 1
MEMORY = 1 << 30  # of both servers and the generator
BULK = 64_000_000
BURSTS = 64, 256  # requests: what leaves in one turn, and in four
FLAT = 768  # twelve turns; more would not find room where they wait for the server's core
BURSTS_A_SECOND = 20
ROUNDS = 6  # the fewest that an interval takes
IDLE_ROUNDS, IDLE_SECONDS = 3, 4
IDLE_RATE = 100_000
IDLE_BYTES = 2200  # of both ends, for a connection
THREADS = ((1, 0), (1, 32), (4, 0), (16, 0), (64, 0))  # connections that ask, and idle ones


def rows(quick):
    if machine.memory_suffices(MEMORY):
        with StackBed() as bed:
            for _ in range(3 if quick else ROUNDS):
                yield from echo(bed, SECONDS)
                for cores in (2, 1):
                    bed.steer(cores == 1)
                    for direction in ("download", "upload"):
                        yield bulk(bed, direction, cores, SECONDS)
                yield from burst(bed, SECONDS / 2)
        with ProgramBed() as bed:
            for _ in range(3 if quick else ROUNDS):
                yield from programs(bed, SECONDS)
        with ThreadBed() as bed:
            for _ in range(3 if quick else ROUNDS):
                yield from threads(bed, THREADS, SECONDS / 2)
        with ChainBed() as bed:
            for _ in range(3 if quick else ROUNDS):
                yield from chain(bed, SECONDS / 2)
    else:
        print(f"   echoes, bulk and programs: left out, {machine.lacking(MEMORY)}")
    many = 100_000 if quick else 1_000_000
    wanted = many * IDLE_BYTES + machine.GB
    if machine.memory_suffices(wanted):
        for _ in range(1 if quick else IDLE_ROUNDS):
            with StackBed(many) as bed:
                yield from idle(bed, many, IDLE_RATE, IDLE_SECONDS)
    else:
        print(f"   {many:,} connections: left out, {machine.lacking(wanted)}")


def smoke():
    with StackBed() as bed:
        yield frames(bed.frames(0.1))
        yield bulk(bed, "download", 1, 0.1)
        yield from burst(bed, 0.2)
        yield from idle(bed, 1000, 1000, 0.1)
    with ProgramBed() as bed:
        yield from programs(bed, 0.1)
    with ThreadBed() as bed:
        yield from threads(bed, THREADS[:2], 0.1, list(SERVERS)[:1])
    with ChainBed() as bed:
        yield from chain(bed, 0.1)


def record(params, metric, unit, value, beside=None, evidence=None):
    run = {"bench": "stack", "params": params, "metric": metric, "unit": unit, "value": value}
    if beside is not None:
        run["baseline"] = {"name": KERNEL, "value": beside}
    return run | ({"evidence": evidence} if evidence else {})


def both(bed, protocol, **options):
    return bed.ask("stack", protocol, **options), bed.ask("kernel", protocol, **options)


def evidence(ours, theirs):
    return {"lost": lost(ours), "kernel_lost": lost(theirs)}


def p99(results):
    return results["classes"][0]["latency_us"]["p99"]


def echo(bed, seconds):
    times = {"duration": f"{seconds}s", "warmup": f"{seconds / 4}s", "connections": CONNECTIONS}
    alone = bed.frames(seconds)
    for kind, each in (("keep-alive", 0), ("short", 1)):
        ceiling = alone / SENT[kind]
        for cores in (2, 1):
            bed.steer(cores == 1)
            ours, theirs = both(bed, "echo", each=each, **times)
            params = {"connections": kind, "kernel": CORES[cores]}
            seen = evidence(ours, theirs) | {"ceiling": ceiling / theirs["rate"]}
            yield record(params, "echoes", "1/s", ours["rate"], theirs["rate"], seen)
        yield beside_ceiling(kind, ours["rate"], ceiling)
        if kind == "keep-alive":
            yield frames(alone, theirs["rate"])
            rates = ours["rate"] / 2, theirs["rate"] / 2
    for load, rate in (("half of its own", rates[0]), ("half of the kernel's", rates[1])):
        ours = bed.ask("stack", "echo", rate=f"{rate:.0f}", **times)
        theirs = bed.ask("kernel", "echo", rate=f"{rates[1]:.0f}", **times)
        seen = evidence(ours, theirs) | {"offered": rate, "reached": ours["rate"]}
        yield record({"load": load}, "p99", "µs", p99(ours), p99(theirs), seen)
    for name, core in (("generator's", bed.near), ("servers'", bed.far)):
        options = ("--core", name, "--ms", f"{seconds * 250:.0f}")
        yield from machine.run_program("steelyard-gaps", *options, cpus=[core])


def frames(rate, beside=None):
    params = {"connections": "no TCP", "kernel": CORES[1]}
    return record(params, "echoes", "1/s", rate, beside)


def beside_ceiling(kind, rate, ceiling):
    run = record({"connections": kind}, "echoes beside the ceiling", "1/s", rate)
    return run | {"baseline": {"name": "frames without TCP", "value": ceiling}}


def programs(bed, seconds):
    times = {"duration": f"{seconds}s", "warmup": f"{seconds / 4}s", "connections": CONNECTIONS}
    for program, kind, options in (
        ("nginx", "keep-alive", {}),
        ("nginx", "short", {"each": 1}),
        ("redis", "keep-alive", {}),
    ):
        ours, theirs = (bed.ask(program, side, **times, **options) for side in bed.sides)
        asks = {"nginx": f"GET of {PAGE} bytes", "redis": "GET"}[program]
        params = {"program": program, "asks": asks, "connections": kind}
        rates = ours["rate"], theirs["rate"]
        yield record(params, "requests", "1/s", *rates, evidence(ours, theirs))


def threads(bed, loads, seconds, servers=tuple(SERVERS)):
    for name in servers:
        if package := missing(name):
            print(f"   {name}: left out, it is not installed: apt-get install {package}")
            continue
        asked = [(*load, seconds) for load in loads]
        ours, theirs = (bed.ask(name, side, asked) for side in SIDES)
        for (connections, idle), one, other in zip(loads, ours, theirs, strict=True):
            params = {"server": name, "connections": connections, "idle": idle}
            seen = {
                f"{side}{part}_us": results[part]
                for side, results in (("", one), ("kernel_", other))
                for part in ("p50", "p90", "longest")
            }
            yield record(params, "answers of threads", "1/s", one["rate"], other["rate"])
            yield record(params, "p99 of threads", "µs", one["p99"], other["p99"], seen)


def chain(bed, seconds):
    """For each of the two cores that all three have on either side."""
    times = {"duration": f"{seconds}s", "warmup": "0.3s", "connections": CONNECTIONS}
    for kind, each in (("keep-alive", 0), ("short", 1)):
        ours, theirs = (bed.ask(arm, each=each, **times) for arm in bed.arms)
        rates = ours["rate"] / 2, theirs["rate"] / 2
        seen = evidence(ours, theirs)
        yield record({"chain": kind}, "requests through a forwarder", "1/s a core", *rates, seen)


def bulk(bed, direction, cores, seconds):
    length = {"download": "answer", "upload": "length"}[direction]
    options = {"class": f"bulk,{length}={BULK}", "duration": f"{seconds}s", "warmup": "0.2s"}
    ours, theirs = both(bed, "raw", **options)
    key = {"download": "bytes_in", "upload": "bytes_out"}[direction]
    rates = [one[key] * 8 / one["seconds"] / 1e9 for one in (ours, theirs)]
    params = {"flow": direction, "kernel": CORES[cores]}
    seen = evidence(ours, theirs)
    for name, one in (("", ours), ("kernel_", theirs)):
        seen[f"{name}sent_again"] = one["stack"]["retransmitted"]
    return record(params, "throughput", "Gbit/s", *rates, seen)


def burst(bed, seconds):
    """How close together requests of one time leave: to the kernel's server, as packets for a stack
    are taken before anybody else sees them."""
    bed.steer(True)
    flat, _ = stamped(bed, FLAT, seconds)
    for size in BURSTS:
        value, longest = stamped(bed, size, seconds)
        yield {
            "bench": "stack",
            "params": {"burst": size},
            "metric": "requests in a burst",
            "unit": "1/s",
            "value": value,
            "baseline": {"name": f"{FLAT} at one time", "value": flat},
            "evidence": {"longest_gap_us": longest},
        }


def stamped(bed, size, seconds):
    """The rate within bursts of so many requests, and the longest gap, in µs."""
    with stamps.Stamps(bed.server, "s1", PORT["echo"]) as seen:
        results = bed.ask(
            "kernel",
            "echo",
            rate=size * BURSTS_A_SECOND,
            arrivals="even",
            burst=size,
            connections=size,
            duration=f"{seconds}s",
            warmup="0s",
        )
        whole = stamps.bursts(seen.taken(), size)
    if not whole or lost(results):
        raise machine.Failed(f"no burst of {size} requests arrived whole")
    return stamps.summary(whole)


def idle(bed, many, rate, seconds):
    """How many are held, what each takes, and how those that are asked fare."""
    bed.speak("echo")
    before = bed.resident()
    options = {"connections": many, "rate": rate, "duration": f"{seconds}s", "reset": True}
    results = bed.ask("stack", "echo", sources=SOURCES, connecting=512, **options)
    most = bed.resident()  # pages that were touched stay with the process
    params = {"idle": many, "rate": rate}
    held = results["connections"]["held"]
    seen = {"lost": lost(results), "p50_us": results["classes"][0]["latency_us"]["p50"]}
    yield record(params, "held", "connections", held, evidence=seen)
    yield record(params, "answered", "1/s", results["rate"], evidence=seen)
    yield record(params, "p99 beside idle ones", "µs", p99(results), evidence=seen)
    each = {"fixed": before, "most": most, "tables": results["stack"]["bytes"]}
    yield record(
        params, "server's memory", "bytes/connection", (most - before) / many, evidence=each
    )


def plot(made, path):
    rates = report.select(made, "echoes")
    picture.bars(
        path,
        "stack: echoes of 64 bytes on one core, over veth",
        rates,
        "connections",
        panels=["kernel"],
    )
    asked = report.select(made, "requests")
    where = path.with_name(f"{path.stem}-programs.svg")
    picture.bars(
        where, "stack: unmodified servers on one core", asked, "program", panels=["connections"]
    )
    late = report.select(made, "p99")
    where = path.with_name(f"{path.stem}-p99.svg")
    picture.bars(where, "stack: 99 % of echoes take less, at half load", late, "load")
    flows = report.select(made, "throughput")
    where = path.with_name(f"{path.stem}-bulk.svg")
    picture.bars(where, "stack: one bulk flow, over veth", flows, "flow", panels=["kernel"])

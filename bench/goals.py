# SPDX-License-Identifier: Apache-2.0
"""The headline figures of all benchmarks, and their goals: headline.py finds and shows them."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Headline:
    """The first row of a benchmark that has this metric, unit and baseline (if given) and these
    parameters."""

    what: str  # {name}: the row's parameter
    bench: str
    metric: str
    params: dict = field(default_factory=dict)
    baseline: str = ""
    largest: str = ""  # of several such rows, the one with the largest value of this
    goal: str = ""
    met: Callable[[dict], bool | None] | None = None  # returns None: not shown as met or missed
    fastest: bool = False  # the best run counts, and the median is reported too


FNAT = {"mode": "fnat", "family": "4", "flows": "uniform", "direction": "both"}


def fnat(sessions, goal, met, fastest=True):
    return Headline(
        "a packet of an established FNAT session, IPv4, {sessions} sessions, one core",
        "fastpath",
        "cost",
        FNAT | {"sessions": sessions},
        goal=goal,
        met=met,
        fastest=fastest,
    )


def workers(arrival, where, goal):
    return Headline(
        f"two workers, packets arriving {where}",
        "scale",
        "rate",
        {"workers": 2, "arrival": arrival, "family": "4"},
        goal=f"≥ {goal} × one worker",
        met=lambda row: row["ratio"] >= goal,
    )


def surely_below(row, most):
    """Whether the ratio is at most this; None: its interval allows both."""
    evidence = row.get("evidence", {})
    low, high = evidence.get("low", row["ratio"]), evidence.get("high", row["ratio"])
    return True if high <= most else False if low > most else None


def surely_above(row, least):
    """Likewise, whether it is at least this."""
    evidence = row.get("evidence", {})
    low, high = evidence.get("low", row["ratio"]), evidence.get("high", row["ratio"])
    return True if low >= least else False if high < least else None


def overhead(task, what):
    return Headline(
        f"a packet beside {what}, {{sessions}} live, against one without",
        "overhead",
        "cost",
        {"with": task},
        goal="≤ 1.03 ×",
        met=lambda row: surely_below(row, 1.03),
    )


def stack(what, metric, params, goal="", met=None):
    """A server on the TCP stack, beside the kernel's."""
    return Headline(what, "stack", metric, params, goal=goal, met=met)


CEILING = 4.7  # × the kernel: no goal is above 0.85 of that


def four_times(row):
    """None: frames alone, without TCP, do not go there and back often enough."""
    ceiling = row.get("evidence", {}).get("ceiling", CEILING)
    return True if row["ratio"] >= 4 else None if ceiling < CEILING else False


def priority(what, params, goal, met, metric="urgent p99", **more):
    """An experiment of the paper on application-defined priorities, on the stack with hooks."""
    return Headline(what, "priority", metric, params, goal=goal, met=met, **more)


def large(metric, what, seconds):
    """A large configuration."""
    return Headline(
        what,
        "config",
        metric,
        {},
        largest="services",
        goal=f"≤ {seconds} s",
        met=lambda row: row["median"] <= seconds,
    )


def cookies(family):
    return Headline(
        f"a forged SYN answered by a cookie, IPv{family}, one core, without a device",
        "attack",
        "answering a SYN",
        {"mode": "fnat", "family": family, "entries": 0},
        goal="≤ 200 ns",
        met=lambda row: row["min"] <= 200,
        fastest=True,
    )


def access(family):
    return Headline(
        f"asking an access list with a set of {{entries}} addresses, IPv{family}, a new session",
        "attack",
        "asking a list",
        {"answer": "session", "family": family, "entries": 1_000_000},
        goal="≤ 10 ns",
        met=lambda row: row["median"] <= 10,
    )


def limits(what, metric, params, goal, met):
    """An engine of rate limits."""
    return Headline(what, "limits", metric, params, goal=goal, met=met)


def engine(name, consumers):
    """An engine of rate limits at many workers, by a simulated clock."""
    params = {"engine": name, "consumers": consumers}
    where = f"engine `{name.split(',')[0]}`, {consumers} workers"
    return (
        limits(
            f"error of a rate limit over 2 s, {where}, simulated clock",
            "error of a sample, observed user",
            params,
            "all ≤ 1 %",
            lambda row: row["max"] <= 1,
        ),
        limits(
            f"error of a rate limit over the whole run, {where}, simulated clock",
            "error of the mean, observed user",
            params,
            "≤ 0.2 %",
            lambda row: row["median"] <= 0.2,
        ),
        limits(
            f"traffic lost by users within their limit, {where}",
            "lost by users within the limit",
            params,
            "0 %",
            lambda row: row["median"] == 0,
        ),
    )


def capability(state, metric, goals):
    """Shares by capability against both baselines; a throughput is at least so, a time at most."""
    for baseline, times in goals.items():
        least = metric == "throughput"
        yield Headline(
            f"shares by capability, {state}: {metric}",
            "capability",
            metric,
            {"state": state, "scheduler": "capability"},
            baseline=baseline,
            goal=f"{'≥' if least else '≤'} {times} × {baseline}",
            met=lambda row, times=times, least=least: (
                row["ratio"] >= times if least else row["ratio"] <= times
            ),
        )


def sync(what, metric, params=None, goal="", met=None, **more):
    """Session synchronisation between two nodes."""
    return Headline(what, "sync", metric, params or {}, goal=goal, met=met, **more)


def controller(metric, goal, most, what):
    return Headline(
        what,
        "controller",
        metric,
        {"forwarders": 100, "services": 10_000},
        goal=goal,
        met=lambda row: row["median"] <= most,
    )


HEADLINES = [
    fnat(1000, "≤ 30 ns", lambda row: row["min"] <= 30),
    fnat(1_000_000, "≤ 45 ns", lambda row: row["min"] <= 45),
    fnat(10_000_000, "≤ 2.0 × baseline", lambda row: row["ratio"] <= 2.0, fastest=False),
    Headline(
        "a packet over memif, FNAT IPv4, {sessions} sessions, beyond macswap's",
        "wire",
        "beyond macswap",
        {"family": "4", "frame": 64, "sessions": 1000},
        goal="≤ 35 ns",
        met=lambda row: row["median"] <= 35,
    ),
    Headline(
        "a packet over memif, FNAT IPv4, {sessions} sessions, beyond macswap's",
        "wire",
        "beyond macswap",
        {"family": "4", "frame": 64, "sessions": 10_000_000},
        goal="≤ 60 ns",
        met=lambda row: row["median"] <= 60,
    ),
    Headline(
        "64-byte packets over memif, {sessions} sessions (nftables: veth, as many flows), one core",
        "wire",
        "max",
        {"family": "4", "frame": 64, "sessions": 1000, "nftables_flows": 1000},
        baseline="nftables",
        goal="≥ 8 × nftables",
        met=lambda row: row["ratio"] >= 8,
    ),
    Headline(
        "complete TCP connections, IPv4, one core",
        "cps",
        "rate",
        {"link": "in-process", "family": "4"},
        goal="≥ 1.2 M/s",
        met=lambda row: row["median"] >= 1.2e6,
    ),
    Headline(
        "memory of an IPv4 session, {sessions} sessions",
        "density",
        "memory",
        {"family": "4"},
        largest="sessions",
        goal="≤ 64 bytes",
        met=lambda row: row["median"] <= 64,
    ),
    Headline(
        "finding a session in a table {fill} full, {sessions} sessions",
        "density",
        "look-up by fill",
        {"family": "4"},
        largest="sessions",
        goal="≤ 1.3 × at 50 %",
        met=lambda row: row["ratio"] <= 1.3,
    ),
    Headline(
        "delay over memif at half the rate that loses 0.001 %, median",
        "latency",
        "p50",
        {"family": "4", "sessions": 1000, "load": 50},
    ),
    Headline(
        "delay over memif at half the rate that loses 0.001 %, 99th percentile",
        "latency",
        "p99",
        {"family": "4", "sessions": 1000, "load": 50},
    ),
    workers("owner", "at their owner", 1.9),
    workers("random", "at random", 1.5),
    cookies("4"),
    cookies("6"),
    access("4"),
    access("6"),
    large("apply", "applying {services} services of three servers", 5),
    large("edit", "applying them again with another weight of one server", 0.3),
    large("drain", "draining one server of {services} services", 0.3),
    large("scrape one", "a scrape of one of {services} services", 1),
    large("scrape", "a scrape of {services} services with every server", 1),
    Headline(
        "delay of a shaped port's high class beside floods, {rate}, 99th percentile",
        "shaping",
        "delay of the high class, 99th percentile",
        {"rate": "1000 Mbit/s"},
        goal="≤ 3 × alone",
        met=lambda row: row["ratio"] <= 3,
    ),
    stack(
        "echoes of 64 bytes over veth, server on the stack, connections stay, one core",
        "echoes",
        {"connections": "keep-alive", "kernel": "one core"},
        "≥ 4 × the kernel, if frames alone reach 4.7 ×",
        four_times,
    ),
    stack(
        "the same beside frames that go there and back without TCP",
        "echoes beside the ceiling",
        {"connections": "keep-alive"},
        "≥ 0.85 × the frames",
        lambda row: row["ratio"] >= 0.85,
    ),
    stack(
        "echoes of 64 bytes over veth, server on the stack, a connection for each, one core",
        "echoes",
        {"connections": "short", "kernel": "one core"},
        "≥ 4 × the kernel, if frames alone reach 4.7 ×",
        four_times,
    ),
    stack(
        "the same beside a quarter of these frames, as the generator sends four for each",
        "echoes beside the ceiling",
        {"connections": "short"},
        "≥ 0.85 × a quarter of the frames",
        lambda row: row["ratio"] >= 0.85,
    ),
    stack(
        "the most that a stack on AF_XDP could do there: frames there and back, without TCP",
        "echoes",
        {"connections": "no TCP"},
    ),
    stack(
        "unmodified nginx by `steelyard run`, pages of 612 bytes over veth, one core",
        "requests",
        {"program": "nginx", "connections": "keep-alive"},
        "≥ 2 × the kernel",
        lambda row: row["ratio"] >= 2,
    ),
    stack(
        "unmodified redis by `steelyard run`, GET without pipelining over veth, one core",
        "requests",
        {"program": "redis"},
        "≥ 2 × the kernel",
        lambda row: row["ratio"] >= 2,
    ),
    stack(
        "99th percentile of echoes, both servers at half of what the kernel's can",
        "p99",
        {"load": "half of the kernel's"},
        "≤ 0.5 × the kernel",
        lambda row: row["ratio"] <= 0.5,
    ),
    stack(
        "the same, each at half of what it can itself",
        "p99",
        {"load": "half of its own"},
        "≤ 1 × the kernel",
        lambda row: row["ratio"] <= 1,
    ),
    stack(
        "requests from a client by a forwarder to a server, all on one host by memif",
        "requests through a forwarder",
        {"chain": "keep-alive"},
        "≥ 4 × the kernel",
        lambda row: row["ratio"] >= 4,
    ),
    stack(
        "taken from a program on the servers' core, in pauses of 10 µs and longer",
        "taken by the machine",
        {"core": "servers'"},
    ),
    stack(
        "one bulk flow from a server on the stack, over veth, one core",
        "throughput",
        {"flow": "download", "kernel": "one core"},
        "≥ 1 × the kernel",
        lambda row: row["ratio"] >= 1,
    ),
    stack(
        "one bulk flow to a server on the stack, over veth, both receive on both cores",
        "throughput",
        {"flow": "upload", "kernel": "both cores"},
        "≥ 1 × the kernel",
        lambda row: row["ratio"] >= 1,
    ),
    stack(
        "a flow from it while the kernel's half of receiving is on the other core",
        "throughput",
        {"flow": "download", "kernel": "both cores"},
    ),
    stack(
        "a flow to it; the kernel's server receives on its own core",
        "throughput",
        {"flow": "upload", "kernel": "one core"},
        "≥ 1 × the kernel",
        lambda row: row["ratio"] >= 1,
    ),
    stack(
        "requests that are due at one time, {burst} of them, as the receiver stamps them",
        "requests in a burst",
        {"burst": 64},
    ),
    stack(
        "connections held while {rate} a second are asked of {idle}",
        "held",
        {"idle": 1_000_000},
        "≥ 1 M",
        lambda row: row["median"] >= 1_000_000,
    ),
    priority(
        "99th-percentile latency of the urgent 5 % of requests in bursts, with a hook at the"
        " driver",
        {"figure": "5", "schedule": "ours", "pace": "as it is"},
        "≤ 0.015 × none",
        lambda row: row["ratio"] <= 0.015,
        baseline="none",
    ),
    priority(
        "the same, with 6 µs more of TCP processing for each request",
        {"figure": "5", "schedule": "ours", "pace": "slow motion"},
        "≤ 0.015 × none",
        lambda row: row["ratio"] <= 0.015,
        baseline="none",
    ),
    priority(
        "the same with a scheduler behind TCP (DARC), or our hook",
        {"figure": "5", "schedule": "DARC", "pace": "as it is"},
        "",
        None,
        baseline="ours",
    ),
    priority(
        "the same with DARC or our hook, with 6 µs more of TCP processing for each request",
        {"figure": "5", "schedule": "DARC", "pace": "slow motion"},
        "≥ 20 × ours",
        lambda row: row["ratio"] >= 20,
        baseline="ours",
    ),
    priority(
        "short requests beside long ones, {busy} % load, a core for long ones (figure 6, ten times"
        " slower; long ones sleep)",
        {"figure": "6", "schedule": "ours"},
        "≤ 0.016 × none",
        lambda row: row["ratio"] <= 0.016,
        baseline="none",
        largest="busy",
    ),
    priority(
        "urgent requests of {length} bytes (figure 7)",
        {"figure": "7", "schedule": "ours", "length": 4096},
        "≤ 0.06 × none",
        lambda row: row["ratio"] <= 0.06,
        baseline="none",
    ),
    priority(
        "the same with labels in first packets alone (LNS), against ours",
        {"figure": "7", "schedule": "LNS", "length": 4096},
        "≥ 2 × ours",
        lambda row: row["ratio"] >= 2,
        baseline="ours",
    ),
    priority(
        "urgent requests in bursts, against the same without others (figure 1)",
        {"figure": "1", "schedule": "ours", "pace": "as it is"},
        "≤ 2 × ideal",
        lambda row: row["ratio"] <= 2,
        baseline="ideal",
    ),
    *(
        priority(
            f"lighttpd, 1000 clients, {percentile} of those behind {link} links (table 1)",
            {"figure": "table 1", "link": link, "hook": "link"},
            f"≤ {most} × without",
            lambda row, most=most: row["ratio"] <= most,
            metric=percentile,
            baseline="without",
        )
        for link, percentile, most in (
            ("good", "p99", 0.49),
            ("good", "p50", 0.52),
            ("bad", "p99", 1.05),
        )
    ),
    # Negative controls: wrong hooks must harm, and equal levels must change nothing.
    priority(
        "urgent requests in bursts that hooks mark as the last ones, median (control)",
        {"figure": "controls", "hooks": "swapped"},
        "≥ 1.5 × none",
        lambda row: row["ratio"] >= 1.5,
        metric="urgent p50",
        baseline="none",
    ),
    priority(
        "the same with all requests marked alike, median (control)",
        {"figure": "controls", "hooks": "equal"},
        "0.8 to 1.25 × none",
        lambda row: 0.8 <= row["ratio"] <= 1.25,
        metric="urgent p50",
        baseline="none",
    ),
    priority(
        "calling a packet hook that is a C function",
        {"hook": "C"},
        "≤ 10 ns",
        lambda row: row["median"] <= 10,
        metric="asking a packet hook",
    ),
    priority(
        "calling a packet hook in eBPF, compiled",
        {"hook": "eBPF, machine code"},
        "≤ 20 ns",
        lambda row: row["median"] <= 20,
        metric="asking a packet hook",
    ),
    priority(
        "a request on a stack with hooks that never run, or without hooks",
        {"figure": "costs", "hooks": "not asked"},
        "≤ 1.01 × without",
        lambda row: row["ratio"] <= 1.01,
        metric="a request on the server's stack",
    ),
    *engine("cas", 16),
    *engine("atomic, sw", 16),
    limits(
        "error of a rate limit over 2 s, engine `light-lock` (inexact), 16 workers, simulated"
        " clock",
        "error of a sample, observed user",
        {"engine": "light-lock", "consumers": 16},
        "",
        None,
    ),
    limits(
        "a packet's limit, cas, one thread",
        "cost",
        {"engine": "cas", "threads": 1, "buckets": 1},
        "≤ 15 ns more than none",
        lambda row: row["median"] - row["baseline"]["median"] <= 15,
    ),
    limits(
        "a packet's limit behind an atomic queue, one thread",
        "cost",
        {"engine": "atomic, dsw", "threads": 1, "buckets": 1},
        "≤ 40 ns more than the device",
        lambda row: row["median"] - row["baseline"]["median"] <= 40,
    ),
    # The paper on HVLB: +39.3 % and +29.6 %, −54.4 % and −42.9 %.
    *capability("disturbed", "throughput", {"rr": 1.393, "maglev": 1.296}),
    *capability("disturbed", "round-trip time", {"rr": 0.456, "maglev": 0.571}),
    *capability("steady", "throughput", {"rr": 0.99, "maglev": 0.99}),
    *capability("steady", "round-trip time", {"rr": 1.02, "maglev": 1.02}),
    controller(
        "change reaches all, 99th percentile",
        "≤ 1 s",
        1,
        "a change reaches {forwarders} forwarders of {services} services, 99th percentile",
    ),
    controller(
        "controller's cores at a change a second",
        "≤ 1 core",
        1,
        "the controller's processor time at a change a second",
    ),
    controller("controller's memory, largest", "≤ 1000 MB", 1000, "the controller's memory"),
    sync(
        "packets of established sessions a second, one core, with a peer",
        "established packets",
        goal="≥ 0.995 × without",
        met=lambda row: surely_above(row, 0.995),
    ),
    sync(
        "the same beside {rate} TCP connections a second, each of them at the peer",
        "packets beside new sessions",
        goal="≥ 0.97 × without",
        met=lambda row: surely_above(row, 0.97),
    ),
    sync(
        "of that, the core's time in the code of synchronisation",
        "core in the code of synchronisation",
    ),
    sync(
        "bytes on the wire for a new session, {rate} a second, IPv{family}, both directions",
        "bytes, a new session",
        {"family": "4"},
        "≤ 80 bytes",
        lambda row: row["median"] <= 80,
    ),
    sync(
        "the same for a TCP connection from its handshake to its deletion",
        "bytes, a connection from handshake to deletion",
        {"family": "4"},
        "≤ 80 bytes",
        lambda row: row["median"] <= 80,
    ),
    sync(
        "delay until a change is acknowledged, idle",
        "delay, idle, median",
        goal="≤ 5 ms",
        met=lambda row: row["median"] <= 5,
    ),
    sync(
        "delay until a change is acknowledged at {rate} connections a second, 99th percentile",
        "delay, 99th percentile",
        goal="≤ 50 ms",
        met=lambda row: row["median"] <= 50,
    ),
    sync(
        "full copy of {sessions} sessions to an empty peer",
        "full copy",
        goal="≤ 15 s for 10 M",
        met=lambda row: row["median"] <= row["params"]["sessions"] * 1.5e-6,
        largest="sessions",
    ),
    sync(
        "sessions at the peer beside {rate} connections a second, {sessions} others",
        "sessions at the peer, acknowledged",
        goal="more than LVS",
        met=lambda row: row["ratio"] > 1,
    ),
    overhead("expiry", "the expiry of {rate}"),
    overhead("transaction", "changes of the configuration, {rate}"),
    overhead("health", "servers that fail or come back, {rate}"),
    overhead("statistics", "readers of all statistics, {rate}"),
    overhead("search", "searches through 32 768 sessions, {rate}"),
]

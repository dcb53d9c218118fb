# SPDX-License-Identifier: Apache-2.0
"""Packets through the forwarder from another process, by RFC 2544, beside testpmd on the same link.

`max` is the rate that comes back when the link is always full; `pdr` and `ndr` are the highest
rates that lose at most 0.001 % and nothing. A frame's size is that on a wire. Sessions are created
beforehand and take turns in another order, with packets from clients and from servers burst by
burst; `fresh`: each packet is a client's first. All are FNAT.

The evidence of each run shows its limit: `busy` is the share of time in which the worker had
packets, `full` the share of the generator's send calls that found the link full, `alone` the
generator's own rate in Mpps on a link without a peer, `line_ns` the time of a cache line from core
to core, `macswap_full` the value of `full` with macswap in the forwarder's place: near 0, the
generator is the limit.
"""

from dataclasses import dataclass, field
from statistics import median

from bench import kernel, machine, picture, report, testbed

TITLE = "generator and forwarder in two processes over memif, beside testpmd and nftables"
MINUTES = 7
MACSWAP, NFTABLES = "testpmd macswap", "nftables DNAT"
MAX_S, SEARCH_S, WARM_S = 0.2, 0.05, 0.02
VOIDS = 60  # most trials of a search that do not count
PDR, NDR = 0.00001, 0
# Sessions of the forwarder, flows of the kernel: equal numbers, and the kernel's best case.
BESIDE = ((1000, 1000), (1000, 1), (1_000_000, 1_000_000))
GOALS = {1000: 35, 10_000_000: 60}  # ns beyond macswap


@dataclass
class Cell:
    """The traffic, and how often it is measured."""

    family: int = 4
    frame: int = 64
    sessions: int = 1000
    fresh: bool = False
    pairs: int = 5
    searches: int = 0
    ways: str = field(init=False)

    def __post_init__(self):
        self.ways = "in" if self.fresh else "both"

    def params(self):
        kind = {"traffic": "fresh"} if self.fresh else {"sessions": self.sessions}
        return {"family": f"IPv{self.family}", "frame": self.frame, "mode": "fnat", **kind}

    def keys(self):
        return {
            "family": self.family,
            "frame": self.frame,
            "flows": self.sessions,
            "fresh": int(self.fresh),
            "ways": self.ways,
        }


def full_cells():
    for sessions in (1000, 100_000, 1_000_000, 10_000_000):
        searches = 3 if sessions in GOALS else 0
        yield Cell(sessions=sessions, searches=searches)
        yield Cell(family=6, frame=80, sessions=sessions, searches=searches)
    for frame in (128, 256, 512, 1024, 1280, 1518):
        yield Cell(frame=frame)
    yield Cell(fresh=True, searches=3)
    yield Cell(family=6, frame=80, fresh=True)


def quick_cells():
    yield Cell(pairs=9, searches=1)
    yield Cell(family=6, frame=80, pairs=3)
    yield Cell(sessions=10_000_000, pairs=9)
    yield Cell(fresh=True, pairs=3)


def capacity(cells):
    """Of the forwarder's tables: all known sessions of both families, and some seconds of the
    short-lived ones, which stay for one second."""
    known = {c.family: 0 for c in cells}
    for cell in cells:
        known[cell.family] = max(known[cell.family], cell.sessions)
    return int(sum(known.values()) * 1.15) + (16_000_000 if any(c.fresh for c in cells) else 0)


def affordable(cells):
    """The cells whose sessions fit this machine's memory."""
    while not machine.memory_suffices(testbed.needs(capacity(cells))):
        most = max(cell.sessions for cell in cells)
        print(f"   {most:,} sessions are left out: their memory is not free")
        cells = [cell for cell in cells if cell.sessions < most]
        if not cells:
            raise machine.Failed("too little memory is free for any of it")
    return cells


def rows(quick):
    cells = affordable(list(quick_cells() if quick else full_cells()))
    with Pair(capacity(cells)) as pair:
        for cell in cells:
            yield from pair.runs(cell)
        for sessions, flows in BESIDE[:1] if quick else BESIDE:
            yield from pair.beside_nftables(sessions, flows, 3 if quick else 5)


def smoke():
    with Pair(10_000) as pair:
        yield from pair.runs(Cell(pairs=1))


def record(params, metric, unit, value, baseline=None, evidence=None):
    run = {"bench": "wire", "params": params, "metric": metric, "unit": unit, "value": value}
    if baseline:
        run["baseline"] = {"name": baseline[0], "value": baseline[1]}
    if evidence:
        run["evidence"] = evidence
    return run


def difference(run):
    """The forwarder's time beyond macswap, as a run; if macswap took longer, only a message."""
    if run["value"] > 0:
        yield run
        return
    where = ", ".join(f"{name} {report.amount(value)}" for name, value in run["params"].items())
    value = f"{run['metric']}, {run['unit']}: {run['value']:.3g}"
    print(f"   {value}: left out, macswap took longer ({where})")


class Pair:
    """The forwarder and testpmd on one core in turn, each with a generator. A context manager."""

    def __init__(self, sessions):
        self.sessions = sessions

    def __enter__(self):
        self.pages = machine.huge_pages(testbed.needs(self.sessions), largest=2 * machine.MB)
        if not self.pages.__enter__().size:
            self.pages.__exit__(None, None, None)
            raise machine.Failed("the huge pages that this takes are not free")
        self.testbed = testbed.Testbed()
        try:
            self.set_up(self.testbed.__enter__())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        try:
            self.testbed.__exit__(None, None, None)
        finally:
            self.pages.__exit__(None, None, None)

    def set_up(self, place):
        self.forwarder = place.forwarder(place.plan(), self.sessions)
        self.testpmd = place.testpmd()
        self.ours = place.generator("forwarder", self.forwarder)
        self.theirs = place.generator("testpmd", self.testpmd)
        self.forwarder.wait_up()
        self.testpmd.pause()
        self.alone = self.ours.ask("trial", link="null", seconds=0.05)["offered_mpps"]
        self.ours.ask("up", link="forwarder")

    def of_forwarder(self, *words, **keys):
        return self.ours.ask(*words, **keys)

    def of_testpmd(self, *words, **keys):
        """With the forwarder stopped, so that it takes no time of the core."""
        self.forwarder.pause()
        self.testpmd.resume()
        try:
            return self.theirs.ask(*words, **keys)
        finally:
            self.testpmd.pause()
            self.forwarder.resume()

    def prepare(self, cell):
        if not cell.fresh:
            self.of_forwarder("learn", **cell.keys())
        self.theirs.ask("invent", **cell.keys())

    def trial(self, cell, **keys):
        """One trial of the forwarder: result and evidence."""
        line = self.ours.ask("line", core=self.testbed.far)["line_ns"]
        keys = {"rate": "max", "seconds": MAX_S, "warm": WARM_S, **cell.keys(), **keys}
        got, busy = testbed.busy_share(
            self.forwarder,
            lambda: self.of_forwarder("trial", **keys),
            keys["seconds"] + keys["warm"],
        )
        self.check(got)
        evidence = {"busy": busy, "full": got["full"], "alone": self.alone, "line_ns": line}
        return got, evidence

    def check(self, got):
        if got["received"] == 0 or got["alien"]:
            raise machine.Failed(
                f"of {got['offered']} packets {got['received']} came back, {got['alien']} of those "
                f"looked at as others; the forwarder dropped {self.forwarder.drops()}"
            )

    def runs(self, cell):
        self.prepare(cell)
        pairs = []
        for _ in range(cell.pairs):
            got, evidence = self.trial(cell)
            keys = {"rate": "max", "seconds": MAX_S, "warm": WARM_S, **cell.keys()}
            beside = self.of_testpmd("trial", **keys)
            pair = got["mpps"], beside["mpps"]
            pairs.append(pair)
            evidence["macswap_full"] = beside["full"]
            yield record(cell.params(), "max", "Mpps", pair[0], (MACSWAP, pair[1]), evidence)
            costs = [1000 / mpps for mpps in pair]
            yield record(
                cell.params(), "cost", "ns/packet", costs[0], (MACSWAP, costs[1]), evidence
            )
        beyond = median(1000 / ours - 1000 / theirs for ours, theirs in pairs)
        yield from difference(record(cell.params(), "beyond macswap", "ns/packet", beyond))
        ceilings = [median(column) for column in zip(*pairs, strict=True)]
        for _ in range(cell.searches):
            yield from self.searches(cell, ceilings)

    def beside_nftables(self, sessions, flows, runs):
        cell = Cell(sessions=sessions)
        if sessions > self.sessions:
            print(f"   nftables beside {sessions:,} sessions is left out: their memory is not free")
            return
        self.prepare(cell)
        self.forwarder.pause()
        for value in kernel.rates(flows, runs):
            self.forwarder.resume()
            got, evidence = self.trial(cell)
            self.forwarder.pause()
            params = cell.params() | {"nftables_flows": flows}
            yield record(params, "max", "Mpps", got["mpps"], (NFTABLES, value), evidence)
        self.forwarder.resume()

    def searches(self, cell, ceilings):
        for metric, loss in (("pdr", PDR), ("ndr", NDR)):
            found = [
                search(ask, cell, ceiling, loss)
                for ask, ceiling in zip((self.of_forwarder, self.of_testpmd), ceilings, strict=True)
            ]
            # No trial passed: the machine took a core away in every trial.
            if all(found):
                ours, theirs = found
                yield record(cell.params(), metric, "Mpps", ours, (MACSWAP, theirs))


def search(ask, cell, ceiling, loss):
    """The highest rate in Mpps that loses no more than this share."""
    keys = {"ceiling": ceiling, "loss": loss, "seconds": SEARCH_S, "warm": WARM_S}
    return ask("search", **cell.keys(), **keys, voids=VOIDS)["mpps"]


def plot(made, path):
    known = [row for row in report.select(made, "cost") if "sessions" in row["params"]]
    small = [row for row in known if row["params"]["frame"] in (64, 80)]
    picture.lines(
        path,
        "wire: a packet through the forwarder over memif, frames of 64 bytes (IPv6: 80)",
        small,
        "sessions",
        ["family"],
    )

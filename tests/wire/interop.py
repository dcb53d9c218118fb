# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of the stack against Linux's TCP.

    client: the kernel 10.N.0.1 ── link ── far: the stack 10.N.0.100, the kernel 10.N.0.2

IPv6 likewise: fd00:N::1, fd00:N::100. The way ab of the link leads to the stack.
"""

import contextlib
import itertools
from dataclasses import dataclass

import pytest

from tests.lab import Lab
from tests.lab.link import Link, balance
from tests.lab.peer import KernelEnd, Peer
from tests.lab.wait import DEADLINE_S, wait_until

families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
ROLES = ("server", "client")  # the stack's
WAYS = ("upload", "download")  # the stack sends, or receives
PORTS = itertools.count(9801)  # each connection has its own
PORT_LAST = 19800


def port():
    number = next(PORTS)
    assert number <= PORT_LAST
    return number


class InteropStage:
    """A kernel, a stack, and a link between them. link_options: those of Link."""

    def __init__(self, link_options=()):
        self.link_options = link_options

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.lab = stack.enter_context(Lab(arms=1, servers=0))
            link = Link(self.lab, "client", "far", options=self.link_options)
            self.link = stack.enter_context(link)
            self.kernel = self.lab["client"].ns
            net = self.link.address("b").split(".")[1]
            self.stack_address = {4: f"10.{net}.0.100", 6: f"fd00:{net}::100"}
            self.kernel_address = {family: self.link.address("a", family) for family in (4, 6)}
            self.kept, self.options = None, None
            self.undo = stack.pop_all()
        return self

    def __exit__(self, *error):
        self.release()
        return self.undo.__exit__(*error)

    def new_peer(self, **options):
        """Ends the shared stack and starts another one."""
        self.release()
        return Peer(self.lab, "far", self.link.name, self.stack_address.values(), **options)

    def peer(self, **options):
        """Returns the shared stack; starts a new one if these options differ from its own."""
        if self.kept and self.options == options and self.kept.process.alive():
            return self.kept
        one = self.new_peer(**options)
        self.options = options
        self.kept = one.start()
        return one

    def release(self):
        if self.kept:
            kept, self.kept = self.kept, None
            if kept.process.alive():
                kept.stop()

    def know_neighbours(self):
        """Installs permanent neighbour entries: packets that are delayed for minutes must not wait
        for resolution."""
        for host, other, addresses in (
            ("client", "far", self.stack_address),
            ("far", "client", self.kernel_address),
        ):
            mac = self.lab[other].ns.mac(self.link.name)
            for address in addresses.values():
                known = f"{address} lladdr {mac} dev {self.link.name} nud permanent"
                self.lab[host].ns.ip(f"neigh replace {known}")

    def reset(self):
        """Restores the state of the start for the next test."""
        self.link.set(defaults="")
        self.link.hurry()
        stats = self.link.settle()
        assert not any(balance(stats[way]) for way in ("ab", "ba")), stats
        self.link.reset()
        self.lab.close_captures()
        self.lab.check_programs()
        for family in (4, 6):
            self.kernel.ip(f"-{family} route flush cache")
            self.kernel.ip(f"-{family} tcp_metrics flush", check=False)


@pytest.fixture(scope="module")
def interop_stage():
    with InteropStage() as stage:
        yield stage


@pytest.fixture
def interop(interop_stage):
    yield interop_stage
    interop_stage.reset()


@dataclass
class Flow:
    """One connection between the stack and the kernel."""

    role: str  # of the stack
    way: str  # of the stack's bytes
    job: int
    end: KernelEnd
    talk: dict = None  # the stack's final report


def flow_begin(stage, peer, family, role, way, size, seed, words=None, **end):
    """Transfers `size` bytes one way. words: options of the stack's job; end: of the kernel's
    end."""
    number, words = port(), dict(words or {}, seed=seed)
    if way == "upload":
        words["send"], end["expect"] = size, size
    else:
        end["send"], end["expect"] = size, 0
    stack, kernel = stage.stack_address[family], stage.kernel_address[family]
    one = KernelEnd(stage.kernel, family, seed=seed, **end)
    if role == "server":
        job = peer.listen(stack, number, times=1, **words)
        one.connect(stack, number)
    else:
        one.listen(kernel, number)
        job = peer.connect(stack, kernel, number, **words)
    return Flow(role, way, job, one)


def flow_finish(peer, flow, size, deadline_s=DEADLINE_S):
    """Waits until both ends have received all bytes and closed."""
    flow.talk = peer.done(flow.job, deadline_s=deadline_s)
    flow.end.wait(deadline_s)
    key = "acknowledged" if flow.way == "upload" else "received"
    assert flow.talk[key] == size, flow.talk
    return flow


@dataclass
class Outcome:
    """Counters of a transfer of several connections."""

    flows: list
    stack: dict  # of the stack
    kernel: dict  # of the kernel
    link: dict  # link.stats()

    def uploads(self):
        return [flow for flow in self.flows if flow.way == "upload"]

    def downloads(self):
        return [flow for flow in self.flows if flow.way == "download"]


def difference(after, before):
    return {name: after[name] - before.get(name, 0) for name in after}


def all_carry(peer, flows, least=20_000):
    talks = {one["job"]: one for one in peer.stats()["talks"]}
    return all(
        flow.job in talks and talks[flow.job]["acknowledged"] + talks[flow.job]["unread"] > least
        for flow in flows
    )


def transfer(stage, peer, family, size, words=None, between=None, deadline_s=DEADLINE_S, **end):
    """Transfers in both directions, with the stack as client and as server, all at once. between()
    runs when each connection has transferred some bytes, before any application reads."""
    stack, kernel = peer.counters(), stage.kernel.counters()
    words, end = dict(words or {}, hold=bool(between)), dict(end, hold=bool(between))
    flows = [
        flow_begin(stage, peer, family, role, way, size, seed, words, **end)
        for seed, (role, way) in enumerate(itertools.product(ROLES, WAYS), 1)
    ]
    if between:
        wait_until(lambda: all_carry(peer, flows), "every connection runs")
        between()
        for flow in flows:
            peer.resume(flow.job)
            flow.end.resume()
    for flow in flows:
        flow_finish(peer, flow, size, deadline_s)
    return Outcome(
        flows,
        difference(peer.counters(), stack),
        difference(stage.kernel.counters(), kernel),
        stage.link.stats(),
    )

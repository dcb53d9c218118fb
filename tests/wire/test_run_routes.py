# SPDX-License-Identifier: Apache-2.0
"""The stack routes its answers by Linux's current routes, rules and neighbours.

A segment without a connection is answered by one reset, which is never repeated."""

import itertools

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from tests.lab import wait_until
from tests.lab.hooks import hook, stack_name
from tests.lab.stacks import listed
from tests.wire.running import LIGHTTPD, V4, V6, families, site, start

PORT = 8001
_ports = itertools.count(6000)


class Asker:
    """Sends segments without a connection, and captures the stack's resets."""

    def __init__(self, lab):
        self.lab = lab
        self.out = lab.capture("switch", "forwarder-front")
        self.senders = {name: lab.capture(name) for name in ("client", "far")}

    def ask(self, name, family):
        """Sends a segment; returns a function that identifies its reset."""
        host, port = self.lab[name], next(_ports)
        gateway = "router" if name == "far" else "forwarder"
        interface = {"far": "far0", "client": "front"}[name]
        layer, mine, theirs = (IP, host.v4, V4) if family == 4 else (IPv6, host.v6, V6)
        segment = TCP(sport=port, dport=PORT, flags="A", seq=1, ack=1)
        to = self.lab[gateway].ns.mac(interface)
        frame = Ether(src=host.ns.mac("eth0"), dst=to) / layer(src=mine, dst=theirs) / segment
        self.senders[name].send(frame)
        return lambda packet: (
            TCP in packet and packet[TCP].dport == port and "R" in packet[TCP].flags
        )

    def is_answered(self, name, family):
        """Returns whether an answer has arrived when the answer to a later segment of another host
        has."""
        reset = self.ask(name, family)
        # By another path, so that neither waits for the other's neighbour.
        other = {"far": "client", "client": "far"}[name]
        self.out.wait_for(self.ask(other, family), "the other's answer")
        return bool(self.out.packets(reset))

    def wait(self, name, family, answered, what):
        wait_until(lambda: self.is_answered(name, family) == answered, what)


@pytest.fixture
def asker(stack):
    folder = site(stack, "lighttpd", LIGHTTPD)
    command = ["lighttpd", "-D", "-f", folder / "conf"]
    start(stack, "lighttpd", command, PORT, "--name", stack_name("routes"))
    # Neighbour entries exist for clients through the router and through the bridge.
    for address in (V4, V6):
        stack["far"].ns.run(["ping", "-c1", "-W60", address])
    made = Asker(stack)
    for name in ("client", "far"):
        for family in (4, 6):
            made.out.wait_for(made.ask(name, family), f"{name} is answered over IPv{family}")
    yield made
    stack.close_captures()


@families
def test_first_answer_waits_for_the_neighbour(stack, asker, family):
    host = stack["forwarder"].ns
    for _ in range(5):
        host.ip(f"-{family} neigh flush dev front")
        asker.out.wait_for(asker.ask("client", family), "the answer to an unknown neighbour")


def change(host, text, family):
    host.ip(f"-{family} {text}")


@families
@pytest.mark.parametrize("kind", ("unreachable", "blackhole"))
def test_longer_prefix_overrides_an_allowing_route(stack, asker, family, kind):
    """The dropped answer is counted and listed."""
    name = stack_name("routes")
    before = listed(name)["unreachable"]
    host, far = stack["forwarder"].ns, stack["far"].address(family)
    length = {4: 32, 6: 128}[family]
    change(host, f"route add {kind} {far}/{length}", family)
    try:
        asker.wait("far", family, False, "far is not reached")
        asker.out.wait_for(asker.ask("client", family), "the client's answer")
        count = listed(name)["unreachable"]
        assert count > before and f"no route for {count} packets" in hook(name, "list", check=False)
    finally:
        change(host, f"route del {kind} {far}/{length}", family)
    asker.wait("far", family, True, "far is reached again")


@families
def test_lower_metric_overrides_an_allowing_route(stack, asker, family):
    host, prefix = stack["forwarder"].ns, {4: "10.9.0.0/24", 6: "fd00:9::/64"}[family]
    worse = {4: "10.0.0.2", 6: "fd00::2"}[family]
    change(host, f"route del {prefix}", family)
    try:
        asker.wait("far", family, False, "far is not reached")
        change(host, f"route add {prefix} via {worse} metric 500", family)
        asker.wait("far", family, True, "far is reached")
        change(host, f"route add blackhole {prefix} metric 400", family)
        asker.wait("far", family, False, "far is not reached")
        change(host, f"route del blackhole {prefix} metric 400", family)
        change(host, f"route del {prefix} metric 500", family)
    finally:
        change(host, f"route replace {prefix} via {worse}", family)
    asker.wait("far", family, True, "far is reached again")


@families
def test_rule_overrides_an_allowing_route(stack, asker, family):
    host, far = stack["forwarder"].ns, stack["far"].address(family)
    change(host, f"rule add to {far} unreachable", family)
    try:
        asker.wait("far", family, False, "far is not reached")
        asker.out.wait_for(asker.ask("client", family), "the client's answer")
    finally:
        change(host, f"rule del to {far} unreachable", family)
    asker.wait("far", family, True, "far is reached again")


@families
def test_routes_beyond_the_copy_limit_are_used(stack, asker, family):
    host, via = stack["forwarder"].ns, {4: "10.0.0.2", 6: "fd00::2"}[family]
    prefixes = [{4: f"10.77.{n}.0/24", 6: f"fd77:{n:x}::/64"}[family] for n in range(256)]
    batch = stack.dir / "routes"
    for word in ("add", "del"):
        lines = "".join(f"route {word} {one} via {via}\n" for one in prefixes)
        batch.write_text(lines)
        host.ip(f"-{family} -batch {batch}")
        for name in ("client", "far"):
            # Not at once: a segment through the router may arrive after the client's.
            asker.wait(name, family, True, f"{name} is answered")

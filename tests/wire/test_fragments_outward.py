# SPDX-License-Identifier: Apache-2.0
"""Fragmented datagrams through SNAT and between the families, by kernels and by hand."""

import copy
import os
import random

import pytest
from scapy.layers.inet import IP, UDP, fragment
from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment, fragment6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from tests.lab import Server, Service
from tests.lab.servers import DatagramEcho
from tests.lab.topology import FRONT, v4, v6
from tests.wire.conftest import check_accounting
from tests.wire.test_fragments import ask, client_socket, wait_dropped
from tests.wire.test_snat import POOL, SnatStage

PORT, REMOTE = 9421, 9422
CROSSED = {4: v4(FRONT, 88), 6: v6(FRONT, 88)}  # servers of the other family
SIZES = (2000, 4000, 8000, 20_000)
families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
crossing = pytest.mark.parametrize("family", (6, 4), ids=("6to4", "4to6"))


class CutStage(SnatStage):
    """A UDP echo outside, and one on s1 behind VIPs of the other family."""

    def start(self):
        super().start()
        server = self.lab["s1"]
        for family in (4, 6):
            self.echo[f"remote{family}"] = DatagramEcho(self.outside, REMOTE, family)
            self.echo[f"server{family}"] = DatagramEcho(server, PORT, family)
            self.config.services.append(
                Service(
                    f"crossed{family}",
                    CROSSED[family],
                    PORT,
                    "udp",
                    servers=[Server(server.address(10 - family), PORT)],
                )
            )
        self.apply()
        self.default = copy.deepcopy(self.config)


@pytest.fixture(
    scope="module",
    params=({}, {"arms": 1, "workers": 2}),
    ids=("1-worker", "one-armed-2-workers"),
)
def cut_stage(request):
    with CutStage(**request.param) as stage:
        yield stage


@pytest.fixture
def cut(cut_stage, request):
    yield from check_accounting(cut_stage, request)


def frames_of(host, gateway, source, target, data, number, piece=1208):
    """Returns the frames of one datagram between two (address, port) pairs, through a MAC
    address."""
    (src, sport), (dst, dport) = source, target
    datagram = UDP(sport=sport, dport=dport) / Raw(data)
    if ":" in src:
        whole = IPv6(src=src, dst=dst) / IPv6ExtHdrFragment(id=number) / datagram
        packets = fragment6(whole, piece + 72)
    else:
        packets = fragment(IP(src=src, dst=dst, id=number) / datagram, piece)
    head = Ether(src=host.ns.mac("eth0"), dst=gateway)
    return [bytes(head / packet) for packet in packets]


def gateway_of(cut, host):
    """Returns the MAC address of a host's gateway."""
    if host.name == "far":
        return cut.lab["router"].ns.mac("far0")
    ports = cut.lab.network.ports
    return cut.lab["forwarder"].ns.mac(ports[-1] if host.name.startswith("s") else ports[0])


def send_shuffled(cut, host, rng, datagrams):
    """Sends the datagrams' fragments shuffled and interleaved."""
    wire, frames = cut.lab.capture(host.name), []
    for number, (source, target, data) in enumerate(datagrams):
        frames += frames_of(host, gateway_of(cut, host), source, target, data, number)
    rng.shuffle(frames)
    for frame in frames:
        wire.send(frame)


@families
def test_large_datagrams_pass_snat(cut, family):
    """To a remote and back, fragmented by kernels."""
    before = cut.rule()["traffic"]
    with client_socket(cut.lab["s1"], family) as one:
        for size in SIZES:
            data = os.urandom(size)
            assert ask(one, (cut.outside.address(family), REMOTE), data) == data, size
    after = cut.rule()["traffic"]
    assert after["packets_in"] - before["packets_in"] > 20
    assert after["packets_out"] - before["packets_out"] > 20
    assert after["sessions_created"] == before["sessions_created"] + 1


@families
def test_shuffled_fragments_pass_snat(cut, family):
    """Requests and answers; two inside hosts use the same ids."""
    rng, outside = random.Random(1), cut.outside
    hosts = (cut.lab["s1"], cut.lab["s2"])
    own = [client_socket(host, family) for host in hosts]
    with own[0], own[1], client_socket(outside, family) as remote:
        target = remote.getsockname()[:2]
        remote.settimeout(60)
        for turn in range(6):
            peers = {}
            for host, one in zip(hosts, own, strict=True):
                one.settimeout(60)
                data = os.urandom(4000 + turn)
                send_shuffled(cut, host, rng, [(one.getsockname()[:2], target, data)])
                got, peer = remote.recvfrom(65535)
                assert got == data
                assert peer[0] in POOL[family]
                peers[one] = peer[:2]
            asked = {one: os.urandom(5000 + turn) for one in own}
            answers = [(target, peers[one], data) for one, data in asked.items()]
            send_shuffled(cut, outside, rng, answers)
            for one, data in asked.items():
                assert one.recvfrom(65535)[0] == data


@pytest.mark.drops("too-big")  # IPv4 fragments fill the MTU, and exceed it with IPv6 headers
@crossing
def test_large_datagrams_pass_between_the_families(cut, family):
    with client_socket(cut.client, family) as one:
        for size in SIZES:
            data = os.urandom(size)
            assert ask(one, (CROSSED[family], PORT), data) == data, size
    traffic = cut.steelyard.service(f"crossed{family}")["traffic"]
    assert traffic["packets_in"] > 20
    assert traffic["packets_out"] > 20


@pytest.mark.drops("too-big")  # as above
@crossing
def test_shuffled_fragments_pass_between_the_families(cut, family):
    """Two clients' datagrams at a time, with different ids."""
    rng, target = random.Random(2), (CROSSED[family], PORT)
    with client_socket(cut.client, family) as one, client_socket(cut.client, family) as two:
        for each in (one, two):
            assert ask(each, target, bytes(3000)) == bytes(3000)  # s1 learns the path's MTU
            each.settimeout(60)
        for turn in range(6):
            asked = {each: os.urandom(3000 + turn) for each in (one, two)}
            send_shuffled(
                cut,
                cut.client,
                rng,
                [(each.getsockname()[:2], target, data) for each, data in asked.items()],
            )
            for each, data in asked.items():
                answer, server = each.recvfrom(65535)
                assert (answer, server[:2]) == (data, target)


@pytest.mark.drops("fragment-timeout")
@families
def test_fragments_without_the_first_are_dropped(cut, family):
    """Later fragments of an inside host wait for the first one, and the kernel never routes
    them."""
    source, target = (cut.lab["s1"].address(family), 5010), (cut.outside.address(family), REMOTE)
    heard, wire = cut.lab.capture(cut.outside.name), cut.lab.capture("s1")
    gateway = gateway_of(cut, cut.lab["s1"])
    later = frames_of(cut.lab["s1"], gateway, source, target, b"x" * 4000, 99)[1:]
    for frame in later:
        wire.send(frame)
    with client_socket(cut.lab["s1"], family) as one:
        assert ask(one, target, b"next") == b"next"
    layer = IP if family == 4 else IPv6
    assert not heard.packets(lambda p: layer in p and p[layer].src == source[0], outgoing=False)
    wait_dropped(cut, "fragment-timeout", len(later))

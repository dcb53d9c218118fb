# SPDX-License-Identifier: Apache-2.0
"""Fragmented datagrams and segments, by kernels and by hand, in every mode and back."""

import contextlib
import copy
import itertools
import os
import random
import socket
from functools import partial
from itertools import pairwise

import pytest
from scapy.layers.inet import IP, UDP, fragment
from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment, fragment6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from tests.lab import Server, Service, wait_until
from tests.lab.clients import connect, receive_exactly
from tests.lab.flood import finish_flood, provide_internet, received, start_flood
from tests.lab.servers import DatagramEcho
from tests.lab.steelyard import VIP
from tests.lab.topology import FRONT, v4, v6
from tests.lab.tunnel import TunnelEnd
from tests.wire.conftest import check_accounting
from tests.wire.stage import ECHO
from tests.wire.test_direct import DIRECT, DirectStage
from tests.wire.test_nat import NAT, NatStage

families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
TUNNEL = {4: v4(FRONT, 86), 6: v6(FRONT, 86)}
PORT = {"fnat": 9401, "nat": 9402, "dr": 9403, "ipip": 9404}  # of the service, and of the server
VIPS = {"fnat": VIP, "nat": NAT, "dr": DIRECT, "ipip": TUNNEL}
REASSEMBLY = {4: "ipv4.ipfrag", 6: "ipv6.ip6frag"}


class FragmentStage:
    """Adds a UDP echo of each of `modes` to the stage that it is mixed into."""

    modes = ()

    def start(self):
        super().start()
        server = self.lab["s1"]
        for mode in self.modes:
            for family in (4, 6):
                own = VIPS[mode][family] if mode in ("dr", "ipip") else None
                echo = DatagramEcho(server, PORT[mode], family, own)
                self.echo[f"{mode}-datagrams{family}"] = echo
                self.config.services.append(
                    Service(
                        f"{mode}-datagrams{family}",
                        VIPS[mode][family],
                        PORT[mode],
                        "udp",
                        mode=mode,
                        servers=[Server(server.address(family), PORT[mode])],
                    )
                )
        self.apply()
        self.steelyard.wait_all_up()
        self.default = copy.deepcopy(self.config)


class ThroughStage(FragmentStage, NatStage):
    modes = ("fnat", "nat")


class PastStage(FragmentStage, DirectStage):
    modes = ("dr", "ipip")

    def start(self):
        server = self.lab["s1"]
        for family, length in ((4, 32), (6, 128)):
            server.ns.ip(f"address add {TUNNEL[family]}/{length} dev lo")
        self.tunnel = TunnelEnd(server)
        super().start()

    def __exit__(self, *error):
        self.tunnel.close()
        super().__exit__(*error)


@pytest.fixture(
    scope="module",
    params=((ThroughStage, 2, 1), (ThroughStage, 2, 2), (PastStage, 1, 1), (PastStage, 1, 2)),
    ids=("fnat-nat-1-worker", "fnat-nat-2-workers", "dr-ipip-1-worker", "dr-ipip-2-workers"),
)
def cut_stage(request):
    stage, arms, workers = request.param
    with stage(arms=arms, workers=workers) as ready:
        provide_internet(ready.lab)
        yield ready


@pytest.fixture
def cut(cut_stage, request):
    yield from check_accounting(cut_stage, request)


def client_socket(host, family, port=0):
    one = host.ns.socket(socket.AF_INET if family == 4 else socket.AF_INET6, socket.SOCK_DGRAM)
    one.bind((host.address(family), port))
    return one


def ask(one, peer, data, tries=10):
    """Returns the echo of a datagram. Repeats the request, because kernels learn a path's MTU by
    losing the first."""
    one.settimeout(1)
    for _ in range(tries):
        one.sendto(data, peer)
        try:
            return one.recv(65535)
        except TimeoutError:
            continue
    raise TimeoutError(f"{peer} does not echo {len(data)} bytes")


# drop of the tunnel's first packet, which reports the MTU to the client
@pytest.mark.drops("too-big")
@families
def test_large_datagrams_are_echoed(cut, family):
    for mode in cut.modes:
        host, peer = cut.client, (VIPS[mode][family], PORT[mode])
        with client_socket(host, family) as one:
            for size in (2000, 4000, 8000, 20_000, 60_000):
                data = os.urandom(size)
                assert ask(one, peer, data) == data, f"{size} bytes, {mode}"
        traffic = cut.steelyard.service(f"{mode}-datagrams{family}")["traffic"]
        assert traffic["packets_in"] > 60
        if mode in ("fnat", "nat"):
            assert traffic["packets_out"] > 60


def wait_dropped(cut, reason, count):
    wait_until(
        lambda: cut.accounting.dropped().get(reason, 0) == count,
        lambda: f"{count} packets dropped as {reason}, of {cut.accounting.dropped()}",
    )


def by_hand(cut, mode, family, port, data, number, source=None):
    """Returns the frames of one client datagram, small enough for a tunnel."""
    own, vip = source or cut.client.address(family), VIPS[mode][family]
    datagram = UDP(sport=port, dport=PORT[mode]) / Raw(data)
    if family == 4:
        packets = fragment(IP(src=own, dst=vip, id=number) / datagram, 1200)
    else:
        whole = IPv6(src=own, dst=vip) / IPv6ExtHdrFragment(id=number) / datagram
        packets = fragment6(whole, 1280)
    head = Ether(src=cut.client.ns.mac("eth0"), dst=cut.lab["forwarder"].ns.mac("front"))
    return [bytes(head / packet) for packet in packets]


@families
def test_fragments_in_any_order_are_reassembled(cut, family):
    """Two datagrams at a time, interleaved."""
    wire, rng = cut.lab.capture("client"), random.Random(1)
    for mode in cut.modes:
        peer = (VIPS[mode][family], PORT[mode])
        with client_socket(cut.client, family) as one, client_socket(cut.client, family) as two:
            for turn in range(6):
                asked, frames = {}, []
                for n, own in enumerate((one, two)):
                    own.settimeout(60)
                    port, data = own.getsockname()[1], os.urandom(4000 + turn)
                    asked[own] = data
                    frames += by_hand(cut, mode, family, port, data, 100 * turn + n)
                rng.shuffle(frames)
                for frame in frames if turn else reversed(frames):
                    wire.send(frame)
                for own, data in asked.items():
                    answer, server = own.recvfrom(65535)
                    assert (answer, server[:2]) == (data, peer), mode


@pytest.mark.drops("fragment-timeout")
def test_equal_ids_of_many_clients_do_not_mix(cut):
    """FNAT clients share the local address: the server's kernel must not mix their datagrams."""
    wire, waiting = cut.lab.capture("client"), 0
    for mode, family in itertools.product(cut.modes, (4, 6)):
        with client_socket(cut.client, family) as one:
            one.settimeout(60)
            port = one.getsockname()[1]
            # Other clients' datagrams, more than there are local addresses, are incomplete while
            # this one is in flight.
            for n in range(70, 78):
                source = v4(FRONT, n) if family == 4 else v6(FRONT, n)
                for frame in by_hand(cut, mode, family, 5001, b"n" * 4000, 77, source)[:-1]:
                    wire.send(frame)
                    waiting += 1
            for frame in by_hand(cut, mode, family, port, b"o" * 4000, 77):
                wire.send(frame)
            assert one.recv(65535) == b"o" * 4000
    wait_dropped(cut, "fragment-timeout", waiting)


@pytest.mark.drops("fragment-timeout")
def test_fragments_without_the_first_are_dropped(cut):
    """They wait until their timeout; the next datagram passes."""
    wire, waiting = cut.lab.capture("client"), 0
    for mode, family in itertools.product(cut.modes, (4, 6)):
        frames = by_hand(cut, mode, family, 5002, b"x" * 4000, 7)[1:]
        waiting += len(frames)
        for frame in frames:
            wire.send(frame)
    wait_dropped(cut, "fragment-timeout", waiting)
    for mode, family in itertools.product(cut.modes, (4, 6)):
        with client_socket(cut.client, family, 5002) as one:
            assert ask(one, (VIPS[mode][family], PORT[mode]), b"x" * 4000) == b"x" * 4000


@contextlib.contextmanager
def little_reassembly(ns, family):
    """Limits the kernel's reassembly memory to 256 KB, some hundred datagrams."""
    ends = [f"{REASSEMBLY[family]}_{end}_thresh" for end in ("low", "high")]
    for end in ends:
        ns.sysctl(end, 256 << 10)
    try:
        yield
    finally:
        for end in reversed(ends):
            ns.sysctl(end, 4 << 20)


def reassembled(ns, family):
    """Returns the kernel's counters of fragments, reassembled datagrams and failures."""
    group, counters = "Ip" if family == 4 else "Ip6", ns.counters()
    return {name: counters[f"{group}Reasm{name}"] for name in ("Reqds", "OKs", "Fails")}


def incomplete_gone(cut, lost):
    """Waits until lost packets and dropped fragments account for all packets."""
    dropped = cut.accounting.dropped()
    full, late = (dropped.get(f"fragment-{name}", 0) for name in ("wait-full", "timeout"))
    return full + late + received(cut.lab)[1] - lost


@pytest.mark.drops("fragment-wait-full", "fragment-timeout", "too-big")
@pytest.mark.parametrize("kind", ("first-fragment", "fragment"))
@families
def test_flood_of_incomplete_datagrams_reaches_no_server(cut, family, kind):
    """Otherwise the server's kernel would soon lack reassembly memory. Every complete datagram is
    answered."""
    server, turns = cut.lab["s1"].ns, 20
    held = 2048 * cut.steelyard.options.workers
    for mode in cut.modes:
        target = (VIPS[mode][family], PORT[mode])
        gone = partial(incomplete_gone, cut, received(cut.lab)[1])
        with client_socket(cut.client, family) as one, little_reassembly(server, family):
            one.settimeout(60)
            ask(one, target, b"x" * 3000)  # kernels learn the path's MTU
            seen = [reassembled(server, family)]
            for turn in range(turns + 1):
                if turn == 1:
                    seen.append(reassembled(server, family))
                    came, past = received(cut.lab)[0], gone()
                    flood = start_flood(cut.lab, kind, target[0], str(PORT[mode]), rate=5000)
                    wait_until(
                        lambda came=came: received(cut.lab)[0] > came + 2 * held,
                        "there are more fragments than a server or the forwarder holds",
                    )
                data = os.urandom(3000 + turn)
                one.sendto(data, target)
                assert one.recv(65535) == data, f"{mode}, datagram {turn}"
            sent = finish_flood(flood)["sent"]
            seen.append(reassembled(server, family))
        alone, beside = (
            {name: after[name] - before[name] for name in after} for before, after in pairwise(seen)
        )
        assert beside == {name: turns * count for name, count in alone.items()}, mode
        wait_until(
            lambda gone=gone, past=past, sent=sent: gone() - past >= sent,
            "the rest of the flood is gone",
        )
    assert cut.accounting.dropped()["fragment-wait-full"] > 0


@pytest.mark.drops("fragment-overlap", "fragment-duplicate")
@families
def test_overlapping_and_duplicate_fragments(cut, family):
    wire, mode = cut.lab.capture("client"), cut.modes[0]
    with client_socket(cut.client, family) as one:
        port = one.getsockname()[1]
        frames = by_hand(cut, mode, family, port, b"a" * 4000, 8)
        for frame in (frames[0], frames[0], *frames[1:]):
            wire.send(frame)
        one.settimeout(60)
        assert one.recv(65535) == b"a" * 4000
        assert cut.accounting.dropped() == {"fragment-duplicate": 1}
        # A shorter datagram's last fragment is among the five: none of them passes.
        frames = by_hand(cut, mode, family, port, b"b" * 4000, 9)
        shorter = by_hand(cut, mode, family, port, b"c" * 2000, 9)
        for frame in (frames[0], frames[2], shorter[-1], frames[1], frames[3]):
            wire.send(frame)
        wait_dropped(cut, "fragment-overlap", 5)
        assert ask(one, (VIPS[mode][family], PORT[mode]), b"next") == b"next"


@pytest.mark.drops("fragment-timeout", "fragment-overlap", "fragment-duplicate", "too-big")
def test_segments_fragmented_by_a_router_arrive(cut):
    """The client permits fragmentation (DF is off)."""
    far, router = cut.lab["far"], cut.lab["router"]
    vips = (VIP[4], NAT[4]) if "nat" in cut.modes else (VIP[4],)
    far.ns.sysctl("ipv4.ip_no_pmtu_disc", 1)
    data = os.urandom(100_000)
    for vip in vips:
        router.ns.ip(f"route add {vip} dev eth0 mtu lock 1000")
        try:
            before = router.ns.counters()["IpFragCreates"]
            with connect(far, vip, ECHO) as one:
                for at in range(0, len(data), 20_000):
                    one.sendall(data[at : at + 20_000])
                    assert receive_exactly(one, 20_000) == data[at : at + 20_000]
            assert router.ns.counters()["IpFragCreates"] - before > 2 * len(data) // 1500
        finally:
            router.ns.ip(f"route del {vip}")
    far.ns.sysctl("ipv4.ip_no_pmtu_disc", 0)

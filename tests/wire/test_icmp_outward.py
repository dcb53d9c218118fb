# SPDX-License-Identifier: Apache-2.0
"""ICMP errors about packets of inside hosts through SNAT, and about the answers to them.

On the hosts and narrow hops of test_icmp.py. s1 sends from its own address, or from the one that is
reached only through s2.

    far ── router ── front [forwarder] ── s2 ── s1 10.2.0.13
"""

import copy
import hashlib
import os
import socket

import pytest
from scapy.layers.inet import ICMP, IP
from scapy.layers.inet6 import ICMPv6TimeExceeded, IPv6

from tests.lab.clients import receive_exactly
from tests.lab.mode_table import POOL
from tests.lab.servers import EchoServer
from tests.lab.topology import FRONT, v4, v6
from tests.wire.conftest import check_accounting
from tests.wire.test_icmp import DEEP, NARROW, IcmpStage, path_mtu, translated
from tests.wire.test_icmp import test_a_refused_port_is_reported as check_refused

ECHO, REFUSED = 9410, 9411
ROUTER = {4: v4(FRONT, 2), 6: v6(FRONT, 2)}
families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))


class OutwardStage(IcmpStage):
    """Inside are s1, the servers' service address, and optionally s2: without s2, its errors come
    from a router of no rule."""

    def __init__(self, routers_inside, **options):
        super().__init__(**options)
        self.routers_inside = routers_inside

    def start(self):
        super().start()
        for family in (4, 6):
            self.echo[f"far{family}"] = EchoServer(self.lab["far"], ECHO, family)
        hosts = [self.lab["s1"]] + [self.lab["s2"]] * self.routers_inside
        addresses = [host.address(family) for host in hosts for family in (4, 6)]
        self.config.snat[0]["inside"] = addresses + list(DEEP.values())
        self.apply()
        self.default = copy.deepcopy(self.config)


@pytest.fixture(scope="module", params=(1, 2), ids=("1-worker", "2-workers"))
def outward_stage(request):
    stage = OutwardStage(request.param == 1, arms=1, servers=2, workers=request.param)
    with stage as ready:
        yield ready


@pytest.fixture
def outward(outward_stage, request):
    yield from check_accounting(outward_stage, request)


def inside_socket(outward, family, kind=socket.SOCK_DGRAM, source=None):
    one = outward.lab["s1"].ns.socket(socket.AF_INET if family == 4 else socket.AF_INET6, kind)
    one.settimeout(60)
    one.bind((source or outward.lab["s1"].address(family), 0))
    return one


def set_hops(one, family, hops):
    if family == 4:
        one.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, hops)
    else:
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, hops)


def wait_expired(heard, family):
    """Returns the received error and the packet that it quotes."""

    def is_error(packet):
        if family == 4:
            return ICMP in packet and packet[ICMP].type == 11
        return ICMPv6TimeExceeded in packet

    error = heard.wait_for(is_error, "the error arrives", outgoing=False)
    if family == 4:
        return error[IP], error["IP in ICMP"]
    return error[IPv6], error["IPv6 in ICMPv6"]


@families
def test_large_transfers_find_the_path_mtu(outward, family):
    """Both directions: packets from s1 exceed the router's MTU, packets to s1 that of s2."""
    content, far = os.urandom(200_000), outward.lab["far"]
    for host in (far, outward.lab["s1"]):
        host.ns.ip("route flush cache")
        host.ns.ip("-6 route flush cache")
    with inside_socket(outward, family, socket.SOCK_STREAM, DEEP[family]) as one:
        one.connect((far.address(family), ECHO))
        back = b""
        for at in range(0, len(content), 20_000):
            one.sendall(content[at : at + 20_000])
            back += receive_exactly(one, 20_000)
        assert hashlib.sha256(back).digest() == hashlib.sha256(content).digest()
        assert path_mtu(one) == NARROW
        peer = outward.echo[f"far{family}"].connections[-1]
        assert path_mtu(peer) == NARROW


@families
def test_a_refused_port_is_reported(outward, family):
    """To the inside socket, and to the outside socket after the inside one has closed."""
    far = outward.lab["far"]
    with inside_socket(outward, family) as one:
        one.connect((far.address(family), REFUSED))
        one.send(b"is the port open?")
        with pytest.raises(ConnectionRefusedError):
            one.recv(100)
    for source in (None, DEEP[family]):
        with far.ns.socket(one.family, socket.SOCK_DGRAM) as remote:
            remote.settimeout(60)
            remote.bind((far.address(family), 0))
            with inside_socket(outward, family, source=source) as one:
                one.sendto(b"hello", remote.getsockname()[:2])
                _, peer = remote.recvfrom(100)
            assert peer[0] in POOL
            remote.connect(peer)
            remote.send(b"still there?")
            with pytest.raises(ConnectionRefusedError):
                remote.recv(100)


@pytest.mark.parametrize("row", translated, ids=str)
def test_errors_of_inside_servers_reach_the_services_client(outward, row):
    """A server's refusal arrives at the client as if the server were not inside."""
    check_refused(outward, row)


@pytest.mark.drops("ttl-expired")
@families
def test_traceroute_lists_pool_and_router(outward, family):
    """The forwarder answers from an address of the pool, the router from its own."""
    far = outward.lab["far"].address(family)
    for hops in (1, 2):
        heard = outward.lab.capture("s1")
        with inside_socket(outward, family) as one:
            set_hops(one, family, hops)
            one.sendto(b"how far?", (far, REFUSED))
            error, quoted = wait_expired(heard, family)
            own = one.getsockname()[:2]
        assert error.src in (POOL if hops == 1 else [ROUTER[family]])
        assert error.dst == own[0]
        ports = quoted["UDP in ICMP"]
        assert (quoted.src, ports.sport, quoted.dst, ports.dport) == (*own, far, REFUSED)


@families
def test_traceroute_to_the_inside_ends_at_the_pool(outward, family):
    """An answer's TTL expires at s2."""
    far, heard = outward.lab["far"], outward.lab.capture("far")
    with (
        far.ns.socket(
            socket.AF_INET if family == 4 else socket.AF_INET6, socket.SOCK_DGRAM
        ) as remote,
        inside_socket(outward, family, source=DEEP[family]) as one,
    ):
        remote.settimeout(60)
        remote.bind((far.address(family), 0))
        own = remote.getsockname()[:2]
        one.sendto(b"hello", own)
        _, peer = remote.recvfrom(100)
        set_hops(remote, family, 3)
        remote.sendto(b"how far?", peer)
        error, quoted = wait_expired(heard, family)
    ports = quoted["UDP in ICMP"]
    assert (error.src, error.dst) == (peer[0], own[0])
    assert (quoted.src, ports.sport, quoted.dst, ports.dport) == (*own, *peer[:2])


@families
def test_echo_error_returns_with_the_inside_id(outward, family):
    """A ping's TTL expires at the router."""
    far = outward.lab["far"].address(family)
    ping = ["ping", "-n", "-c1", "-W5", "-t2", far]
    output = outward.lab["s1"].ns.run(ping, check=False).stdout
    assert f"From {ROUTER[family]} " in output and "exceeded" in output, output

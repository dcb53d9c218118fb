# SPDX-License-Identifier: Apache-2.0
"""ICMP errors end to end: path MTU discovery in both directions, refused ports, traceroute.

Set up as in tests/lab/mode_table.py, with two narrow hops whose MTU no interface here has, so
that no MSS is clamped to it: the router on its path to `far`, and s2 on its path to a second
address of s1.

    far ── router ── front [forwarder] ── s2 ── s1 10.2.0.13
"""

import copy
import hashlib
import os
import socket

import pytest
from scapy.layers.inet import ICMP, IP
from scapy.layers.inet6 import ICMPv6TimeExceeded, IPv6

from tests.lab import Server, Service
from tests.lab.clients import connect, receive_exactly
from tests.lab.mode_table import ROWS
from tests.lab.servers import DatagramEcho, EchoServer
from tests.lab.topology import FAR, v4, v6
from tests.wire.conftest import check_accounting
from tests.wire.mode_stage import ModeStage
from tests.wire.test_fragments import ask, client_socket

ECHO, REFUSED, DATAGRAMS = 9407, 9408, 9412
NARROW = 1400
DEEP = {4: v4(2, 13), 6: v6(2, 13)}
IP_MTU, IPV6_MTU = 14, 24

translated = [row for row in ROWS if row.mode in ("fnat", "nat")]


class IcmpStage(ModeStage):
    def start(self):
        super().start()
        s1, s2 = self.lab["s1"], self.lab["s2"]
        s2.ns.sysctl("ipv4.ip_forward", 1)
        s2.ns.sysctl("ipv6.conf.all.forwarding", 1)
        for scope in ("all", "eth0"):
            s2.ns.sysctl(f"ipv4.conf.{scope}.send_redirects", 0)
        for family, length in ((4, 32), (6, 128)):
            deep, option = f"{DEEP[family]}/{length}", f"-{family}"
            s1.ns.ip(f"address add {deep} dev lo" + (" nodad" if family == 6 else ""))
            s2.ns.ip(f"{option} route add {deep} via {s1.address(family)} mtu {NARROW}")
            self.lab["forwarder"].ns.ip(f"{option} route add {deep} via {s2.address(family)}")
            far = (v4 if family == 4 else v6)(FAR, 10)
            self.lab["router"].ns.ip(f"{option} route add {far}/{length} dev far0 mtu {NARROW}")
        self.echo["deep"] = EchoServer(s1, ECHO, 6, "::")
        for family in (4, 6):
            echo = DatagramEcho(s1, DATAGRAMS, family, DEEP[family])
            self.echo[f"datagrams{family}"] = echo
        for row in ROWS:
            server = DEEP[row.server] if row.mode != "dr" else s1.address(row.server)
            self.config.services.append(
                Service(f"echo-{row}", row.vip, ECHO, mode=row.mode, servers=[Server(server, ECHO)])
            )
            if row in translated:
                servers = [Server(server, REFUSED)]
                self.config.services.append(
                    Service(
                        f"refused-{row}", row.vip, REFUSED, "udp", mode=row.mode, servers=servers
                    )
                )
                servers = [Server(server, DATAGRAMS)]
                self.config.services.append(
                    Service(
                        f"datagrams-{row}",
                        row.vip,
                        DATAGRAMS,
                        "udp",
                        mode=row.mode,
                        servers=servers,
                    )
                )
        self.apply()
        self.steelyard.wait_all_up()
        self.default = copy.deepcopy(self.config)


@pytest.fixture(scope="module", params=(1, 2), ids=("1-worker", "2-workers"))
def icmp_stage(request):
    with IcmpStage(arms=1, servers=2, workers=request.param) as stage:
        yield stage


@pytest.fixture
def icmp(icmp_stage, request):
    yield from check_accounting(icmp_stage, request)


def path_mtu(one):
    if one.family == socket.AF_INET:
        return one.getsockopt(socket.IPPROTO_IP, IP_MTU)
    return one.getsockopt(socket.IPPROTO_IPV6, IPV6_MTU)


def expected_mtus(row):
    """Returns the MTUs that client and server learn, each with its own headers."""
    header = {4: 20, 6: 40}
    if row.mode == "dr":
        return 1500, NARROW
    if row.mode == "ipip":
        return NARROW - header[row.server], NARROW
    longer = header[row.client] - header[row.server]
    return NARROW + longer, NARROW - longer


@pytest.mark.drops("too-big")  # the tunnel's header; the client gets an error
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_large_transfers_find_the_path_mtu(icmp, row):
    """Both directions: the client's packets exceed s2's MTU, the server's the router's."""
    content = os.urandom(200_000)
    server = icmp.lab["s1"].ns
    server.ip("route flush cache")
    server.ip("-6 route flush cache")
    with connect(icmp.lab["far"], row.vip, ECHO) as one:
        back = b""
        for at in range(0, len(content), 20_000):
            one.sendall(content[at : at + 20_000])
            back += receive_exactly(one, 20_000)
        peer = icmp.echo["deep"].connections[-1]
        here, there = expected_mtus(row)
        assert path_mtu(one) == here
        # its IPv6 socket may carry IPv4
        with icmp.lab["s1"].ns.entered():
            source = peer.getsockname()[0].removeprefix("::ffff:")
            target = peer.getpeername()[0].removeprefix("::ffff:")
        route = server.run(["ip", "route", "get", target, "from", source])
        assert f"mtu {there}" in route, route
    assert hashlib.sha256(back).digest() == hashlib.sha256(content).digest()


# IPv4 fragments of 1500 bytes grow in IPv6; errors about later fragments have no ports
@pytest.mark.drops("too-big", "icmp-no-session")
@pytest.mark.parametrize("row", translated, ids=str)
def test_large_datagrams_find_the_path_mtu(icmp, row):
    """Both directions, in fragments, which IPv6 routers do not fragment again."""
    for host in ("s1", "far"):
        icmp.lab[host].ns.ip("route flush cache")
        icmp.lab[host].ns.ip("-6 route flush cache")
    with client_socket(icmp.lab["far"], row.client) as one:
        for size in (4000, 8000):
            data = os.urandom(size)
            assert ask(one, (row.vip, DATAGRAMS), data) == data, size


@pytest.mark.parametrize("row", translated, ids=str)
def test_a_refused_port_is_reported(icmp, row):
    family = socket.AF_INET if row.client == 4 else socket.AF_INET6
    with icmp.lab["far"].ns.socket(family, socket.SOCK_DGRAM) as one:
        one.settimeout(60)
        one.connect((row.vip, REFUSED))
        one.send(b"is the port open?")
        with pytest.raises(ConnectionRefusedError):
            one.recv(100)


@pytest.mark.parametrize("row", translated, ids=str)
def test_traceroute_ends_at_the_vip(icmp, row):
    """A packet's TTL expires at s2, behind router and forwarder."""
    heard = icmp.lab.capture("far")
    family = socket.AF_INET if row.client == 4 else socket.AF_INET6
    with icmp.lab["far"].ns.socket(family, socket.SOCK_DGRAM) as one:
        if row.client == 4:
            one.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 3)
        else:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, 3)
        one.sendto(b"how far?", (row.vip, REFUSED))
        port = one.getsockname()[1]

        def is_error(packet):
            if row.client == 4:
                return ICMP in packet and packet[ICMP].type == 11 and packet[IP].src == row.vip
            return ICMPv6TimeExceeded in packet and packet[IPv6].src == row.vip

        error = heard.wait_for(is_error, "the error arrives", outgoing=False)
    quoted = error["IP in ICMP"] if row.client == 4 else error["IPv6 in ICMPv6"]
    ports = quoted["UDP in ICMP"] if row.client == 4 else quoted["UDP in ICMP"]
    assert (quoted.src, ports.sport) == (icmp.lab["far"].address(row.client), port)
    assert (quoted.dst, ports.dport) == (row.vip, REFUSED)

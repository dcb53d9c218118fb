# SPDX-License-Identifier: Apache-2.0
"""FNAT between address families: IPv6 clients with IPv4 servers, the reverse, and both at once."""

import contextlib
import copy
import os
import socket

import pytest

from tests.lab import Server, Service, wait_until
from tests.lab.clients import HttpConnection, connect, dns_txt, http_get, receive_exactly, wrk
from tests.lab.servers import EchoServer
from tests.lab.steelyard import DNS, SERVER_DNS, SERVER_WEB, WEB, local_addresses
from tests.lab.topology import FRONT, v4, v6
from tests.wire.conftest import check_accounting
from tests.wire.stage import Stage

ECHO, LARGE = 9400, 9401
DIFFERENT = 20  # bytes by which the IPv6 header is longer
VIPS = {6: v6(FRONT, 85), 4: v4(FRONT, 85)}  # servers of the other family
MIXED = {6: v6(FRONT, 86), 4: v4(FRONT, 86)}  # servers of both
clients = pytest.mark.parametrize("family", (6, 4), ids=("6to4", "4to6"))


def family_services(network):
    for family, vip in VIPS.items():
        other = 10 - family
        for kind, protocol, port, server_port in (
            ("web", "tcp", WEB, SERVER_WEB),
            ("dns", "udp", DNS, SERVER_DNS),
        ):
            hosts = network.server_hosts()
            turned = [Server(host.address(other), server_port) for host in hosts]
            yield Service(f"{kind}-{family}to{other}", vip, port, protocol, servers=turned)
            mixed = [
                Server(hosts[0].address(4), server_port, 2),
                Server(hosts[1].address(6), server_port, 1),
            ]
            yield Service(
                f"{kind}-mixed{family}", MIXED[family], port, protocol, "wrr", servers=mixed
            )
        server = Server(network["s1"].address(other), ECHO)
        yield Service(f"echo-{family}to{other}", vip, ECHO, servers=[server])
        server = Server(network["s1"].address(other), LARGE)
        yield Service(f"large-{family}to{other}", vip, LARGE, "udp", servers=[server])


class FamilyStage(Stage):
    def start(self):
        super().start()
        for family in VIPS:
            self.echo[f"to{10 - family}"] = EchoServer(self.lab["s1"], ECHO, 10 - family)
        self.config.services.extend(family_services(self.lab.network))
        self.apply()
        self.default = copy.deepcopy(self.config)


@pytest.fixture(scope="module", params=(1, 2), ids=("1-worker", "2-workers"))
def family_stage(request):
    with FamilyStage(workers=request.param) as stage:
        yield stage


@pytest.fixture
def families(family_stage, request):
    yield from check_accounting(family_stage, request)


@pytest.mark.parametrize("client", ("client", "far"))
@clients
def test_every_server_answers(families, family, client):
    host = families.lab[client]
    served = [http_get(host, VIPS[family], WEB).decode().strip() for _ in range(12)]
    assert set(served) == {"s1", "s2", "s3"}
    assert {dns_txt(host, VIPS[family], DNS) for _ in range(12)} == set(served)
    [(peer, own)] = families.logged(host, VIPS[family], WEB, f"/family-{family}-{client}")
    local = local_addresses(families.lab.network.back_net)
    assert peer in local and (":" in peer) == (":" in own) == (family == 4)


@clients
def test_listings_show_both_families(families, family):
    other = 10 - family
    with connect(families.client, VIPS[family], ECHO) as one:
        port = one.getsockname()[1]
        sessions = families.steelyard.sessions("--service", f"echo-{family}to{other}")
        [shown] = [session for session in sessions if session["client_port"] == port]
        peers = families.echo[f"to{other}"].peers
        wait_until(lambda: peers and shown["local_port"] == peers[-1][1], "the server sees it")
        assert (shown["client"], shown["vip"]) == (families.client.address(family), VIPS[family])
        assert (shown["local"], shown["server"]) == (
            peers[-1][0],
            families.lab["s1"].address(other),
        )


@clients
def test_large_transfers_in_both_directions_arrive_whole(families, family):
    families.check_transfers(families.client, VIPS[family], WEB, ECHO)


@clients
def test_load_fails_no_request(families, family):
    vip = VIPS[family]
    url = f"http://[{vip}]/" if family == 6 else f"http://{vip}/"
    for keep_alive in (True, False):
        load = wrk(families.lab, url, 1000, keep_alive=keep_alive)
        assert not load.failed, load


def ask_from(client, address, port):
    """Sends from a port of its own: a port that the kernel chooses may have a session already."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with client.ns.socket(family, socket.SOCK_DGRAM) as own:
        own.bind(("", port))
        return dns_txt(client, address, DNS, one=own)


@clients
def test_servers_of_both_families_take_turns(families, family):
    served = [http_get(families.client, MIXED[family], WEB).decode().strip() for _ in range(30)]
    assert (served.count("s1"), served.count("s2")) == (20, 10)
    asked = [ask_from(families.client, MIXED[family], 20000 + n) for n in range(30)]
    assert (asked.count("s1"), asked.count("s2")) == (20, 10)


@contextlib.contextmanager
def datagram_ends(families, family):
    """Yields sockets of a client, and of a server of the other family."""
    server, kind = families.lab["s1"], {4: socket.AF_INET, 6: socket.AF_INET6}
    with (
        families.client.ns.socket(kind[family], socket.SOCK_DGRAM) as asking,
        server.ns.socket(kind[10 - family], socket.SOCK_DGRAM) as answering,
    ):
        answering.bind((server.address(10 - family), LARGE))
        for one in (answering, asking):
            one.settimeout(60)
        yield asking, answering


@pytest.mark.drops("too-big")
@pytest.mark.parametrize("family,sender", ((4, "client"), (6, "server")), ids=("4to6", "6to4"))
def test_oversized_datagram_is_reported_with_the_senders_mtu(families, family, sender):
    """The largest IPv4 datagram is 20 bytes too large for the IPv6 side."""
    server, client = families.lab["s1"], families.client
    with datagram_ends(families, family) as (asking, answering):
        asking.sendto(b"begin", (VIPS[family], LARGE))
        _, local = answering.recvfrom(2000)
        one, to = (asking, (VIPS[family], LARGE)) if sender == "client" else (answering, local[:2])
        host = client if sender == "client" else server
        one.sendto(bytes(1472), to)
        wait_until(
            lambda: f"mtu {1500 - DIFFERENT}" in host.ns.ip(f"route get {to[0]}"),
            "the sender's kernel has learned the MTU",
        )
        host.ns.ip("route flush cache")
        one.sendto(bytes(1472 - DIFFERENT), to)
        other = answering if sender == "client" else asking
        assert len(other.recvfrom(2000)[0]) == 1472 - DIFFERENT


@clients
def test_udp_without_checksum_gets_one_for_ipv6(families, family):
    """IPv4 may omit the checksum, IPv6 may not: the forwarder computes one, which the kernel
    verifies."""
    with datagram_ends(families, family) as (asking, answering):
        without = asking if family == 4 else answering
        without.setsockopt(socket.SOL_SOCKET, 11, 1)  # SO_NO_CHECK
        for size in (1, 10, 33, 700):
            data = os.urandom(size)
            asking.sendto(data, (VIPS[family], LARGE))
            got, local = answering.recvfrom(2000)
            assert got == data
            answering.sendto(data[::-1], local[:2])
            assert asking.recvfrom(2000)[0] == data[::-1]


@clients
def test_connections_survive_a_restart(families, family):
    with (
        connect(families.client, VIPS[family], ECHO) as one,
        HttpConnection(families.client, VIPS[family], WEB) as web,
    ):
        server = web.get()
        one.sendall(b"before")
        assert receive_exactly(one, 6) == b"before"
        families.steelyard.kill_forwarder()
        families.steelyard.start_forwarder()
        one.sendall(b"after")
        assert receive_exactly(one, 5) == b"after"
        assert web.get() == server
    families.steelyard.wait_reconnected()

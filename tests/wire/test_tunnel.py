# SPDX-License-Identifier: Apache-2.0
"""IPIP: servers decapsulate packets for the VIP, and answer clients themselves.

One-armed, as for direct routing; the tunnels of a VIP lead to servers of either family."""

import copy
import hashlib
import os
import socket

import pytest

from tests.lab import Server, Service
from tests.lab.clients import connect, dns_txt, http_get, receive_exactly, wrk
from tests.lab.servers import EchoServer
from tests.lab.steelyard import SERVER_DNS, SERVER_WEB
from tests.lab.topology import FRONT, v4, v6
from tests.lab.tunnel import TunnelEnd
from tests.wire.conftest import check_accounting
from tests.wire.stage import Stage
from tests.wire.test_ranges import RangeServer

# The client's family, and the tunnel's.
pairs = pytest.mark.parametrize(
    "inner,outer", ((4, 4), (6, 6), (4, 6), (6, 4)), ids=("4in4", "6in6", "4in6", "6in4")
)
clients = pytest.mark.parametrize("client", ("client", "far"))
VIPS = {
    (inner, outer): (v4 if inner == 4 else v6)(FRONT, 83 if inner == outer else 84)
    for inner in (4, 6)
    for outer in (4, 6)
}
ECHO = 9307
RANGE, IN_RANGE = "9310-9329", (9310, 9315, 9329)


def tunnel_services(network):
    for (inner, outer), vip in VIPS.items():
        for kind, protocol, port in (("web", "tcp", SERVER_WEB), ("dns", "udp", SERVER_DNS)):
            servers = [Server(host.address(outer), port) for host in network.server_hosts()]
            name = f"{kind}-{inner}in{outer}"
            yield Service(name, vip, port, protocol, mode="ipip", servers=servers)
        server = Server(network["s1"].address(outer), ECHO)
        yield Service(f"echo-{inner}in{outer}", vip, ECHO, mode="ipip", servers=[server])
        server = RangeServer(network["s1"].address(outer), 0)
        yield Service(f"range-{inner}in{outer}", vip, RANGE, mode="ipip", servers=[server])


class TunnelStage(Stage):
    def start(self):
        network = self.lab.network
        self.ends = {}
        for host in self.lab.servers():
            host.ns.sysctl("ipv4.conf.all.arp_ignore", 1)
            host.ns.sysctl("ipv4.conf.all.arp_announce", 2)
            for (inner, _), vip in VIPS.items():
                host.ns.ip(f"address add {vip}/{'32' if inner == 4 else '128'} dev lo")
            network.default_route(host.name, v4(FRONT, 2), v6(FRONT, 2))
            self.ends[host.name] = TunnelEnd(host)
        super().start()
        for (inner, outer), vip in VIPS.items():
            self.echo[inner, outer] = EchoServer(self.lab["s1"], ECHO, inner, vip)
            for port in IN_RANGE:
                self.echo[inner, outer, port] = EchoServer(self.lab["s1"], port, inner, vip)
        self.config.services.extend(tunnel_services(network))
        self.apply()
        self.default = copy.deepcopy(self.config)

    def __exit__(self, *error):
        for end in self.ends.values():
            end.close()
        super().__exit__(*error)

    def carried(self, inner, outer):
        return sum(end.carried[outer, inner] for end in self.ends.values())


@pytest.fixture(scope="module", params=(1, 2), ids=("1-worker", "2-workers"))
def tunnel_stage(request):
    with TunnelStage(arms=1, workers=request.param) as stage:
        yield stage


@pytest.fixture
def tunnel(tunnel_stage, request):
    yield from check_accounting(tunnel_stage, request)


@clients
@pairs
def test_every_server_answers_in_turn(tunnel, inner, outer, client):
    host, before = tunnel.lab[client], tunnel.carried(inner, outer)
    vip = VIPS[inner, outer]
    served = [http_get(host, vip, SERVER_WEB).decode().strip() for _ in range(12)]
    assert set(served) == {"s1", "s2", "s3"}
    assert {dns_txt(host, vip, SERVER_DNS) for _ in range(12)} == set(served)
    assert tunnel.carried(inner, outer) >= before + 12 * 4
    assert tunnel.steelyard.service(f"web-{inner}in{outer}")["traffic"]["packets_out"] == 0


@pytest.mark.drops("no-service")
@pairs
def test_range_of_ports_arrives_unchanged(tunnel, inner, outer):
    """Ports outside of the range belong to no service."""
    for port in IN_RANGE:
        with connect(tunnel.client, VIPS[inner, outer], port) as one:
            one.sendall(b"which?")
            assert receive_exactly(one, 6) == b"which?"
            assert one.getsockname()[:2] in tunnel.echo[inner, outer, port].peers
    with pytest.raises(TimeoutError):
        connect(tunnel.client, VIPS[inner, outer], 9330, timeout_s=0.5)


@pairs
def test_server_sees_the_client_address(tunnel, inner, outer):
    path, vip = f"/tunnelled-{inner}-{outer}", VIPS[inner, outer]
    logged = tunnel.logged(tunnel.client, vip, SERVER_WEB, path)
    assert logged == [(tunnel.client.address(inner), vip)]


@pytest.mark.drops("too-big")
@pairs
def test_uploads_respect_the_tunnels_mtu(tunnel, inner, outer):
    """Full-sized segments do not fit: the client gets an error, and its kernel sends smaller
    segments."""
    content = os.urandom(200_000)
    with connect(tunnel.client, VIPS[inner, outer], ECHO) as one:
        back = b""
        for at in range(0, len(content), 20_000):
            one.sendall(content[at : at + 20_000])
            back += receive_exactly(one, 20_000)
        level, option = (
            (socket.IPPROTO_IP, 14) if inner == 4 else (socket.IPPROTO_IPV6, 24)
        )  # IP_MTU, IPV6_MTU
        assert one.getsockopt(level, option) == 1500 - (20 if outer == 4 else 40)
    assert hashlib.sha256(back).digest() == hashlib.sha256(content).digest()


@pairs
def test_load_fails_no_request(tunnel, inner, outer):
    vip = VIPS[inner, outer]
    url = f"http://[{vip}]:{SERVER_WEB}/" if inner == 6 else f"http://{vip}:{SERVER_WEB}/"
    load = wrk(tunnel.lab, url, 500, keep_alive=False)
    assert not load.failed, load


@pairs
def test_connection_survives_a_restart(tunnel, inner, outer):
    with connect(tunnel.client, VIPS[inner, outer], ECHO) as one:
        one.sendall(b"before")
        assert receive_exactly(one, 6) == b"before"
        tunnel.steelyard.kill_forwarder()
        tunnel.steelyard.start_forwarder()
        one.sendall(b"after")
        assert receive_exactly(one, 5) == b"after"
    tunnel.steelyard.wait_reconnected()

# SPDX-License-Identifier: Apache-2.0
"""NAT: servers see clients' own addresses, and answer through the forwarder, their gateway.

The forwarder's kernel routes the servers' other packets. FNAT services run beside, on the same
servers."""

import copy
import socket

import pytest
from scapy.layers.inet import TCP

from tests.lab import Server, Service, wait_until
from tests.lab.clients import connect, dns_txt, http_get, receive_exactly, wrk
from tests.lab.servers import EchoServer, start_dns
from tests.lab.steelyard import DNS, FAST_CHECKS, SERVER_DNS, SERVER_WEB, VIP, WEB
from tests.lab.topology import BACK, FRONT, v4, v6
from tests.wire.conftest import check_accounting
from tests.wire.stage import Stage

families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
NAT = {4: v4(FRONT, 82), 6: v6(FRONT, 82)}
ECHO, SERVER_ECHO = 7, 9207

NETWORKS = {
    "1-worker": {},
    "2-workers": {"workers": 2},
    "one-armed-1-worker": {"arms": 1},
    "one-armed-2-workers": {"arms": 1, "workers": 2},
}


def nat_services(network):
    checks = {"tcp": {"type": "http", "path": "/healthz"} | FAST_CHECKS, "udp": {"type": "none"}}
    for family in (4, 6):
        for kind, protocol, port, server_port in (
            ("web", "tcp", WEB, SERVER_WEB),
            ("dns", "udp", DNS, SERVER_DNS),
        ):
            servers = [Server(host.address(family), server_port) for host in network.server_hosts()]
            yield Service(
                f"nat-{kind}{family}",
                NAT[family],
                port,
                protocol,
                mode="nat",
                health=checks[protocol],
                servers=servers,
            )
        server = Server(network["s1"].address(family), SERVER_ECHO)
        yield Service(f"nat-echo{family}", NAT[family], ECHO, mode="nat", servers=[server])


class NatStage(Stage):
    """Its client is the one that servers reach only through the forwarder."""

    @property
    def outside(self):
        return self.lab["client" if self.lab.network.arms == 2 else "far"]

    def start(self):
        network = self.lab.network
        gateway = BACK if network.arms == 2 else FRONT
        network.let_forwarder_route()
        for host in self.lab.servers():
            network.default_route(host.name, v4(gateway, 1), v6(gateway, 1))
        super().start()
        for family in (4, 6):
            self.echo[f"nat{family}"] = EchoServer(self.lab["s1"], SERVER_ECHO, family)
        self.config.services.extend(nat_services(network))
        self.apply()
        self.steelyard.wait_all_up()
        self.default = copy.deepcopy(self.config)


@pytest.fixture(scope="module", params=NETWORKS)
def nat_stage(request):
    with NatStage(**NETWORKS[request.param]) as stage:
        yield stage


@pytest.fixture
def nat(nat_stage, request):
    yield from check_accounting(nat_stage, request)


@families
def test_every_server_answers_in_turn(nat, family):
    served = [http_get(nat.outside, NAT[family], WEB).decode().strip() for _ in range(12)]
    assert set(served) == {"s1", "s2", "s3"}
    assert {dns_txt(nat.outside, NAT[family], DNS) for _ in range(12)} == set(served)
    # FNAT beside it, on the same servers
    assert http_get(nat.outside, VIP[family], WEB).decode().strip() in served
    assert dns_txt(nat.outside, VIP[family], DNS) in served


@families
def test_server_sees_the_client_address(nat, family):
    [(peer, _)] = nat.logged(nat.outside, NAT[family], WEB, f"/translated-{family}")
    assert peer == nat.outside.address(family)


@families
def test_ports_change_and_hop_limit_falls(nat, family):
    arrived = nat.lab.capture("s1")

    def is_syn(packet):
        return TCP in packet and packet[TCP].dport == SERVER_ECHO and packet[TCP].flags == "S"

    with connect(nat.outside, NAT[family], ECHO) as one:
        own = one.getsockname()[:2]
        packet = arrived.wait_for(is_syn, "the SYN arrives", outgoing=False)
        sessions = nat.steelyard.sessions("--service", f"nat-echo{family}")
        session = next(s for s in sessions if (s["client"], s["client_port"]) == own)
        assert session["local"] == ""
        assert session["local_port"] == 0
    ip = packet["IP"] if family == 4 else packet["IPv6"]
    assert (ip.src, packet[TCP].sport) == own
    assert (ip.ttl if family == 4 else ip.hlim) == 63 - (nat.outside.name == "far")


@families
def test_large_transfers_arrive_whole(nat, family):
    before = nat.steelyard.service(f"nat-web{family}")["traffic"]
    nat.check_transfers(nat.outside, NAT[family], WEB, ECHO, 1_000_000)
    after = nat.steelyard.service(f"nat-web{family}")["traffic"]
    assert after["bytes_out"] - before["bytes_out"] > 1_000_000


@families
def test_load_fails_no_request(nat, family):
    url = f"http://[{NAT[6]}]/" if family == 6 else f"http://{NAT[4]}/"
    for keep_alive in (True, False):
        load = wrk(nat.lab, url, 1500, keep_alive=keep_alive, host=nat.outside.name)
        assert not load.failed, load


@pytest.mark.drops("nat-stray")
@families
def test_connection_survives_a_restart(nat, family):
    with connect(nat.outside, NAT[family], ECHO) as one:
        one.sendall(b"before")
        assert receive_exactly(one, 6) == b"before"
        nat.steelyard.kill_forwarder()
        one.sendall(b"while it is away")
        nat.steelyard.start_forwarder()
        assert receive_exactly(one, 16) == b"while it is away"
        nat.steelyard.upgrade()
        one.sendall(b"later")
        assert receive_exactly(one, 5) == b"later"
    nat.steelyard.wait_reconnected()


@pytest.mark.drops("nat-stray")  # last packets of the deleted service's connections
@families
def test_other_packets_of_servers_are_routed_by_the_kernel(nat, family):
    """To the forwarder's host from the services' own ports, to other hosts from any other port."""
    kind = socket.AF_INET if family == 4 else socket.AF_INET6
    server, gateway = nat.lab["s1"], BACK if nat.lab.network.arms == 2 else FRONT
    output = server.ns.run(["ping", "-c2", "-i0.2", "-W60", nat.lab["far"].address(family)])
    assert " 0% packet loss" in output
    # the forwarder's host sends a request to a server's own address, as health checks do
    assert http_get(nat.lab["forwarder"], server.address(family), SERVER_WEB).strip() == b"s1"
    with EchoServer(nat.outside, 9300, family), server.ns.socket(kind) as one:
        one.settimeout(60)
        one.connect((nat.outside.address(family), 9300))
        one.sendall(b"outbound")
        assert receive_exactly(one, 8) == b"outbound"
    # a new address of the host applies at once
    new = v4(gateway, 99) if family == 4 else v6(gateway, 99)
    interface = "back" if nat.lab.network.arms == 2 else "front"
    length = "32" if family == 4 else "128 nodad"
    nat.lab["forwarder"].ns.ip(f"address add {new}/{length} dev {interface}")
    try:
        with nat.lab["forwarder"].ns.socket(kind) as one:
            one.settimeout(60)
            one.bind((new, 0))
            one.connect((server.address(family), SERVER_WEB))
            one.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert one.recv(100).startswith(b"HTTP/1.1 200")
    finally:
        nat.lab["forwarder"].ns.ip(f"address del {new}/{length.split()[0]} dev {interface}")


@pytest.mark.drops("nat-stray")
@families
def test_packets_without_a_session_are_dropped_by_name(nat, family):
    """From a service's port to a host without a session: such packets are not translated."""
    kind = socket.AF_INET if family == 4 else socket.AF_INET6
    with nat.lab["s1"].ns.socket(kind, socket.SOCK_DGRAM) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        nat.dns["s1"].stop()
        one.bind(("", SERVER_DNS))
        one.sendto(b"stray", (nat.outside.address(family), 9999))
    wait_until(lambda: nat.accounting.dropped().get("nat-stray"), "the datagram is dropped")
    nat.dns["s1"] = start_dns(nat.lab, "s1")


@pytest.mark.drops("nat-stray")  # last packets of the deleted service's connections
@families
def test_deleted_service_frees_its_port(nat, family):
    name = f"nat-echo{family}"
    nat.config.services = [service for service in nat.config.services if service.name != name]
    nat.apply()
    # the kernel routes it now, in both directions
    with connect(nat.outside, nat.lab["s1"].address(family), SERVER_ECHO) as one:
        one.sendall(b"routed")
        assert receive_exactly(one, 6) == b"routed"

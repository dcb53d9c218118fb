# SPDX-License-Identifier: Apache-2.0
"""Direct routing: servers have the VIP on lo, accept its packets, and answer clients themselves.

One-armed: clients, router and servers reach each other without the forwarder. FNAT services run
beside, on the same servers."""

import contextlib
import copy
import hashlib
import os

import pytest
from scapy.layers.inet import TCP
from scapy.layers.l2 import Ether

from tests.lab import Server, Service
from tests.lab.clients import HttpConnection, connect, dns_txt, http_get, receive_exactly, wrk
from tests.lab.process import CommandFailed
from tests.lab.servers import EchoServer
from tests.lab.steelyard import DNS, FAST_CHECKS, SERVER_DNS, SERVER_WEB, VIP, WEB
from tests.lab.topology import FAR, FRONT, v4, v6
from tests.wire.conftest import check_accounting
from tests.wire.stage import Stage

families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
clients = pytest.mark.parametrize("client", ("client", "far"))
DIRECT = {4: v4(FRONT, 81), 6: v6(FRONT, 81)}
ECHO = 9107


def own_silently(host):
    """Configures the VIP on a DR server without announcing it."""
    host.ns.sysctl("ipv4.conf.all.arp_ignore", 1)
    host.ns.sysctl("ipv4.conf.all.arp_announce", 2)
    host.ns.ip(f"address add {DIRECT[4]}/32 dev lo")
    host.ns.ip(f"address add {DIRECT[6]}/128 dev lo nodad")


def direct_services(network):
    checks = {"tcp": {"type": "http", "path": "/healthz"} | FAST_CHECKS, "udp": {"type": "none"}}
    for family in (4, 6):
        for kind, protocol, port in (("web", "tcp", SERVER_WEB), ("dns", "udp", SERVER_DNS)):
            yield Service(
                f"direct-{kind}{family}",
                DIRECT[family],
                port,
                protocol,
                mode="dr",
                health=checks[protocol],
                servers=[Server(host.address(family), port) for host in network.server_hosts()],
            )
        server = Server(network["s1"].address(family), ECHO)
        yield Service(f"direct-echo{family}", DIRECT[family], ECHO, mode="dr", servers=[server])


def session_of(direct, service, one):
    """Returns the session of a connection; earlier sessions remain for some time, because servers'
    FINs bypass the forwarder."""
    sessions = direct.steelyard.sessions("--service", service)
    own = one.getsockname()[:2]
    return next(s for s in sessions if (s["client"], s["client_port"]) == own)


class DirectStage(Stage):
    def start(self):
        network = self.lab.network
        for host in self.lab.servers():
            own_silently(host)
            network.default_route(host.name, v4(FRONT, 2), v6(FRONT, 2))
        super().start()
        for family in (4, 6):
            self.echo[f"direct{family}"] = EchoServer(self.lab["s1"], ECHO, family, DIRECT[family])
        self.config.services.extend(direct_services(network))
        self.apply()
        self.steelyard.wait_all_up()
        self.default = copy.deepcopy(self.config)


@pytest.fixture(scope="module", params=(1, 2), ids=("1-worker", "2-workers"))
def direct_stage(request):
    with DirectStage(arms=1, workers=request.param) as stage:
        yield stage


@pytest.fixture
def direct(direct_stage, request):
    yield from check_accounting(direct_stage, request)


@clients
@families
def test_every_server_answers_in_turn(direct, family, client):
    host = direct.lab[client]
    served = [http_get(host, DIRECT[family], SERVER_WEB).decode().strip() for _ in range(12)]
    assert set(served) == {"s1", "s2", "s3"}
    assert {dns_txt(host, DIRECT[family], SERVER_DNS) for _ in range(12)} == set(served)
    # FNAT beside it, on the same servers
    assert http_get(host, VIP[family], WEB).decode().strip() in served
    assert dns_txt(host, VIP[family], DNS) in served


@pytest.mark.drops("no-session")
@families
def test_connections_continue_without_their_sessions(direct, family):
    """As when a router moves them to another forwarder."""
    service = direct.config[f"direct-web{family}"]
    service.scheduler = "maglev"
    service.spread = {"hash_on": "tuple", "sloppy_tcp": True}
    direct.apply()
    direct.steelyard.wait_in_sync()
    with contextlib.ExitStack() as stack:
        ones = [
            stack.enter_context(HttpConnection(host, DIRECT[family], SERVER_WEB))
            for host in (direct.client, direct.lab["far"])
            for _ in range(8)
        ]
        servers = [one.get() for one in ones]
        assert len(set(servers)) > 1
        direct.steelyard.forwarder.stop()
        direct.steelyard.cleanup()
        direct.steelyard.start_forwarder()
        direct.steelyard.wait_reconnected()
        direct.steelyard.wait_all_up()
        assert not direct.steelyard.sessions("--service", service.name)
        for _ in range(3):
            assert [one.get() for one in ones] == servers
        states = {s["state"] for s in direct.steelyard.sessions("--service", service.name)}
        assert states == {"established"}


@families
def test_server_sees_the_client_address(direct, family):
    logged = direct.logged(direct.client, DIRECT[family], SERVER_WEB, f"/direct-{family}")
    assert logged == [(direct.client.address(family), DIRECT[family])]


@families
def test_only_macs_and_hop_limit_change(direct, family):
    sent, arrived = direct.lab.capture("client"), direct.lab.capture("s1")

    def is_syn(packet):
        return TCP in packet and packet[TCP].dport == ECHO and packet[TCP].flags == "S"

    with connect(direct.client, DIRECT[family], ECHO) as one:
        before = sent.wait_for(is_syn, "the SYN leaves", outgoing=True)
        after = arrived.wait_for(is_syn, "the SYN arrives", outgoing=False)
        session = session_of(direct, f"direct-echo{family}", one)
        assert (session["server"], session["local"]) == (direct.lab["s1"].address(family), "")
    assert after[Ether].dst == direct.lab["s1"].ns.mac("eth0")
    assert after[Ether].src == direct.lab["forwarder"].ns.mac("front")
    for packet in (before, after):
        packet[Ether].src = packet[Ether].dst = "00:00:00:00:00:00"
    if family == 4:
        before["IP"].ttl -= 1
        del before["IP"].chksum
    else:
        before["IPv6"].hlim -= 1
    assert bytes(after) == bytes(before)


@families
def test_answers_bypass_the_forwarder(direct, family):
    for name in direct.nginx:
        (direct.lab.dir / f"nginx-{name}" / "files" / "large").write_bytes(os.urandom(500_000))
    before = direct.steelyard.service(f"direct-web{family}")["traffic"]
    body = http_get(direct.client, DIRECT[family], SERVER_WEB, "/files/large")
    after = direct.steelyard.service(f"direct-web{family}")["traffic"]
    assert len(body) == 500_000
    assert after["packets_in"] > before["packets_in"]
    assert after["packets_out"] == 0
    assert after["bytes_in"] - before["bytes_in"] < 100_000


@families
def test_uploads_arrive_whole(direct, family):
    content = os.urandom(300_000)
    with connect(direct.client, DIRECT[family], ECHO) as one:
        back = b""
        for at in range(0, len(content), 30_000):
            one.sendall(content[at : at + 30_000])
            back += receive_exactly(one, 30_000)
    assert hashlib.sha256(back).digest() == hashlib.sha256(content).digest()


@families
def test_load_fails_no_request(direct, family):
    address = f"[{DIRECT[6]}]" if family == 6 else DIRECT[4]
    for keep_alive in (True, False):
        load = wrk(
            direct.lab, f"http://{address}:{SERVER_WEB}/", 1500, keep_alive=keep_alive, host="far"
        )
        assert not load.failed, load


@families
def test_connection_survives_a_restart(direct, family):
    with connect(direct.client, DIRECT[family], ECHO) as one:
        one.sendall(b"before")
        assert receive_exactly(one, 6) == b"before"
        direct.steelyard.kill_forwarder()
        direct.steelyard.start_forwarder()
        one.sendall(b"after")
        assert receive_exactly(one, 5) == b"after"
        direct.steelyard.upgrade()
        one.sendall(b"later")
        assert receive_exactly(one, 5) == b"later"
        session = session_of(direct, f"direct-echo{family}", one)
        assert session["state"] == "established"
    direct.steelyard.wait_reconnected()


@families
def test_server_that_fails_its_check_gets_no_new_session(direct, family):
    name, address = f"direct-web{family}", direct.lab["s2"].address(family)
    direct.nginx["s2"].stop()
    direct.steelyard.wait_server(name, address, "down")
    served = {http_get(direct.client, DIRECT[family], SERVER_WEB).strip() for _ in range(6)}
    assert served == {b"s1", b"s3"}


@families
def test_invalid_servers_are_refused(direct, family):
    service = direct.config[f"direct-echo{family}"]
    service.servers[0].port = ECHO + 1
    with pytest.raises(CommandFailed, match="dr translates no ports"):
        direct.apply()
    far = v4(FAR, 10) if family == 4 else v6(FAR, 10)
    service.servers[0] = Server(far, ECHO)
    with pytest.raises(CommandFailed, match="no network that this host is connected to"):
        direct.apply()
    direct.steelyard.wait_in_sync()


# Clients of the deleted service answer probes of their connections.
@pytest.mark.drops("server-removed", "session-killed", "no-session")
@families
def test_mode_change_restarts_the_service(direct, family):
    service = direct.config[f"direct-web{family}"]
    service.mode = "fnat"
    direct.apply()
    direct.steelyard.wait_in_sync()
    # Under FNAT a server does not need the VIP: it answers the forwarder.
    assert http_get(direct.client, DIRECT[family], SERVER_WEB).decode().strip() in direct.nginx
    assert direct.steelyard.service(service.name)["traffic"]["packets_out"] > 0
    service.mode = "dr"
    direct.apply()
    assert http_get(direct.client, DIRECT[family], SERVER_WEB).decode().strip() in direct.nginx

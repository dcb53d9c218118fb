# SPDX-License-Identifier: Apache-2.0
"""The SYN defence, always on: kernels' TCP at both ends of spliced sessions."""

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from tests.lab import wait_until
from tests.lab.clients import HttpConnection, http_get, wrk
from tests.lab.loss import losing
from tests.lab.steelyard import VIP
from tests.wire.conftest import check_accounting
from tests.wire.test_client_address import (
    ACROSS,
    PORTS,
    TOA,
    AddressStage,
    ask_who,
    check_lost_handshakes,
    check_outlives_the_forwarder,
    exchange,
    families,
    identity,
    pairs,
    versions,
)

# no-session: a client resets the answer to a SYN that it has abandoned.
DROPS = pytest.mark.drops("opening", "bad-cookie", "no-session")
# Counter of ACKs that do not echo the server's own timestamp. (It also counts late ACKs of repeated
# SYN-ACKs: their timestamps are those of the client's first ACK.)
WRONG = "TcpExtTSEcrRejected"


class DefenceStage(AddressStage):
    def start(self):
        super().start()
        for service in self.default.services:
            if service.protocol == "tcp":
                service.spread["syn_defence"] = "always"
        self.restore()
        self.steelyard.wait_in_sync()
        self.steelyard.wait_all_up()


@pytest.fixture(scope="module", params=(1, 2), ids=("1-worker", "2-workers"))
def defence_stage(request):
    with DefenceStage(workers=request.param) as stage:
        yield stage


@pytest.fixture
def defended(defence_stage, request):
    before = defence_stage.lab.counters()
    for defended in check_accounting(defence_stage, request):
        yield defended
        after = defence_stage.lab.counters()
        assert after["s1"].get(WRONG, 0) == before["s1"].get(WRONG, 0)


@DROPS
@families
@versions
def test_server_receives_the_client_address(defended, version, family):
    """On connections with several requests."""

    def one_client(_):
        with HttpConnection(defended.client, VIP[family], PORTS[version]) as one:
            for _ in range(3):
                ask_who(one, identity(one, family))

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(one_client, range(30)))


@DROPS
@versions
def test_clients_of_the_other_family_are_served(defended, version):
    for _ in range(2):
        with HttpConnection(defended.client, VIP[6], ACROSS[version]) as one:
            ask_who(one, identity(one, 6))
            ask_who(one, identity(one, 6))


@DROPS
@families
def test_load_fails_no_request(defended, family):
    name = f"[{VIP[family]}]" if family == 6 else VIP[family]
    for port in (TOA, PORTS["proxy_v2"]):
        load = wrk(defended.lab, f"http://{name}:{port}/", 500, keep_alive=False)
        assert not load.failed, load


@DROPS
@pairs
def test_large_transfers_arrive_whole(defended, version, family):
    """Megabytes in both directions, without loss and with it."""
    content = os.urandom(2_000_000)
    for permille in (0, 20):
        path = f"/put/defence-{version}-{permille}"
        with (
            losing(defended.lab, ("client", "s1"), permille)
            if permille
            else contextlib.nullcontext()
        ):
            exchange(defended.client, family, PORTS[version], path, "PUT", content)
            assert exchange(defended.client, family, PORTS[version], path) == content


@DROPS
@pairs
def test_lost_handshakes_are_repaired(defended, version, family):
    check_lost_handshakes(defended, version, family, 20)


@contextlib.contextmanager
def setting(host, name, value):
    path = f"net.ipv4.{name}"
    before = host.ns.run(["sysctl", "-n", path]).strip()
    host.ns.run(["sysctl", "-qw", f"{path}={value}"])
    try:
        yield
    finally:
        host.ns.run(["sysctl", "-qw", f"{path}={before}"])


@DROPS
@pytest.mark.parametrize("option", ("tcp_timestamps", "tcp_sack", "tcp_window_scaling"))
@pytest.mark.parametrize("host", ("client", "s1"))
def test_ends_without_an_option_connect(defended, host, option):
    """The first connection of each worker may be reset, if the cookie promised the client an option
    that the server refuses."""
    content = os.urandom(300_000)
    port = PORTS["proxy_v1"]
    with setting(defended.lab[host], option, 0):
        for _ in range(12):
            with contextlib.suppress(ConnectionResetError):
                exchange(defended.client, 4, port, "/who")
        for _ in range(2):
            exchange(defended.client, 4, port, "/put/options", "PUT", content)
            assert exchange(defended.client, 4, port, "/put/options") == content


@DROPS
@pairs
def test_connection_survives_a_restart(defended, version, family):
    check_outlives_the_forwarder(defended, version, family)


@DROPS
def test_forged_syns_create_no_session(defended):
    """Each is answered. The client's kernel resets the answers."""
    client, port = defended.client, PORTS["proxy_v1"]
    mac, own = defended.lab["forwarder"].ns.mac("front"), client.ns.mac("eth0")
    wire = defended.lab.capture("client")
    sources = {4: IP(src=client.address(4), dst=VIP[4]), 6: IPv6(src=client.address(6), dst=VIP[6])}
    ports = range(2000, 2100)
    for n in ports:
        for ip in sources.values():
            wire.send(Ether(src=own, dst=mac) / ip / TCP(sport=n, dport=port, flags="S"))

    def answers():
        found = wire.packets(lambda p: TCP in p and p[TCP].sport == port)
        return {(IP in p, p[TCP].dport) for p in found if p[TCP].flags == "SA"}

    wait_until(lambda: len(answers()) == 200, lambda: f"200 answers: {len(answers())}")
    assert not [s for s in defended.steelyard.sessions() if s["client_port"] in ports]
    assert http_get(client, VIP[4], TOA)

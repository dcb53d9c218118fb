# SPDX-License-Identifier: Apache-2.0
"""The SYN defence, always on: kernels' TCP at both ends of joined connections."""

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
    check_outlives_the_forwarder,
    exchange,
    families,
    identity,
    pairs,
    versions,
)

# no-session: a client resets the answer to a SYN that it has given up.
DROPS = pytest.mark.drops("opening", "bad-cookie", "no-session")
# What a server counts if an ACK does not echo its own timestamp. (It also counts ACKs that answer a
# repeated SYN-ACK and are late: their timestamps are those of the client's first ACK.)
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
def told(defence_stage, request):
    before = defence_stage.lab.counters()
    for defended in check_accounting(defence_stage, request):
        yield defended
        after = defence_stage.lab.counters()
        assert after["s1"].get(WRONG, 0) == before["s1"].get(WRONG, 0)


@DROPS
@families
@versions
def test_requests(told, version, family):
    """The server learns who the client is, on connections with several requests."""

    def one_client(_):
        with HttpConnection(told.client, VIP[family], PORTS[version]) as one:
            for _ in range(3):
                ask_who(one, identity(one, family))

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(one_client, range(30)))


@DROPS
@versions
def test_across_families(told, version):
    for _ in range(2):
        with HttpConnection(told.client, VIP[6], ACROSS[version]) as one:
            ask_who(one, identity(one, 6))
            ask_who(one, identity(one, 6))


@DROPS
@families
def test_load(told, family):
    name = f"[{VIP[family]}]" if family == 6 else VIP[family]
    for port in (TOA, PORTS["proxy_v2"]):
        load = wrk(told.lab, f"http://{name}:{port}/", 500, keep_alive=False)
        assert not load.failed, load


@DROPS
@pairs
def test_large_transfers(told, version, family):
    """Megabytes both ways, without loss and with it."""
    content = os.urandom(2_000_000)
    for permille in (0, 20):
        path = f"/put/defence-{version}-{permille}"
        with losing(told.lab, ("client", "s1"), permille) if permille else contextlib.nullcontext():
            exchange(told.client, family, PORTS[version], path, "PUT", content)
            assert exchange(told.client, family, PORTS[version], path) == content


@DROPS
@pairs
def test_lost_handshakes(told, version, family):
    def one_client(_):
        with HttpConnection(told.client, VIP[family], PORTS[version], timeout_s=60) as one:
            ask_who(one, identity(one, family))

    with losing(told.lab, ("client", "s1"), 100), ThreadPoolExecutor(20) as pool:
        list(pool.map(one_client, range(20)))


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
def test_ends_without_an_option(told, host, option):
    """Each worker's first connection may be reset, if its client was promised what the server
    refuses."""
    content = os.urandom(300_000)
    port = PORTS["proxy_v1"]
    with setting(told.lab[host], option, 0):
        for _ in range(12):
            with contextlib.suppress(ConnectionResetError):
                exchange(told.client, 4, port, "/who")
        for _ in range(2):
            exchange(told.client, 4, port, "/put/options", "PUT", content)
            assert exchange(told.client, 4, port, "/put/options") == content


@DROPS
@pairs
def test_a_connection_outlives_the_forwarder(told, version, family):
    check_outlives_the_forwarder(told, version, family)


@DROPS
def test_forged_syns_take_no_session(told):
    """Each is answered, and none begins a session. The client's kernel resets the answers."""
    client, port = told.client, PORTS["proxy_v1"]
    mac, own = told.lab["forwarder"].ns.mac("front"), client.ns.mac("eth0")
    wire = told.lab.capture("client")
    sources = {4: IP(src=client.address(4), dst=VIP[4]), 6: IPv6(src=client.address(6), dst=VIP[6])}
    ports = range(2000, 2100)
    for n in ports:
        for ip in sources.values():
            wire.send(Ether(src=own, dst=mac) / ip / TCP(sport=n, dport=port, flags="S"))

    def answers():
        found = wire.packets(lambda p: TCP in p and p[TCP].sport == port)
        return {(IP in p, p[TCP].dport) for p in found if p[TCP].flags == "SA"}

    wait_until(lambda: len(answers()) == 200, lambda: f"200 answers: {len(answers())}")
    assert not [s for s in told.steelyard.sessions() if s["client_port"] in ports]
    assert http_get(client, VIP[4], TOA)

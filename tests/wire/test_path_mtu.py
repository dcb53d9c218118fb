# SPDX-License-Identifier: Apache-2.0
"""One FNAT client behind a narrow path: it is served, and other clients keep their segment size."""

import copy
import os

import pytest
from scapy.layers.inet import TCP

from tests.lab import Server, Service
from tests.lab.clients import connect, receive_exactly
from tests.lab.servers import DatagramEcho
from tests.lab.steelyard import VIP, local_addresses
from tests.wire.conftest import check_accounting
from tests.wire.stage import ECHO, SERVER_ECHO, Stage
from tests.wire.test_fragments import ask, client_socket

NARROW = 800
DATAGRAMS = 9441


class NarrowStage(Stage):
    """The router's path to `far` has an MTU of 800 bytes; no other host is behind it."""

    def start(self):
        far = self.lab["far"].address(4)
        self.lab["router"].ns.ip(f"route add {far}/32 dev far0 mtu {NARROW}")
        super().start()
        server = self.lab["s1"]
        self.echo["datagrams"] = DatagramEcho(server, DATAGRAMS)
        target = [Server(server.address(4), DATAGRAMS)]
        self.config.services.append(Service("datagrams", VIP[4], DATAGRAMS, "udp", servers=target))
        self.apply()
        self.steelyard.wait_all_up()
        self.default = copy.deepcopy(self.config)


@pytest.fixture(scope="module", params=(1, 2), ids=("1-worker", "2-workers"))
def narrow_stage(request):
    with NarrowStage(workers=request.param) as stage:
        yield stage


@pytest.fixture
def narrow(narrow_stage, request):
    yield from check_accounting(narrow_stage, request)


def check_server_knows_nothing(stage):
    """Checks the path MTUs to local addresses that the server's kernel has stored."""
    server = stage.lab["s1"].ns
    for local in local_addresses(stage.lab.network.back_net):
        if ":" not in local:
            assert "mtu" not in server.ip(f"route get {local}")


def transfer(host, size=200_000):
    content = os.urandom(size)
    with connect(host, VIP[4], ECHO) as one:
        for at in range(0, size, 20_000):
            one.sendall(content[at : at + 20_000])
            assert receive_exactly(one, 20_000) == content[at : at + 20_000]


@pytest.mark.drops("path-mtu-kept")
def test_narrow_path_shrinks_its_own_clients_segments_alone(narrow):
    """On a connection opened before the path MTU was known, and on a later one."""
    transfer(narrow.lab["far"])
    assert narrow.accounting.dropped().get("path-mtu-kept", 0) > 0
    check_server_knows_nothing(narrow)
    heard = narrow.lab.capture("s1")
    transfer(narrow.lab["far"])
    syn = heard.wait_for(
        lambda p: TCP in p and p[TCP].dport == SERVER_ECHO and p[TCP].flags == "S",
        "the SYN",
        outgoing=False,
    )
    assert dict(syn[TCP].options)["MSS"] == NARROW - 40
    heard = narrow.lab.capture("client")
    transfer(narrow.client)
    heard.wait_for(
        lambda p: TCP in p and p[TCP].sport == ECHO and len(p) == 1514,
        "a segment of full size to another client",
        outgoing=False,
    )
    check_server_knows_nothing(narrow)


@pytest.mark.drops("path-mtu-kept")
def test_datagrams_to_a_narrow_client_arrive_after_one_loss(narrow):
    """The lost one is requested again; later ones arrive."""
    with client_socket(narrow.lab["far"], 4) as one:
        for size in (700, 1400, 1472):
            data = os.urandom(size)
            assert ask(one, (VIP[4], DATAGRAMS), data) == data
    check_server_knows_nothing(narrow)

# SPDX-License-Identifier: Apache-2.0
"""Floods that fill tables and local ports: other clients still create sessions."""

import contextlib
import os
import socket

import pytest

from tests.lab import Server, Service, wait_until
from tests.lab.clients import HttpConnection, http_get
from tests.lab.flood import answers_to_forged, finish_flood, provide_internet, start_flood
from tests.lab.servers import DatagramEcho
from tests.lab.steelyard import DNS, VIP, WEB
from tests.lab.traffic import paced
from tests.wire.conftest import check_accounting
from tests.wire.stage import Stage

REQUESTS = 40
ANSWERING, ATTACKED, OTHER = 9500, 9501, 9502  # a server's port, and those of two services
RATE = 8000  # fills its share in four seconds, and leaves a busy machine time
PATIENCE = "20s"  # a full receive queue may lose a client's SYN twice
pytestmark = pytest.mark.skipif(
    "SY_BUILD" in os.environ, reason="floods keep time in the plain build only"
)
families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
DROPS = pytest.mark.drops(
    "no-session", "embryonic-evicted", "session-evicted", "bad-tcp-state", "no-local-port"
)


@pytest.fixture(scope="module")
def pressed_stage():
    """Its tables are small and do not grow; each service has one server."""
    with Stage() as stage:
        provide_internet(stage.lab)
        stage.default.without_defence()
        for service in stage.default.services:
            service.servers = service.servers[:1]
            service.health = {"type": "none"}
        stage.restore()
        yield stage


@pytest.fixture
def stage(pressed_stage, request):
    yield from check_accounting(pressed_stage, request)


def evicted(stage):
    return stage.accounting.dropped().get("embryonic-evicted", 0)


def ask_beside(stage, kind, family, port):
    """Requests succeed during a flood and at once after it; open connections survive."""
    lasting = [HttpConnection(stage.client, VIP[family], WEB) for _ in range(10)]
    flood = start_flood(stage.lab, kind, VIP[family], str(port), RATE, 120)
    wait_until(lambda: evicted(stage) > 0, "the flood has its share")
    target = f"[{VIP[family]}]:{WEB}" if family == 6 else f"{VIP[family]}:{WEB}"
    during = paced(stage.lab, REQUESTS // 4, 4, targets=(target,), patience=PATIENCE)
    assert flood.alive()
    sent = finish_flood(flood)
    after = [http_get(stage.client, VIP[family], WEB) for _ in range(REQUESTS)]
    assert len(after) == REQUESTS
    for connection in lasting:
        connection.get()
        connection.close()
    assert sent["sent"]
    return during


@families
@DROPS
def test_datagram_flood_leaves_another_service_alone(stage, family):
    """Its servers answer none of them."""
    next(s for s in stage.config.services if s.name == f"dns{family}").servers[0].port = 9
    stage.apply()
    stage.steelyard.wait_in_sync()
    report = ask_beside(stage, "udp", family, DNS)
    assert report["answered"] == report["planned"], report


@families
@DROPS
def test_syn_flood_leaves_its_own_service_reachable(stage, family):
    """Without SYN cookies: a client with a port that the flood used before needs a second SYN."""
    report = ask_beside(stage, "syn", family, WEB)
    assert report["answered"] == report["planned"], report


def exchange(one, peer, times):
    """Each datagram is echoed; a busy machine may lose some."""
    one.settimeout(1)
    for _ in range(times):
        for _ in range(20):
            one.sendto(b"question", peer)
            with contextlib.suppress(TimeoutError):
                one.recv(100)
                break
        else:
            raise TimeoutError(f"{peer} does not answer")


@families
@pytest.mark.drops("embryonic-evicted", "session-evicted", "no-local-port", "overload")
def test_answered_datagram_flood_leaves_another_service_alone(stage, family):
    """Two services share a server, which answers one service's forged datagrams: the other's
    sessions survive, and new ones are created."""
    kind, peer = (socket.AF_INET, socket.AF_INET6)[family == 6], (VIP[family], OTHER)
    server = Server(stage.lab["s1"].address(family), ANSWERING)
    for name, port in (("attacked", ATTACKED), ("other", OTHER)):
        health = {"type": "none"}
        one = Service(name, VIP[family], port, "udp", servers=[server], health=health)
        stage.config.services.append(one)
    stage.apply()
    stage.steelyard.wait_in_sync()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.closing(DatagramEcho(stage.lab["s1"], ANSWERING, family)))
        clients = [
            stack.enter_context(stage.client.ns.socket(kind, socket.SOCK_DGRAM)) for _ in range(40)
        ]
        for one in clients[:20]:
            exchange(one, peer, 2)
        before = answers_to_forged(stage.lab)
        flood = start_flood(stage.lab, "udp", VIP[family], str(ATTACKED), RATE // 4, 300)
        wait_until(
            lambda: answers_to_forged(stage.lab) > before + 2000, "forged datagrams are answered"
        )
        for one in clients[20:]:
            exchange(one, peer, 2)
        states = {
            name: [one["state"] for one in stage.steelyard.sessions("--service", name)]
            for name in ("attacked", "other")
        }
        finish_flood(flood)
        assert states["other"] == ["udp"] * 40
        assert "udp-answered" in states["attacked"] and "udp" not in states["attacked"]

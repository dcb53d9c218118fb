# SPDX-License-Identifier: Apache-2.0
"""Packets that the flow director drops before a worker sees them, counted under the names of the
workers' drops; in native and in generic mode."""

import ipaddress
import socket

import pytest

from tests.lab import wait_until
from tests.lab.clients import connect, http_get
from tests.lab.config import Service
from tests.lab.steelyard import VIP, WEB
from tests.wire.conftest import check_accounting
from tests.wire.stage import Stage

families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
MANY = 200
CLOSED = 5000  # a port without a service


@pytest.fixture(scope="module", params=("native", "generic"))
def early_stage(request):
    with Stage(mode=request.param) as stage:
        yield stage


@pytest.fixture
def early(early_stage, request):
    yield from check_accounting(early_stage, request)


def received(stage):
    """Packets that workers have received so far."""
    return sum(worker["rx_packets"] for worker in stage.steelyard.get("workers"))


def dropped(stage, reason):
    return stage.steelyard.drops().get(reason, 0)


def send_datagrams(stage, family, port, count=MANY):
    with stage.client.ns.socket(
        socket.AF_INET if family == 4 else socket.AF_INET6, socket.SOCK_DGRAM
    ) as out:
        for _ in range(count):
            out.sendto(b"steelyard", (VIP[family], port))


def is_dropped_early(stage, family, reason="no-service", port=CLOSED):
    """Sends datagrams; true if they were counted, and fewer came to workers than were sent."""
    before, reached = dropped(stage, reason), received(stage)
    send_datagrams(stage, family, port)
    wait_until(lambda: dropped(stage, reason) >= before + MANY, f"{MANY} more {reason}")
    return received(stage) - reached < MANY


def wait_dropped_early(stage, family):
    wait_until(lambda: is_dropped_early(stage, family), "the flow director drops them")


@pytest.mark.drops("no-service")
@families
def test_ports_without_a_service(early, family):
    wait_dropped_early(early, family)
    with pytest.raises(TimeoutError):
        connect(early.client, VIP[family], CLOSED, timeout_s=0.5)
    assert http_get(early.client, VIP[family], WEB)


@pytest.mark.drops("no-service", "no-session", "no-server")
@families
def test_a_new_service_gets_its_packets_at_once(early, family):
    wait_dropped_early(early, family)
    server = early.config[f"echo{family}"].servers
    early.config.services.append(Service(f"new{family}", VIP[family], CLOSED, servers=server))
    early.apply()
    with connect(early.client, VIP[family], CLOSED, timeout_s=0.9) as one:
        one.sendall(b"x")
        assert one.recv(1) == b"x"


@pytest.mark.drops("no-service", "no-session")
@families
def test_after_a_restart_and_an_upgrade(early, family):
    wait_dropped_early(early, family)
    early.steelyard.restart_forwarder()
    early.steelyard.wait_reconnected()
    wait_dropped_early(early, family)
    assert http_get(early.client, VIP[family], WEB)
    early.steelyard.upgrade()
    early.steelyard.wait_reconnected()
    wait_dropped_early(early, family)
    assert http_get(early.client, VIP[family], WEB)
    early.steelyard.kill_forwarder()
    early.steelyard.start_forwarder()
    early.steelyard.wait_reconnected()
    wait_dropped_early(early, family)
    assert http_get(early.client, VIP[family], WEB)


@pytest.mark.drops("ttl-expired")
@families
def test_traceroute_is_answered(early, family):
    """A TTL of 1 to a port without a service: the forwarder answers, as any router does."""
    level, option = (
        (socket.IPPROTO_IP, socket.IP_TTL)
        if family == 4
        else (socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS)
    )
    receive = (socket.IPPROTO_IP, 11) if family == 4 else (socket.IPPROTO_IPV6, 25)
    with early.client.ns.socket(
        socket.AF_INET if family == 4 else socket.AF_INET6, socket.SOCK_DGRAM
    ) as out:
        out.setsockopt(level, option, 1)
        out.setsockopt(*receive, 1)
        out.connect((VIP[family], CLOSED))
        out.send(b"steelyard")

        def error():
            try:
                return out.recvmsg(100, 500, socket.MSG_ERRQUEUE)[1]
            except BlockingIOError:
                return None

        out.setblocking(False)
        told = wait_until(error, "the error has come")
        assert ipaddress.ip_address(VIP[family]).packed in told[0][2]

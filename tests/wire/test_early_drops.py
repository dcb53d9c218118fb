# SPDX-License-Identifier: Apache-2.0
"""The flow director drops packets before a worker receives them, counted under the workers' drop
reasons; in native and in generic mode."""

import contextlib
import ipaddress
import socket

import pytest

from tests.lab import wait_until
from tests.lab.clients import connect, http_get, receive_exactly
from tests.lab.config import Service
from tests.lab.steelyard import VIP, WEB
from tests.lab.wait import within_tries
from tests.wire.conftest import check_accounting
from tests.wire.stage import ECHO, Stage

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


def echoes(one):
    one.sendall(b"x")
    return receive_exactly(one, 1) == b"x"


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
    """Sends datagrams; returns whether they were counted and workers received fewer than were
    sent."""
    before, reached = dropped(stage, reason), received(stage)
    send_datagrams(stage, family, port)
    wait_until(lambda: dropped(stage, reason) >= before + MANY, f"{MANY} more {reason}")
    return received(stage) - reached < MANY


def wait_dropped_early(stage, family):
    wait_until(lambda: is_dropped_early(stage, family), "the flow director drops them")


@pytest.mark.drops("no-service")
@families
def test_datagrams_to_closed_ports_are_dropped_early(early, family):
    wait_dropped_early(early, family)
    with pytest.raises(TimeoutError):
        connect(early.client, VIP[family], CLOSED, timeout_s=0.5)
    assert http_get(early.client, VIP[family], WEB)


@pytest.mark.drops("no-service", "no-session", "no-server")
@families
def test_new_service_receives_its_first_packet(early, family):
    server = early.config[f"echo{family}"].servers
    new = Service(f"new{family}", VIP[family], CLOSED, servers=server)

    def gets_its_first():
        """Not its second SYN, after a second; tries again if the machine stood still."""
        wait_dropped_early(early, family)
        early.config.services.append(new)
        early.apply()
        try:
            with connect(early.client, VIP[family], CLOSED, timeout_s=0.9) as one:
                one.settimeout(60)
                one.sendall(b"x")
                return one.recv(1) == b"x"
        except TimeoutError:
            early.config.services.remove(new)
            early.apply()
            return False

    within_tries(3, gets_its_first, "the first packet is served")


@pytest.mark.drops("no-service", "no-session")
@families
def test_early_drops_continue_after_a_restart_and_an_upgrade(early, family):
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


def send_syns(stage, family, count=MANY):
    """Sends one SYN from each of so many sockets, without waiting for answers."""
    kind = socket.AF_INET if family == 4 else socket.AF_INET6
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            one = stack.enter_context(stage.client.ns.socket(kind, socket.SOCK_STREAM))
            one.setblocking(False)
            one.connect_ex((VIP[family], WEB))


def is_blocked_early(stage, family):
    """Sends SYNs; returns whether all were dropped and workers received fewer than were sent."""
    before, reached = dropped(stage, "acl-drop"), received(stage)
    send_syns(stage, family)
    wait_until(lambda: dropped(stage, "acl-drop") >= before + MANY, f"{MANY} more acl-drop")
    return received(stage) - reached < MANY


def wait_blocked_early(stage, family):
    wait_until(lambda: is_blocked_early(stage, family), "the flow director drops the SYNs")


def wait_syns_reach_workers(stage, family):
    reached = received(stage)
    send_syns(stage, family)
    wait_until(lambda: received(stage) >= reached + MANY, "the SYNs reach workers")


def set_edge(stage, *rules):
    stage.config.access_lists = [{"name": "edge", "rules": list(rules)}]
    stage.config.access = "edge"
    stage.apply()


@pytest.mark.drops("acl-drop", "no-service")
@families
def test_syns_of_blocked_sources_are_dropped_early(early, family):
    """Workers do not receive SYNs of sources that the first rules drop. Existing sessions continue,
    also across restarts, and unblocked clients connect."""
    wait_dropped_early(early, family)  # the flow director has the services
    client = early.client.address(family)
    with connect(early.client, VIP[family], ECHO) as before:
        early.config.access_sets = [{"name": "bad", "prefixes": [client, "203.0.113.0/24"]}]
        set_edge(
            early,
            {"action": "drop", "from": ["2001:db8:9::/48", "198.51.100.0/24"]},
            {"action": "drop", "from": ["bad"]},
        )
        wait_blocked_early(early, family)
        assert early.steelyard.get("access")[0]["dropped_early"] > 0
        assert echoes(before)
        early.steelyard.restart_forwarder()
        early.steelyard.wait_reconnected()
        wait_blocked_early(early, family)
        assert echoes(before)
        early.steelyard.upgrade()
        early.steelyard.wait_reconnected()
        wait_blocked_early(early, family)
        assert echoes(before)
    early.config.access_sets[0]["prefixes"].remove(client)
    early.apply()
    assert http_get(early.client, VIP[family], WEB)


@pytest.mark.drops("acl-drop", "no-service")
def test_undecidable_rules_are_left_to_workers(early):
    """A rule of another kind may accept, count or log packets that a later rule drops."""
    wait_dropped_early(early, 4)
    drop = {"action": "drop", "from": [early.client.address(4)]}
    for first in (
        {"action": "allow", "from": ["203.0.113.0/24"]},
        {"action": "count", "protocol": "tcp"},
        drop | {"log": 1000},
        drop | {"ports": [WEB]},
    ):
        set_edge(early, first, drop)
        wait_syns_reach_workers(early, 4)


@pytest.mark.drops("ttl-expired")
@families
def test_traceroute_to_a_closed_port_is_answered(early, family):
    """TTL 1 to a port without a service: the forwarder answers like any router."""
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
        told = wait_until(error, "the error has arrived")
        assert ipaddress.ip_address(VIP[family]).packed in told[0][2]

# SPDX-License-Identifier: Apache-2.0
"""Floods on VIPs leave the host's own traffic alone: its connections, health checks and the control
socket."""

import contextlib

import pytest

from tests.lab import wait_until
from tests.lab.clients import connect, http_get, receive_exactly
from tests.lab.flood import flooding, provide_internet
from tests.lab.servers import EchoServer
from tests.lab.steelyard import VIP, WEB
from tests.wire.stage import Stage

HOST_ECHO = 2222  # stands for ssh
KEYS, LOGINS = 200, 10
RATE = 100_000  # packets/s: leaves other programs enough of a core
# A check may be late on a busy machine, but not by this much.
PATIENT = {"interval": "2s", "timeout": "2s", "rise": 1, "fall": 3}
FLOODS = (
    ("syn", WEB, 4),
    ("udp", 53, 4),
    ("udp", "1024-65535", 4),
    ("udp", "1024-65535", 6),
    ("icmp", 1, 4),
)


@pytest.fixture(scope="module", params=(1, 2), ids=("1-worker", "2-workers"))
def flooded_stage(request):
    """Two workers use all cores of a machine with two."""
    with Stage(workers=request.param) as stage:
        provide_internet(stage.lab)
        for service in stage.config.services:
            if service.health and service.health["type"] != "none":
                service.health = service.health | PATIENT
        stage.apply()
        stage.steelyard.wait_all_up()
        yield stage


@pytest.mark.parametrize(
    "kind, port, family", FLOODS, ids=("syn", "udp", "closed-v4", "closed-v6", "icmp")
)
def test_flooded_host_still_serves_its_own_connections(flooded_stage, kind, port, family):
    stage = flooded_stage
    address = stage.lab["forwarder"].address(family)
    server = EchoServer(stage.lab["forwarder"], HOST_ECHO, family)
    with contextlib.closing(server), connect(stage.client, address, HOST_ECHO) as session:
        before = stage.steelyard.api.call("GetStatus").forwarder.status
        with flooding(stage.lab, kind, VIP[family], str(port), rate=RATE) as flood:
            for _ in range(KEYS):
                session.sendall(b"x")
                assert receive_exactly(session, 1) == b"x"
            for _ in range(LOGINS):
                with connect(stage.client, address, HOST_ECHO) as login:
                    login.sendall(b"y")
                    assert receive_exactly(login, 1) == b"y"
                status = stage.steelyard.get("status")
                assert status["forwarder"]["connected"]
                assert all(state == "up" for state in stage.steelyard.states().values())
    assert flood["sent"]
    assert before.pid == stage.steelyard.forwarder.pid
    wait_until(lambda: http_get(stage.client, VIP[4], WEB), "the VIP is served")

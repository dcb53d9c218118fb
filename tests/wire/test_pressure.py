# SPDX-License-Identifier: Apache-2.0
"""Floods that fill tables and local ports: other clients begin their sessions meanwhile."""

import os

import pytest

from tests.lab import wait_until
from tests.lab.clients import HttpConnection, http_get
from tests.lab.flood import finish_flood, provide_internet, start_flood
from tests.lab.steelyard import DNS, VIP, WEB
from tests.lab.traffic import paced
from tests.wire.conftest import check_accounting
from tests.wire.stage import Stage

REQUESTS = 40
RATE = 8000  # fills the share in four seconds, and leaves a busy machine time
PATIENCE = "20s"  # a full receive queue may lose a client's SYN twice
pytestmark = pytest.mark.skipif(
    "SY_BUILD" in os.environ, reason="floods keep time in the plain build only"
)
families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
DROPS = pytest.mark.drops(
    "no-session", "unproven-evicted", "session-evicted", "bad-tcp-state", "no-local-port"
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
    return stage.accounting.dropped().get("unproven-evicted", 0)


def ask_beside(stage, kind, family, port):
    """Requests succeed during a flood, and at once after it; open connections live."""
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
def test_datagrams_at_another_service(stage, family):
    """Their servers answer none of them."""
    next(s for s in stage.config.services if s.name == f"dns{family}").servers[0].port = 9
    stage.apply()
    stage.steelyard.wait_in_sync()
    report = ask_beside(stage, "udp", family, DNS)
    assert report["answered"] == report["planned"], report


@families
@DROPS
def test_syns_at_the_same_service(stage, family):
    """Without SYN cookies: a client that has the flood's port from before needs a second SYN."""
    report = ask_beside(stage, "syn", family, WEB)
    assert report["answered"] == report["planned"], report

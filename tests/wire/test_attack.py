# SPDX-License-Identifier: Apache-2.0
"""Small floods beside open connections; `make demo DEMO=attack` runs large ones."""

import os

import pytest

from tests.lab import wait_until
from tests.lab.clients import HttpConnection
from tests.lab.flood import answers_to_forged, finish_flood, start_flood
from tests.lab.steelyard import DNS, VIP, WEB
from tests.lab.traffic import SlowClients, paced
from tests.wire.conftest import check_accounting

RATE, SECONDS, CONNECTIONS = 4000, 1, 20
# A flood has to send each second's packets within that second; a sanitized forwarder is too slow.
pytestmark = [
    pytest.mark.both_builds,
    pytest.mark.skipif("SY_BUILD" in os.environ, reason="floods keep time in the plain build only"),
]
families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))


@pytest.fixture
def stage(flood_stage, request):
    yield from check_accounting(flood_stage, request)


def flood(stage, kind, family, port, **options):
    """Sends a flood; returns the packets sent. Every open connection must answer meanwhile."""
    connections = [HttpConnection(stage.client, VIP[family], WEB) for _ in range(CONNECTIONS)]
    servers = [connection.get() for connection in connections]
    process = start_flood(stage.lab, kind, VIP[family], port, RATE, SECONDS, **options)
    while process.alive():
        assert [connection.get() for connection in connections] == servers
    sent = finish_flood(process, wait=True)["sent"]
    assert [connection.get() for connection in connections] == servers
    for connection in connections:
        connection.close()
    assert sent
    return sent


@families
@pytest.mark.drops("no-session")
def test_segments_without_a_session_are_dropped(stage, family):
    """All count under one drop reason; their checksums are valid, so none is dropped as
    malformed."""
    sent = flood(stage, "syn-ack,ack,rst,fin", family, WEB)
    wait_until(
        lambda: stage.accounting.dropped().get("no-session", 0) >= sent, "all of them were dropped"
    )
    report = paced(stage.lab, 50, 1)
    assert report["answered"] == report["planned"], report


@families
@pytest.mark.drops("fragment-wait-full", "fragment-timeout")
def test_incomplete_fragments_are_dropped(stage, family):
    sent = flood(stage, "fragment,first-fragment", family, DNS)
    wait_until(lambda: sum(stage.accounting.dropped().values()) >= sent, "all of them were dropped")
    report = paced(stage.lab, 50, 1)
    assert report["answered"] == report["planned"], report


# A delayed flood catches up, and may then exceed the rate limit of replies.
@families
@pytest.mark.drops("echo-rate")
def test_echo_request_flood_leaves_open_connections_alone(stage, family):
    flood(stage, "icmp", family, 1)
    report = paced(stage.lab, 50, 1)
    assert report["answered"] == report["planned"], report


@families
@pytest.mark.drops("no-service")
def test_datagrams_to_closed_ports_are_dropped(stage, family):
    """All of them are dropped, but only after the worker received them."""
    sent = flood(stage, "udp", family, "1024-65535")
    wait_until(
        lambda: stage.accounting.dropped().get("no-service", 0) >= sent, "all of them were dropped"
    )


@families
@pytest.mark.drops(
    "no-session", "no-local-port", "table-full", "session-evicted", "embryonic-evicted"
)
def test_forged_syns_leave_open_connections_alone(stage, family):
    before = answers_to_forged(stage.lab)
    flood(stage, "syn", family, WEB)
    wait_until(lambda: answers_to_forged(stage.lab) > before, "SYNs are answered")


@families
@pytest.mark.drops("no-local-port", "table-full", "session-evicted", "embryonic-evicted")
def test_datagram_flood_leaves_open_connections_alone(stage, family):
    flood(stage, "udp", family, DNS)


@families
def test_slow_clients_leave_others_alone(stage, family):
    """Connections with unfinished requests do not delay others."""
    targets = (f"{VIP[4]}:{WEB}",) if family == 4 else (f"[{VIP[6]}]:{WEB}",)
    with SlowClients(stage.lab, 500, targets=targets) as slow:
        report = paced(stage.lab, 50, 1)
        assert slow.count_open() == 500
    assert report["answered"] == report["planned"], report

# SPDX-License-Identifier: Apache-2.0
"""Small floods beside open connections. `make demo DEMO=attack` has the large ones."""

import time

import pytest

from tests.lab import wait_until
from tests.lab.clients import HttpConnection
from tests.lab.flood import answers_to_forged, finish_flood, provide_internet, start_flood
from tests.lab.steelyard import DNS, VIP, WEB
from tests.lab.traffic import SlowClients, paced
from tests.wire.conftest import check_accounting
from tests.wire.stage import Stage

RATE, SECONDS, CONNECTIONS = 4000, 1, 20
METRICS = "127.0.0.1:9271"
LEARNED_S = 13  # after its start a forwarder knows what is usual
families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))


@pytest.fixture(scope="module", params=(1, 2), ids=("1-worker", "2-workers"))
def flood_stage(request):
    with Stage(workers=request.param, queues=request.param) as stage:
        provide_internet(stage.lab)
        yield stage


@pytest.fixture
def stage(flood_stage, request):
    yield from check_accounting(flood_stage, request)


def flood(stage, kind, family, port, **options):
    """Floods, and returns the packets sent; every open connection must answer meanwhile."""
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
@pytest.mark.parametrize("kind", ("syn-ack", "ack", "rst", "fin"))
@pytest.mark.drops("no-session")
def test_segments_of_no_connection(stage, kind, family):
    """They are dropped by one name, whole: their checksums are right. Nobody notices."""
    sent = flood(stage, kind, family, WEB)
    wait_until(
        lambda: stage.accounting.dropped().get("no-session", 0) >= sent, "all of them were dropped"
    )
    report = paced(stage.lab, 50, 1)
    assert report["answered"] == report["planned"], report


@families
@pytest.mark.drops("fragment-wait-full", "fragment-timeout", "fragment-table-full", "no-service")
def test_fragments_without_the_rest(stage, family):
    sent = flood(stage, "fragment,first-fragment", family, DNS)
    wait_until(lambda: sum(stage.accounting.dropped().values()) >= sent, "all of them were dropped")
    report = paced(stage.lab, 50, 1)
    assert report["answered"] == report["planned"], report


@families
def test_echo_requests(stage, family):
    flood(stage, "icmp", family, 1)
    report = paced(stage.lab, 50, 1)
    assert report["answered"] == report["planned"], report


@families
@pytest.mark.drops("no-service")
def test_ports_without_a_service(stage, family):
    """The whole flood is dropped, if only after it was received."""
    sent = flood(stage, "udp", family, "1024-65535")
    wait_until(
        lambda: stage.accounting.dropped().get("no-service", 0) >= sent, "all of them were dropped"
    )


@families
@pytest.mark.drops("no-session", "no-local-port", "table-full", "session-evicted")
def test_forged_syns_leave_open_connections_alone(stage, family):
    before = answers_to_forged(stage.lab)
    flood(stage, "syn", family, WEB)
    wait_until(lambda: answers_to_forged(stage.lab) > before, "SYNs are answered")


@families
@pytest.mark.drops("no-local-port", "table-full", "session-evicted")
def test_datagrams_leave_open_connections_alone(stage, family):
    flood(stage, "udp", family, DNS)


@families
def test_slow_clients(stage, family):
    """Connections that do not finish their request take nothing from the others."""
    targets = (f"{VIP[4]}:{WEB}",) if family == 4 else (f"[{VIP[6]}]:{WEB}",)
    with SlowClients(stage.lab, 500, targets=targets) as slow:
        report = paced(stage.lab, 50, 1)
        assert slow.held() == 500
    assert report["answered"] == report["planned"], report


@pytest.mark.drops("no-session")
def test_a_flood_is_reported(stage):
    """What, at whom, how much, since when, what is done; and in the metrics."""

    def report():
        return [one.attack for one in stage.steelyard.api.call("ListAttacks").attacks]

    stage.config.metrics = METRICS
    stage.apply()
    started = stage.steelyard.api.call("GetStatus").forwarder.status.started_unix_s
    wait_until(lambda: time.time() > started + LEARNED_S, "the forwarder knows what is usual")
    process = start_flood(stage.lab, "ack", VIP[4], WEB, RATE)
    wait_until(lambda: any(a.kind == "stray-tcp" for a in report()), "the flood is listed", 60)
    attack = next(a for a in report() if a.kind == "stray-tcp")
    assert (attack.service_name, attack.ended_unix_ms) == ("web4", 0)
    assert attack.packets > 0
    assert attack.usual < attack.rate
    assert "no-session" in attack.done[0]
    (shown,) = stage.steelyard.get("attacks")
    assert (shown["kind"], shown["service"]) == ("stray-tcp", "web4")
    scrape = ["curl", "-sS", f"http://{METRICS}/metrics"]
    text = stage.lab["forwarder"].ns.run(scrape)
    assert 'steelyard_attack_active{kind="stray-tcp",service="web4"} 1' in text
    sent = finish_flood(process)["sent"]
    wait_until(
        lambda: stage.accounting.dropped().get("no-session", 0) >= sent, "all of them were dropped"
    )

# SPDX-License-Identifier: Apache-2.0
"""`syn_defence: auto`, as it is by default: a flood of forged SYNs switches it on for its service,
its end switches it off. Nothing depends on how fast the machine is: the tables are small, so that
few half-open sessions are too many, and the flood is slow. So one build is enough."""

import pytest

from tests.lab import wait_until
from tests.lab.clients import HttpConnection, http_get, wrk
from tests.lab.flood import finish_flood, provide_internet, start_flood
from tests.lab.steelyard import VIP, WEB
from tests.wire.conftest import check_accounting
from tests.wire.stage import Stage

RATE = 800
SESSIONS = 16384
TOO_MANY = SESSIONS // 16  # that are half open
REQUESTS = 40
PATIENCE_S = 90  # for a switch
METRICS = "127.0.0.1:9273"
families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))


@pytest.fixture(scope="module", params=(1, 2), ids=("1-worker", "2-workers"))
def auto_stage(request):
    stage = Stage(workers=request.param, queues=request.param, running=False)
    with stage:
        provide_internet(stage.lab)
        stage.start(sessions=SESSIONS)
        yield stage


@pytest.fixture
def stage(auto_stage, request):
    yield from check_accounting(auto_stage, request)


def defence(stage, name):
    return stage.steelyard.service(name)["syn_defence_counts"]


def is_on(stage, name):
    return defence(stage, name)["on"]


def log_of(stage, words):
    return [line for line in stage.steelyard.forwarder.output().splitlines() if words in line]


@families
@pytest.mark.drops("no-session", "unproven-evicted", "no-local-port", "opening")
def test_a_flood_switches_it_on_for_its_service_alone(stage, family):
    """Connections live on, requests succeed before, during and after; all of it is told."""
    stage.config.metrics = METRICS
    stage.apply()
    web, other = f"web{family}", f"web{10 - family}"
    assert stage.steelyard.service(web)["syn_defence"] == "auto"
    before = defence(stage, web)
    assert not before["on"]
    lasting = [HttpConnection(stage.client, VIP[family], WEB) for _ in range(10)]
    servers = [connection.get() for connection in lasting]
    logged = len(log_of(stage, f"SYN defence of service {web} "))

    flood = start_flood(stage.lab, "syn", VIP[family], WEB, RATE)
    wait_until(lambda: is_on(stage, web), "the flood switches it on", PATIENCE_S)
    assert not is_on(stage, other)
    assert not is_on(stage, f"echo{family}")
    during = [http_get(stage.client, VIP[family], WEB) for _ in range(REQUESTS)]
    assert len(during) == REQUESTS
    assert [connection.get() for connection in lasting] == servers
    assert http_get(stage.client, VIP[10 - family], WEB)
    assert flood.alive()
    now = defence(stage, web)
    assert now["on"] and now["switched_on"] == before["switched_on"] + 1
    assert "half-open sessions" in now["why"] or "not completed" in now["why"]
    assert now["answered"] > before["answered"] + REQUESTS
    assert now["returned"] >= before["returned"] + REQUESTS
    assert not is_on(stage, other)
    line = next(
        line
        for line in stage.steelyard.cli("get", "services").splitlines()
        if line.startswith(f"{web} ")
    )
    assert "auto (on)" in line
    assert "switched on" in stage.steelyard.cli("describe", "service", web)
    text = stage.lab["forwarder"].ns.run(["curl", "-sS", f"http://{METRICS}/metrics"])
    assert any(
        line.startswith("steelyard_service_syn_defence_on{")
        and f'service="{web}"' in line
        and line.endswith(" 1")
        for line in text.splitlines()
    )

    assert "steelyard_service_half_open_sessions{" in text
    assert "steelyard_forwarder_unproven_sessions " in text
    assert "sessions_unproven" in stage.steelyard.get("status")["forwarder"]

    sent = finish_flood(flood)
    assert sent["sent"]
    wait_until(lambda: not is_on(stage, web), "its end switches it off", PATIENCE_S)
    assert defence(stage, web)["switched_on"] == now["switched_on"]
    assert len(log_of(stage, f"SYN defence of service {web} ")) == logged + 2
    answered = defence(stage, web)["answered"]
    after = [http_get(stage.client, VIP[family], WEB) for _ in range(REQUESTS)]
    assert len(after) == REQUESTS
    assert defence(stage, web)["answered"] == answered  # SYNs reach the servers again
    assert [connection.get() for connection in lasting] == servers
    for connection in lasting:
        connection.close()


# Servers still repeat the SYN-ACKs of a flood before.
@pytest.mark.drops("no-session")
def test_requests_alone_do_not_switch_it_on(stage):
    """Four times as many connections as are too many if they are half open, as fast as they go,
    each completed. Their sessions stay for a while."""
    for family in (4, 6):
        before = defence(stage, f"web{family}")
        created = stage.steelyard.service(f"web{family}")["traffic"]["sessions_created"]
        host = f"[{VIP[6]}]" if family == 6 else VIP[4]
        load = wrk(stage.lab, f"http://{host}:{WEB}/", 4 * TOO_MANY, keep_alive=False)
        assert not load.failed, load
        now = stage.steelyard.service(f"web{family}")
        assert now["traffic"]["sessions_created"] >= created + 4 * TOO_MANY
        assert not now["syn_defence_counts"]["on"]
        assert now["syn_defence_counts"]["switched_on"] == before["switched_on"]

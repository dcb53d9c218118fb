# SPDX-License-Identifier: Apache-2.0
"""`syn_defence: auto`, the default: forged SYNs switch the defence on for their service; it
switches off when they end.

No result depends on the machine's speed: tables are small, so few half-open sessions exceed the
threshold, and the flood is slow. Therefore the plain build suffices: no sanitized run."""

import pytest

from tests.lab import wait_until
from tests.lab.clients import HttpConnection, http_get, wrk
from tests.lab.flood import finish_flood, provide_internet, start_flood
from tests.lab.steelyard import VIP, WEB
from tests.wire.conftest import check_accounting
from tests.wire.stage import Stage

RATE = 800
SESSIONS = 16384
TOO_MANY = SESSIONS // 16  # half-open sessions
REQUESTS = 40
METRICS = "127.0.0.1:9273"


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


class Flooded:
    """The flooded web service of one family, and ten connections to it."""

    def __init__(self, stage, family):
        self.stage, self.family, self.web = stage, family, f"web{family}"
        assert stage.steelyard.service(self.web)["syn_defence"] == "auto"
        self.before = defence(stage, self.web)
        assert not self.before["on"]
        self.lasting = [HttpConnection(stage.client, VIP[family], WEB) for _ in range(10)]
        self.servers = [connection.get() for connection in self.lasting]
        self.logged = len(self.log())

    def log(self):
        return log_of(self.stage, f"SYN defence of service {self.web} ")

    def ask(self):
        """Every request is answered, and connections keep their servers."""
        for _ in range(REQUESTS):
            http_get(self.stage.client, VIP[self.family], WEB)
        assert [connection.get() for connection in self.lasting] == self.servers

    def switches_on(self):
        stage, before = self.stage, self.before
        flood = start_flood(stage.lab, "syn", VIP[self.family], WEB, RATE)
        wait_until(lambda: is_on(stage, self.web), "the flood switches it on")
        assert not is_on(stage, f"echo{self.family}")
        self.ask()
        assert flood.alive()
        # on a busy host the flood may have sent nothing while the requests ran
        wait_until(
            lambda: defence(stage, self.web)["answered"] > before["answered"] + REQUESTS,
            "SYNs of the flood are answered, too",
        )
        now = defence(stage, self.web)
        assert now["on"] and now["switched_on"] == before["switched_on"] + 1
        assert "half-open sessions" in now["why"] or "not completed" in now["why"]
        assert now["returned"] >= before["returned"] + REQUESTS
        self.is_reported()
        assert finish_flood(flood)["sent"]

    def is_reported(self):
        steelyard = self.stage.steelyard
        lines = steelyard.cli("get", "services").splitlines()
        (line,) = (line for line in lines if line.startswith(f"{self.web} "))
        assert "auto (on)" in line
        assert "switched on" in steelyard.cli("describe", "service", self.web)
        scrape = ["curl", "-sS", f"http://{METRICS}/metrics"]
        text = self.stage.lab["forwarder"].ns.run(scrape)
        assert any(
            line.startswith("steelyard_service_syn_defence_on{")
            and f'service="{self.web}"' in line
            and line.endswith(" 1")
            for line in text.splitlines()
        )
        assert "steelyard_service_half_open_sessions{" in text
        assert "steelyard_forwarder_embryonic_sessions " in text
        assert "sessions_embryonic" in steelyard.get("status")["forwarder"]

    def switches_off(self):
        stage = self.stage
        wait_until(lambda: not is_on(stage, self.web), "its end switches it off")
        now = defence(stage, self.web)
        assert now["switched_on"] == self.before["switched_on"] + 1
        assert len(self.log()) == self.logged + 2
        self.ask()
        assert defence(stage, self.web)["answered"] == now["answered"]  # SYNs reach the servers
        for connection in self.lasting:
            connection.close()


@pytest.mark.drops("no-session", "embryonic-evicted", "no-local-port", "opening")
def test_flood_switches_the_defence_on_for_its_service_alone(stage):
    """Connections survive, requests succeed before, during and after; every transition is
    reported."""
    stage.config.metrics = METRICS
    stage.apply()
    first, second = Flooded(stage, 4), Flooded(stage, 6)
    first.switches_on()
    assert not is_on(stage, second.web)
    second.ask()
    second.switches_on()
    first.switches_off()
    second.switches_off()


# Servers may still retransmit SYN-ACKs of an earlier flood.
@pytest.mark.drops("no-session")
def test_completed_connections_do_not_switch_the_defence_on(stage):
    """Four times as many connections as the threshold of half-open ones, at full speed, each
    completed. Their sessions remain for a while."""
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

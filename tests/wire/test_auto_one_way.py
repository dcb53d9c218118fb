# SPDX-License-Identifier: Apache-2.0
"""`syn_defence: auto` under DR and IPIP: forged SYNs switch the defence on for their service,
clients then validate their address; it switches off when the flood ends.

As in test_auto_defence.py, no result depends on the machine's speed."""

import contextlib

import pytest

from tests.lab import wait_until
from tests.lab.clients import HttpConnection, http_get
from tests.lab.flood import answers_to_forged, finish_flood, provide_internet, start_flood
from tests.lab.mode_table import ROWS, VIP_ON_SERVERS
from tests.wire.conftest import check_accounting
from tests.wire.mode_stage import ModeStage

RATE = 800
SESSIONS = 16384  # a sixteenth of them may be half open
SEEN = 15  # connections of a client that was served before the flood, without validation
# The defence does not depend on the tunnel's family.
FLOODED = [row for row in ROWS if row.mode in VIP_ON_SERVERS and (row.client, row.server) != (4, 6)]


class AutoStage(ModeStage):
    def start(self):
        super().start(sessions=SESSIONS)
        provide_internet(self.lab)
        for service in self.default.services:
            if service.protocol == "tcp" and service.mode in VIP_ON_SERVERS:
                service.spread["syn_defence"] = "auto"
        self.restore()

    def counts(self, row):
        return self.steelyard.service(f"web-{row}")["syn_defence_counts"]

    def is_on(self, row):
        return self.counts(row)["on"]

    def get(self, row):
        return http_get(self.lab["far"], row.vip, row.ports[0]).decode().strip()


@pytest.fixture(scope="module")
def auto_stage():
    with AutoStage(arms=1, workers=2, queues=2) as stage:
        yield stage


@pytest.fixture
def stage(auto_stage, request):
    yield from check_accounting(auto_stage, request)


def row_is_flooded(stage, row, others, lasting):
    """The flood switches the defence on for its service alone, then ends."""
    before, sent_before = stage.counts(row), answers_to_forged(stage.lab)
    assert not before["on"]
    server = lasting.get()
    flood = start_flood(stage.lab, "syn", row.vip, str(row.ports[0]), RATE)
    wait_until(lambda: stage.is_on(row), "the flood switches it on")
    assert not any(map(stage.is_on, others))
    assert {stage.get(row) for _ in range(SEEN + 30)} <= stage.hosts.names()
    assert lasting.get() == server
    assert flood.alive()
    now = stage.counts(row)
    assert now["on"] and now["switched_on"] == before["switched_on"] + 1
    # The client has validated its address; forged sources are challenged without reaching a server.
    assert now["returned"] > before["returned"]
    wait_until(lambda: answers_to_forged(stage.lab) > sent_before, "forged SYNs are answered")
    lines = stage.steelyard.cli("get", "services").splitlines()
    (line,) = (line for line in lines if line.startswith(f"web-{row} "))
    assert "auto (on)" in line
    finish_flood(flood)
    return server


# Servers answer forged SYNs until the defence is on; the router then reports the unreachable
# sources.
@pytest.mark.drops("syn-proof", "no-session", "icmp-unhandled", "embryonic-evicted")
def test_flood_switches_the_defence_on_for_its_service_alone(stage):
    """Floods one service after the other, and waits for the ends of all floods together."""
    with contextlib.ExitStack() as stack:
        lasting, servers = {}, {}
        for number, row in enumerate(FLOODED):
            one = HttpConnection(stage.lab["far"], row.vip, row.ports[0])
            lasting[row] = stack.enter_context(one)
            servers[row] = row_is_flooded(stage, row, FLOODED[number + 1 :], one)
        for row in FLOODED:
            wait_until(lambda row=row: not stage.is_on(row), "its end switches it off")
            asked = stage.counts(row)["answered"]
            assert {stage.get(row) for _ in range(SEEN + 30)} == stage.hosts.names()
            assert stage.counts(row)["answered"] == asked  # no client is challenged any more
            assert lasting[row].get() == servers[row]

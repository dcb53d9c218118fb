# SPDX-License-Identifier: Apache-2.0
"""What `steelyard get attacks` says of a flood. A file of its own: floods of other tests would have
become what is usual."""

import os
import time

import pytest

from tests.lab import wait_until
from tests.lab.flood import finish_flood, start_flood
from tests.lab.steelyard import VIP, WEB
from tests.wire.conftest import check_accounting

RATE = 4000
METRICS = "127.0.0.1:9271"
LEARNED_S = 13  # after its start a forwarder knows what is usual
# A flood must send in a second what is due in it: a sanitized forwarder leaves no time for that.
pytestmark = [
    pytest.mark.both_builds,
    pytest.mark.skipif("SY_BUILD" in os.environ, reason="floods keep time in the plain build only"),
]


@pytest.fixture
def stage(flood_stage, request):
    yield from check_accounting(flood_stage, request)


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

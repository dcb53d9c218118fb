# SPDX-License-Identifier: Apache-2.0
"""Where `steelyard get attacks` says that a flood comes from."""

import os

import pytest

from tests.lab import wait_until
from tests.lab.flood import finish_flood, start_flood, wait_for_usual
from tests.lab.steelyard import DNS, VIP
from tests.wire.conftest import check_accounting

RATE = 4000
NETWORK = "64.1.2.0/24"
pytestmark = [
    pytest.mark.both_builds,
    pytest.mark.skipif("SY_BUILD" in os.environ, reason="floods keep time in the plain build only"),
]


@pytest.fixture
def stage(flood_stage, request):
    yield from check_accounting(flood_stage, request)


def listed(stage, service, told):
    """The listed flood at a service, once its sources are known."""
    for attack in stage.steelyard.get("attacks"):
        if (attack["kind"], attack["service"]) == ("udp-flood", service) and told(attack):
            return attack
    return None


@pytest.mark.drops("no-local-port", "table-full", "session-evicted")
def test_sources_are_named_or_called_spoofed(stage):
    """A flood of one network is named by it; one of random addresses is called spoofed."""
    wait_for_usual(stage.steelyard)
    one = start_flood(stage.lab, "udp", VIP[4], DNS, RATE, prefix=NETWORK)
    many = start_flood(stage.lab, "udp", VIP[6], DNS, RATE)
    attack = wait_until(lambda: listed(stage, "dns4", lambda a: a["from"]), "its network", 60)
    assert attack["from"][0]["network"] == NETWORK
    assert attack["from"][0]["percent"] > 90
    attack = wait_until(lambda: listed(stage, "dns6", lambda a: a.get("spread")), "its kind", 60)
    assert attack["spread"] == "spoofed or very many"
    assert attack["from"] == []
    table = stage.steelyard.cli("get", "attacks")
    assert f"{NETWORK} " in table and "spoofed or very many" in table
    finish_flood(one)
    finish_flood(many)

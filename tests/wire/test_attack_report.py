# SPDX-License-Identifier: Apache-2.0
"""What `steelyard get attacks` reports of a flood and its sources.

In a file of its own, because floods of other tests would raise the baseline of usual traffic. Each
test uses its own kinds and services, so it waits for the baseline once."""

import json
import os
import re

import pytest

from tests.lab import wait_until
from tests.lab.flood import finish_flood, start_flood, wait_for_usual
from tests.lab.steelyard import DNS, VIP, WEB
from tests.wire.conftest import check_accounting

RATE = 4000
ECHOES = 60_000  # a multiple of the answered rate
METRICS = "127.0.0.1:9271"
NETWORK = "64.1.2.0/24"
# A flood has to send each second's packets within that second; a sanitized forwarder is too slow.
pytestmark = [
    pytest.mark.both_builds,
    pytest.mark.skipif("SY_BUILD" in os.environ, reason="floods keep time in the plain build only"),
]


@pytest.fixture
def stage(flood_stage, request):
    yield from check_accounting(flood_stage, request)


def begin_flood(stage, kind, attack, parts=1, rate=RATE):
    """Floods web4; returns the report once it counts that many countermeasures."""

    def reported():
        attacks = [one.attack for one in stage.steelyard.api.call("ListAttacks").attacks]
        current = [one for one in attacks if one.kind == attack and not one.ended_unix_ms]
        return [one for one in current if len(one.done) >= parts]

    wait_for_usual(stage.steelyard)
    process = start_flood(stage.lab, kind, VIP[4], WEB, rate)
    wait_until(reported, "the flood is listed")
    return process, reported()[0]


@pytest.mark.drops("no-session")
def test_flood_report_has_kind_target_rate_and_action(stage):
    """Kind, target, rate, start and countermeasures; the same in the metrics."""

    stage.config.metrics = METRICS
    stage.apply()
    process, attack = begin_flood(stage, "ack", "stray-tcp")
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
    view = json.loads(stage.steelyard.cli("describe", "service", "web4", "-o", "json"))
    (drop,) = [one for one in view["drops"] if one["name"] == "no-session"]
    assert drop["packets"] >= sent
    assert not stage.steelyard.service("dns6").get("drops")
    text = stage.lab["forwarder"].ns.run(scrape)
    metric = r'steelyard_service_drops_packets_total\{.*service="web4".*reason="no-session"\} (\d+)'
    assert int(re.search(metric, text)[1]) >= sent


def test_flood_under_the_syn_defence_is_reported(stage):
    """Forged SYNs create no session under the SYN defence, but the report counts them."""
    stage.config.metrics = METRICS
    for service in stage.config.services:
        if service.name == "web4":
            service.spread["syn_defence"] = "always"
    stage.apply()
    process, attack = begin_flood(stage, "syn", "syn-flood", parts=2)
    assert attack.service_name == "web4"
    assert "0 got a session" in attack.done[0]
    assert "the SYN defence answered" in attack.done[1]
    sent = finish_flood(process)["sent"]

    def answered():
        (web,) = stage.steelyard.api.call("ListServices", name="web4").services
        return web.syn_defence.answered

    wait_until(lambda: answered() >= sent, "all of them were answered")
    text = stage.lab["forwarder"].ns.run(["curl", "-sS", f"http://{METRICS}/metrics"])
    assert "steelyard_service_syn_defence_answered_total{" in text


@pytest.mark.drops("echo-rate")
def test_echo_flood_is_reported(stage):
    process, attack = begin_flood(stage, "icmp", "icmp-flood", rate=ECHOES)
    assert not attack.service_name
    assert "limited" in attack.done[0]
    finish_flood(process)


def listed(stage, service, told):
    """Returns the reported flood of a service, once its sources are known."""
    for attack in stage.steelyard.get("attacks"):
        if (attack["kind"], attack.get("service")) == ("udp-flood", service) and told(attack):
            return attack
    return None


@pytest.mark.drops(
    "no-local-port", "table-full", "session-evicted", "embryonic-evicted", "overload"
)
def test_report_names_one_network_or_says_spoofed(stage):
    """A flood from one network is reported with that network, random addresses as spoofed."""
    wait_for_usual(stage.steelyard)
    one = start_flood(stage.lab, "udp", VIP[4], DNS, RATE, prefix=NETWORK)
    many = start_flood(stage.lab, "udp", VIP[6], DNS, RATE)
    attack = wait_until(lambda: listed(stage, "dns4", lambda a: a["from"]), "its network")
    assert attack["from"][0]["network"] == NETWORK
    assert attack["from"][0]["percent"] > 90
    attack = wait_until(lambda: listed(stage, "dns6", lambda a: a.get("spread")), "its kind")
    assert attack["spread"] == "spoofed or very many"
    assert attack["from"] == []
    table = stage.steelyard.cli("get", "attacks")
    assert f"{NETWORK} " in table and "spoofed or very many" in table
    finish_flood(one)
    finish_flood(many)

# SPDX-License-Identifier: Apache-2.0
"""Access lists: which clients may create sessions, which answer denied clients get, and that
established sessions continue."""

import contextlib
import re
import signal
import socket

import pytest

from tests.lab.clients import connect, dns_txt, http_get, receive_exactly
from tests.lab.steelyard import DNS, VIP, WEB
from tests.wire.stage import ECHO

families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))


def set_edge(stage, *rules, otherwise="allow"):
    stage.config.access_lists = [{"name": "edge", "otherwise": otherwise, "rules": list(rules)}]
    stage.config.access = "edge"
    stage.apply()


def matches(stage, rule, name="edge"):
    (access,) = stage.steelyard.get("access", name)
    return access["rules"][rule]["matches"]


def echoes(one):
    one.sendall(b"x")
    return receive_exactly(one, 1) == b"x"


def is_silent(stage, family, port):
    """Returns whether a connection attempt gets no answer within a second."""
    with pytest.raises(TimeoutError):
        connect(stage.client, VIP[family], port, timeout_s=1)
    return True


@pytest.mark.drops("acl-drop")
@families
def test_drop_rule_sends_no_answer(stage, family):
    client = stage.client.address(family)
    with connect(stage.client, VIP[family], ECHO) as before:
        assert echoes(before)
        set_edge(stage, {"action": "drop", "from": [client], "log": 1})
        assert echoes(before), "an established session is not asked"
        assert is_silent(stage, family, WEB)
        assert matches(stage, 0) >= 1
        stage.steelyard.forwarder.wait_for(
            f"list edge, rule 1 drops tcp {re.escape(client)} port [0-9]+ to .* port {WEB}"
        )
        set_edge(stage, {"action": "drop", "from": ["203.0.113.0/24", "2001:db8::/32"]})
        assert http_get(stage.client, VIP[family], WEB)
        assert echoes(before)


@pytest.mark.drops("acl-reset")
@families
def test_reset_rule_answers_with_a_reset(stage, family):
    set_edge(stage, {"action": "reset", "from": ["0.0.0.0/0", "::/0"]})
    with pytest.raises(ConnectionRefusedError):
        connect(stage.client, VIP[family], WEB)
    with contextlib.closing(
        stage.client.ns.socket(
            socket.AF_INET if family == 4 else socket.AF_INET6, socket.SOCK_DGRAM
        )
    ) as one:
        one.settimeout(60)
        one.connect((VIP[family], DNS))
        one.send(b"anything")
        with pytest.raises(OSError, match="(?i)refused|prohibited|unreachable|denied|no route"):
            one.recv(100)


@pytest.mark.drops("acl-drop")
@families
def test_rules_match_protocol_port_and_service(stage, family):
    set_edge(stage, {"action": "drop", "protocol": "tcp", "ports": [f"{WEB}-{WEB + 9}"]})
    assert is_silent(stage, family, WEB)
    with connect(stage.client, VIP[family], ECHO) as one:
        assert echoes(one)
    assert dns_txt(stage.client, VIP[family], DNS)
    set_edge(stage, {"action": "count", "protocol": "tcp"})
    stage.config.access = ""
    stage.config.access_lists.append({"name": "none", "otherwise": "drop", "rules": []})
    stage.config[f"web{family}"].spread = {"access": "none"}
    stage.apply()
    assert is_silent(stage, family, WEB)
    with connect(stage.client, VIP[family], ECHO) as one:
        assert echoes(one)
    stage.config[f"web{family}"].spread = {"access": "edge"}
    stage.config.access_lists.pop()
    stage.apply()
    assert http_get(stage.client, VIP[family], WEB)
    assert matches(stage, 0) == 1


@pytest.mark.drops("acl-drop")
@families
def test_set_changes_apply_without_replacing_the_list(stage, family):
    """The refreshed set applies while sessions continue, and survives a restart."""
    client = stage.client.address(family)
    stage.config.access_sets = [{"name": "bad", "prefixes": ["203.0.113.0/24", "2001:db8:9::/48"]}]
    set_edge(stage, {"action": "drop", "from": ["bad"]})
    with connect(stage.client, VIP[family], ECHO) as before:
        assert echoes(before)
        stage.config.access_sets[0]["prefixes"].append(client)
        stage.apply()
        assert is_silent(stage, family, WEB)
        assert echoes(before), "an established session is not asked"
        assert [one["prefixes"] for one in stage.steelyard.get("sets")] == [3]
        stage.steelyard.agent.kill()
        stage.steelyard.restart_forwarder(signal.SIGKILL)
        assert is_silent(stage, family, WEB)
        assert echoes(before)


@pytest.mark.drops("acl-drop")
def test_named_rule_keeps_its_counter_when_moved(stage):
    """Metrics identify a rule by its name, wherever it stands in the list."""
    before, address = stage.config.metrics, f"{stage.lab['forwarder'].v4}:9109"
    refused = {"name": "no-web", "action": "drop", "protocol": "tcp", "ports": [WEB]}
    other = {"action": "drop", "from": ["203.0.113.0/24"]}

    def count(rule):
        text = stage.lab["forwarder"].ns.run(["curl", "-sS", f"http://{address}/metrics"])
        name = f'steelyard_access_rule_matches_total{{list="edge",rule="{rule}"}} '
        return next(float(line[len(name) :]) for line in text.splitlines() if line.startswith(name))

    try:
        stage.config.metrics = address
        set_edge(stage, refused)
        assert is_silent(stage, 4, WEB)
        counted = count("no-web")
        assert counted >= 1
        set_edge(stage, other, refused)
        assert (count("no-web"), count(1)) == (counted, 0)
    finally:
        stage.config.metrics = before


@pytest.mark.drops("acl-drop")
def test_lists_survive_a_restart_without_agent(stage):
    set_edge(stage, {"action": "drop", "protocol": "tcp", "ports": [WEB]})
    stage.steelyard.agent.kill()
    stage.steelyard.restart_forwarder(signal.SIGKILL)
    assert is_silent(stage, 4, WEB)
    with connect(stage.client, VIP[4], ECHO) as one:
        assert echoes(one)

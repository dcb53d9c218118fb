# SPDX-License-Identifier: Apache-2.0
"""Thousands of requests while servers change weight, are drained, restart and die."""

import os
import signal

import pytest

from tests.lab import wait_until
from tests.lab.clients import finish_wrk, start_wrk, wrk
from tests.lab.servers import start_nginx
from tests.lab.steelyard import VIP

pytestmark = pytest.mark.both_builds
ENDLESS = 0  # requests: until wrk is stopped, at any speed
ROUNDS = 2 if "SY_BUILD" in os.environ else 3  # of changes; a sanitized forwarder is slow
CONNECTIONS = 16
kinds = pytest.mark.parametrize("keep_alive", (True, False), ids=("keep-alive", "short"))
families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))


def url(family):
    return f"http://{VIP[4]}/" if family == 4 else f"http://[{VIP[6]}]/"


@kinds
@families
def test_no_request_fails_during_changes(stage, family, keep_alive):
    """Weights, drains and restarts of drained servers, several times."""
    steelyard, name = stage.steelyard, f"web{family}"
    s1, s2 = stage.lab["s1"], stage.lab["s2"]
    before = packets(stage, name)
    process = start_wrk(stage.lab, url(family), ENDLESS, CONNECTIONS, keep_alive)
    for rounds in range(ROUNDS):
        goal = before + 2000 * (rounds + 1)
        wait_until(lambda goal=goal: packets(stage, name) > goal, "traffic flows")
        stage.config[name].server(s1.address(family)).weight = 1 + rounds % 4
        stage.apply()
        target = s2.address(family) if family == 4 else f"[{s2.address(family)}]:8080"
        steelyard.cli("drain", f"{target}@{name}")
        steelyard.wait_server(name, s2.address(family), "drain")
        if not keep_alive:
            restart_when_drained(stage, name, s2, family)
        steelyard.cli("drain", f"{target}@{name}", "--undo")
    process.send(signal.SIGINT)
    load = finish_wrk(process)
    print(f"{load.requests} requests, {ROUNDS} rounds of changes, {dict(load.served)}")
    assert not load.failed, load
    assert load.requests


def packets(stage, service):
    """Returns the packets of its clients."""
    return stage.steelyard.service(service)["traffic"]["packets_in"]


def restart_when_drained(stage, service, host, family):
    """Restarts a server once it has no open connection."""
    wait_until(
        lambda: not live_sessions(stage, service, host.address(family)),
        f"the sessions of {host} are over",
    )
    stage.nginx[host.name].stop()
    stage.nginx[host.name] = start_nginx(stage.lab, host.name)


def live_sessions(stage, service, address):
    over = ("time-wait", "time_wait", "closing", "reset", "closed")
    return [
        session
        for session in stage.steelyard.sessions("--service", service, "--limit", "100000")
        if session["server"] == address and session["state"] not in over
    ]


@pytest.mark.drops("no-session")
@kinds
def test_only_the_killed_servers_connections_fail(stage, keep_alive):
    """nginx on s3 is killed under load: its open connections fail; those to other servers do
    not."""
    before = packets(stage, "web4")
    process = start_wrk(stage.lab, url(4), ENDLESS, CONNECTIONS, keep_alive)
    wait_until(lambda: packets(stage, "web4") > before + 2000, "traffic flows")
    tries_before = refused(stage)
    stage.nginx["s3"].kill()
    stage.steelyard.wait_server("web4", stage.lab["s3"].v4, "down")
    process.send(signal.SIGINT)
    load = finish_wrk(process)
    # Every failure is a connection that was open at s3, or one that its kernel refused.
    possible = CONNECTIONS + refused(stage) - tries_before
    print(f"{load.requests} requests, {load.failed} failed of at most {possible}; {load.errors}")
    assert load.failed <= possible, load
    assert load.errors["timeout"] == 0
    assert load.requests
    # Once it is known to be down, no request fails.
    after = wrk(stage.lab, url(4), 2000, connections=CONNECTIONS, keep_alive=keep_alive)
    assert not after.failed, after
    assert set(after.served) == {"s1", "s2"}


def refused(stage):
    """Returns the resets that the kernel of s3 has sent."""
    return stage.lab["s3"].ns.counters()["TcpOutRsts"]

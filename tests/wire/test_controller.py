# SPDX-License-Identifier: Apache-2.0
"""A controller configures a real forwarder through its agent; traffic continues when it dies."""

import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.lab import wait_until
from tests.lab.clients import HttpConnection, http_get
from tests.lab.process import run
from tests.lab.steelyard import VIP, WEB
from tests.wire.joined import Joined

pytestmark = pytest.mark.workers(1)  # does not depend on the number of workers


def test_traffic_survives_the_controller(stage, joined):
    #   client ── forwarder ── s1, s2, …
    #                 │
    #          agent ─┘◄── controller: killed, and started again
    joined.apply()
    joined.await_in_force("the forwarder has what is desired")
    stage.steelyard.wait_all_up()

    with HttpConnection(stage.client, VIP[4], WEB) as old:
        served = old.get()
        joined.controllers.kill("c1")
        stage.steelyard.agent.wait_for("no connection to a controller")
        for _ in range(20):
            assert old.get() == served
            assert http_get(stage.client, VIP[4], WEB)

        # The agent continues: it detects a dead server, and restarts from its saved state.
        name, web = next(iter(stage.nginx.items()))
        web.stop()
        stage.steelyard.wait_server("web4", stage.lab[name].address(4), "down")
        stage.steelyard.agent.kill()
        joined.start_agent()
        stage.steelyard.wait_in_sync()
        before = joined.weights()
        assert http_get(stage.client, VIP[4], WEB)

    # A returning controller finds its state and the agent; changes are applied again.
    joined.controllers.start()
    joined.await_in_force("the agent has come back")
    assert joined.weights() == before
    joined.apply(weight=7)
    assert joined.weights() == {7}


STOP_S = 5  # the longest stall that must be survived
ENDS = ("disconnected", "no connection", "lost", "sent away", "not in sync", "is down")


def test_stall_of_the_host_expires_nothing(stage, joined):
    """Controller, agent and forwarder stop and continue together: no lease expires, no connection
    ends, no server fails."""
    joined.apply(weight=4)
    joined.await_in_force("the forwarder has what is desired")
    stage.steelyard.wait_all_up()
    steelyard = stage.steelyard
    programs = (joined.controllers.processes["c1"], steelyard.agent, steelyard.forwarder)
    said = [len(one.output()) for one in programs]
    for one in programs:
        one.send(signal.SIGSTOP)
    time.sleep(STOP_S)
    for one in programs:
        one.send(signal.SIGCONT)
    joined.apply(weight=5)
    joined.await_in_force("the change is in force")
    assert joined.weights() == {5}
    for one, before in zip(programs, said, strict=True):
        lines = one.output()[before:].splitlines()
        assert not [line for line in lines if any(word in line for word in ENDS)]


@pytest.fixture
def small(stage):
    """Puts the agent's state on a small disk."""
    one = Joined(stage)
    disk = one.dir / "agent-1"
    disk.mkdir()
    run(["mount", "-t", "tmpfs", "-o", "size=256k", "small", disk])
    try:
        one.start()
        yield one
    finally:
        if stage.steelyard.agent.alive():
            stage.steelyard.agent.kill()
        run(["umount", disk])
        one.close()


def fill(disk):
    """Fills the disk; returns the file that occupies it."""
    path = disk / "filler"
    with pytest.raises(OSError, match="No space left"), open(path, "wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    return path


def test_full_disk_keeps_the_configuration_in_force(stage, small):
    small.apply(weight=3)
    small.await_in_force("the forwarder has what is desired")
    stage.steelyard.wait_all_up()
    filler = fill(small.dir / "agent-1")
    pool = ThreadPoolExecutor(1)
    # The command waits for the forwarder, then reports that it has not confirmed the change.
    pool.submit(small.apply, weight=9, check=False)

    def behind():
        (one,) = json.loads(small.controllers.cli("get", "forwarders", "-o", "json"))
        return one["state"] == "behind" and "no space left" in one["error"]

    wait_until(behind, "the controller reports why the agent is behind")
    assert small.weights() == {3}
    for _ in range(20):
        assert http_get(stage.client, VIP[4], WEB)
    filler.unlink()
    pool.shutdown()
    small.await_in_force("the change is in force")
    assert small.weights() == {9}

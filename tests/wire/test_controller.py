# SPDX-License-Identifier: Apache-2.0
"""A controller configures a real forwarder through its agent, and dies: traffic goes on."""

import json

import pytest

from tests.lab import wait_until
from tests.lab.clients import HttpConnection, http_get
from tests.lab.process import run
from tests.lab.steelyard import STEELYARD, VIP, WEB

URL = "https://127.0.0.1:7443"


class Controller:
    """A controller on the forwarder's host, and the agent that has joined it."""

    def __init__(self, stage):
        self.stage, self.steelyard = stage, stage.steelyard
        self.lab, self.host = stage.lab, stage.steelyard.host
        self.dir = self.lab.dir / "controller"
        self.dir.mkdir()
        self.socket = self.dir / "c.sock"
        self.process = None

    def start(self):
        argv = [STEELYARD, "controller", "--listen", "127.0.0.1:7443", "--url", URL]
        argv += ["--state", self.dir / "state", "--socket", self.socket]
        self.process = self.lab.start(self.host, "steelyard-controller", argv)
        self.process.wait_for("controller is ready")

    def cli(self, *words):
        return run([STEELYARD, "--socket", self.socket, *words])

    def state(self):
        (one,) = json.loads(self.cli("get", "forwarders", "-o", "json"))
        return one["state"]

    def start_agent(self):
        """In place of the stage's own, on the same sockets; with the token of the first time."""
        token = self.dir / "token"
        if not token.exists():
            token.write_text(self.cli("token", "create", "--new-forwarder", "f1"))
        one = self.steelyard
        argv = [STEELYARD, "agent", "--forwarder", one.forwarder_socket]
        argv += ["--socket", one.agent_socket, "--state", self.dir / "agent", "--seccomp", "trap"]
        argv += ["--controller", URL, "--token-file", token]
        one.agent = self.lab.start(self.host, "steelyard-agent", argv)
        one.agent.wait_for("agent is ready")
        one.applied = None

    def apply(self):
        file = self.dir / "desired.yaml"
        file.write_text(self.stage.config.text())
        return self.cli("apply", file)

    def close(self):
        """Leaves the stage with an agent of its own again."""
        for process in (self.steelyard.agent, self.process):
            if process and process.alive():
                process.stop()
        self.steelyard.start_agent()
        self.steelyard.wait_in_sync()


@pytest.fixture
def controller(stage):
    stage.steelyard.agent.stop()
    one = Controller(stage)
    try:
        one.start()
        one.start_agent()
        yield one
    finally:
        one.close()


def weights(stage):
    servers = stage.steelyard.get("servers", "--service", "web4")
    return {server["address"]: server["weight"] for server in servers}


def test_traffic_outlives_the_controller(stage, controller):
    #   client ── forwarder ── s1, s2, …
    #                 │
    #          agent ─┘◄── controller: killed, and started again
    controller.apply()
    wait_until(lambda: controller.state() == "in-force", "the forwarder has what is desired", 60)
    stage.steelyard.wait_all_up()

    with HttpConnection(stage.client, VIP[4], WEB) as old:
        served = old.get()
        controller.process.kill()
        stage.steelyard.agent.wait_for("no connection to a controller")
        for _ in range(20):
            assert old.get() == served
            assert http_get(stage.client, VIP[4], WEB)

        # The agent goes on: it finds a dead server, and starts again from what it has.
        name, web = next(iter(stage.nginx.items()))
        web.stop()
        stage.steelyard.wait_server("web4", stage.lab[name].address(4), "down")
        stage.steelyard.agent.kill()
        controller.start_agent()
        stage.steelyard.wait_in_sync()
        before = weights(stage)
        assert http_get(stage.client, VIP[4], WEB)

    # A controller that comes back finds its state and the agent, and changes go through again.
    controller.start()
    wait_until(lambda: controller.state() == "in-force", "the agent has come back", 60)
    assert weights(stage) == before
    for server in stage.config["web4"].servers:
        server.weight = 7
    controller.apply()
    assert set(weights(stage).values()) == {7}

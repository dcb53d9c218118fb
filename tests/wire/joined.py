# SPDX-License-Identifier: Apache-2.0
"""A stage whose forwarder's agent has joined controllers."""

import json

import pytest

from tests.lab.controllers import Controllers
from tests.lab.wait import DEADLINE_S, wait_until


class Joined:
    """Controllers, and an agent of the stage's forwarder `f1` that replaces the stage's own.
    clocked: controllers and agent have adjustable clocks; the agent's is named `f1`."""

    def __init__(self, stage, count=1, clocked=False):
        stage.steelyard.agent.stop()
        self.stage, self.steelyard = stage, stage.steelyard
        self.controllers = Controllers(stage.lab, count, clocked)
        self.dir, self.hosts = self.controllers.dir, 0

    def start(self):
        self.controllers.start()
        self.enlist()

    def enlist(self):
        """Starts an agent on a host without any earlier agent's files."""
        self.hosts += 1
        self.controllers.token(self.dir / f"token-{self.hosts}", "f1")
        self.start_agent()

    def start_agent(self):
        """Listens on the same sockets as the stage's own agent."""
        one = self.steelyard
        argv = [self.controllers.binary, "agent", "--forwarder", one.forwarder_socket]
        argv += ["--socket", one.agent_socket, "--state", self.dir / f"agent-{self.hosts}"]
        argv += ["--controller", self.controllers.urls]
        argv += ["--token-file", self.dir / f"token-{self.hosts}", "--seccomp", "trap"]
        env = self.controllers.clock_of("f1")
        one.agent = self.stage.lab.start(one.host, "steelyard-agent", argv, env)
        one.agent.wait_for("agent is ready", 60)
        one.applied = None

    def apply(self, weight=None, **options):
        """Applies the stage's configuration with another weight of web4's servers."""
        if weight is not None:
            for server in self.stage.config["web4"].servers:
                server.weight = weight
        file = self.dir / "desired.yaml"
        file.write_text(self.stage.config.text())
        return self.controllers.cli("apply", file, **options)

    def change(self, weight, name):
        """Applies the weight at one controller, then at others, until the forwarder has confirmed
        it."""
        order = [name, *(other for other in self.controllers.awake() if other != name)]

        def confirmed():
            order.append(order.pop(0))
            done = self.apply(weight, at=order[-1], check=False)
            return done.returncode == 0 and self.weights() == {weight}

        wait_until(confirmed, f"weight {weight} is confirmed")

    def weights(self):
        """Returns web4's weights as the agent has them; empty while it has no configuration."""
        words = ["get", "servers", "--service", "web4", "-o", "json"]
        done = self.steelyard.cli(*words, check=False)
        return {one["weight"] for one in json.loads(done.stdout)} if not done.returncode else set()

    def record(self):
        """Returns the forwarder's entry in a controller's list; empty while there is none."""
        return (self.controllers.try_get("get", "forwarders") or [{}])[0]

    def state(self):
        """Returns the forwarder's state as a controller reports it."""
        return self.record().get("state", "unknown")

    def server(self):
        """Returns the controller that serves the agent, None if no other controller knows."""
        url = self.record().get("controller")
        return next(
            (name for name in self.controllers.names if self.controllers.url(name) == url), None
        )

    def await_in_force(self, what, deadline_s=DEADLINE_S):
        wait_until(lambda: self.state() == "in-force", what, deadline_s)

    def close(self):
        """Restores an agent of the stage's own."""
        if self.steelyard.agent.alive():
            self.steelyard.agent.kill()
        self.controllers.close()
        self.steelyard.start_agent()
        self.steelyard.wait_in_sync()


@pytest.fixture
def joined(stage):
    one = Joined(stage)
    try:
        one.start()
        yield one
    finally:
        one.close()

# SPDX-License-Identifier: Apache-2.0
"""Three controllers, whose own etcds form a cluster, are killed and frozen at random, agents are
killed and hosts replaced, while wrk loads the forwarder and changes go on: no request fails, and no
change is lost or goes back.

STEELYARD_CHAOS=200 injects so many faults instead of a few, STEELYARD_CHAOS_SEED chooses others.
"""

import json
import os
import random
import shutil
import signal

import pytest

from tests.lab import wait_until
from tests.lab.clients import finish_wrk, start_wrk
from tests.lab.process import run
from tests.lab.steelyard import STEELYARD, VIP, WEB

FAULTS = int(os.environ.get("STEELYARD_CHAOS", "5"))
SEED = int(os.environ.get("STEELYARD_CHAOS_SEED", "16"))
NAMES = ("c1", "c2", "c3")
URLS = {name: f"https://127.0.0.1:{7443 + 10 * at}" for at, name in enumerate(NAMES)}
MEMBERS = ",".join(f"{name}=https://127.0.0.1:{7543 + 10 * at}" for at, name in enumerate(NAMES))


class Trio:
    """The controllers on the forwarder's host, and the agent that has joined them."""

    def __init__(self, stage):
        self.stage, self.steelyard, self.lab = stage, stage.steelyard, stage.lab
        self.host = stage.steelyard.host
        self.dir = self.lab.dir / "trio"
        self.dir.mkdir()
        self.key = self.dir / "key"
        self.key.write_text(run([STEELYARD, "controller", "new-key"]))
        self.key.chmod(0o600)
        self.processes = {}
        self.hosts = 0
        self.frozen = None
        self.history = []

    def start(self, *names):
        for name in names:
            argv = [STEELYARD, "controller", "--name", name, "--members", MEMBERS]
            argv += ["--members-key", self.key, "--members-listen", MEMBERS_OF[name]]
            argv += ["--listen", URLS[name].removeprefix("https://"), "--url", URLS[name]]
            argv += ["--state", self.dir / name, "--socket", self.dir / f"{name}.sock"]
            self.processes[name] = self.lab.start(self.host, f"steelyard-{name}", argv)
        for name in names:
            self.processes[name].wait_for("controller is ready", 120)

    def cli(self, name, *words, check=True):
        command = [STEELYARD, "--timeout", "8s", "--socket", self.dir / f"{name}.sock", *words]
        return run(command, check=check)

    def awake(self):
        alive = [name for name in NAMES if self.processes[name].alive()]
        return [name for name in alive if name != self.frozen]

    def enlist(self):
        """An agent on a host that has nothing of an earlier one."""
        self.hosts += 1
        token = self.dir / f"token-{self.hosts}"
        text = []

        def made():
            done = self.cli(
                self.awake()[0], "token", "create", "--new-forwarder", "f1", check=False
            )
            text[:] = [done.stdout]
            return done.returncode == 0

        wait_until(made, "a controller makes a token", 60)
        token.write_text(text[0])
        self.start_agent()

    def start_agent(self):
        one = self.steelyard
        argv = [STEELYARD, "agent", "--forwarder", one.forwarder_socket]
        argv += ["--socket", one.agent_socket, "--state", self.dir / f"agent-{self.hosts}"]
        argv += ["--controller", ",".join(URLS.values())]
        argv += ["--token-file", self.dir / f"token-{self.hosts}", "--seccomp", "trap"]
        one.agent = self.lab.start(self.host, "steelyard-agent", argv)
        one.agent.wait_for("agent is ready", 60)
        one.applied = None

    def change(self, weight, name):
        """Orders it from one controller, and from others, until the forwarder has confirmed it."""
        for server in self.stage.config["web4"].servers:
            server.weight = weight
        file = self.dir / "desired.yaml"
        file.write_text(self.stage.config.text())
        order = [name, *(other for other in self.awake() if other != name)]

        def confirmed():
            order.append(order.pop(0))
            done = self.cli(order[-1], "apply", file, check=False)
            return done.returncode == 0 and self.weights() == {weight}

        wait_until(confirmed, f"weight {weight} is confirmed", 120)

    def weights(self):
        """Of the agent; none while it has no configuration yet."""
        words = ["get", "servers", "--service", "web4", "-o", "json"]
        done = run([STEELYARD, "--socket", self.steelyard.agent_socket, *words], check=False)
        return {one["weight"] for one in json.loads(done.stdout)} if not done.returncode else set()

    def state(self):
        done = self.cli(self.awake()[0], "get", "forwarders", "-o", "json", check=False)
        return json.loads(done.stdout)[0]["state"] if done.returncode == 0 else "unknown"

    def thaw(self):
        if self.frozen:
            self.processes[self.frozen].send(signal.SIGCONT)
            self.frozen = None

    def close(self):
        """Leaves the stage with an agent of its own again."""
        self.thaw()
        for process in (self.steelyard.agent, *self.processes.values()):
            if process.alive():
                process.kill()
        shutil.rmtree(self.dir)
        self.steelyard.start_agent()
        self.steelyard.wait_in_sync()


MEMBERS_OF = {pair.split("=https://")[0]: pair.split("=https://")[1] for pair in MEMBERS.split(",")}


@pytest.fixture
def trio(stage):
    stage.steelyard.agent.stop()
    one = Trio(stage)
    try:
        one.start(*NAMES)
        one.enlist()
        yield one
    finally:
        print(f"seed {SEED}: {'; '.join(one.history)}")
        one.close()


def test_no_fault_costs_a_request_or_a_change(stage, trio):
    #   wrk ── forwarder ── s1, s2, …
    #              │                      ┌ c1 ┐
    #       agent ─┘ killed, replaced ◄───┼ c2 ┼ killed, frozen
    #                                     └ c3 ┘
    chance = random.Random(SEED)
    trio.change(1, "c1")
    stage.steelyard.wait_all_up()
    load = start_wrk(
        stage.lab, f"http://{VIP[4]}:{WEB}/", 0, connections=4, seconds=300 + 60 * FAULTS
    )
    for weight in range(2, 2 + FAULTS):
        inject(trio, chance)
        trio.change(weight, chance.choice(trio.awake()))
    trio.thaw()
    trio.start(*(name for name in NAMES if not trio.processes[name].alive()))
    wait_until(lambda: trio.state() == "in-force", "what is desired is in force", 120)
    assert trio.weights() == {1 + FAULTS}
    load.send(signal.SIGINT)
    result = finish_wrk(load)
    assert result.requests > 0 and not result.failed, result


def inject(trio, chance):
    kind = chance.choice(("kill", "freeze", "agent", "host"))
    name = chance.choice(NAMES)
    trio.history.append(f"{kind} {name}" if kind in ("kill", "freeze") else kind)
    if kind in ("kill", "freeze"):
        trio.thaw()  # two of three go on
        trio.start(*(other for other in NAMES if not trio.processes[other].alive()))
    if kind == "kill":
        trio.processes[name].kill()
        trio.frozen = None
    elif kind == "freeze":
        trio.processes[name].send(signal.SIGSTOP)
        trio.frozen = name
    else:
        trio.steelyard.agent.kill()
        if kind == "host":
            trio.enlist()
        else:
            trio.start_agent()

# SPDX-License-Identifier: Apache-2.0
"""`steelyard health` as VRRP's track scripts and BGP's checks run it, and /readyz as Kubernetes
asks: exit codes and answers of docs/health.md in each state of a node."""

import json
import signal

import pytest

from tests.lab import wait_until
from tests.lab.process import run
from tests.lab.steelyard import STEELYARD
from tests.wire.stage import Stage

OK, DEGRADED, FAILING, UNKNOWN = 0, 1, 2, 3
EACH = ("--min-servers", "100")  # of the servers of a service
ALL = (*EACH, "--min-services", "100")
NO_ANSWER = 28  # curl's exit code for a time-out


def level_of(text):
    """Of JSON, before messages."""
    return json.JSONDecoder().raw_decode(text)[0]["level"]


class Node(Stage):
    def begin(self):
        self.address = f"{self.lab['forwarder'].v4}:9111"
        self.config.metrics = self.default.metrics = self.address
        super().begin()

    def health(self, *words):
        """Exit code and output of the command, with its own time-out."""
        argv = [STEELYARD, "--socket", self.steelyard.agent_socket, "health", *words]
        done = run(argv, check=False)
        return done.returncode, done.stdout + done.stderr

    def judges(self, code, *words, says=""):
        """Waits until the command ends with a code, and says something."""
        last = []

        def so():
            last[:] = self.health(*words)
            return last[0] == code and says in last[1]

        wait_until(so, lambda: f"health {words} ends with {code}, not {last}")

    def ready(self, query=""):
        """The status of /readyz, as a probe sees it; None: no answer in time."""
        argv = ["curl", "-sS", "--max-time", 3, "-o", "/dev/null", "-w", "%{http_code}"]
        done = self.lab["forwarder"].ns.run(
            [*argv, f"http://{self.address}/readyz{query}"], check=False
        )
        assert done.returncode in (0, 7, NO_ANSWER), done
        return None if done.returncode else int(done.stdout)


@pytest.fixture(scope="module")
def shared_node():
    with Node(workers=1) as stage:
        yield stage


@pytest.fixture
def node(shared_node):
    shared_node.judges(OK, "--fail-at", "degraded", *ALL, says="ok")
    yield shared_node
    shared_node.restore()


def test_a_healthy_node(node):
    assert node.health() == (OK, "ok\n")
    code, text = node.health("-o", "json")
    assert code == OK and level_of(text) == "ok"
    assert node.ready("?min_servers=100&min_services=100&fail_at=degraded") == 200


def test_some_servers_are_down(node):
    """Two of six services lack one of three servers."""
    node.nginx["s1"].kill()
    short = "service web4: 2 of 3 servers healthy, below 100 %"
    node.judges(DEGRADED, *EACH, "--fail-at", "degraded", says=short)
    node.judges(OK, *EACH, says=f"degraded\ndegraded: {short}")
    node.judges(FAILING, *ALL, says="4 of 6 services have enough healthy servers, below 100 %")
    node.judges(OK, "--fail-at", "degraded", says="ok")
    assert node.ready() == 200
    assert node.ready("?min_servers=100") == 200
    assert node.ready("?min_servers=100&fail_at=degraded") == 503
    assert node.ready("?min_servers=100&min_services=100") == 503


def test_a_port_is_down(node):
    switch = node.lab["switch"].ns
    switch.ip("link set forwarder-back down")
    try:
        node.judges(FAILING, says="port back is down")
        assert node.ready() == 503
    finally:
        switch.ip("link set forwarder-back up")
    node.judges(OK, says="ok")
    assert node.ready() == 200


def test_the_forwarder_hangs(node):
    node.steelyard.forwarder.send(signal.SIGSTOP)
    try:
        node.judges(FAILING, says="the forwarder does not answer within 800ms")
        node.judges(FAILING, "--fail-at", "degraded")
        assert node.ready() == 503
    finally:
        node.steelyard.forwarder.send(signal.SIGCONT)
    node.judges(OK, says="ok")


def test_the_forwarder_is_dead(node):
    node.steelyard.kill_forwarder()
    node.judges(FAILING, says="the forwarder is not connected")
    assert node.ready() == 503
    node.steelyard.start_forwarder()
    node.judges(OK, says="ok")
    assert node.ready() == 200


def test_the_agent_hangs(node):
    """The command ends by its own time-out, which is below those of track scripts."""
    node.steelyard.agent.send(signal.SIGSTOP)
    try:
        code, text = node.health()
        assert code == UNKNOWN and "3s" in text
        code, text = node.health("-o", "json", "--timeout", "1s")
        assert code == UNKNOWN and level_of(text) == "unknown"
        assert node.ready() is None
    finally:
        node.steelyard.agent.send(signal.SIGCONT)
    node.judges(OK, says="ok")


def test_the_agent_is_dead(node):
    node.steelyard.agent.kill()
    code, text = node.health()
    assert code == UNKNOWN and "steelyard agent" in text
    assert node.ready() is None
    node.steelyard.start_agent()
    node.judges(OK, says="ok")


@pytest.mark.parametrize("words", (["--fail-at", "never"], ["--min-servers", "x"], ["--else"]))
def test_wrong_options(node, words):
    code, text = node.health(*words)
    assert code == UNKNOWN and text

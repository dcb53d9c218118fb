# SPDX-License-Identifier: Apache-2.0
"""`steelyard health` as VRRP track scripts and BGP checks run it, and /readyz as Kubernetes probes
it: exit codes and answers of docs/health.md in each state of a node."""

import json
import signal

import pytest

from tests.lab import wait_until
from tests.lab.process import run
from tests.lab.steelyard import STEELYARD
from tests.wire.stage import Stage

OK, DEGRADED, FAILING, UNKNOWN = 0, 1, 2, 3
EACH = ("--min-servers", "100")  # servers of one service
ALL = (*EACH, "--min-services", "100")
NO_ANSWER = 28  # curl's exit code for a timeout


def level_of(text):
    """Returns the level in JSON, or in front of messages."""
    return json.JSONDecoder().raw_decode(text)[0]["level"]


class Node(Stage):
    def begin(self):
        self.address = f"{self.lab['forwarder'].v4}:9111"
        self.config.metrics = self.default.metrics = self.address
        super().begin()

    def health(self, *words):
        """Returns exit code and output of the command, with its own timeout."""
        argv = [STEELYARD, "--socket", self.steelyard.agent_socket, "health", *words]
        done = run(argv, check=False)
        return done.returncode, done.stdout + done.stderr

    def judges(self, code, *words, says=""):
        """Waits until the command ends with a code and prints something."""
        last = []

        def so():
            last[:] = self.health(*words)
            return last[0] == code and says in last[1]

        wait_until(so, lambda: f"health {words} ends with {code}, not {last}")

    def ready(self, query=""):
        """Returns the status of /readyz; None without an answer in time."""
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


def test_healthy_node_is_ok(node):
    assert node.health() == (OK, "ok\n")
    code, text = node.health("-o", "json")
    assert code == OK and level_of(text) == "ok"
    assert node.ready("?min_servers=100&min_services=100&fail_at=degraded") == 200


def test_lack_of_some_servers_is_degraded(node):
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


def test_port_down_is_failing(node):
    switch = node.lab["switch"].ns
    switch.ip("link set forwarder-back down")
    try:
        node.judges(FAILING, says="port back is down")
        assert node.ready() == 503
    finally:
        switch.ip("link set forwarder-back up")
    node.judges(OK, says="ok")
    assert node.ready() == 200


def test_hanging_forwarder_is_failing(node):
    node.steelyard.forwarder.send(signal.SIGSTOP)
    try:
        node.judges(FAILING, says="the forwarder does not answer within 800ms")
        node.judges(FAILING, "--fail-at", "degraded")
        assert node.ready() == 503
    finally:
        node.steelyard.forwarder.send(signal.SIGCONT)
    node.judges(OK, says="ok")


def test_dead_forwarder_is_failing(node):
    node.steelyard.kill_forwarder()
    node.judges(FAILING, says="the forwarder is not connected")
    assert node.ready() == 503
    node.steelyard.start_forwarder()
    node.judges(OK, says="ok")
    assert node.ready() == 200


def test_hanging_agent_is_unknown_after_the_timeout(node):
    """The command's own timeout is shorter than those of track scripts."""
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


def test_dead_agent_is_unknown(node):
    node.steelyard.agent.kill()
    code, text = node.health()
    assert code == UNKNOWN and "steelyard agent" in text
    assert node.ready() is None
    node.steelyard.start_agent()
    node.judges(OK, says="ok")


@pytest.mark.parametrize("words", (["--fail-at", "never"], ["--min-servers", "x"], ["--else"]))
def test_wrong_options_are_refused(node, words):
    code, text = node.health(*words)
    assert code == UNKNOWN and text

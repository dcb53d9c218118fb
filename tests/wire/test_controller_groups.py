# SPDX-License-Identifier: Apache-2.0
"""A controller makes two forwarders nodes of a group, and nothing else configures them: sessions
survive `kill -9` of a node, a replacement of the secret, and the controller's death."""

import pytest

from tests.lab import wait_until
from tests.lab.api import forwarder as pb
from tests.lab.controllers import Controllers
from tests.lab.ecmp import local_addresses
from tests.lab.mode_table import ModeHosts
from tests.lab.mode_traffic import PROXIED, provide_content
from tests.lab.steelyard import STEELYARD, Steelyard
from tests.lab.topology import BACK, v4
from tests.wire.cluster import Cluster, Conversations
from tests.wire.pair import Node

pytestmark = [pytest.mark.workers(1), pytest.mark.drops("nat-stray")]

GROUP = "edge"
ADDRESSES = ("local_addresses:", "peer_local_addresses:")


class Managed(Steelyard):
    """A forwarder without options of peers, whose agent joins controllers."""

    def __init__(self, lab, config, controllers, number):
        super().__init__(lab, config, host=lab.network.node_name(number))
        self.controllers, self.name = controllers, f"f{number}"

    def start_agent(self):
        token = self.dir / "token"
        if not token.exists():
            self.controllers.token(token, self.name)
        argv = [STEELYARD, "agent", "--forwarder", self.forwarder_socket]
        argv += ["--socket", self.agent_socket, "--state", self.dir / "agent-state"]
        argv += ["--controller", self.controllers.urls, "--token-file", token, "--seccomp", "trap"]
        self.agent = self.lab.start(self.host, f"steelyard-agent-{self.name}", argv)
        self.agent.wait_for("agent is ready")


class Grouped(Cluster):
    """Nodes f1 and f2 of a group that the controller alone has. A context manager."""

    def __init__(self):
        super().__init__(workers=(1, 1))

    def begin(self):
        self.hosts = ModeHosts(self.lab, self.lab.network.router, PROXIED)
        self.hosts.start()
        self.controllers = Controllers(self.lab, net=BACK)
        self.controllers.start()
        for number in self.lab.network.numbers():
            made = Managed(self.lab, self._config(number), self.controllers, number)
            made.start_forwarder()
            made.start_agent()
            self.nodes[number] = Node(number, made)
        provide_content(self.lab, self.traffic)
        self.set_group()
        self.wait_nodes("serves", "serves")
        self.apply()
        self.wait_joined()
        self.lab.network.announce(*self.nodes)

    def _config(self, number):
        """Without SNAT: one file is for all nodes, and each would need pool addresses of its
        own."""
        made = super()._config(number)
        made.snat = []
        self.traffic = self.traffic[:2]  # SNAT's is the last
        return made

    def file(self, name, text):
        path = self.lab.dir / name
        path.write_text(text)
        return path

    def set_group(self):
        lines = ["version: 1", f"group: {GROUP}", "mode: ecmp", "nodes:"]
        for number in self.nodes:
            locals_ = ", ".join(f'"{one}"' for one in local_addresses(number))
            lines.append(
                f"  - {{ forwarder: f{number}, node: {number}, sync: {v4(BACK, number)},"
                f" next_hops: [{v4(BACK, number)}], local_addresses: [{locals_}] }}"
            )
        self.controllers.cli("group", "set", self.file("group.yaml", "\n".join(lines) + "\n"))

    def apply(self):
        """Applies one file to all nodes: their local addresses are the group's."""
        lines = self.nodes[1].steelyard.config.text().splitlines()
        shared = [line for line in lines if not line.startswith(ADDRESSES)]
        file = self.file("shared.yaml", "\n".join(shared) + "\n")
        self.controllers.cli("apply", file, "--group", GROUP)

    def group(self):
        return self.controllers.get("describe", "group", GROUP)

    def wait_nodes(self, *states):
        def there():
            return tuple(node["state"] for node in self.group()["nodes"]) == states

        wait_until(there, lambda: f"the nodes are {states}: {self.group()}")

    def follow(self):
        """Notes the processes that have replaced the forwarders."""
        for node in self.nodes.values():
            steelyard = node.steelyard
            pid = node.ask(status=pb.StatusRequest()).status.pid
            if pid != steelyard.forwarder.pid:
                steelyard.forwarder = self.lab.succeed(steelyard.forwarder, pid)

    def come_back(self, number):
        """Starts a forwarder; its agent may be without a controller."""
        steelyard = self.nodes[number].steelyard
        steelyard.start_forwarder()
        wait_until(
            lambda: steelyard.api.call("GetStatus").forwarder.status.pid == steelyard.forwarder.pid,
            "the agent has found the new forwarder",
        )
        self.wait_joined()
        self.lab.network.announce(number)

    def events(self):
        return [one["what"] for one in self.controllers.get("get", "events")]


@pytest.fixture
def grouped():
    with Grouped() as cluster:
        yield cluster
        cluster.check_drops(("nat-stray",))


def test_a_request_of_a_group(grouped):
    """Its route leads to all nodes that serve."""
    controllers = grouped.controllers
    words = ["--vip", "10.0.0.99:80", "--real", f"{v4(BACK, 77)}:8080"]
    settings = grouped.file("settings.yaml", "health: { type: none }\n")
    controllers.cli("nfv", "request", "web", *words, "--settings", settings, "--wait", "routing")

    def await_hops(*numbers):
        hops = [v4(BACK, number) for number in numbers]

        def there():
            request = controllers.request("web")
            return request["route"]["next_hops"] == hops and request

        found = wait_until(there, f"the route leads to {hops}")
        assert found["forwarder"] == f"group/{GROUP}"
        controllers.cli("nfv", "route-set", "web")

    await_hops(1, 2)
    grouped.die(1)
    await_hops(2)
    grouped.come_back(1)
    await_hops(1, 2)


def forwarder_state(grouped, name):
    listed = grouped.controllers.get("get", "forwarders")
    return next(one["state"] for one in listed if one["name"] == name)


def test_sessions_survive_a_node_of_a_group(grouped):
    with Conversations(grouped) as talk:
        grouped.wait_replicated(len(talk))
        grouped.die(1)
        talk.check()
        grouped.wait_nodes("silent", "serves")
        assert grouped.events()[-1] == "takeover"
        (taken,) = [one for one in grouped.group()["takeovers"] if one["what"] == "takeover"]
        assert taken["forwarder"] == "f1" and taken["who"] == "agent/f2"
        wait_until(lambda: forwarder_state(grouped, "f1") == "lost", "f1 is lost")
        grouped.come_back(1)
        grouped.wait_nodes("serves", "serves")
        wait_until(lambda: "return" in grouped.events(), "its return is recorded")
        talk.check()

        # Another secret: the nodes upgrade to themselves, and keep all sessions.
        grouped.wait_replicated(len(talk))
        grouped.controllers.cli("group", "rotate", GROUP)
        wait_until(lambda: grouped.group()["secrets"] == [2, 1], "the new secret encrypts")
        grouped.wait_nodes("serves", "serves")
        grouped.follow()
        talk.check()
        grouped.wait_replicated(len(talk))

        # Without the controller a node dies and returns: the other one takes over.
        grouped.controllers.kill("c1")
        grouped.die(2)
        talk.check()
        grouped.come_back(2)
        talk.check()
        grouped.controllers.start()
        grouped.wait_nodes("serves", "serves")
        talk.check()

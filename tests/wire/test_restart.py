# SPDX-License-Identifier: Apache-2.0
"""The forwarder is killed, stopped and upgraded; its sessions continue."""

import os
import socket
import threading
import time

import pytest
from scapy.layers.inet import ICMP, TCP
from scapy.layers.inet6 import IPv6

from tests.lab import wait_until
from tests.lab.clients import connect, dns_txt, http_get
from tests.lab.steelyard import DNS, VIP, WEB
from tests.wire.conftest import check_accounting
from tests.wire.conversations import Conversations
from tests.wire.replacement import (
    SOURCES,
    WAYS,
    adoption,
    refused_after_hand_over,
    replace_forwarder,
)
from tests.wire.successor import successor

pytestmark = pytest.mark.both_builds


@pytest.fixture
def stage(unchecked_stage, request):
    yield from check_accounting(unchecked_stage, request)


@pytest.mark.parametrize("way", WAYS)
def test_sessions_survive_every_replacement(stage, way):
    """A kill, a stop and an upgrade, twice each; the agent has nothing to correct."""
    revision = stage.steelyard.get("status")["forwarder"]["revision"]
    with Conversations(stage) as talk:
        for _ in range(2):
            replace_forwarder(stage.steelyard, way)
            talk.check_servers()
            stage.steelyard.wait_in_sync()
            found = adoption(stage)
            assert found["source"] == SOURCES[way]
            assert found["refused"] == ""
            kept = found["results"].pop("kept")
            assert kept >= len(talk)
            assert not any(found["results"].values()), found
            assert f"{kept} sessions from " in stage.steelyard.cli("get", "status")
        assert stage.steelyard.session_count() >= len(talk)
        pid = stage.steelyard.get("status")["forwarder"]["pid"]
        assert pid == stage.steelyard.forwarder.pid
    assert stage.steelyard.get("status")["forwarder"]["revision"] == revision


@pytest.mark.parametrize("way", WAYS)
def test_sessions_survive_another_number_of_workers(stage, way):
    """1 → 2 → 1 with the same sessions."""
    with Conversations(stage) as talk:
        for workers in (2, 1):
            replace_forwarder(stage.steelyard, way, workers=workers)
            talk.check_servers()
            stage.steelyard.wait_in_sync()
            assert len(stage.steelyard.get("workers")) == workers


def test_sessions_survive_replacements_in_sequence(stage):
    with Conversations(stage) as talk:
        for way in ("upgraded", "killed", "upgraded", "stopped", "upgraded", "upgraded", "killed"):
            replace_forwarder(stage.steelyard, way)
            talk.check_servers()


def test_upgrade_after_an_upgrade_trusts_the_tables(stage):
    """The second upgrade waits, still forwarding, until no session refers to next hops of an
    earlier process. Otherwise its successor would validate each session while no worker receives
    packets."""
    with Conversations(stage) as talk:
        for _ in range(3):
            stage.steelyard.upgrade()
            talk.check_servers()
            stage.steelyard.wait_in_sync()
            assert adoption(stage)["trusted"]
        stage.steelyard.upgrade(sessions=131072)
        stage.steelyard.wait_in_sync()
        assert not adoption(stage)["trusted"]
        stage.steelyard.upgrade(sessions=65536)
        talk.check_servers()


def test_phases_of_a_start_are_reported(stage):
    """Each took no longer than the command that waited for all of them."""
    steelyard = stage.steelyard
    phases = {"stopped": {"eal", "tables", "bind"}, "upgraded": {"release", "acquire"}}
    for way, wanted in phases.items():
        began = time.monotonic_ns()
        replace_forwarder(steelyard, way)
        steelyard.wait_in_sync()
        took = time.monotonic_ns() - began
        phases = {one["name"]: one for one in steelyard.get("status")["forwarder"]["phases"]}
        assert wanted | {"load", "mirror", "config", "start", "serve"} <= phases.keys()
        assert all(one["help"] for one in phases.values())
        assert sum(one["wall_ns"] for one in phases.values()) <= took + 10_000_000  # its start
        assert phases["eal"]["cpu_ns"] > 0
        assert "Start: " in steelyard.cli("get", "status")


def test_sessions_survive_larger_tables(stage):
    """Another table size, and back."""
    with Conversations(stage) as talk:
        for way, sessions in (("stopped", 131072), ("upgraded", 65536)):
            replace_forwarder(stage.steelyard, way, sessions=sessions)
            talk.check_servers()
            stage.steelyard.wait_in_sync()
            assert stage.steelyard.get("status")["forwarder"]["session_capacity"] == sessions


def test_requests_during_a_restart_are_answered(stage):
    """The client's kernel retransmits a request that no forwarder received."""
    with Conversations(stage) as talk:
        stage.steelyard.kill_forwarder()
        for one in talk.web:
            one.socket.sendall(b"GET / HTTP/1.1\r\nHost: lab\r\n\r\n")
        stage.steelyard.start_forwarder()
        for one, server in zip(talk.web, talk.servers, strict=False):
            one.socket.settimeout(60)
            while not one.buffer.endswith(b"\n") or server.encode() not in one.buffer:
                one.buffer += one.socket.recv(65536)
            one.buffer = b""
        talk.check_servers()


def test_configuration_is_complete_without_the_agent(stage):
    """A change accepted just before a kill is in the journal if it is not in a snapshot."""
    server = stage.config["web4"].server(stage.lab["s1"].v4)
    with Conversations(stage) as talk:
        for weight in (5, 6, 7):
            server.weight = weight
            stage.apply()
        revision = stage.steelyard.get("status")["forwarder"]["revision"]
        stage.steelyard.agent.kill()
        stage.steelyard.kill_forwarder()
        stage.steelyard.start_forwarder()
        talk.check_servers()
        stage.steelyard.start_agent()
        stage.steelyard.wait_in_sync()
        assert stage.steelyard.server("web4", stage.lab["s1"].v4)["weight"] == 7
        assert stage.steelyard.get("status")["forwarder"]["revision"] == revision


def test_upgrade_keeps_the_options(stage):
    """Without new options, a successor gets those of the running forwarder, and so does the
    next."""

    def ports():
        return [(port["name"], port["backend"]) for port in stage.steelyard.get("ports")]

    stage.steelyard.restart_forwarder(mode="generic")
    stage.steelyard.wait_in_sync()
    before = ports()
    assert all("generic" in backend for _, backend in before)
    for _ in range(2):
        stage.steelyard.upgrade()
        stage.steelyard.wait_in_sync()
        assert ports() == before
    refused_after_hand_over(
        stage, "out of luck", binary=successor(stage.steelyard.dir, "fails-sealed")
    )
    assert ports() == before
    stage.steelyard.restart_forwarder(mode="auto")


def test_changes_during_upgrades_are_kept(stage):
    """The agent need not repeat changes that were accepted while a successor prepared."""
    steelyard = stage.steelyard
    server = stage.config["web4"].server(stage.lab["s1"].v4)
    done = threading.Event()

    def changes():
        """Returns the numbers of the agent's changes and of the forwarder's revisions."""
        steelyard.wait_in_sync()
        revision = steelyard.get("status")["forwarder"]["revision"]
        return steelyard.agent.output().count('msg="forwarder changed"'), revision

    def change():
        while not done.is_set():
            server.weight = server.weight % 9 + 1
            steelyard.apply()

    count, revision = changes()
    changing = threading.Thread(target=change)
    with Conversations(stage) as talk:
        changing.start()
        for _ in range(5):
            before = server.weight
            wait_until(lambda old=before: server.weight != old, "another change")
            steelyard.upgrade()
            talk.check_servers()
        done.set()
        changing.join()
    count_then, revision_then = changes()
    assert revision_then > revision
    # The agent does not count a change whose reply was lost with the connection.
    assert count_then - count <= revision_then - revision
    assert steelyard.server("web4", stage.lab["s1"].v4)["weight"] == server.weight


@pytest.mark.drops("no-session")
def test_sessions_without_a_server_are_removed(stage):
    """Under a specific reason, when the configuration is lost."""
    steelyard = stage.steelyard
    with Conversations(stage) as talk:
        steelyard.agent.stop()
        steelyard.kill_forwarder()
        for file in (steelyard.dir / "state").iterdir():
            file.unlink()
        steelyard.start_forwarder()
        steelyard.start_agent()
        steelyard.wait_in_sync()
        found = adoption(stage)["results"]
        assert found["server-gone"] >= len(talk)
        assert not found["kept"]
        talk.abort()
        assert f"{found['server-gone']} server-gone" in steelyard.cli("get", "status")
        assert http_get(stage.client, VIP[4], WEB)


# ---- the supervisor ------------------------------------------------------------------------------


class Supervisor:
    """Receives a service's messages to systemd, see sd_notify(3)."""

    def __init__(self, path):
        self.path = str(path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.messages = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        while True:
            text, descriptors, _, _ = socket.recv_fds(self.socket, 4096, 4)
            for fd in descriptors:  # sd_notify_barrier() waits until it is closed
                os.close(fd)
            if not text:
                return
            self.messages += text.decode().split("\n")

    def wait_for(self, line):
        wait_until(
            lambda: line in self.messages, lambda: f"{line} is missing; {self.messages} arrived"
        )


def test_supervisor_is_notified(unchecked_stage):
    stage, steelyard = unchecked_stage, unchecked_stage.steelyard
    supervisor = Supervisor(steelyard.dir / "notify.sock")
    steelyard.env["NOTIFY_SOCKET"] = supervisor.path
    try:
        steelyard.restart_forwarder()
        supervisor.wait_for("READY=1")
        assert not any(line.startswith("MAINPID") for line in supervisor.messages)
        upgraded = steelyard.upgrade()
        supervisor.wait_for(f"MAINPID={upgraded['pid']}")
        assert supervisor.messages.count("READY=1") == 1
        refused_after_hand_over(stage, "signal 9", binary=successor(steelyard.dir, "dies-sealed"))
        supervisor.wait_for(f"MAINPID={upgraded['pid']}")
        assert supervisor.messages.count("READY=1") == 2
        assert "STOPPING=1" not in supervisor.messages
        steelyard.forwarder.stop()
        supervisor.wait_for("STOPPING=1")
    finally:
        del steelyard.env["NOTIFY_SOCKET"]
        stage.revive()


# ---- while no forwarder runs ---------------------------------------------------------------------


@pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
def test_kernel_sends_nothing_for_a_vip_without_a_program(stage, family):
    """The VIP is reached by an interface that is no port: the guard blocks the kernel's reset."""
    ns, far = stage.lab["forwarder"].ns, stage.lab["far"]
    ns.ip(f"link add side type veth peer name side0 netns {far.ns.name}")
    try:
        for host, name, last in ((ns, "side", 1), (far.ns, "side0", 2)):
            host.ip(f"address add 10.8.0.{last}/24 dev {name}")
            host.ip(f"address add fd00:8::{last}/64 dev {name} nodad")
            host.ip(f"link set {name} up")
        router, length = {4: ("10.8.0.1", 32), 6: ("fd00:8::1", 128)}[family]
        far.ns.ip(f"-{family} route add {VIP[family]}/{length} via {router} dev side0")
        capture = stage.lab.capture("far", "side0")
        stage.steelyard.kill_forwarder()
        with pytest.raises(TimeoutError):
            connect(far, VIP[family], WEB, timeout_s=1.5)
        with pytest.raises(TimeoutError):
            dns_txt(far, VIP[family], DNS, timeout_s=0.5)
        sent = capture.packets(lambda p: TCP in p, outgoing=True)
        assert sent, "nothing was asked by this way"
        answers = capture.packets(
            lambda p: TCP in p or ICMP in p or (IPv6 in p and p[IPv6].src == VIP[6]),
            outgoing=False,
        )
        assert not answers, f"the kernel answered: {answers[0].summary()}"
    finally:
        ns.ip("link del side")

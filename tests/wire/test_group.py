# SPDX-License-Identifier: Apache-2.0
"""Forwarders become nodes of a group by their control socket, as an agent makes them: at a restart
for another slot key, otherwise at an upgrade, which keeps sessions."""

import ipaddress
import sys

import pytest

from tests.lab import wait_until
from tests.lab.api import forwarder as pb
from tests.lab.clients import HttpConnection
from tests.lab.process import run
from tests.lab.steelyard import VIP, WEB, Steelyard
from tests.lab.topology import FRONT, v4
from tests.wire.control import Control
from tests.wire.pair import HOSTS, MASTER, SYNC_PORT, Node
from tests.wire.stage import Stage

pytestmark = [pytest.mark.both_builds, pytest.mark.workers(1)]

KEY = "0123456789abcdef0123456789abcdef"
SECRETS = {1: b"1" * 32, 2: b"2" * 32}


def sync_address(number):
    return ipaddress.ip_address(v4(FRONT, HOSTS[number][1])).packed


def group(version, number, *secrets, **changes):
    return pb.Group(
        **{
            "version": version,
            "node": number,
            "address": sync_address(number),
            "port": SYNC_PORT,
            "peers": [
                pb.GroupPeer(node=3 - number, address=sync_address(3 - number), port=SYNC_PORT)
            ],
            "slot_key": KEY,
            "secrets": [pb.GroupSecret(id=one, secret=SECRETS[one]) for one in secrets],
        }
        | changes
    )


class Grouped(Stage):
    """Two forwarders that begin without peers. A context manager."""

    def __init__(self):
        super().__init__(checked=False, pair=True)

    def begin(self):
        standby = Steelyard(self.lab, self.config, host="standby")
        self.nodes = {1: Node(1, self.steelyard), 2: Node(2, standby)}
        for node in self.nodes.values():
            node.steelyard.start_forwarder()
        self.steelyard.start_agent()
        self.steelyard.wait_in_sync()

    def set_group(self, node, wanted):
        """Sets a node's group, and waits until the forwarder applies it. Returns the result."""
        steelyard = node.steelyard
        result = node.ask(set_group=pb.SetGroupRequest(group=wanted)).set_group

        def applied():
            try:
                return node.peers().group == (wanted.version if wanted.node else "")
            except (OSError, EOFError, AssertionError):  # between two processes
                return False

        wait_until(applied, f"the forwarder is of group {wanted.version!r}")
        pid = node.ask(status=pb.StatusRequest()).status.pid
        if pid != steelyard.forwarder.pid:
            steelyard.forwarder = self.lab.succeed(steelyard.forwarder, pid)
        return result


@pytest.fixture
def grouped():
    with Grouped() as stage:
        yield stage
        for node in stage.nodes.values():
            assert node.steelyard.forwarder.alive(), node.steelyard.forwarder.describe()


def test_a_forwarder_becomes_a_node_and_leaves(grouped):
    first, second = grouped.nodes[1], grouped.nodes[2]
    for number, node in grouped.nodes.items():
        assert grouped.set_group(node, group("edge@1", number, 1)).restarts
    second.steelyard.start_agent()
    first.set_role(MASTER)
    with HttpConnection(grouped.client, VIP[4], WEB) as old:
        served = old.get()
        first.wait_replicated(1)

        # The same group changes nothing.
        result = first.ask(set_group=pb.SetGroupRequest(group=group("edge@1", 1, 1))).set_group
        assert not result.changed

        # Another secret, in three steps: sessions stay, and both have them throughout.
        for version, secrets in (("edge@2", (1, 2)), ("edge@3", (2, 1)), ("edge@4", (2,))):
            for number, node in grouped.nodes.items():
                result = grouped.set_group(node, group(version, number, *secrets))
                assert result.changed and not result.restarts
            first.wait_replicated(1)
            assert old.get() == served

        # A restart needs no agent: it is a node again.
        second.steelyard.kill_forwarder()
        second.steelyard.start_forwarder()
        assert second.peers().group == "edge@4"
        first.wait_replicated(1)
        first.steelyard.kill_forwarder()
        first.steelyard.release()
        second.set_role(MASTER)
        assert old.get() == served
        first.steelyard.start_forwarder()

        # Without a group it serves as before, with its sessions.
        grouped.set_group(second, pb.Group())
        assert not second.peers().node
        assert not (second.steelyard.dir / "state" / "group").exists()
        assert old.get() == served


def refusal(node, wanted):
    with Control(node.steelyard.forwarder_socket) as control:
        response = control.ask(set_group=pb.SetGroupRequest(group=wanted))
    assert response.HasField("error"), response
    return response.error.text


def test_refused_groups(grouped):
    first = grouped.nodes[1]
    for wanted, why in (
        (group("", 1, 1), "version"),
        (group("x", 1), "one or two secrets"),
        (group("x", 1, 1, slot_key="12"), "32 hexadecimal digits"),
        (group("x", 1, 1, node=32), "from 1 to 31"),
        (group("x", 1, 1, node=2), "there twice"),
        (group("x", 1, 1, peers=[]), "no other node"),
        (group("x", 1, 1, port=0), "from 1 to 65535"),
        (group("x", 1, 1, address=b"123"), "4 or 16 bytes"),
        (group("x", 1, 1, address=bytes([192, 0, 2, 1])), "must name an address of this host"),
        (group("x", 1, 1, secrets=[pb.GroupSecret(id=1, secret=b"short")]), "32 to 256 bytes"),
    ):
        assert why in refusal(first, wanted)
    # Another program has the port: a process that fails on that would not start again.
    code = "import socket, time; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); "
    code += f"s.bind(('{v4(FRONT, HOSTS[1][1])}', {SYNC_PORT})); print('bound', flush=True); "
    other = grouped.lab.start(
        "forwarder", "other", [sys.executable, "-c", code + "time.sleep(999)"]
    )
    other.wait_for("bound")
    assert "no other program uses" in refusal(first, group("x", 1, 1))
    other.kill()
    assert not first.peers().group

    # A start without the saved group could make a second master.
    steelyard = first.steelyard
    steelyard.forwarder.stop()
    saved = steelyard.dir / "state" / "group"
    saved.write_bytes(b"\xff")
    argv = steelyard.forwarder_argv(*steelyard.forwarder_options())
    failed = run(grouped.lab["forwarder"].ns.command(argv), check=False)
    assert failed.returncode == 1
    assert f"it cannot be read; remove {saved}: the agent writes it again" in failed.stderr
    saved.unlink()
    steelyard.start_forwarder()
    slot_key = steelyard.dir / "slot-key"
    slot_key.write_text(KEY)
    secret = steelyard.dir / "secret"
    secret.write_text("1 " + "s" * 32)
    secret.chmod(0o600)
    words = ("--node", 1, "--sync", v4(FRONT, HOSTS[1][1]), "--sync-secret", secret)
    words += ("--peer", f"2={v4(FRONT, HOSTS[2][1])}")
    steelyard.restart_forwarder(slot_key=slot_key, peers=words)
    assert "by its options: remove --node" in refusal(first, group("x", 1, 1))

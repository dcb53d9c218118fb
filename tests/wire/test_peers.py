# SPDX-License-Identifier: Apache-2.0
"""Sessions outlive their forwarder: the peer keeps them, and serves them when it becomes the
master."""

import hashlib
import itertools
import os
import socket

import pytest

from tests.lab import wait_until
from tests.lab.api import forwarder as pb
from tests.lab.clients import http_get
from tests.lab.steelyard import VIP, WEB
from tests.wire.control import Control
from tests.wire.conversations import Conversations
from tests.wire.pair import BACKUP, MASTER, SYNC_PORT, Pair

pytestmark = pytest.mark.both_builds


@pytest.fixture(scope="module")
def running():
    """The second node has another number of workers."""
    with Pair(1, 2) as pair:
        yield pair


@pytest.fixture
def pair(running):
    running.restore_roles()
    yield running
    for process in running.forwarders():
        assert process.alive(), process.describe()


def replicated(pair, talk):
    """Waits until the standby has all sessions of the conversations."""
    talk.check_servers()  # UDP: the clients' second datagrams
    pair.nodes[1].wait_replicated(len(talk))


def test_sessions_outlive_their_forwarder(pair):
    """The master is killed, and the other node takes over; the first one returns, gets the sessions
    back, and takes over again."""
    first, second = pair.nodes[1], pair.nodes[2]
    with Conversations(pair) as talk:
        replicated(pair, talk)
        first.steelyard.kill_forwarder()
        first.steelyard.release()
        second.set_role(MASTER)
        talk.check_servers()
        with Conversations(pair) as more:
            first.steelyard.start_forwarder()
            assert first.role() == BACKUP
            more.check_servers()
            second.wait_replicated(len(talk) + len(more))
            pair.swap(first)
            talk.check_servers()
            more.check_servers()
            first.wait_replicated(len(talk) + len(more))


def test_a_download_survives_the_takeover(pair):
    content = os.urandom(20_000_000)
    for name in pair.nginx:
        (pair.lab.dir / f"nginx-{name}" / "files" / "large").write_bytes(content)
    got = pair.lab.dir / "got"
    curl = pair.lab.start(
        "client",
        "curl",
        ["curl", "-sS", "--limit-rate", "4M", "-o", got, f"http://{VIP[4]}:{WEB}/files/large"],
    )
    wait_until(lambda: got.exists() and got.stat().st_size > 2_000_000, "a part has come")
    pair.nodes[1].wait_replicated()
    pair.nodes[1].steelyard.kill_forwarder()
    pair.nodes[1].steelyard.release()
    pair.nodes[2].set_role(MASTER)
    assert curl.wait() == 0, curl.describe()
    assert hashlib.sha256(got.read_bytes()).digest() == hashlib.sha256(content).digest()
    pair.nodes[1].steelyard.start_forwarder()


def test_a_node_without_its_state_is_a_backup(pair):
    """`steelyard cleanup` removes the sessions of a dead master, so it must not serve when it
    returns: its peer has them."""
    first, second = pair.nodes[1], pair.nodes[2]
    with Conversations(pair) as talk:
        replicated(pair, talk)
        first.steelyard.kill_forwarder()
        first.steelyard.cleanup()
        second.set_role(MASTER)
        talk.check_servers()
        first.steelyard.start_forwarder()
        assert first.role() == BACKUP
        second.wait_replicated(len(talk))
        pair.swap(first)
        talk.check_servers()


def test_roles_swap_without_a_death(pair):
    first, second = pair.nodes[1], pair.nodes[2]
    with Conversations(pair) as talk:
        replicated(pair, talk)
        for taker, other in ((second, first), (first, second)) * 2:
            pair.swap(taker)
            talk.check_servers()
            taker.wait_replicated(len(talk))
            assert other.peers().offered == 0


def test_two_masters_harm_no_session(pair):
    """Both believe that they serve; then one of them is told otherwise."""
    first, second = pair.nodes[1], pair.nodes[2]
    with Conversations(pair) as talk:
        replicated(pair, talk)
        second.set_role(MASTER)
        pair.wait_announced(second)  # an unreplied UDP session is at one node alone
        talk.check_servers()
        with Conversations(pair) as more:
            more.check_servers()
            wait_until(lambda: first.has_sent_all(), "its peer knows what the first one serves")
            first.set_role(BACKUP)
            more.check_servers()
            talk.check_servers()
            second.wait_replicated(len(talk) + len(more))
            pair.swap(first)
            more.check_servers()
            talk.check_servers()


def test_a_cut_between_the_nodes_is_made_up_for(pair):
    """Sessions that begin and end meanwhile are known after it."""
    first, second = pair.nodes[1], pair.nodes[2]
    with Conversations(pair) as talk:
        replicated(pair, talk)
        with Conversations(pair) as short:
            replicated(pair, short)
            with pair.cut():
                wait_until(
                    lambda: first.peer().state == pb.PEER_STATE_SILENT, "the peer seems silent"
                )
                short.abort()
                with Conversations(pair) as more:
                    more.check_servers()
                    assert not first.is_replicated(len(more))
                    pair.heal()
                    first.wait_replicated(len(talk) + len(more))
                    pair.swap(second)
                    talk.check_servers()
                    more.check_servers()


def test_forged_datagrams_are_counted(pair):
    """From the peer's address, by another program of its host; from elsewhere they are dropped
    before their seals are looked at."""
    first, second = pair.nodes[1], pair.nodes[2]
    header = bytes([0x59, 0x53, 1, 1, 2, 0, 1, 0])  # magic … a hello of node 2
    other_node = header[:4] + bytes([9]) + header[5:]  # no peer has the number
    forged = {
        "sync-malformed": [b"", b"x", os.urandom(80), os.urandom(1472)],
        "sync-forged": [header + os.urandom(200)],
        "sync-unknown-peer": [other_node + os.urandom(100)],
        "sync-unknown-secret": [header[:3] + bytes([7]) + header[4:] + os.urandom(100)],
    }
    with Conversations(pair) as talk:
        replicated(pair, talk)
        for host, reasons in (
            ("standby", set(forged)),
            ("client", {"sync-malformed", "sync-unknown-peer", "sync-unknown-sender"}),
        ):
            before = first.drops()
            with pair.lab[host].ns.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
                if host == "standby":
                    one.bind((pair.sync_address(2), 0))
                for datagram in itertools.chain(*forged.values()):
                    one.sendto(datagram, (pair.sync_address(1), SYNC_PORT))

            def counted(before=before, reasons=reasons):
                now = first.drops()
                return {name for name in now if now[name] > before[name]} >= reasons

            wait_until(counted, f"datagrams from {host} are counted by their reasons")
            if host == "client":
                assert first.drops()["sync-forged"] == before["sync-forged"]
        talk.check_servers()
        assert second.peer().state == pb.PEER_STATE_ALIVE
        first.wait_replicated(len(talk))


def test_an_upgrade_keeps_the_pair_together(pair):
    first = pair.nodes[1]
    with Conversations(pair) as talk:
        replicated(pair, talk)
        for node in pair.nodes.values():
            node.steelyard.upgrade()
            talk.check_servers()
        assert first.role() == MASTER
        first.wait_replicated(len(talk))
        pair.swap(pair.nodes[2])
        talk.check_servers()


def test_a_standby_answers_for_no_address(pair):
    """No ARP answer, no XDP steering: packets that reach its host go to its kernel."""
    standby = pair.lab["standby"].ns
    addresses = standby.ip("-o address show")
    assert VIP[4] not in addresses and VIP[6] not in addresses
    assert http_get(pair.client, VIP[4], WEB, "/healthz") is not None
    pair.swap(pair.nodes[2])
    assert http_get(pair.client, VIP[4], WEB, "/healthz") is not None
    assert http_get(pair.client, VIP[6], WEB, "/healthz") is not None


def test_a_role_without_peers_is_refused(stage):
    with Control(stage.steelyard.forwarder_socket) as control:
        response = control.ask(set_role=pb.SetRoleRequest(role=MASTER))
    assert response.error.code == pb.CODE_INVALID
    assert "start it with --node, --sync and --peer" in response.error.text

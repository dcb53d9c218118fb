# SPDX-License-Identifier: Apache-2.0
"""A node that lacks sessions does not serve while the other one has them: it joins, keepalived
elects it, its peer dies during the copy, or it has lost what it served."""

import pytest

from tests.lab import wait_until
from tests.lab.api import forwarder as pb
from tests.wire.conversations import Conversations
from tests.wire.keepalived import elected
from tests.wire.pair import BACKUP, MASTER, Pair


@pytest.fixture
def pair():
    with Pair() as running:
        yield running
        for process in running.forwarders():
            assert process.alive(), process.describe()


def replicated(node, talk):
    talk.check_servers()  # UDP: the clients' second datagrams
    node.wait_replicated(len(talk))


def lose_sessions(node, cleanup=True):
    """Kills the forwarder of node 1. cleanup: as a reboot of its host leaves it."""
    file = node.steelyard.session_file()
    node.steelyard.kill_forwarder()
    if cleanup:
        node.steelyard.cleanup()
    else:
        file.unlink()


def reasons(node):
    """Returns the reasons of `steelyard health`."""
    return [one["text"] for one in node.steelyard.get("status")["health"]["reasons"]]


def wait_reason(node, text):
    wait_until(lambda: any(text in one for one in reasons(node)), f"health says: {text}")


def role_check(node):
    """Returns the exit code of keepalived's track script."""
    socket = node.steelyard.forwarder_socket
    done = node.steelyard.cli("role", "--check", "--forwarder", socket, check=False)
    return done.returncode


def test_a_joining_node_does_not_preempt(pair):
    """keepalived may preempt, and the node with the higher priority returns without sessions."""
    first, second = pair.nodes.values()
    with elected(pair, preempt=True) as daemons, Conversations(pair, resend_s=3) as talk:
        replicated(first, talk)
        daemons[first].kill()
        lose_sessions(first)
        wait_until(lambda: second.role() == MASTER, "the second node serves")
        talk.check_servers()
        with pair.only_hellos(first):
            first.steelyard.start_forwarder()
            first.steelyard.wait_reconnected()
            wait_until(lambda: first.peer().state == pb.PEER_STATE_ALIVE, "it has found its peer")
            assert role_check(first) != 0
            daemons[first].start()
            daemons[first].process.wait_for(r"VRRP_Script\(sessions\) failed")
            wait_until(lambda: daemons[first].state() == "BACKUP", "it does not preempt")
            wait_reason(first, "sessions of it may be missing here")
            # An operator, or a keepalived without the track script.
            assert first.set_role(MASTER, now=False) == BACKUP
            wait_reason(first, "it becomes master when it has the sessions")
            talk.check_servers()
            assert daemons[second].state() == "MASTER" and second.role() == MASTER
        wait_until(lambda: first.role() == MASTER, "it serves once it has the sessions")
        wait_until(lambda: daemons[first].state() == "MASTER", "and preempts")
        wait_until(lambda: second.role() == BACKUP, "the second node is a backup")
        talk.check_servers()


def test_the_peer_dies_during_the_copy(pair):
    """Then the node is alone, and serves what it has."""
    first, second = pair.nodes.values()
    with Conversations(pair) as talk:
        replicated(first, talk)
        with pair.only_hellos(second):
            second.steelyard.restart_forwarder()
            second.steelyard.wait_reconnected()
            wait_until(lambda: second.peer().state == pb.PEER_STATE_ALIVE, "the peer is alive")
            assert second.set_role(MASTER, now=False) == BACKUP
            talk.check_servers()
            assert second.role() == BACKUP
            first.steelyard.kill_forwarder()
            first.steelyard.release()
            wait_until(lambda: second.role() == MASTER, "it serves")
            talk.check_servers()  # it has adopted the sessions of its last start
        first.steelyard.start_forwarder()


def test_a_master_leaves_when_its_peer_has_the_sessions(pair):
    first, second = pair.nodes.values()
    with Conversations(pair) as talk:
        replicated(first, talk)
        with pair.only_hellos(second):
            second.steelyard.restart_forwarder()
            wait_until(lambda: first.peer().unverified_there, "the peer lacks sessions")
            assert first.set_role(BACKUP, now=False) == MASTER
            assert second.set_role(MASTER, now=False) == BACKUP
            talk.check_servers()
            first.steelyard.restart_forwarder()  # a change that waits outlives the process
            assert first.peers().wanted == BACKUP and first.role() == MASTER
            talk.check_servers()
        wait_until(lambda: second.role() == MASTER, "the other node serves")
        wait_until(lambda: first.role() == BACKUP, "the first node is a backup")
        talk.check_servers()
        second.wait_replicated(len(talk))


def test_a_master_without_its_sessions_leaves_them_to_its_peer(pair):
    """Its session file is gone, and its saved role is `master`. keepalived does not report the role
    again, but `steelyard health` fails."""
    first, second = pair.nodes.values()
    with elected(pair) as daemons, Conversations(pair, resend_s=3) as talk:
        replicated(first, talk)
        with pair.only_hellos(first):
            lose_sessions(first, cleanup=False)
            first.steelyard.start_forwarder()
            assert first.role() == BACKUP and first.peers().wanted == MASTER
            first.steelyard.wait_reconnected()
            wait_until(lambda: second.role() == MASTER, "the node with the sessions serves")
            talk.check_servers()
        wait_until(first.lacks_nothing, "the first node gets them")
        wait_until(lambda: daemons[first].state() == "BACKUP", "it is a backup")
        daemons[second].stop()
        wait_until(lambda: first.role() == MASTER, "it serves again")
        talk.check_servers()


def test_without_keepalived_it_serves_when_it_has_them(pair):
    first = pair.nodes[1]
    with Conversations(pair) as talk:
        replicated(first, talk)
        lose_sessions(first, cleanup=False)
        first.steelyard.start_forwarder()
        wait_until(lambda: first.role() == MASTER, "it is the master again")
        talk.check_servers()
        first.wait_replicated(len(talk))

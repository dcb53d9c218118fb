# SPDX-License-Identifier: Apache-2.0
"""Debian's keepalived decides which node of a pair serves, by the shipped configuration."""

from tests.lab import wait_until
from tests.wire.conversations import Conversations
from tests.wire.keepalived import Keepalived
from tests.wire.pair import BACKUP, MASTER, Pair

MASTER_STATE = "MASTER"  # of VRRP


def test_keepalived_moves_the_connections():
    with Pair() as pair:
        first, second = pair.nodes.values()
        daemons = {node: Keepalived(pair.lab, node, 101 - node.number) for node in (first, second)}
        daemons[first].start()
        # It was the master before: keepalived begins as a backup.
        wait_until(
            lambda: daemons[first].state() == MASTER_STATE and first.role() == MASTER,
            "the only node with keepalived is the master",
        )
        daemons[second].start()
        daemons[second].process.wait_for("Syncing instances to BACKUP")
        with Conversations(pair, resend_s=3) as talk:
            talk.check_servers()  # UDP: the clients' second datagrams
            first.wait_replicated(len(talk))
            socket = first.steelyard.forwarder_socket
            (shown,) = first.steelyard.get("peers", "--forwarder", socket)
            assert shown["state"] == "alive" and shown["present"] == shown["offered"] >= len(talk)

            first.steelyard.kill_forwarder()  # and nothing starts it again
            wait_until(lambda: second.role() == MASTER, "the backup becomes the master")
            talk.check_servers()

            first.steelyard.start_forwarder()
            assert first.role() == BACKUP, "the addresses were released for the other node"
            second.wait_replicated(len(talk))
            daemons[second].stop()
            wait_until(lambda: second.role() == BACKUP, "a node without keepalived is a backup")
            wait_until(lambda: first.role() == MASTER, "the first node is the master again")
            talk.check_servers()

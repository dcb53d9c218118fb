# SPDX-License-Identifier: Apache-2.0
"""A lab with two forwarders that keep each other's sessions."""

import contextlib
import re

from tests.lab import wait_until
from tests.lab.api import forwarder as pb
from tests.lab.steelyard import VIP, Steelyard
from tests.lab.topology import FRONT, v4
from tests.wire.control import Control
from tests.wire.stage import Stage

SYNC_PORT = 8849
UDP_HEADER, KIND, HELLO = 8, 6, 1  # bytes; the kind of a datagram of hellos
MASTER, BACKUP = pb.ROLE_MASTER, pb.ROLE_BACKUP
HOSTS = {1: ("forwarder", 1), 2: ("standby", 3)}  # node: host, and its number on the front network


class Node:
    """One forwarder among peers, with its agent."""

    def __init__(self, number, steelyard):
        self.number, self.steelyard = number, steelyard

    def ask(self, **body):
        with Control(self.steelyard.forwarder_socket) as control:
            response = control.ask(**body)
        assert not response.HasField("error"), response.error.text
        return response

    def set_role(self, role, now=True):
        """now: also if sessions are lost."""
        return self.ask(set_role=pb.SetRoleRequest(role=role, now=now)).set_role.role

    def peers(self):
        return self.ask(list_peers=pb.ListPeersRequest()).list_peers

    def role(self):
        return self.peers().role

    def drops(self):
        return {drop.name: drop.packets for drop in self.peers().drops}

    def peer(self):
        (peer,) = self.peers().peers
        return peer

    def has_sent_all(self):
        """Returns whether its peers have acknowledged all changes."""
        return not any(peer.waiting or peer.lag_ms or peer.copying for peer in self.peers().peers)

    def lacks_nothing(self):
        """Returns whether digests have shown that it has all of its peer's sessions."""
        peer = self.peer()
        return peer.state == pb.PEER_STATE_ALIVE and not peer.unverified_here

    def is_replicated(self, least=1):
        """Returns whether its peers have shown by digests that they have all of this node's
        sessions."""
        peers = self.peers().peers
        return (
            all(peer.state == pb.PEER_STATE_ALIVE for peer in peers)
            and all(peer.present == peer.offered for peer in peers)
            and sum(peer.offered for peer in peers) >= least
            and self.has_sent_all()
        )

    def wait_replicated(self, least=1):
        wait_until(lambda: self.is_replicated(least), "the peers have all sessions")


def make_node(node, own, peers):
    """Sets the options that make a forwarder a node. own: its address for synchronisation; peers:
    {number: address}."""
    folder, options = node.steelyard.lab.dir, node.steelyard.options
    options.slot_key = folder / "slot-key"
    options.slot_key.write_text("0123456789abcdef0123456789abcdef\n")
    secret = folder / "secret"
    secret.write_text("1 a secret of thirty-two characters\n")
    secret.chmod(0o600)
    options.peers = ("--node", node.number, "--sync", own, "--sync-secret", secret)
    for number, address in peers.items():
        options.peers += ("--peer", f"{number}={address}")


def start_nodes(lab, *forwarders):
    """Starts the forwarders of both HOSTS as peers. Returns {1: Node, 2: Node}, both backups."""
    nodes = {number: Node(number, one) for number, one in enumerate(forwarders, 1)}
    for number, node in nodes.items():
        host, own = HOSTS[number]
        assert node.steelyard.host == host
        other = HOSTS[3 - number][1]
        make_node(node, v4(FRONT, own), {3 - number: v4(FRONT, other)})
        node.steelyard.start()
    for node in nodes.values():
        wait_until(
            lambda node=node: node.peer().state == pb.PEER_STATE_ALIVE,
            "the nodes have found each other",
        )
    return nodes


TABLE = "inet cut"


@contextlib.contextmanager
def holding_answers(client):
    """Drops what a client sends on connections: the kernel sends it again later."""
    table = "inet held"
    client.run(["nft", f"add table {table}"])
    chain = "output { type filter hook output priority 0 ; }"
    client.run(["nft", f"add chain {table} {chain}"])
    client.run(["nft", f"add rule {table} output tcp flags & (syn | ack) == ack drop"])
    try:
        yield
    finally:
        client.run(["nft", f"delete table {table}"])


class Pair(Stage):
    """Node 1 on `forwarder` is the master, node 2 on `standby` the backup. A context manager."""

    def __init__(self, workers=1, standby_workers=1, **options):
        super().__init__(workers, checked=False, pair=True, **options)
        self.standby_workers = standby_workers

    def begin(self):
        standby = Steelyard(
            self.lab, self.config, host="standby", workers=self.standby_workers, mode=self.mode
        )
        self.nodes = start_nodes(self.lab, self.steelyard, standby)
        self.nodes[1].set_role(MASTER)

    @staticmethod
    def sync_address(number):
        return v4(FRONT, HOSTS[number][1])

    def forwarders(self):
        return [node.steelyard.forwarder for node in self.nodes.values()]

    def wait_announced(self, node):
        """Waits until the client sends its packets for the VIPs to this node."""
        link = self.lab[node.steelyard.host].ns.ip("-o link show front")
        mac = re.search(r"link/ether (\S+)", link)[1]
        client = self.client.ns
        wait_until(
            lambda: all(f"lladdr {mac} " in client.ip(f"neigh show {vip}") for vip in VIP.values()),
            "the client knows the new master's MAC address",
        )

    def swap(self, master):
        """Makes a node the master, and first the other one its backup."""
        for node in self.nodes.values():
            if node is not master:
                node.set_role(BACKUP)
        master.set_role(MASTER)

    def restore_roles(self):
        """Node 1 is the master, and both have no sessions of earlier tests to send."""
        for node in self.nodes.values():
            if not node.steelyard.forwarder.alive():
                node.steelyard.start_forwarder()
        self.swap(self.nodes[1])
        self.nodes[1].wait_replicated(0)

    @contextlib.contextmanager
    def cut(self):
        """Drops the datagrams between the nodes, until heal() or the end."""
        standby = self.lab["standby"].ns
        rule = f"udp dport {SYNC_PORT} drop"
        for hook in ("input", "output"):
            standby.run(["nft", f"add table {TABLE}"])
            chain = f"add chain {TABLE} {hook} {{ type filter hook {hook} priority 0 ; }}"
            standby.run(["nft", chain])
            standby.run(["nft", f"add rule {TABLE} {hook} {rule}"])
        try:
            yield
        finally:
            self.heal()

    def heal(self):
        self.lab["standby"].ns.run(["nft", f"delete table {TABLE}"], check=False)

    @contextlib.contextmanager
    def only_hellos(self, node):
        """Drops the datagrams of sessions that arrive at a node: its peer is alive, and cannot
        copy to it."""
        ns = self.lab[node.steelyard.host].ns
        table = "inet hellos"
        chain = "input { type filter hook input priority 0 ; }"
        ns.run(["nft", f"add table {table}"])
        ns.run(["nft", f"add chain {table} {chain}"])
        rule = f"udp dport {SYNC_PORT} @th,{8 * UDP_HEADER + 8 * KIND},8 != {HELLO} drop"
        ns.run(["nft", f"add rule {table} input {rule}"])
        try:
            yield
        finally:
            ns.run(["nft", f"delete table {table}"])

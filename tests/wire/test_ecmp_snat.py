# SPDX-License-Identifier: Apache-2.0
"""SNAT behind ECMP: each node has pool addresses of its own, and sessions keep theirs when another
node takes them over. TCP and downloads are among the conversations of test_ecmp.py."""

import copy

import pytest

from tests.lab import wait_until
from tests.lab.clients import connect, receive_exactly
from tests.lab.ecmp import pool_addresses
from tests.lab.servers import EchoServer
from tests.wire.cluster import Cluster
from tests.wire.test_fragments import client_socket

ECHO, REMOTE = 9441, 9442
FAMILIES = (4, 6)
COUNT = 12  # flows of each kind and family


@pytest.fixture
def cluster():
    with Cluster(workers=(2, 1, 1)) as cluster:
        cluster.start(1, 2, 3)
        yield cluster
        cluster.check_drops(())


def own(cluster, number):
    """Returns the sessions of SNAT that a node serves."""
    sessions = cluster.nodes[number].steelyard.sessions()
    return [one for one in sessions if "snat" in one and one["state"] != "away"]


def served(cluster):
    """Returns {(client, port, remote, port): (local, port)} of all living nodes."""
    return {
        (one["client"], one["client_port"], one["vip"], one["vip_port"]): (
            one["local"],
            one["local_port"],
        )
        for number in cluster.living()
        for one in own(cluster, number)
    }


class Talk:
    """UDP flows of s1, each with an answer of `far`, and TCP connections."""

    def __init__(self, cluster):
        self.cluster = cluster
        far, inside = cluster.lab["far"], cluster.lab["s1"]
        self.servers = [EchoServer(far, ECHO, family) for family in FAMILIES]
        self.remotes = {family: client_socket(far, family, REMOTE) for family in FAMILIES}
        self.flows, self.connections = [], []  # (family, socket, its address as `far` sees it)
        for family in FAMILIES:
            remote = self.remotes[family]
            for _ in range(COUNT):
                one = client_socket(inside, family)
                one.settimeout(10)
                for _ in range(2):  # the session is then answered, and kept by a peer
                    one.sendto(b"out", (far.address(family), REMOTE))
                    data, peer = remote.recvfrom(100)
                    assert data == b"out"
                    remote.sendto(b"back", peer)
                    assert one.recv(100) == b"back"
                self.flows.append((family, one, peer))
                self.connections.append(connect(inside, far.address(family), ECHO))
        self.check_connections()

    def check_connections(self):
        for one in self.connections:
            one.sendall(b"hello")
            assert receive_exactly(one, 5) == b"hello"

    def check_remote_first(self):
        """Remotes reach inside hosts under the addresses that they know, and are answered from
        there."""
        for family, one, peer in self.flows:
            remote = self.remotes[family]
            remote.sendto(b"remote first", peer)
            assert one.recv(100) == b"remote first"
            one.sendto(b"answer", remote.getsockname()[:2])
            assert remote.recvfrom(100) == (b"answer", peer)

    def close(self):
        for one in (*self.remotes.values(), *self.connections, *(flow[1] for flow in self.flows)):
            one.close()
        for server in self.servers:
            server.close()


@pytest.fixture
def talk(cluster):
    talk = Talk(cluster)
    yield talk
    talk.close()


def test_each_node_has_pool_addresses_of_its_own(cluster, talk):
    for number in cluster.nodes:
        sessions = own(cluster, number)
        assert sessions
        assert {one["local"] for one in sessions} <= set(pool_addresses(number))
    assert len(served(cluster)) == 4 * COUNT
    talk.check_remote_first()


def test_sessions_keep_their_addresses_when_nodes_die(cluster, talk):
    """Remotes send first: their packets find the session by the dead node's address."""
    cluster.wait_replicated(4 * COUNT)
    before = served(cluster)
    assert len(before) == 4 * COUNT
    cluster.die(1)
    cluster.wait_joined()
    talk.check_remote_first()
    talk.check_connections()
    wait_until(lambda: served(cluster) == before, "the others serve the sessions")
    cluster.lab.network.spread_anew()
    talk.check_connections()
    talk.check_remote_first()


@pytest.mark.parametrize("family", FAMILIES)
def test_pings_go_on_when_their_node_dies(cluster, family):
    """Each request has the same identifier. An echo session is not replicated: another node begins
    one anew."""
    far = cluster.lab["far"].address(family)

    def ping():
        sent = cluster.lab["s1"].ns.run(["ping", "-n", "-c1", "-W5", "-e", "4711", far])
        assert " 0% packet loss" in sent

    def serving():
        protocols = {"icmp", "icmpv6"}
        (number,) = (
            number
            for number in cluster.living()
            if any(one["protocol"] in protocols for one in own(cluster, number))
        )
        return number

    ping()
    first = serving()
    cluster.die(first)
    cluster.wait_joined()
    ping()
    assert serving() != first


def test_an_address_of_two_nodes_is_reported(cluster):
    """Both could choose the same port of it."""
    shared, *others = pool_addresses(1)
    one, two = (cluster.nodes[number].steelyard for number in (1, 2))

    def warnings(node):
        text = f"{shared} is a local or pool address of this node and of node"
        return [said for said in node.get("status")["warnings"] if said.startswith(text)]

    assert not warnings(one) and not warnings(two)
    right = copy.deepcopy(two.config)
    two.config.peer_local_addresses.remove(shared)
    two.config.snat[0]["pool"].append(shared)
    two.apply()
    wait_until(lambda: warnings(one) and warnings(two), "both nodes report it")
    two.config = right
    two.apply()
    wait_until(lambda: not warnings(one) and not warnings(two), "no node reports it")

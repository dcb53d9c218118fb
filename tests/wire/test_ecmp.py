# SPDX-License-Identifier: Apache-2.0
"""Three nodes that all serve, behind a router that spreads flows over them: no flow ends when the
router spreads them anew, or when nodes die, return, join and leave."""

import random

import pytest

from tests.lab.api import forwarder as pb
from tests.lab.ecmp import local_addresses
from tests.lab.mode_table import ROWS
from tests.wire.cluster import Cluster, Conversations
from tests.wire.control import Control

# A server's first answer under NAT may reach another node before that has the session.
pytestmark = pytest.mark.drops("nat-stray")


@pytest.fixture
def whole():
    """One of the nodes has two workers. Nodes are started by the test."""
    with Cluster(workers=(2, 1, 1)) as cluster:
        yield cluster


@pytest.fixture
def cluster(whole, request):
    """All nodes serve. Drops have reasons that the test names."""
    whole.start(1, 2, 3)
    yield whole
    marker = request.node.get_closest_marker("drops")
    whole.check_drops(marker.args if marker else ())


def spread_anew(cluster, talk, times, dice):
    for _ in range(times):
        cluster.lab.network.spread_anew(dice)
        talk.check()


def test_each_node_serves_what_reaches_it(cluster):
    """No packet of a session is relayed while the router keeps its flows' paths. New sessions have
    local addresses of the node that began them."""
    with Conversations(cluster, modes=1) as talk:
        cluster.wait_replicated(len(talk))
        relayed = cluster.relayed()
        for _ in range(3):
            talk.check()
        assert cluster.relayed() == relayed
        for number, node in cluster.nodes.items():
            own = [one for one in node.steelyard.sessions() if one["state"] != "away"]
            assert own
            assert {one["local"] for one in own} <= {*local_addresses(number), ""}


def test_flows_that_are_spread_anew_go_on(cluster):
    with Conversations(cluster) as talk:
        cluster.wait_replicated(len(talk))
        out, _ = cluster.relayed()
        spread_anew(cluster, talk, 4, random.Random(1))
        assert cluster.relayed()[0] > out


def test_flows_that_begin_while_others_are_spread_anew(cluster):
    dice = random.Random(2)
    with Conversations(cluster) as talk:
        for _ in range(2):
            cluster.lab.network.spread_anew(dice)
            with Conversations(cluster, modes=1) as more:
                talk.check()
                cluster.wait_replicated(len(talk) + len(more))
                spread_anew(cluster, more, 1, dice)


def test_a_node_dies_and_comes_back(cluster):
    """Its sessions go on at the others, also when these are spread anew, and when it is back."""
    number, dice = 1, random.Random(3)  # the node with two workers
    with Conversations(cluster) as talk:
        cluster.wait_replicated(len(talk))
        cluster.die(number)
        talk.check()
        spread_anew(cluster, talk, 2, dice)
        with Conversations(cluster, modes=1) as more:
            cluster.wait_replicated(len(talk) + len(more))
            cluster.come_back(number)
            more.check()
            talk.check()
            spread_anew(cluster, more, 1, dice)
        spread_anew(cluster, talk, 2, dice)


def test_nodes_die_in_turn(cluster):
    """Each session is at two nodes again before the next one dies."""
    dice = random.Random(7)
    with Conversations(cluster) as talk:
        for number in cluster.nodes:
            cluster.wait_replicated(len(talk))
            cluster.die(number)
            talk.check()
            cluster.wait_replicated(len(talk))
            cluster.come_back(number)
            spread_anew(cluster, talk, 1, dice)


def test_a_node_joins(whole):
    whole.start(1, 2)
    with Conversations(whole) as talk:
        whole.wait_replicated(len(talk))
        whole.start(3)
        talk.check()
        whole.wait_replicated(len(talk))
        spread_anew(whole, talk, 3, random.Random(4))
    whole.check_drops(("nat-stray",))


def test_a_node_drains(cluster):
    """Its routes are withdrawn first, so its sessions' packets arrive at the others, which relay
    them. When it stops, they need not wait until it is silent: it says so."""
    steelyard = cluster.nodes[1].steelyard
    with Conversations(cluster) as talk:
        cluster.wait_replicated(len(talk))
        cluster.lab.network.withdraw(1)
        talk.check()
        assert steelyard.cli("drain", "node", "--wait").endswith("node: drained\n")
        assert steelyard.forwarder.stop() == 0
        for number in (2, 3):
            (peer,) = (p for p in cluster.nodes[number].peers().peers if p.node == 1)
            assert peer.state == pb.PEER_STATE_SILENT
        talk.check()
        talk.check()
        cluster.come_back(1)
        steelyard.cli("undrain", "node")
        talk.check()


def test_a_node_is_upgraded_and_restarted(cluster):
    """Without a change of the routes."""
    with Conversations(cluster) as talk:
        cluster.wait_replicated(len(talk))
        for number in (1, 2):
            node = cluster.nodes[number]
            if number == 2:
                node.steelyard.kill_forwarder()
                node.steelyard.start_forwarder()
            else:
                node.steelyard.upgrade()
            talk.check()
            node.steelyard.wait_reconnected()
            cluster.wait_replicated(len(talk))
        spread_anew(cluster, talk, 2, random.Random(5))


def test_two_nodes_die_one_after_the_other(cluster):
    """The last one has all sessions, if there is time to copy them in between."""
    with Conversations(cluster) as talk:
        cluster.wait_replicated(len(talk))
        cluster.die(1)
        talk.check()
        cluster.wait_replicated(len(talk))
        cluster.die(2)
        talk.check()
        talk.check()
        cluster.come_back(1)
        cluster.come_back(2)
        talk.check()
        cluster.wait_replicated(len(talk))
        spread_anew(cluster, talk, 2, random.Random(6))


def test_pings_are_answered_by_any_node(cluster):
    """A ping's identifier has no part in the router's choice; the VIP's node answers it."""
    for row in ROWS:
        cluster.lab.network.spread_anew()
        cluster.hosts.check(row, "icmp")


def test_there_are_no_roles(cluster):
    node = cluster.nodes[1]
    with Control(node.steelyard.forwarder_socket) as control:
        answer = control.ask(set_role=pb.SetRoleRequest(role=pb.ROLE_BACKUP))
    assert answer.error.code == pb.CODE_INVALID
    assert "--sync-mode ecmp: all nodes serve" in answer.error.text
    assert node.peers().ecmp

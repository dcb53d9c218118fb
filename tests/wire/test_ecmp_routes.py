# SPDX-License-Identifier: Apache-2.0
"""Nodes behind ECMP whose agents announce them by BGP to a router with BIRD: no flow ends when one
joins, dies or drains."""

import pytest

from tests.wire.cluster import Conversations, RoutedCluster


@pytest.fixture
def cluster():
    with RoutedCluster() as cluster:
        cluster.start(1, 2)
        yield cluster
        # what arrives while routes change, at nodes that have not heard from the others yet
        cluster.check_drops(("nat-stray", "no-session", "snat-stray"))


def test_nodes_join_die_and_drain(cluster):
    with Conversations(cluster) as talk:
        cluster.wait_replicated(len(talk))
        cluster.start(3)
        assert cluster.serving() == {1, 2, 3}
        talk.check()
        cluster.wait_replicated(len(talk))

        cluster.die(1)
        talk.check()
        cluster.wait_replicated(len(talk))
        cluster.come_back(1)
        talk.check()
        cluster.wait_replicated(len(talk))

        drained = cluster.nodes[2].steelyard
        drained.cli("drain", "node")
        cluster.withdraw(2)
        talk.check()
        cluster.wait_replicated(len(talk))
        assert drained.forwarder.stop() == 0
        talk.check()
        assert cluster.serving() == {1, 3}

# SPDX-License-Identifier: Apache-2.0
"""`sync: strict`: a connection whose SYN a server has got is at both nodes."""

import contextlib

import pytest

from tests.lab import wait_until
from tests.lab.api import forwarder as pb
from tests.lab.clients import HttpConnection
from tests.lab.steelyard import VIP, WEB
from tests.wire.pair import MASTER, Pair, holding_answers

CONNECTIONS = 8


class StrictPair(Pair):
    def begin(self):
        for service in self.config.services:
            service.spread["sync"] = "strict"
        super().begin()


@pytest.fixture(scope="module")
def running():
    with StrictPair() as pair:
        yield pair


@pytest.fixture
def pair(running):
    running.restore_roles()
    return running


@pytest.mark.parametrize("family", (4, 6))
def test_connections_that_begin_outlive_their_forwarder(pair, family):
    """The master dies when it has passed on the servers' first answers."""
    first, second = pair.nodes.values()
    with contextlib.ExitStack() as stack:
        with holding_answers(pair.client.ns):
            talks = [
                stack.enter_context(HttpConnection(pair.client, VIP[family], WEB))
                for _ in range(CONNECTIONS)
            ]
            for one in talks:
                one.socket.sendall(b"GET / HTTP/1.1\r\nHost: lab\r\n\r\n")
            first.steelyard.kill_forwarder()
            first.steelyard.release()
            second.set_role(MASTER)
        for one in talks:
            assert one.receive()
            assert one.get()


def test_connections_begin_without_a_peer(pair):
    first, second = pair.nodes.values()
    second.steelyard.kill_forwarder()
    for family in (4, 6):
        with HttpConnection(pair.client, VIP[family], WEB) as one:
            assert one.get()
    wait_until(lambda: first.peer().state == pb.PEER_STATE_SILENT, "the peer is dead")
    with HttpConnection(pair.client, VIP[4], WEB) as one:
        assert one.get()

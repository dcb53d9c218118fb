# SPDX-License-Identifier: Apache-2.0
"""A node opens the connections whose SYNs its dead peer has answered by cookies."""

import contextlib

import pytest

from tests.lab.clients import HttpConnection
from tests.lab.steelyard import VIP, WEB
from tests.wire.pair import MASTER, Pair, holding_answers


class DefendedPair(Pair):
    def begin(self):
        for service in self.config.services:
            if service.protocol == "tcp":
                service.spread["syn_defence"] = "always"
        super().begin()


@pytest.mark.parametrize("family", (4, 6))
def test_the_survivor_knows_the_cookies_of_the_dead_node(family):
    with DefendedPair() as pair:
        first, second = pair.nodes.values()
        with contextlib.ExitStack() as stack:
            with holding_answers(pair.client.ns):
                talks = [
                    stack.enter_context(HttpConnection(pair.client, VIP[family], WEB))
                    for _ in range(8)
                ]
                for one in talks:
                    one.socket.sendall(b"GET / HTTP/1.1\r\nHost: lab\r\n\r\n")
                assert first.steelyard.session_count() == 0
                first.steelyard.kill_forwarder()
                first.steelyard.release()
                second.set_role(MASTER)
            for one in talks:
                assert one.receive()
                assert one.get()
        first.steelyard.start_forwarder()

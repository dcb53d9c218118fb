# SPDX-License-Identifier: Apache-2.0
"""A node opens the connections whose SYNs its dead peer has answered by cookies."""

import contextlib

import pytest

from tests.lab.clients import HttpConnection
from tests.lab.steelyard import VIP, WEB
from tests.wire.pair import MASTER, Pair


class DefendedPair(Pair):
    def begin(self):
        for service in self.config.services:
            if service.protocol == "tcp":
                service.spread["syn_defence"] = "always"
        super().begin()


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

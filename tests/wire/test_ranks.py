# SPDX-License-Identifier: Apache-2.0
"""Priorities in examples/ranks.c, which links the library; the other end is the kernel's TCP.

client ── bridge ── forwarder: steelyard-ranks on "front", with addresses that no interface has
"""

import random
import signal
import socket
import struct

import pytest

from tests.lab import Lab
from tests.lab.steelyard import BUILD, SANITIZED, memory_options
from tests.lab.topology import FRONT, v4, v6

PORT, DEADLINE_S = 7010, 300
ADDRESS = {4: v4(FRONT, 110), 6: v6(FRONT, 110)}
USUAL, URGENT, LOW, LATER = 4, 0, 5, 7
families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))


@pytest.fixture(scope="module")
def lab():
    with Lab(arms=1, servers=0, queues=1) as lab:
        yield lab


@pytest.fixture
def server(lab):
    argv = [BUILD / "examples/steelyard-ranks", "-i", "front", "-p", PORT]
    argv += [word for address in ADDRESS.values() for word in ("-a", address)]
    argv += ["-H"] if "--no-huge" in memory_options(lab) else []
    process = lab.start("forwarder", "steelyard-ranks", argv, SANITIZED)
    try:
        process.wait_for("^ready$")
        yield process
        assert process.stop() == 0, process.describe()
    finally:
        process.kill()


class Client:
    def __init__(self, lab, family):
        kind = socket.AF_INET if family == 4 else socket.AF_INET6
        self.socket = lab["client"].ns.socket(kind)
        self.socket.settimeout(DEADLINE_S)
        self.socket.connect((ADDRESS[family], PORT))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.answer = self.socket.makefile("rb")

    def shut(self):
        self.socket.shutdown(socket.SHUT_WR)

    def ended(self):
        """The connection ends by a reset if the server had unread bytes."""
        try:
            return self.answer.read(1) == b""
        except ConnectionResetError:
            return True

    def ask(self, level, body=b"", takes_long=False):
        self.socket.sendall(struct.pack("!BBH", level, takes_long, len(body)) + body)

    def answered(self):
        """Returns the level, the answer's number among all, and the body."""
        level, _, length, number = struct.unpack("!BBHI", self.answer.read(8))
        return level, number, self.answer.read(length)

    def close(self):
        self.answer.close()
        self.socket.close()


@pytest.fixture
def clients(lab):
    made = []

    def make(family, count):
        made.extend(Client(lab, family) for _ in range(count))
        return made[-count:]

    yield make
    for client in made:
        client.close()


@families
def test_urgent_requests_are_served_first(server, clients, family):
    """Requests that arrived while the server was busy are sorted before it continues."""
    busy, urgent, *others = clients(family, 42)
    for client in (busy, urgent, *others):  # all are accepted
        client.ask(USUAL)
        assert client.answered()[0] == USUAL
    busy.ask(USUAL, takes_long=True)
    server.wait_for("^long 4$")
    for client in others:
        client.ask(LOW)
    urgent.ask(URGENT)
    server.send(signal.SIGUSR1)
    first = busy.answered()[1]
    number = urgent.answered()[1]
    later = sorted(client.answered()[1] for client in others)
    assert later[0] > first
    assert number < later[len(later) // 2]  # otherwise the link could deliver it late


@families
def test_long_requests_run_on_their_own_thread(server, clients, family):
    """The thread for urgent requests continues while the other one is busy."""
    long, urgent = clients(family, 2)
    long.ask(LATER, b"first", takes_long=True)
    long.ask(LATER, b"second")  # waits for the first: answers stay in order
    server.wait_for("^long 7$")
    for n in range(50):
        urgent.ask(URGENT, b"%d" % n)
        assert urgent.answered() == (URGENT, n + 1, b"%d" % n)
    server.send(signal.SIGUSR1)
    assert long.answered() == (LATER, 51, b"first")
    assert long.answered() == (LATER, 52, b"second")


@families
def test_answers_keep_each_connections_order(server, clients, family):
    """Random levels and lengths, many requests per connection: each is answered once, in the order
    of its connection, whichever thread serves it."""
    chance, asked = random.Random(family), {}
    several = clients(family, 24)
    for client in several:
        asked[client] = []
    for _ in range(1200):
        client = chance.choice(several)
        asked[client].append((chance.randrange(8), chance.randbytes(chance.randrange(3000))))
        client.ask(*asked[client][-1])
        if len(asked[client]) % 8 == 0:  # the server expects clients that read
            for level, body in asked[client][-8:]:
                got = client.answered()
                assert (got[0], got[2]) == (level, body)
    for client in several:
        for level, body in asked[client][len(asked[client]) // 8 * 8 :]:
            got = client.answered()
            assert (got[0], got[2]) == (level, body)


LONGEST = 65535


@families
@pytest.mark.parametrize("level", (URGENT, LATER))
def test_longest_requests_keep_their_order(server, clients, family, level):
    """As long as their header permits, on either thread; answers to a client that does not read
    wait, in order. The connection then ends in the middle of a request."""
    chance = random.Random(level)
    (client,) = clients(family, 1)
    bodies = [chance.randbytes(size) for size in (LONGEST, LONGEST, 1, LONGEST)]
    for body in bodies[:1]:
        client.ask(level, body)
        assert client.answered()[2] == body
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    for body in bodies[1:]:
        client.ask(level, body)
    for body in bodies[1:]:
        assert client.answered()[2] == body
    client.socket.sendall(struct.pack("!BBH", level, 0, 9) + b"half")
    client.shut()
    assert client.ended()


def test_reset_during_a_request_discards_its_answer(server, clients):
    """The client resets while another thread works on its request."""
    long, other = clients(4, 2)
    long.ask(LATER, b"late", takes_long=True)
    server.wait_for("^long 7$")
    long.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    long.close()
    other.ask(URGENT)
    assert other.answered()[0] == URGENT
    server.send(signal.SIGUSR1)
    other.ask(LATER, b"next")
    assert other.answered()[2] == b"next"

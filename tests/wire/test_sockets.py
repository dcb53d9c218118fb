# SPDX-License-Identifier: Apache-2.0
"""libsteelyard-tcp in examples/echo.c; the other end is the kernel's TCP.

client ── bridge ── forwarder: steelyard-echo on "front", with addresses that no interface has
"""

import contextlib
import hashlib
import random
import selectors
import signal
import socket
import threading

import pytest

from tests.lab import Lab
from tests.lab.servers import EchoServer
from tests.lab.stacks import connections, listed, unfinished_checksums
from tests.lab.steelyard import BUILD, SANITIZED, memory_options
from tests.lab.topology import FRONT, v4, v6
from tests.lab.wait import wait_until

families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
ECHO = BUILD / "examples/steelyard-echo"
PORT, KERNEL_PORT = 7007, 7008
ADDRESS = {4: v4(FRONT, 100), 6: v6(FRONT, 100)}
DEADLINE_S = 300


class Echo:
    """The example, as a server until it is stopped or as a client."""

    def __init__(self, lab, threads):
        self.lab, self.threads, self.process = lab, threads, None

    def run(self, *words):
        argv = [ECHO, "-i", "front", "-t", self.threads]
        argv += [word for address in ADDRESS.values() for word in ("-a", address)]
        argv += ["-H"] if "--no-huge" in memory_options(self.lab) else []
        name = "steelyard-echo"
        self.process = self.lab.start("forwarder", name, [*argv, *words], SANITIZED)
        self.process.wait_for("^ready$")
        return self.process

    def serve(self):
        return self.run("-p", PORT)


@pytest.fixture(scope="module", params=(1, 2), ids=("1-thread", "2-threads"))
def echo(request):
    threads = request.param
    with Lab(arms=1, servers=0, queues=threads) as lab:
        yield Echo(lab, threads)


@pytest.fixture(autouse=True)
def programs(echo):
    """Stops what a failed test left running: one program has the interface's addresses."""
    first = len(echo.lab.processes)
    yield
    for process in echo.lab.processes[first:]:
        process.kill()


@pytest.fixture
def server(echo, programs):
    yield echo.serve()
    assert echo.process.stop() == 0, echo.process.describe()


def connect(lab, family):
    one = lab["client"].ns.socket(socket.AF_INET if family == 4 else socket.AF_INET6)
    one.settimeout(DEADLINE_S)
    one.connect((ADDRESS[family], PORT))
    return one


def receive_all(one):
    """Returns the hash and the number of bytes until the peer closes."""
    seen, size = hashlib.sha256(), 0
    while data := one.recv(1 << 16):
        seen.update(data)
        size += len(data)
    return seen.hexdigest(), size


@families
def test_large_transfer_is_echoed_whole(echo, server, family):
    """In both directions at once; every byte is compared."""
    block = random.Random(family).randbytes(1 << 20)
    sent, blocks, answer = hashlib.sha256(), 48, []
    with connect(echo.lab, family) as one:
        reader = threading.Thread(target=lambda: answer.append(receive_all(one)))
        reader.start()
        for n in range(blocks):
            sent.update(block[n:])
            one.sendall(memoryview(block)[n:])
        one.shutdown(socket.SHUT_WR)
        reader.join()
    assert answer == [(sent.hexdigest(), sum(len(block) - n for n in range(blocks)))]


def test_large_segments_refused_by_a_full_queue_are_counted(echo, server):
    """Linux's queue is full. Lost data is retransmitted."""
    host, name = echo.lab["forwarder"].ns, f"steelyard-echo-{server.pid}"
    queue = ["tc", "qdisc", "add", "dev", "front", "root"]
    data = random.Random(5).randbytes(8 << 20)
    with connect(echo.lab, 4) as one:
        one.sendall(b"before")
        assert one.recv(6, socket.MSG_WAITALL) == b"before"
        before = listed(name)["unsent"]
        host.run([*queue, *"tbf rate 1kbit burst 1600 limit 1600".split()])
        try:
            sender = threading.Thread(
                target=lambda: (one.sendall(data), one.shutdown(socket.SHUT_WR))
            )
            sender.start()
            wait_until(lambda: listed(name)["unsent"] > before, "the queue is full")
        finally:
            host.run(["tc", "qdisc", "del", "dev", "front", "root"])
        came, size = receive_all(one)
        sender.join()
    assert came == hashlib.sha256(data).hexdigest() and size == len(data)


@families
def test_many_connections_keep_their_bytes_apart(echo, server, family):
    """All open at once, each with its own bytes, in random order."""
    chance, count = random.Random(7 + family), 300
    ones = [connect(echo.lab, family) for _ in range(count)]
    texts = [chance.randbytes(chance.randrange(1, 20000)) for _ in ones]
    for n in chance.sample(range(count), count):
        ones[n].sendall(texts[n])
        ones[n].shutdown(socket.SHUT_WR)
    for n in chance.sample(range(count), count):
        with ones[n]:
            digest, size = receive_all(ones[n])
        assert (digest, size) == (hashlib.sha256(texts[n]).hexdigest(), len(texts[n]))


@families
def test_connections_are_listed_by_context(echo, server, family):
    """With counters; on a veth, checksums may be unfinished."""
    name = f"steelyard-echo-{server.pid}"
    with contextlib.ExitStack() as opened, unfinished_checksums(echo.lab):
        ones = [opened.enter_context(connect(echo.lab, family)) for _ in range(5)]
        for one in ones:
            one.sendall(b"hello")
            assert one.recv(5, socket.MSG_WAITALL) == b"hello"
        seen = connections(name, "established")
        peers = sorted(one.getsockname()[:2] for one in ones)
        assert sorted(endpoint_of(one["peer"]) for one in seen) == peers
        assert {one["received"] for one in seen} == {5}
        assert {endpoint_of(one["local"]) for one in seen} == {(ADDRESS[family], PORT)}
        view = listed(name)
    assert (view["stacks"], view["interfaces"]) == (echo.threads, "front")
    assert view["counts"]["accepted"] == 5 and view["counts"]["unfinished"] >= 5 * 3
    assert len(view["each"]) == echo.threads and view["counts"]["bad_checksums"] == 0


def endpoint_of(text):
    address, _, port = text.rpartition(":")
    return address.strip("[]"), int(port)


@families
def test_short_connections_are_served(echo, server, family):
    for n in range(200):
        with connect(echo.lab, family) as one:
            one.sendall(b"%d" % n)
            one.shutdown(socket.SHUT_WR)
            assert receive_all(one) == (hashlib.sha256(b"%d" % n).hexdigest(), len(b"%d" % n))


@families
def test_slow_reader_stops_the_server(echo, server, family):
    """The server waits for a client that does not read, then continues. A server that stops reading
    closes its window: the kernel probes it, whatever the buffers hold."""
    block = random.Random(family).randbytes(1 << 20)
    sent, at = hashlib.sha256(), 0

    def probes():
        return echo.lab["client"].ns.counters()["TcpExtTCPWinProbe"]

    before = probes()
    with connect(echo.lab, family) as one, selectors.DefaultSelector() as ready:
        one.setblocking(False)
        ready.register(one, selectors.EVENT_WRITE)

        def waits():
            nonlocal at
            while ready.select(0):
                with contextlib.suppress(BlockingIOError):
                    size = one.send(block[at:])
                    sent.update(block[at : at + size])
                    at = (at + size) % len(block)
            return probes() > before + 1

        wait_until(waits, "the server reads no more")
        one.settimeout(DEADLINE_S)
        one.shutdown(socket.SHUT_WR)
        assert receive_all(one)[0] == sent.hexdigest()


@families
def test_client_connects_to_the_kernel(echo, family):
    """The library opens the connection; the kernel's TCP echoes."""
    client = echo.lab["client"]
    with EchoServer(client, KERNEL_PORT, family):
        size = 5_000_000
        process = echo.run("-p", KERNEL_PORT, "-c", client.address(family), "-n", size)
        assert process.wait() == 0, process.describe()
        assert process.output().count(f"{size} bytes came back") == echo.threads


@families
def test_closed_port_resets(echo, server, family):
    """On an address of the stack, without a listener."""
    kind = socket.AF_INET if family == 4 else socket.AF_INET6
    with echo.lab["client"].ns.socket(kind) as one:
        one.settimeout(DEADLINE_S)
        with pytest.raises(ConnectionRefusedError):
            one.connect((ADDRESS[family], PORT + 100))


@families
def test_answers_without_a_route_are_counted(echo, server, family):
    """The answer leaves when a route exists again."""
    host, client = echo.lab["forwarder"].ns, echo.lab["client"]
    name = f"steelyard-echo-{server.pid}"
    blackhole = f"blackhole {client.address(family)}/{32 if family == 4 else 128}"
    sent = 0

    def is_counted():
        """Until the stack receives the route's removal, it answers."""
        nonlocal sent
        sent += one.send(b"after")
        return listed(name)["unreachable"] > 0

    with connect(echo.lab, family) as one:
        one.sendall(b"before")
        assert one.recv(6) == b"before"
        assert listed(name)["unreachable"] == 0
        host.ip(f"-{family} route add {blackhole}")
        try:
            wait_until(is_counted, "the answer has no way")
        finally:
            host.ip(f"-{family} route del {blackhole}")
        with one.makefile("rb") as answers:
            assert answers.read(sent) == b"after" * (sent // 5)


@families
def test_killed_server_restarts_at_once(echo, family):
    """kill -9 with open connections: the next server serves at once, and old connections end."""
    for _ in range(3):
        echo.serve()
        old = connect(echo.lab, family)
        old.sendall(b"before")
        assert old.recv(6) == b"before"
        echo.process.send(signal.SIGKILL)
        echo.process.wait()
        echo.lab.processes.remove(echo.process)
        server = echo.serve()
        with connect(echo.lab, family) as one:
            one.sendall(b"after")
            assert one.recv(5) == b"after"
        with old, pytest.raises(ConnectionResetError):
            old.sendall(b"into the past")
            old.recv(1)
        assert server.stop() == 0, server.describe()

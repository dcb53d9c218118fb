# SPDX-License-Identifier: Apache-2.0
"""Children that inherit connections of `steelyard run` (docs/design/0062-relays.md): forking.py
prints the same on Linux's sockets and on the stack's."""

import hashlib
import os
import random
import re
import signal
import socket
import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.lab import wait_until
from tests.lab.clients import receive_exactly
from tests.lab.hooks import stack_name
from tests.lab.run import kernel_connections, start_run
from tests.lab.servers import listening
from tests.lab.stacks import connections
from tests.wire.running import families, has_program, sanitized

PORT = 8010
SERVER = str(Path(__file__).with_name("forking.py"))
BULK = random.Random(1).randbytes(3_000_000)


def all_of(one):
    parts = []
    while part := one.recv(65536):
        parts.append(part)
    return b"".join(parts)


def ended(one):
    """Returns a connection's bytes and how it ends."""
    try:
        return all_of(one)
    except ConnectionResetError:
        return "reset"


def serve(lab, argv, *options):
    """Starts a program; its listener belongs to the stack."""
    name = stack_name("fork")
    process = start_run(lab, "forking", argv, "--name", name, *options)
    process.wait_for("is worker 0")
    wait_until(lambda: connections(name, "listen"), "the stack listens")
    return process


class Client:
    """Sends orders to forking.py."""

    def __init__(self, lab, address):
        self.host, self.address = lab["client"], address

    def dial(self, order):
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        one = self.host.ns.socket(family)
        one.settimeout(60)
        one.connect((self.address, PORT))
        one.sendall(order.encode() + b"\n")
        return one

    def said(self, order, send=b""):
        with self.dial(order) as one, ThreadPoolExecutor() as pool:
            sent = pool.submit(self.send, one, send)
            answer = ended(one)
            sent.result()
            return answer

    @staticmethod
    def send(one, data):
        one.sendall(data)
        one.shutdown(socket.SHUT_WR)


def orders(client, server):
    """Runs every order for a child; returns what both ends report."""
    yield "names", client.said("by_fork names")
    for how in ("by_fork echo", "by_fork executed", "by_vfork", "by_spawn", "by_message"):
        yield how, hashlib.sha256(client.said(how, BULK)).hexdigest()
    yield "sink", client.said("by_fork sink", BULK)
    yield "source", hashlib.sha256(client.said("by_fork source 3000000")).hexdigest()
    for order in ("confined", "passed", "again", "limited", "noisy"):
        yield order, client.said(f"by_fork {order}")
    yield "clone", hashlib.sha256(client.said("by_clone echo", BULK)).hexdigest()
    yield "shared", client.said("shared")
    with client.dial("by_fork half") as one:
        yield "half", all_of(one)
        one.sendall(BULK)
    server.wait_for(r"half \d+ \w+")
    with client.dial("by_fork die") as one:
        yield "die", ended(one)
    with client.dial("by_fork die_unread") as one:
        one.sendall(b"x")
        yield "die unread", ended(one)
    with client.dial("by_fork linger") as one:
        yield "linger", ended(one)
    with client.dial("by_fork outlast") as one:
        receive_exactly(one, 5)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    server.wait_for(r"outlast")
    with client.dial("by_fork wait") as one:
        receive_exactly(one, 5)
        one.sendall(b"more")
        receive_exactly(one, 5)
        one.shutdown(socket.SHUT_WR)
        yield "wait", all_of(one)
    yield (
        "server",
        [line for line in server.output().splitlines() if line.startswith(("half", "out"))],
    )


def unix_names(host):
    """Returns the names of relays of the host's programs."""
    with host.ns.entered():
        return re.findall(r"@(sy/\d+/\S+)", Path("/proc/thread-self/net/unix").read_text())


@sanitized
@families
def test_children_serve_as_on_linux(stack, family):
    host = stack["forwarder"]
    client = Client(stack, host.address(family))
    command = [sys.executable, SERVER, client.address, PORT]
    plain = stack.start("forwarder", "forking", command)
    plain.wait_for("ready")
    linux = dict(orders(client, plain))
    plain.stop()
    before = kernel_connections(host)
    ours = serve(stack, command)
    assert dict(orders(client, ours)) == linux
    assert kernel_connections(host) == before
    wait_until(lambda: not unix_names(host), "all relays have ended")


@sanitized
@pytest.mark.parametrize("how", ("by_clone", "by_clone_function"))
def test_child_by_clone_changes_its_user(stack, how):
    """It is created while the library's relay thread starts: the child's C library would wait for
    that thread in setuid()."""
    client = Client(stack, stack["forwarder"].v4)
    serve(stack, [sys.executable, SERVER, client.address, PORT])
    assert client.said(f"{how} confined") == f"{client.host.v4} 65534".encode()


@sanitized
def test_many_children_are_served_by_relays(stack):
    """Each has its own connection, and Linux serves none."""
    host = stack["forwarder"]
    client = Client(stack, host.v4)
    before = kernel_connections(host)
    serve(stack, [sys.executable, SERVER, client.address, PORT])
    part = BULK[:300_000]
    held = [client.dial("by_fork echo") for _ in range(100)]
    for one in held:
        one.sendall(b"here")
    assert [receive_exactly(one, 4) for one in held] == [b"here"] * len(held)
    assert len(unix_names(host)) == len(held)
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: client.said("by_fork echo", part), range(50)))
    assert answers == [part] * 50
    for one in held:
        one.close()
    wait_until(lambda: not unix_names(host), "all relays have ended")
    assert kernel_connections(host) == before


@sanitized
def test_children_continue_after_their_parents_exit(stack):
    """The parent stops listening, and exits with the last of their connections."""
    host = stack["forwarder"]
    client = Client(stack, host.v4)
    server = serve(stack, [sys.executable, SERVER, client.address, PORT])
    with client.dial("by_fork echo") as one:
        one.sendall(b"before")
        assert receive_exactly(one, 6) == b"before"
        with client.dial("leave"):
            server.wait_for("leaves")
        wait_until(lambda: not listening(host.ns, PORT), "nothing listens")
        one.sendall(BULK[:100_000])
        assert receive_exactly(one, 100_000) == BULK[:100_000]
    server.wait()
    wait_until(lambda: not has_program(stack), "the XDP program is gone")


@sanitized
def test_killed_parent_ends_its_childrens_connections(stack):
    host = stack["forwarder"]
    client = Client(stack, host.v4)
    server = serve(stack, [sys.executable, SERVER, client.address, PORT])
    worker = int(re.search(r"pid (\d+) is worker 0", server.output())[1])
    with client.dial("by_fork half") as one:
        assert receive_exactly(one, 3) == b"bye"
        os.kill(worker, signal.SIGKILL)
        server.wait_for(r"half 0 \w+")


EVENTS = """
import os, select, socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
one = listener.accept()[0]
loop = getattr(select, sys.argv[3])()
loop.register(listener, select.POLLIN)
loop.register(one, select.POLLIN)
loop.poll()
if os.fork() == 0:
    try:
        one.send(b"x")
    except OSError as error:
        print("child", error.errno, flush=True)
    os._exit(0)
os.wait()
one.sendall(one.recv(10))
one.recv(1)
"""


@pytest.mark.parametrize(
    ("loop", "fork", "count"),
    (("epoll", None, 0), ("poll", None, 0), ("epoll", "relay", 1), ("poll", "keep", 0)),
)
def test_options_choose_the_connections_of_children(stack, loop, fork, count):
    """A process that serves connections in an event loop keeps them by default."""
    host = stack["forwarder"]
    options = ["--fork", fork] if fork else []
    server = serve(stack, [sys.executable, "-c", EVENTS, host.v4, PORT, loop], *options)
    with stack["client"].ns.socket() as one:
        one.settimeout(60)
        one.connect((host.v4, PORT))
        one.sendall(b"hello")
        want = b"xhello" if count else b"hello"
        assert receive_exactly(one, len(want)) == want, server.output()
        assert len([name for name in unix_names(host) if f":{PORT}/" in name]) == count
    server.wait()
    assert ("child 32" in server.output()) == (count == 0)

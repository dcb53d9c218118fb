# SPDX-License-Identifier: Apache-2.0
"""Programs of `steelyard run` that execute others without fork() (docs/design/0062-relays.md).

test_run_conformance.py has the calls in all states."""

import hashlib
import random
import re
import socket
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.lab import wait_until
from tests.lab.clients import connect, receive_exactly
from tests.lab.hooks import stack_name
from tests.lab.run import kernel_connections, start_run
from tests.lab.servers import wait_listening
from tests.lab.stacks import connections
from tests.wire.running import families, has_program, sanitized

PORT = 8030
BULK = random.Random(3).randbytes(3_000_000)

# Accepts `count` connections, writes "ready" to the last one, and executes another program: `how`
# is its body.
SERVER = """
import os, socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
listener = socket.create_server((sys.argv[1], int(sys.argv[2])), family=family)
def accept():
    return listener.accept()[0]
"""
CAT = """
one = accept()
os.dup2(one.fileno(), 0)
os.dup2(one.fileno(), 1)
os.execve("/bin/cat", ["cat"], {})
"""
CLOSED = f"""
one = accept()
one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, {2 * len(BULK)})
one.setblocking(False)
print("sent", one.send(bytes({len(BULK)})), flush=True)
os.execv("/bin/sleep", ["sleep", "1000"])
"""
ENDS = f"""
import ctypes
one = accept()
one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, {2 * len(BULK)})
one.setblocking(False)
print("sent", one.send(bytes({len(BULK)})), flush=True)
getattr(ctypes.CDLL(None), sys.argv[3])(0)
"""
AGAIN = """
import select
kept = [accept() for _ in range(3)]
loop = select.epoll()
for one in kept:
    loop.register(one, select.EPOLLIN)
    one.set_inheritable(True)
loop.poll()
text = '''
import os, socket, sys
kept = [socket.socket(fileno=int(word)) for word in sys.argv[1:]]
for one in kept:
    one.sendall(one.recv(100) + b" %d" % os.getpid())
print(*(one.getpeername()[0] for one in kept), flush=True)
'''
numbers = [str(one.fileno()) for one in kept]
os.execv(sys.executable, [sys.executable, "-c", text.replace("%d", "%d"), *numbers])
"""


def serve(lab, address, body, *words):
    """Its listener belongs to the stack."""
    name = stack_name("exec")
    command = [sys.executable, "-c", SERVER + body, address, PORT, *words]
    process = start_run(lab, "exec", command, "--name", name)
    process.wait_for("is worker 0")
    wait_until(lambda: connections(name, "listen"), "the stack listens")
    return process


def all_of(one):
    parts = []
    while part := one.recv(65536):
        parts.append(part)
    return b"".join(parts)


def send(one, data):
    one.sendall(data)
    one.shutdown(socket.SHUT_WR)


@sanitized
@families
def test_executed_program_serves_the_connection(stack, family):
    """Without the library, as its standard streams. The XDP program ends with the connection."""
    address = stack["forwarder"].address(family)
    before = kernel_connections(stack["forwarder"])
    server = serve(stack, address, CAT)
    with connect(stack["client"], address, PORT, timeout_s=60) as one, ThreadPoolExecutor() as pool:
        sent = pool.submit(send, one, BULK)
        assert hashlib.sha256(all_of(one)).digest() == hashlib.sha256(BULK).digest()
        sent.result()
    server.wait()
    wait_until(lambda: not has_program(stack), "the XDP program is gone")
    assert kernel_connections(stack["forwarder"]) == before


@sanitized
def test_close_on_exec_delivers_sent_bytes(stack):
    """execve() closes the descriptor, and the program continues without it."""
    address = stack["forwarder"].v4
    server = serve(stack, address, CLOSED)
    with connect(stack["client"], address, PORT, timeout_s=60) as one:
        text = all_of(one)
        server.wait_for(r"sent \d+")
        assert len(text) == int(re.search(r"sent (\d+)", server.output())[1])
        assert len(text) > 100_000
    server.stop()


@sanitized
@pytest.mark.parametrize("call", ("_exit", "_Exit", "quick_exit"))
def test_exit_delivers_sent_bytes(stack, call):
    """Including calls that run no exit handlers."""
    address = stack["forwarder"].v4
    server = serve(stack, address, ENDS, call)
    with connect(stack["client"], address, PORT, timeout_s=60) as one:
        text = all_of(one)
    server.wait()
    assert len(text) == int(re.search(r"sent (\d+)", server.output())[1])
    assert len(text) > 100_000


@sanitized
def test_event_loops_connections_survive_exec(stack):
    address = stack["forwarder"].v4
    server = serve(stack, address, AGAIN)
    pid = re.search(r"pid (\d+) is worker 0", server.output())[1]
    clients = [connect(stack["client"], address, PORT, timeout_s=60) for _ in range(3)]
    for i, one in enumerate(clients):
        one.sendall(b"hello %d" % i)
    assert [all_of(one).decode() for one in clients] == [f"hello {i} {pid}" for i in range(3)]
    for one in clients:
        one.close()
    server.wait()
    assert " ".join([stack["client"].v4] * 3) in server.output()


FRESH = """
one = accept()
one.set_inheritable(True)
listener.set_inheritable(True)
text = '''
import socket, sys
one, listener = (socket.socket(fileno=int(word)) for word in sys.argv[1:])
print("ready", flush=True)
other = listener.accept()[0]
one.sendall(b"old")
one.close()
other.sendall(b"by linux")
other.close()
listener.accept()[0].sendall(b"by the stack")
'''
os.execv(sys.executable, [sys.executable, "-c", text, str(one.fileno()), str(listener.fileno())])
"""


@pytest.mark.both_builds
def test_executed_program_keeps_the_queue_until_its_last_connection(stack):
    """Until then, Linux accepts the next program's new connections."""
    host, client = stack["forwarder"], stack["client"]
    before = kernel_connections(host)
    server = serve(stack, host.v4, FRESH)
    with connect(client, host.v4, PORT, timeout_s=60) as first:
        server.wait_for("ready")
        wait_listening(host.ns, PORT)
        with connect(client, host.v4, PORT, timeout_s=60) as second:
            assert receive_exactly(second, 8) == b"by linux"
        assert all_of(first) == b"old"
    assert kernel_connections(host) == before + 1
    server.wait_for(r"(?s)is worker 0.*is worker 0")
    with connect(client, host.v4, PORT, timeout_s=60) as third:
        assert all_of(third) == b"by the stack"
    assert kernel_connections(host) == before + 1
    server.wait()

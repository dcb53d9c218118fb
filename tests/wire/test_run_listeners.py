# SPDX-License-Identifier: Apache-2.0
"""Programs on the stack with many listening sockets, or with a new one for each connection, as FTP
servers have them."""

import contextlib
import socket
from concurrent.futures import ThreadPoolExecutor

from tests.lab.clients import connect, receive_exactly
from tests.lab.run import kernel_connections
from tests.lab.servers import wait_listening
from tests.lab.wait import wait_until
from tests.wire.running import V4, V6, sanitized, start
from tests.wire.test_run_serving import script

FIRST = 10000
MANY = 400  # listening sockets, each of both families

SERVE_MANY = """
import selectors
selector = selectors.DefaultSelector()
for port in range(int(sys.argv[1]), int(sys.argv[1]) + int(sys.argv[2])):
    selector.register(listener(port), selectors.EVENT_READ)
while True:
    for key, _ in selector.select():
        one = key.fileobj.accept()[0]
        one.sendall(b"%05d" % key.fileobj.getsockname()[1])
        one.close()
"""

# Each request of the control connection, a port, opens a listener for one connection there.
SERVE_PASSIVE = """
control = listener(9999).accept()[0]
while line := control.recv(5, socket.MSG_WAITALL):
    with listener(int(line)) as data:
        control.sendall(b"go")
        one = data.accept()[0]
    one.sendall(line)
    one.close()
"""


# Like an FTP server whose clients never come: many more ports than the supervisor has entries for.
# Before that, it accepts a connection, and ends its listener.
SERVE_AFTER = """
import selectors
with listener(9997) as first:
    kept = first.accept()[0]
kept.sendall(b"kept.")
kept.recv(1)
selector = selectors.DefaultSelector()
for port in range(int(sys.argv[1]), int(sys.argv[1]) + int(sys.argv[2])):
    with listener(port) as one:
        selector.register(one, selectors.EVENT_READ)
        selector.select(0)
        selector.unregister(one)
last = listener(9998)
kept.sendall(kept.recv(5, socket.MSG_WAITALL))
while True:
    one = last.accept()[0]
    one.sendall(b"09998")
    one.close()
"""
UNUSED = 4200


# Echoes as many bytes as the first four say, and closes first.
ECHO = """
one = listener(9996)
while True:
    accepted = one.accept()[0]
    left = int.from_bytes(accepted.recv(4, socket.MSG_WAITALL))
    while left:
        data = accepted.recv(65536)
        accepted.sendall(data)
        left -= len(data)
    accepted.close()
"""
CLOSED = 7  # of Linux's states of TCP


@sanitized
def test_hundreds_of_listeners(stack):
    """Each has all of its connections from the stack, over both families."""
    argv = [*script(stack, "many", SERVE_MANY), FIRST, MANY]
    process = start(stack, "many", argv, FIRST)
    wait_listening(stack["forwarder"].ns, FIRST + MANY - 1)
    before = kernel_connections(stack["forwarder"])

    def check(port):
        for address in (V4, V6):
            with connect(stack["client"], address, port) as one:
                assert receive_exactly(one, 5) == b"%05d" % port

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(check, range(FIRST, FIRST + MANY)))
    assert kernel_connections(stack["forwarder"]) == before, process.output()
    assert "port 1" not in process.output()


def passive(lab, ports):
    """Requests a listener at each port, and connects to it."""
    wait_listening(lab["forwarder"].ns, 9999)
    with contextlib.closing(connect(lab["client"], V4, 9999)) as control:
        for number, port in enumerate(ports):
            control.sendall(b"%05d" % port)
            assert receive_exactly(control, 2) == b"go"
            with connect(lab["client"], (V4, V6)[number % 2], port) as one:
                assert receive_exactly(one, 5) == b"%05d" % port


@sanitized
def test_listener_for_each_connection(stack):
    """Listeners that end leave their slots to later ones."""
    process = start(stack, "passive", script(stack, "passive", SERVE_PASSIVE), 9999)
    before = kernel_connections(stack["forwarder"])
    passive(stack, range(FIRST, FIRST + MANY))
    assert kernel_connections(stack["forwarder"]) == before, process.output()
    assert "port 1" not in process.output()


@sanitized
def test_ports_of_ended_listeners_are_forgotten(stack):
    """But not those of connections that go on."""
    argv = [*script(stack, "after", SERVE_AFTER), FIRST, UNUSED]
    process = start(stack, "after", argv, 9997)
    before = kernel_connections(stack["forwarder"])
    with contextlib.closing(connect(stack["client"], V4, 9997, timeout_s=60)) as kept:
        assert receive_exactly(kept, 5) == b"kept."
        kept.sendall(b"x")
        wait_listening(stack["forwarder"].ns, 9998)
        kept.sendall(b"still")
        assert receive_exactly(kept, 5) == b"still"
        for address in (V4, V6):
            with connect(stack["client"], address, 9998) as one:
                assert receive_exactly(one, 5) == b"09998"
    assert kernel_connections(stack["forwarder"]) == before, process.output()
    assert "more addresses" not in process.output()


def serve_one(host, address, client, source_port):
    """Connects a client to a server on Linux's TCP, which closes first. Returns the client."""
    with host.ns.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, 9996))
        listener.listen(1)
        one = connect(client, address, 9996, source_port=source_port)
        listener.accept()[0].close()
    assert one.recv(1) == b""
    return one


def end(one):
    """Closes a client's connection after its server's end, and checks that it is not reset."""
    with one:
        one.shutdown(socket.SHUT_WR)
        wait_until(
            lambda: one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == CLOSED,
            "its FIN is acknowledged",
        )
        assert one.recv(1) == b"", "not reset"


@sanitized
def test_time_wait_of_linux_keeps_no_client(stack):
    """A client gets its next connection from the stack, by the same ports. Linux's own connection
    still ends without a reset."""
    client, host = stack["client"], stack["forwarder"]
    clients = {address: (20000 + i, 20100 + i) for i, address in enumerate((V4, V6))}
    ending = []
    for address, (again, unfinished) in clients.items():
        end(serve_one(host, address, client, again))
        ending.append(serve_one(host, address, client, unfinished))
    process = start(stack, "echo", script(stack, "echo", ECHO), 9996)
    before = kernel_connections(host)
    for address, (again, _) in clients.items():
        for size in (1, 300_000):  # the second one follows a connection of the stack
            data = bytes(size)
            one = connect(client, address, 9996, source_port=again)
            one.sendall(size.to_bytes(4) + data)
            assert receive_exactly(one, size) == data
            assert one.recv(1) == b""
            end(one)
    assert kernel_connections(host) == before, process.output()
    for one in ending:
        end(one)

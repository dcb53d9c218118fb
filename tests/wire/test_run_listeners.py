# SPDX-License-Identifier: Apache-2.0
"""Programs on the stack with many listening sockets, or with a new one for each connection, as FTP
servers have them."""

import contextlib
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.lab.clients import connect, receive_exactly
from tests.lab.run import kernel_connections
from tests.lab.servers import wait_listening
from tests.wire.running import V4, V6, sanitized, start

FIRST = 10000
MANY = 400  # listening sockets, each of both families

HEAD = """
import selectors, socket, sys
def listener(port):
    one = socket.socket(socket.AF_INET6)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind(("::", port))
    one.listen(16)
    return one
"""

SERVE_MANY = """
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


def script(lab, name, text):
    path = lab.dir / f"{name}.py"
    path.write_text(HEAD + text)
    return [sys.executable, path]


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

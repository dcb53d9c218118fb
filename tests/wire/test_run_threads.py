# SPDX-License-Identifier: Apache-2.0
"""Threads of one process on the user-space stack: each wakes on its event, cancellation leaves
nothing locked, and signal handlers may use sockets at any point."""

import sys

import pytest

from tests.lab.clients import connect, receive_exactly
from tests.lab.lab import ROOT
from tests.lab.process import run
from tests.lab.run import PORT, Puppet, run_command
from tests.wire.running import V4, sanitized, start

WAITS = ROOT / "build/dev/tests/waits/steelyard-waits"
SAID = [
    "kinds",
    "beside idle ones",
    "pool",
    "accept",
    "ends",
    "computes",
    "cancels",
    "handlers",
    "jumps",
]


CANCELLED = {"beside idle ones", "cancels"}


def waits(stack, command, on):
    puppet = Puppet(stack["client"], stack["client"].v4)
    argv = run_command(command) if on == "stack" else command
    try:
        said = run(stack["forwarder"].ns.command(argv), deadline_s=100)
    finally:
        puppet.close()
    return [line for line in said.splitlines() if line in SAID]


@pytest.mark.parametrize("on", ("linux", "stack"))
def test_no_thread_misses_its_event(stack, on):
    """No call of the program has a timeout: a lost wake-up lets this test run into its deadline.
    The run on Linux's sockets shows that the program itself is correct."""
    assert waits(stack, [WAITS, stack["client"].v4, PORT, V4], on) == SAID


@sanitized
def test_cancelled_threads_cause_no_false_memory_error(stack):
    """AddressSanitizer takes stack frames of a cancelled thread for live ones."""
    command = [WAITS, stack["client"].v4, PORT, V4, "uncancelled"]
    assert waits(stack, command, "stack") == [line for line in SAID if line not in CANCELLED]


ONCE = """
import select, socket, sys, threading
listener = socket.create_server((sys.argv[1], 8030))
one, other = (listener.accept()[0] for _ in range(2))
def echo():
    while part := other.recv(1):
        other.send(part)
threading.Thread(target=echo, daemon=True).start()
loop = select.epoll()
loop.register(one, select.EPOLLIN)
while True:
    events = loop.poll(-1, 8)
    part = one.recv(1)
    one.send(b"%d" % len(events) if part else b"")
    if not part:
        break
"""


@sanitized
def test_event_is_reported_to_one_thread(stack):
    """One thread waits at an epoll instance while another one, which waited last, receives packets
    for both."""
    start(stack, "once", [sys.executable, "-c", ONCE, V4], 8030)
    client = stack["client"]
    with connect(client, V4, 8030) as one, connect(client, V4, 8030) as other:
        for _ in range(50):
            other.sendall(b"x")
            assert receive_exactly(other, 1) == b"x"
            one.sendall(b"x")
            assert receive_exactly(one, 1) == b"1"

# SPDX-License-Identifier: Apache-2.0
"""Socket calls on the user-space stack return what Linux's return; docs/run.md lists the
differences."""

import difflib
import errno
import sys
from pathlib import Path

import pytest

from tests.lab.process import run
from tests.lab.run import PORT, Puppet, kernel_connections, run_command
from tests.wire.running import families, on_stack, sanitized

# Lists of calls, and how many connections of each are Linux's: in `bound` the kernel chooses the
# port; `followed_by_linux` explains its own.
CALLS = (("calls.py", 1), ("calls_options.py", 3))


@sanitized
@families
@pytest.mark.parametrize(("calls", "linux_s"), CALLS, ids=("calls", "options"))
def test_calls_return_what_linux_returns(stack, family, calls, linux_s):
    """Runs one list of calls on Linux's sockets and on the stack's."""
    address = stack["client"].address(family)
    command = [sys.executable, str(Path(__file__).with_name(calls)), address, str(PORT)]
    puppet = Puppet(stack["client"], address)
    try:
        linux = run(stack["forwarder"].ns.command(command)).splitlines()
        before = kernel_connections(stack["forwarder"])
        ours = run(stack["forwarder"].ns.command(run_command(command))).splitlines()
    finally:
        puppet.close()
    assert kernel_connections(stack["forwarder"]) == before + linux_s
    assert ours[-1].startswith(("without a listener", "done")), ours
    difference = list(difflib.unified_diff(linux, ours, "linux", "stack", lineterm="", n=0))
    assert not difference, "\n".join(difference)


CLOSE = """
import os, socket, sys, threading, time
def dial(order):
    one = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    one.sendall(order + b"\\n")
    return one
def reader(number, answers):
    try:
        answers.append(os.read(number, 5))
    except OSError as error:
        answers.append(error.errno)
for _ in range(5):
    answers = []
    one = dial(b"hold")
    threads = [threading.Thread(target=reader, args=(one.fileno(), answers)) for _ in range(2)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)  # too short: the readers are refused at once, and the test says less
    one.close()
    other = dial(b"say")
    print(other.recv(5, socket.MSG_WAITALL))
    for thread in threads:
        thread.join()
    print(answers)
"""


@sanitized
def test_reader_of_a_closed_socket_gets_no_bytes_of_the_next(stack):
    puppet = Puppet(stack["client"], stack["client"].v4)
    try:
        said = on_stack(stack, sys.executable, "-c", CLOSE, stack["client"].v4, PORT)
    finally:
        puppet.close()
    assert said.splitlines() == [f"{b'hello'}", f"{[errno.EBADF, errno.EBADF]}"] * 5


FAST_OPEN = """
import select, socket, sys
peer = sys.argv[1], int(sys.argv[2])
calls = (
    lambda one: one.sendto(b"echo\\nhello", socket.MSG_FASTOPEN, peer),
    lambda one: one.sendmsg([b"echo\\n", b"hello"], [], socket.MSG_FASTOPEN, peer),
)
for call in calls:
    for blocks in (True, False):
        with socket.socket(socket.AF_INET6 if ":" in peer[0] else socket.AF_INET) as one:
            one.setblocking(blocks)
            try:
                call(one)
            except BlockingIOError:
                select.select([], [one], [])
                one.sendall(b"echo\\nhello")
            one.setblocking(True)
            print(one.recv(5, socket.MSG_WAITALL).decode(), blocks)
"""


@families
def test_send_opens_a_connection(stack, family):
    """MSG_FASTOPEN (unbound): the stack has the connection, without data in its SYN."""
    host, client = stack["forwarder"], stack["client"]
    puppet = Puppet(client, client.address(family))
    before = kernel_connections(host)
    try:
        argv = [sys.executable, "-c", FAST_OPEN, client.address(family), PORT]
        said = on_stack(stack, *argv)
    finally:
        puppet.close()
    assert said.split() == ["hello", "True", "hello", "False"] * 2
    assert kernel_connections(host) == before

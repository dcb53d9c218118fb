# SPDX-License-Identifier: Apache-2.0
"""Which socket serves a port of a program on the stack (docs/design/0058-serving.md).

Without a stack, Linux's socket does, with a warning; connections of both kinds coexist."""

import contextlib
import errno
import os
import re
import signal
import socket
import sys

import pytest

from tests.lab import wait_until
from tests.lab.clients import connect, receive_exactly
from tests.lab.commands import run_steelyard
from tests.lab.hooks import stack_name, state_of
from tests.lab.run import PORT, Puppet, kernel_connections, run_command, start_run
from tests.lab.stacks import connections, listed
from tests.wire.running import V4, V6, families, on_stack, sanitized, start

SAY = """
import os, select, signal, socket, subprocess, sys, time
def listener(port, backlog=64):
    one = socket.socket(socket.AF_INET6)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    one.bind(("::", port))
    one.listen(backlog)
    return one
def say(text):
    os.write(1, f"{text}\\n".encode())
def echo(one):
    while part := one.recv(4096):
        one.sendall(part)
"""


def script(lab, name, text):
    path = lab.dir / f"{name}.py"
    path.write_text(SAY + text)
    return [sys.executable, path]


def warnings(name):
    return run_steelyard("stack", "list", "--stack", name, check=False).stderr


def echoed(one, text):
    one.sendall(text)
    return receive_exactly(one, len(text)) == text


# Its child has no library and accepts in any way. It closes with its standard input.
BARE = """
one = listener(8030)
one.set_inheritable(True)
accept = (
    "import os, socket, sys\\n"
    "one = socket.socket(fileno=int(sys.argv[1]))\\n"
    "one.setblocking(True)\\n"
    "while True:\\n"
    "    two = one.accept()[0]\\n"
    "    two.sendall(b'linux')\\n"
    "    two.close()\\n"
)
clean = {name: text for name, text in os.environ.items() if name != "LD_PRELOAD"}
argv = [sys.executable, "-c", accept, str(one.fileno())]
subprocess.run(argv, env=clean, close_fds=False)
"""


@families
def test_listener_without_a_waiting_process_is_linuxs(stack, family):
    """A program that waits by raw system calls, for example. It is served from listen() on."""
    name = stack_name(f"bare-{family}")
    process = start_run(stack, name, script(stack, "bare", BARE), "--name", name)
    address = (V4, V6)[family == 6]
    process.wait_for("port 8030: pid .* no process has waited")
    for _ in range(4):  # both queues
        with connect(stack["client"], address, 8030) as one:
            assert receive_exactly(one, 5) == b"linux"
    wait_until(
        lambda: "Linux accepts the new connections to port 8030" in warnings(name), "the list warns"
    )
    assert process.output().count("port 8030:") == 1


SERVE = """
one = listener(8031)
selector = select.epoll()
selector.register(one)
open_ones = {}
while True:
    for number, event in selector.poll():
        if number == one.fileno():
            two = one.accept()[0]
            open_ones[two.fileno()] = two
            selector.register(two, select.EPOLLIN)
        elif part := open_ones[number].recv(4096):
            open_ones[number].sendall(part)
        else:
            open_ones.pop(number).close()
"""


@sanitized
@families
def test_stopped_program_leaves_new_connections_to_linux(stack, family):
    """Linux answers their handshakes. When the program continues, it serves them beside its earlier
    ones, and later connections reach the stack again."""
    name, address = stack_name(f"still-{family}"), (V4, V6)[family == 6]
    process = start(stack, name, script(stack, "still", SERVE), 8031, "--name", name)
    pid = int(re.search(r"pid (\d+) is worker", process.output())[1])
    client, host = stack["client"], stack["forwarder"]
    before = kernel_connections(host)
    with connect(client, address, 8031, timeout_s=60) as old:
        assert echoed(old, b"before")
        assert kernel_connections(host) == before
        os.kill(pid, signal.SIGSTOP)
        try:
            wait_until(lambda: state_of(pid) == "T", "it stands still")
            process.wait_for(f"pid {pid} has not run")
            assert "stopped: Linux accepts their new connections" in warnings(name)
            news = [connect(client, address, 8031, timeout_s=60) for _ in range(4)]
        finally:
            os.kill(pid, signal.SIGCONT)
        assert kernel_connections(host) == before + 4
        wait_until(lambda: "stopped" not in warnings(name), "it continues")
        with connect(client, address, 8031, timeout_s=60) as later:
            for one in (old, *news, later):
                assert echoed(one, b"after")
    assert kernel_connections(host) == before + 4
    for one in news:
        one.close()


# First accepts by the library, then stops using it.
LEAVES = """
one = listener(8032)
two = one.accept()[0]
two.sendall(b"hello")
while two.recv(4096) != b"again":
    pass
one.setblocking(False)
seen = 0
while True:
    try:
        three = one.accept()[0]
    except BlockingIOError:
        select.select([one], [], [])
        continue
    three.sendall(b"hello")
"""


def test_connections_not_accepted_move_to_linux(stack):
    """The stack's backlog waits for a second. When the program accepts, all are served, and later
    connections reach the stack."""
    name = stack_name("leaves")
    process = start(stack, name, script(stack, "leaves", LEAVES), 8032, "--name", name)
    client, host = stack["client"], stack["forwarder"]
    before = kernel_connections(host)
    with contextlib.ExitStack() as opened:

        def dial():
            return opened.enter_context(connect(client, V4, 8032, timeout_s=60))

        first = dial()
        assert receive_exactly(first, 5) == b"hello"
        waits = [dial()]
        process.wait_for("port 8032: pid .* has not accepted")
        assert kernel_connections(host) == before
        waits += [dial() for _ in range(3)]
        assert kernel_connections(host) == before + 3
        assert "Linux accepts the new connections to port 8032" in warnings(name)
        first.sendall(b"again")
        for one in waits:
            assert receive_exactly(one, 5) == b"hello"
        wait_until(lambda: "8032" not in warnings(name), "the stack serves again")
        assert receive_exactly(dial(), 5) == b"hello"
        assert kernel_connections(host) == before + 3


# Leaves connections unaccepted for three seconds of computing, or for nine seconds on a host that
# is so busy: after ten the port is Linux's.
COMPUTES = """
import time
one = listener(8034)
one.accept()[0].sendall(b"hello")
def compute(seconds):
    begun, end = time.process_time(), time.monotonic() + 3 * seconds
    while time.process_time() - begun < seconds and time.monotonic() < end:
        pass
select.select([one], [], [])
compute(2)
say("two seconds")
compute(1)
while True:
    one.accept()[0].sendall(b"hello")
"""


def test_computing_program_keeps_its_port(stack):
    """redis with a long script, for example, or any program on a host without a free core."""
    process = start(stack, "computes", script(stack, "computes", COMPUTES), 8034)
    client, host = stack["client"], stack["forwarder"]
    before = kernel_connections(host)
    with contextlib.ExitStack() as opened:

        def dial():
            return opened.enter_context(connect(client, V4, 8034, timeout_s=60))

        assert receive_exactly(dial(), 5) == b"hello"
        waits = [dial()]
        process.wait_for("two seconds")
        waits.append(dial())
        for one in waits:
            assert receive_exactly(one, 5) == b"hello"
        assert kernel_connections(host) == before
    assert "has not accepted" not in process.output()


# A listener for each thread, as servers with a thread per core have it.
SHARED = """
import threading
def shared(number):
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    one.bind(("0.0.0.0", 8035))
    one.listen(64)
    return one
def serve(one, number):
    while True:
        peer = one.accept()[0]
        peer.sendall(b"%d" % number)
        peer.close()
listeners = [shared(number) for number in range(3)]
for number, one in enumerate(listeners):
    threading.Thread(target=serve, args=(one, number)).start()
say("listens")
"""


@sanitized
def test_listeners_at_one_port_share_its_connections(stack):
    """SO_REUSEPORT: Linux distributes them by a hash, and so does the stack, from a thread's first
    accept() on."""
    start(stack, "shared", script(stack, "shared", SHARED), 8035)
    client, host = stack["client"], stack["forwarder"]
    before = kernel_connections(host)
    served = set()

    def each_has_served():
        with connect(client, V4, 8035, timeout_s=60) as one:
            served.add(receive_exactly(one, 1))
        return served == {b"0", b"1", b"2"}

    wait_until(each_has_served, "each thread has served a connection")
    assert kernel_connections(host) == before


# Like an FTP client in active mode: it listens, and reads from its control connection.
ACTIVE = """
control = socket.create_connection((sys.argv[1], int(sys.argv[2])))
one = listener(8033, 1)
control.sendall(b"echo\\n")
say("listens")
def next_order():
    order = sys.stdin.readline()
    return order
next_order()
one.listen(20)
say("listens again")
next_order()
one.listen(3)
say("listens once more")
next_order()
two = one.accept()[0]
say(two.recv(5).decode())
"""


@families
def test_listen_resizes_the_backlog(stack, family):
    """A process that has a stack waits elsewhere. A second listen() changes the backlog."""
    name, client = stack_name(f"active-{family}"), stack["client"]
    puppet = Puppet(client, client.v4)
    before = kernel_connections(stack["forwarder"])
    argv = [*script(stack, "active", ACTIVE), client.v4, PORT]
    command = run_command(argv, "--name", name)
    process = stack.start("forwarder", name, command, commanded=True)

    def backlogs():
        return {one["unsent"] for one in connections(name, "listen")}

    try:
        process.wait_for("listens")
        with connect(client, (V4, V6)[family == 6], 8033) as one:
            one.sendall(b"hello")
            assert backlogs() == {2}
            process.write_line("")
            process.wait_for("listens again")
            assert backlogs() == {21}
            process.write_line("")
            process.wait_for("listens once more")
            assert backlogs() == {4}
            process.write_line("")
            process.wait_for("hello")
        assert process.wait() == 0
    finally:
        puppet.close()
    assert kernel_connections(stack["forwarder"]) == before


PREFORK = """
one = listener(8034)
for _ in range(3):
    if os.fork() == 0:
        while True:
            two = one.accept()[0]
            two.sendall(b"%d\\n" % os.getpid())
            echo(two)
signal.pause()
"""


def test_processes_beyond_the_workers_share_linuxs_queue(stack):
    """Each serves one client at a time: none waits for a busy sibling."""
    name = stack_name("prefork")
    process = start_run(stack, name, script(stack, "prefork", PREFORK), "--name", name)
    process.wait_for("is worker 0 of 1")
    said = "2 more of its processes wait for a queue"
    wait_until(lambda: said in warnings(name), "the list warns")
    with contextlib.ExitStack() as opened:
        pids = set()
        for _ in range(3):
            one = opened.enter_context(connect(stack["client"], V4, 8034, timeout_s=60))
            with one.makefile("rb") as lines:
                pids.add(int(lines.readline()))
    assert len(pids) == 3


# Like gunicorn --preload: the parent has a connection, and so a stack, before it forks.
PRELOAD = """
control = socket.create_connection((sys.argv[1], int(sys.argv[2])))
one = listener(8035)
if os.fork() == 0:
    while True:
        two = one.accept()[0]
        two.sendall(b"%d\\n" % os.getpid())
        two.close()
one.close()
signal.pause()
"""


@sanitized
def test_child_of_a_process_with_a_stack_gets_its_own(stack):
    """The parent has a worker's queue; connections that arrive by that queue belong to Linux."""
    name, client = stack_name("preload"), stack["client"]
    puppet = Puppet(client, client.v4)
    argv = [*script(stack, "preload", PRELOAD), client.v4, PORT]
    process = start_run(stack, name, argv, "--name", name, workers=2)
    try:
        child = int(process.wait_for(r"pid (\d+) is worker 1 of 2")[1])

        def accepted():
            with connect(client, V4, 8035, timeout_s=60) as one, one.makefile("rb") as lines:
                assert int(lines.readline()) == child
            return [one for one in listed(name)["each"] if one["counts"]["accepted"] > 1]

        ways = wait_until(accepted, "the child's stack has accepted two")
        assert [one["pid"] for one in ways] == [child]
        before = kernel_connections(stack["forwarder"])

        def linux():
            accepted()
            return kernel_connections(stack["forwarder"]) > before

        wait_until(linux, "one has arrived by the parent's queue")
    finally:
        puppet.close()


CHROOT = """
one = listener(8036)
os.chroot(sys.argv[1])
os.setgid(65534)
os.setuid(65534)
two = one.accept()[0]
echo(two)
"""


@sanitized
def test_chroot_before_the_first_wait_is_supported(stack):
    """Like haproxy's `chroot`."""
    root = stack.dir / "nothing"
    root.mkdir(exist_ok=True)
    before = kernel_connections(stack["forwarder"])
    start(stack, "chroot", [*script(stack, "chroot", CHROOT), root], 8036)
    with connect(stack["client"], V4, 8036, timeout_s=60) as one:
        assert echoed(one, b"hello")
    assert kernel_connections(stack["forwarder"]) == before


# Passes its listener, or its connections, to another program.
PASS = """
ours, theirs = socket.socketpair()
theirs.set_inheritable(True)
other = (
    "import os, socket\\n"
    "way = socket.socket(fileno=%d)\\n"
    "while True:\\n"
    "    number = socket.recv_fds(way, 1, 1)[1][0]\\n"
    "    one = socket.socket(fileno=number)\\n"
    "    try:\\n"
    "        one = one.accept()[0]\\n"
    "    except OSError:\\n"
    "        pass\\n"
    "    try:\\n"
    "        while part := one.recv(4096):\\n"
    "            one.sendall(part)\\n"
    "    except OSError as error:\\n"
    "        os.write(1, b'lost %%d\\\\n' %% error.errno)\\n"
    "    one.close()\\n"
) % theirs.fileno()
subprocess.Popen([sys.executable, "-c", other], close_fds=False)
one = listener(8037)
if sys.argv[1] == "listener":
    socket.send_fds(ours, [b"x"], [one.fileno()])
    one.close()
    signal.pause()
while True:
    two = one.accept()[0]
    socket.send_fds(ours, [b"x"], [two.fileno()])
    two.close()
"""


@sanitized
def test_passed_listener_is_served(stack):
    """As at a reload of haproxy -W."""
    before = kernel_connections(stack["forwarder"])
    start(stack, "pass", [*script(stack, "pass", PASS), "listener"], 8037)
    with connect(stack["client"], V4, 8037, timeout_s=60) as one:
        assert echoed(one, b"hello")
    assert kernel_connections(stack["forwarder"]) == before


@sanitized
def test_passed_connections_are_served(stack):
    """As those of node's cluster: by relays (docs/design/0062-relays.md)."""
    before = kernel_connections(stack["forwarder"])
    process = start(stack, "pass", [*script(stack, "pass", PASS), "connections"], 8037)
    for _ in range(3):
        with connect(stack["client"], V4, 8037, timeout_s=60) as one:
            assert echoed(one, b"hello")
    assert kernel_connections(stack["forwarder"]) == before
    assert "passes connections on" not in process.output()


URING = """
import ctypes, errno, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
for number in (425, 426, 427):  # io_uring_setup, io_uring_enter, io_uring_register
    print(libc.syscall(number, 1, 0), ctypes.get_errno())
"""


@pytest.mark.parametrize("library", (True, False), ids=("library", "bare"))
def test_io_uring_is_unavailable(stack, library):
    """Both by the C library and for a program without the library."""
    bare = [] if library else ["env", "-u", "LD_PRELOAD"]
    said = on_stack(stack, *bare, sys.executable, "-c", URING)
    assert said.splitlines() == [f"-1 {errno.ENOSYS}"] * 3


BY_NUMBER = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
one = socket.create_connection((sys.argv[1], int(sys.argv[2])))
one.sendall(b"echo\\n")
number = one.detach()
bytes = ctypes.create_string_buffer(5)
assert libc.syscall(1, number, b"hello", 5) == 5  # write
assert libc.syscall(0, number, bytes, 5) == 5  # read
say(bytes.raw)
assert libc.syscall(3, number) == 0  # close
sys.stdin.readline()
"""


@sanitized
def test_raw_close_closes_the_stacks_connection(stack):
    """libuv closes its sockets by syscall(): the peer is notified at once."""
    client, name = stack["client"], "number"
    with client.ns.socket(socket.AF_INET) as listener:
        listener.bind((client.v4, 9001))
        listener.listen()
        argv = [*script(stack, name, BY_NUMBER), client.v4, 9001]
        process = stack.start("forwarder", name, run_command(argv), commanded=True)
        peer = listener.accept()[0]
    peer.settimeout(60)
    with peer:
        assert receive_exactly(peer, 10) == b"echo\nhello"
        peer.sendall(b"hello")
        assert peer.recv(1) == b""
    process.wait_for("hello")
    process.write_line("")
    assert process.wait() == 0

# SPDX-License-Identifier: Apache-2.0
"""Connections that a process of a program on the stack has not accepted when it stops to listen:
another process accepts them, as on Linux (docs/design/0067)."""

import contextlib
import fcntl
import itertools
import os
import select
import signal
import termios

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether

from tests.lab import wait_until
from tests.lab.clients import connect, receive_exactly
from tests.lab.run import PORT as PUPPET_PORT
from tests.lab.run import Puppet, kernel_connections, start_run
from tests.lab.servers import wait_listening
from tests.programs.asks import quick
from tests.programs.checks import Requests, back_on_stack, replaced
from tests.programs.program import Running
from tests.programs.table import PROGRAMS, make_certificate
from tests.wire.running import V4, V6, digest, families, sanitized
from tests.wire.test_run_serving import script

PORT = 8050
MORE = 1_000_000

# A process that waits for connections, but accepts none, and its successor. HOW it stops to listen
# is an argument.
PAIR = """
from socket import IPPROTO_TCP, SO_KEEPALIVE, SOL_SOCKET, TCP_DEFER_ACCEPT, TCP_NODELAY
how = sys.argv[1]
if how == "fork":
    # It has a stack, and so a backlog from listen() on, but does not wait for connections.
    other = socket.create_connection((sys.argv[2], int(sys.argv[3])))
one = listener(8050) if how != "v4" else socket.create_server(("0.0.0.0", 8050))
one.setsockopt(SOL_SOCKET, SO_KEEPALIVE, 1)
one.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
if how == "deferred":
    one.setsockopt(IPPROTO_TCP, TCP_DEFER_ACCEPT, 30)
ready, go = os.pipe()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
def succeed():
    while True:
        two, peer = one.accept()
        options = two.getsockopt(SOL_SOCKET, SO_KEEPALIVE), two.getsockopt(IPPROTO_TCP, TCP_NODELAY)
        say(f"accepted {two.family.name} {peer[0]} {two.getsockname()[0]} {options}")
        if os.fork() == 0:
            echo(two)
            os._exit(0)
        two.close()
if how == "fork":
    signal.sigwait([signal.SIGUSR1])
    if os.fork() == 0:
        succeed()
    signal.pause()
if os.fork() == 0:
    os.close(go)
    os.read(ready, 1)
    succeed()
select.select([one], [], [])
say("there")
signal.sigwait([signal.SIGUSR1])
os.write(go, b".")
if how == "exit":
    os._exit(0)
elif how == "execute":
    os.execvp("sleep", ["sleep", "1000"])
one.close()
say("closed")
signal.pause()
"""


def acknowledged(one):
    """Whether the peer has acknowledged all that was sent."""
    waits = bytearray(4)
    fcntl.ioctl(one, termios.TIOCOUTQ, waits)
    return not int.from_bytes(waits, "little")


@pytest.fixture
def pair(stack):
    """Starts it. Returns the process, and a function that has the first one stop to listen."""
    puppet = Puppet(stack["client"], stack["client"].v4)

    def start_pair(how):
        argv = [*script(stack, "pair", PAIR), how, stack["client"].v4, PUPPET_PORT]
        process = start_run(stack, "pair", argv)
        wait_listening(stack["forwarder"].ns, PORT)
        first = int(process.wait_for(r"pid (\d+) is worker 0 of 1")[1])
        number = signal.SIGTERM if how == "terminate" else signal.SIGUSR1
        return process, lambda: os.kill(first, number)

    yield start_pair
    puppet.close()


ATTEMPTS = 10


def waiting(stack, pair, how, address, texts):
    """Returns a pair and clients whose connections the stack has accepted, and no process yet.

    Linux accepts connections after listen() until the port is steered, and again after a second
    without a process that waits. A busy machine may connect the clients then: start again."""
    host = stack["forwarder"]
    for _ in range(ATTEMPTS):
        process, stop = pair(how)
        before = kernel_connections(host)
        clients = [connect(stack["client"], address, PORT) for _ in texts]
        for one, text in zip(clients, texts, strict=True):
            one.sendall(text)
        wait_until(lambda clients=clients: all(map(acknowledged, clients)), "all of it has come")
        if kernel_connections(host) == before:
            if how != "fork":
                process.wait_for("there")
            return process, stop, clients
        for one in clients:
            one.close()
        process.stop()
    raise AssertionError(f"Linux accepts connections, {ATTEMPTS} times:\n{process.output()}")


@sanitized
@families
@pytest.mark.parametrize("how", ("close", "v4", "deferred", "exit", "execute", "terminate", "fork"))
def test_a_successor_accepts_what_waits(stack, pair, family, how):
    """It gets what had come, and what follows, both ways, by Linux's TCP."""
    if how == "v4" and family == 6:
        pytest.skip("its socket is one of IPv4")
    address = (V4, V6)[family == 6]
    texts = [b"", b"hello", os.urandom(40_000)]
    with contextlib.ExitStack() as opened:
        process, stop, clients = waiting(stack, pair, how, address, texts)
        for one in clients:
            opened.enter_context(one)
        stop()
        for one, text in zip(clients, texts, strict=True):
            more = os.urandom(MORE)
            assert receive_exactly(one, len(text)) == text
            assert digest(exchanged(one, more)) == digest(more)
    mine = stack["client"].address(family)
    where = (mine, address) if family == 6 else (f"::ffff:{mine}", f"::ffff:{address}")
    kind = "AF_INET6"
    if how == "v4":
        kind, where = "AF_INET", (mine, address)
    said = process.wait_for(rf"accepted {kind} {where[0]} {where[1]} \(1, 1\)")
    assert process.output().count(said[0]) == 3, process.output()


def exchanged(one, data):
    """Sends it, and returns as many bytes of what comes."""
    one.setblocking(False)
    got, sent = b"", 0
    while len(got) < len(data):
        readable, writable, _ = select.select([one], [one] if sent < len(data) else [], [], 60)
        assert readable or writable, f"{sent} sent, {len(got)} received"
        if writable:
            sent += one.send(data[sent : sent + 65536])
        if readable:
            part = one.recv(65536)
            assert part, f"closed after {len(got)} bytes"
            got += part
    return got


@sanitized
def test_a_handshake_ends_after_the_listener(stack, pair):
    """The last acknowledgement comes, with bytes, when the listener is closed."""
    process, stop = pair("close")
    host, client = stack["forwarder"].ns, stack["client"]
    other, mac = "10.0.0.77", client.ns.mac("eth0")
    host.ip(f"neigh replace {other} lladdr {mac} dev front")
    capture = stack.capture("client")

    def send(flags, seq, ack, text=b""):
        segment = TCP(sport=6000, dport=PORT, flags=flags, seq=seq, ack=ack, window=8000)
        frame = Ether(src=mac, dst=host.mac("front")) / IP(src=other, dst=V4) / segment / text
        capture.send(frame)

    def answer(flags, text=b""):
        def is_it(packet):
            return (
                TCP in packet
                and packet[TCP].dport == 6000
                and packet[TCP].flags == flags
                and bytes(packet[TCP].payload)[: len(text)] == text
            )

        return capture.wait_for(is_it, f"{flags} {text}", outgoing=False)[TCP]

    send("S", 1000, 0)
    first = answer("SA").seq
    # Another one has the first process go on.
    with connect(client, V4, PORT) as second:
        process.wait_for("there")
        stop()
        process.wait_for("closed")
        send("PA", 1001, first + 1, b"hello")
        echo = answer("PA", b"hello")
        assert (echo.seq, echo.ack) == (first + 1, 1006)
        send("FA", 1006, first + 6)
        second.sendall(b"second")
        assert receive_exactly(second, 6) == b"second"


def test_without_a_successor_it_is_reset(stack):
    """As on Linux: no other process listens there."""
    alone = "one = listener(8050)\nselect.select([one], [], [])\none.close()\nsignal.pause()\n"
    process = start_run(stack, "alone", script(stack, "alone", alone))
    wait_listening(stack["forwarder"].ns, PORT)
    process.wait_for("is worker 0 of 1")
    with pytest.raises(ConnectionResetError), connect(stack["client"], V4, PORT) as one:
        one.recv(1)
    with pytest.raises(ConnectionRefusedError):
        connect(stack["client"], V4, PORT)


# A program whose second process has no library: its accept() returns the ticket.
BARE = """
one = listener(8050)
one.set_inheritable(True)
accept = (
    "import os, socket, sys\\n"
    "one = socket.socket(fileno=int(sys.argv[1]))\\n"
    "one.setblocking(True)\\n"
    "os.read(0, 1)\\n"
    "while True:\\n"
    "    two, peer = one.accept()\\n"
    "    os.write(1, f'accepted {peer[0]}\\\\n'.encode())\\n"
    "    two.close()\\n"
)
clean = {name: text for name, text in os.environ.items() if name != "LD_PRELOAD"}
argv = [sys.executable, "-c", accept, str(one.fileno())]
child = subprocess.Popen(argv, env=clean, close_fds=False, stdin=subprocess.PIPE)
select.select([one], [], [])
child.stdin.write(b".")
child.stdin.flush()
one.close()
signal.pause()
"""


def test_a_process_without_the_library_ends_it(stack):
    """It gets a connection from this host with one byte, three times, and the client a reset."""
    process = start_run(stack, "bare", script(stack, "bare", BARE))
    wait_listening(stack["forwarder"].ns, PORT)
    process.wait_for("is worker 0 of 1")
    with pytest.raises(ConnectionResetError), connect(stack["client"], V4, PORT) as one:
        one.recv(1)
    assert process.output().count("accepted ::ffff:127.0.0.1") == 3


DEFAULT = """
import ctypes
libc = ctypes.CDLL(None)
def reported():
    was = (ctypes.c_uint64 * 32)()
    libc.sigaction(signal.SIGTERM, None, was)
    return was[0]  # the handler
one = listener(8050)
one.setblocking(False)
before = reported()
select.select([one], [], [], 0)
say(f"same {reported() == before}")
signal.signal(signal.SIGTERM, signal.SIG_IGN)
say(f"ignored {reported() == 1}")
os.kill(os.getpid(), signal.SIGTERM)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
say(f"default {reported() == 0}")
os.kill(os.getpid(), signal.SIGTERM)
say("lives")
"""


def test_program_finds_the_default_action_of_signals(stack):
    """The library's handler is none of the program's, and the signal ends it."""
    process = start_run(stack, "default", script(stack, "default", DEFAULT))
    assert process.wait() == 128 + signal.SIGTERM
    said = process.output()
    assert "is worker 0 of 1" in said and "lives" not in said
    for word in ("same", "ignored", "default"):
        assert f"{word} True" in said, said


# ---- programs ------------------------------------------------------------------------------------

RELOADS = 6
CLIENTS = 8


def every_family(place):
    """Requests that alternate between the addresses, each over a connection of its own."""
    turn, ask = itertools.count(), quick()
    return lambda place, _: ask(place, place.addresses[next(turn) % len(place.addresses)])


@pytest.mark.parametrize(
    ("name", "number"),
    (
        ("nginx", signal.SIGHUP),
        ("lighttpd", signal.SIGUSR1),
        pytest.param("haproxy", signal.SIGUSR2, marks=pytest.mark.programs),
        pytest.param("gunicorn", signal.SIGHUP, marks=pytest.mark.programs),
    ),
)
def test_no_request_fails_while_it_reloads(stack, name, number):
    program = next(one for one in PROGRAMS if "reload" in one.cells and one.name == name)
    stack.dir.chmod(0o755)
    place = Running(stack, program, make_certificate(stack.dir))
    try:
        place.start()
        with Requests(place, every_family(place), CLIENTS) as requests:
            for _ in range(RELOADS):
                requests.more(20)
                over = replaced(place)
                os.kill(place.process.pid, number)
                place.wait(over, "it has reloaded")
                requests.more(20)
        assert not requests.failures, (requests.count, requests.failures)
        back_on_stack(place, quick())
    finally:
        place.close()

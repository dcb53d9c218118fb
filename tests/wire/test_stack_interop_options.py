# SPDX-License-Identifier: Apache-2.0
"""Linux's TCP requests options that Steelyard's stack lacks: the connection continues without
them."""

import contextlib
import errno
import socket

import pytest

from tests.lab.peer import KernelEnd, inet
from tests.lab.process import CommandFailed, run
from tests.lab.steelyard import BUILD, SANITIZED
from tests.wire.interop import difference, families, port, transfer

MSG_FASTOPEN, IPPROTO_MPTCP = 0x20000000, 262


@contextlib.contextmanager
def sysctl(interop, name, value, usual):
    """Skips the test if this kernel lacks the setting."""
    try:
        interop.kernel.sysctl(name, value)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        pytest.skip(f"this kernel refuses {name} = {value}")
    try:
        yield
    finally:
        interop.kernel.sysctl(name, usual)


@families
@pytest.mark.parametrize("cookie", (True, False), ids=("cookie", "data"))
def test_fast_open_request_is_ignored(interop, family, cookie):
    """The kernel's SYN requests a cookie of RFC 7413, or carries data without one: the stack
    ignores both, and receives the data afterwards."""
    peer, number = interop.peer(), port()
    job = peer.listen(interop.stack_address[family], number, times=1)
    before = interop.kernel.counters()
    stream = KernelEnd(interop.kernel, family).stream
    with (
        sysctl(interop, "ipv4.tcp_fastopen", 1 if cookie else 5, 1),
        interop.kernel.socket(inet(family)) as one,
    ):
        to = (interop.stack_address[family], number)
        one.sendto(stream.part(0, 500), MSG_FASTOPEN, to)  # waits until it is connected
        one.settimeout(60)
        one.sendall(stream.part(500, 5000))
        one.shutdown(socket.SHUT_WR)
        assert one.recv(1) == b""
    assert peer.done(job)["received"] == 5500
    after = difference(interop.kernel.counters(), before)
    assert after["TcpExtTCPFastOpenActiveFail"] == (0 if cookie else 1)


@families
def test_multipath_request_gets_plain_tcp(interop, family):
    """The kernel requests Multipath TCP (RFC 8684)."""
    peer, number = interop.peer(), port()
    try:
        one = interop.kernel.socket(inet(family), protocol=IPPROTO_MPTCP)
    except OSError:
        pytest.skip("this kernel has no MPTCP")
    job = peer.listen(interop.stack_address[family], number, echo=True, times=1)
    with one:
        one.settimeout(60)
        one.connect((interop.stack_address[family], number))
        one.sendall(b"plain")
        assert one.recv(100) == b"plain"
        one.shutdown(socket.SHUT_WR)
        assert one.recv(1) == b""
    assert peer.done(job)["received"] == 5


@families
def test_shrinking_window_is_tolerated(interop, family):
    """The kernel revokes window that it has advertised (RFC 9293 3.8.6, "robust against"): its
    tcp_shrink_window."""
    with sysctl(interop, "ipv4.tcp_shrink_window", 1, 0):
        options = [(socket.SOL_SOCKET, socket.SO_RCVBUF, 8000)]
        interop.link.set(delay_us=300, loss=0.01)
        outcome = transfer(interop, interop.peer(), family, 100_000, options=options)
        assert outcome.stack["timed_out"] == 0


# ---- the program says what is wrong --------------------------------------------------------------


@pytest.mark.parametrize(
    "words,text",
    (
        ([], "name the interface by --port"),
        (["--port", "x", "--address", "nowhere", "--stdin"], "--address nowhere: not possible"),
        (["--port", "no-such", "--address", "10.0.0.9", "--stdin"], "no-such"),
        (["--port", "lo", "--address", "10.0.0.9", "--do", "stats"], "loopback"),
    ),
    ids=("nothing", "address", "interface", "loopback"),
)
def test_invalid_options_are_refused(interop, words, text):
    argv = [BUILD / "tests/peer/steelyard-peer", *words]
    done = run(interop.lab["client"].ns.command(argv), check=False, env=SANITIZED)
    assert done.returncode == 1 and text in done.stderr, (done.returncode, done.stderr)


def test_wrong_bytes_are_detected(interop):
    """Either end detects that the other has sent another stream."""
    peer, address = interop.peer(), interop.stack_address[4]
    peer.listen(address, number := port(), send=100_000, seed=1)
    end = KernelEnd(interop.kernel, 4, seed=2).connect(address, number)
    end.join()
    assert "byte 0 of the stream is wrong" in str(end.error)
    job = peer.listen(address, number := port(), seed=1)
    KernelEnd(interop.kernel, 4, send=100_000, seed=2).connect(address, number).wait()
    assert peer.ended(job)["wrong_at"] == 0


def test_invalid_commands_are_refused(interop):
    """The next command is executed."""
    peer = interop.peer()
    address = interop.stack_address[4]
    for line in (
        "",
        "sleep",
        "listen",
        "listen nowhere 80",
        f"listen {address} 80 size 5",
        f"listen {address} 80 send",
        f"listen {address} 80 echo maybe",
        f"listen {address} 80 asks 5",
        f"connect {address} 0 {address}",
        "close 4711",
    ):
        with pytest.raises(CommandFailed, match="error"):
            peer.command(line, "job")
    job = peer.listen(address, number := port(), echo=True)
    with pytest.raises(CommandFailed, match="Address already in use"):
        peer.listen(address, number)
    KernelEnd(interop.kernel, 4, send=1000, expect=None).connect(address, number).wait()
    assert peer.done(job)["received"] == 1000
    peer.close(job)

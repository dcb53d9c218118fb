# SPDX-License-Identifier: Apache-2.0
"""Steelyard's TCP stack and Linux's: connections open, close, and reopen."""

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest

from tests.lab.peer import KernelEnd, inet
from tests.lab.wait import wait_until
from tests.wire.interop import (
    ROLES,
    WAYS,
    difference,
    families,
    flow_begin,
    flow_finish,
    port,
    transfer,
)

roles = pytest.mark.parametrize("role", ROLES)
ways = pytest.mark.parametrize("way", WAYS)
CONFUSED = {"delay_us": 300, "duplicate": 0.4, "reorder": 0.3, "reorder_distance": 1}


# ---- opening -------------------------------------------------------------------------------------


@families
def test_simultaneous_open_connects(interop, family):
    """Both SYNs are sent before either arrives; then both sides transfer (RFC 9293 3.5)."""
    peer, here, there = interop.peer(), port(), port()
    stack, kernel = interop.stack_address[family], interop.kernel_address[family]
    interop.know_neighbours()
    before = peer.counters()
    interop.link.set(delay_s=900)
    one = KernelEnd(interop.kernel, family, send=100_000, expect=100_000)
    one.connect(stack, here, local=there)
    job = peer.connect(stack, kernel, there, port=here, send=100_000)

    def crossed():
        stats = interop.link.stats()
        return all(stats[way]["arrived"] for way in ("ab", "ba"))

    wait_until(crossed, "both have sent a SYN")
    interop.link.set(defaults="")
    interop.link.hurry()
    talk = peer.done(job)
    one.wait()
    assert talk["received"] == talk["acknowledged"] == 100_000
    after = difference(peer.counters(), before)
    # Neither side refused the other, and there was one connection.
    assert after["opened"] == 1 and after["accepted"] == after["resets_out"] == 0


@families
def test_closed_ports_refuse_connections(interop, family):
    """Each side resets the other's SYN."""
    peer, number = interop.peer(), port()
    stack, kernel = interop.stack_address[family], interop.kernel_address[family]
    one = KernelEnd(interop.kernel, family).connect(stack, number)
    one.join()
    assert isinstance(one.error, ConnectionRefusedError), one.error
    assert peer.ended(peer.connect(stack, kernel, number))["error"] == "ECONNREFUSED"


@families
def test_short_connections_survive_reordering(interop, family):
    """Handshakes and closes arrive twice and out of order; every connection transfers its bytes."""
    peer, count = interop.peer(), 60
    interop.link.set(**CONFUSED)
    flows = [
        flow_begin(interop, peer, family, role, way, size, seed=7)
        for size, (role, way) in zip(
            range(1, count), itertools.cycle(itertools.product(ROLES, WAYS)), strict=False
        )
    ]
    for size, flow in enumerate(flows, 1):
        flow_finish(peer, flow, size)


# ---- closing -------------------------------------------------------------------------------------


@families
@roles
def test_both_ends_send_at_once(interop, family, role):
    peer = interop.peer()
    interop.link.set(delay_us=500, loss=0.01)
    flow = flow_begin(interop, peer, family, role, "upload", 500_000, 3, send=500_000)
    flow.end.expect = 500_000
    flow_finish(peer, flow, 500_000)
    assert flow.talk["received"] == 500_000


@families
@roles
@ways
def test_half_closed_connection_still_transfers(interop, family, role, way):
    """The receiver closes first; the sender continues, and closes later."""
    peer = interop.peer()
    interop.link.set(delay_us=500, loss=0.01)
    if way == "upload":
        words, end = {"after_end": True}, {"end_first": True}
    else:
        words, end = {"end_first": True}, {"after_end": True}
    flow = flow_begin(interop, peer, family, role, way, 300_000, 4, words, **end)
    flow_finish(peer, flow, 300_000)
    # The side that closed first is in TIME-WAIT.
    assert flow.talk["state"] == ("closed" if way == "upload" else "time-wait")


@families
@roles
def test_stack_reset_ends_the_kernels_connection(interop, family, role):
    """In the middle of a transfer."""
    peer = interop.peer()
    before = peer.counters()
    words = {"reset_after": 200_000}
    flow = flow_begin(interop, peer, family, role, "upload", 10_000_000, 5, words)
    flow.end.join()
    assert isinstance(flow.end.error, ConnectionResetError), flow.end.error
    assert peer.ended(flow.job)["written"] >= 200_000
    # Segments in flight find no connection, and cause another reset.
    assert difference(peer.counters(), before)["resets_out"] >= 1


@families
@roles
def test_kernel_reset_ends_the_stacks_connection(interop, family, role):
    """In the middle of a transfer."""
    peer = interop.peer()
    before = peer.counters()
    flow = flow_begin(interop, peer, family, role, "upload", 50_000_000, 6, reset_after=1_000_000)
    assert peer.ended(flow.job)["error"] == "ECONNRESET"
    assert difference(peer.counters(), before)["resets_in"] >= 1


# ---- again from the same port --------------------------------------------------------------------

AGAIN = 20


@families
@pytest.mark.parametrize("timestamps", (1, 0), ids=("timestamps", "no-timestamps"))
def test_stack_in_time_wait_accepts_the_same_port(interop, family, timestamps):
    """The stack closed first and is in TIME-WAIT; the kernel reconnects from the same port at once
    (RFC 6191; RFC 9293 3.6.1)."""
    peer, number, local = interop.peer(), port(), port()
    before = peer.counters()
    interop.kernel.sysctl("ipv4.tcp_timestamps", timestamps)
    try:
        job = peer.listen(interop.stack_address[family], number, send=10_000, times=AGAIN)
        for count in range(1, AGAIN + 1):
            one = KernelEnd(interop.kernel, family, expect=10_000)
            one.connect(interop.stack_address[family], number, local).wait()
            assert peer.done(job, count)["state"] == "time-wait"
    finally:
        interop.kernel.sysctl("ipv4.tcp_timestamps", 1)
    assert difference(peer.counters(), before)["time_wait_reused"] == AGAIN - 1


@contextlib.contextmanager
def serving(interop, family, number, answer=b""):
    """A kernel server that answers, then closes each connection first."""
    listener = interop.kernel.socket(inet(family))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((interop.kernel_address[family], number))
    listener.listen(128)

    def serve():
        with contextlib.suppress(OSError):
            while True:
                one, _ = listener.accept()
                with one:
                    one.sendall(answer)
                    one.shutdown(socket.SHUT_WR)
                    while one.recv(1 << 16):
                        pass

    threading.Thread(target=serve, daemon=True).start()
    yield
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


@families
@pytest.mark.parametrize("timestamps", (1, 0), ids=("timestamps", "no-timestamps"))
def test_kernel_in_time_wait_accepts_the_same_port(interop, family, timestamps):
    """The kernel closed first; the stack reconnects from the same port at once."""
    peer, number, local = interop.peer(), port(), port()
    interop.kernel.sysctl("ipv4.tcp_timestamps", timestamps)
    stack, kernel = interop.stack_address[family], interop.kernel_address[family]
    try:
        with serving(interop, family, number, b"x"):
            job = peer.connect(stack, kernel, number, port=local, rounds=AGAIN, echo=True)
            assert peer.done(job, AGAIN)["received"] == 1
    finally:
        interop.kernel.sysctl("ipv4.tcp_timestamps", 1)


@families
def test_killed_server_resets_old_connections(interop, family):
    """kill -9 of the stack's process: the next process resets unknown connections, and serves a new
    one from the same port."""
    number, local = port(), port()
    stack = interop.stack_address[family]
    with interop.new_peer() as peer:
        peer.listen(stack, number, echo=True)
        one = interop.kernel.socket(inet(family))
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.settimeout(60)
        one.bind(("", local))
        one.connect((stack, number))
        one.sendall(b"before")
        assert one.recv(100) == b"before"
        peer.kill()
    with interop.new_peer() as peer, one:
        job = peer.listen(stack, number, send=1000, times=1)
        one.sendall(b"after")
        with pytest.raises(ConnectionResetError):
            one.recv(100)
        assert peer.counters()["resets_out"] >= 1
        one.close()
        KernelEnd(interop.kernel, family, expect=1000).connect(stack, number, local).wait()
        peer.done(job)


@families
def test_killed_client_reconnects_from_its_port(interop, family):
    """kill -9 of the stack's process: the next process connects from the same port at once. The
    kernel challenges its SYN, receives a reset for the old connection, and accepts the new one (RFC
    9293 3.5.1, RFC 5961 4)."""
    number, local = port(), port()
    stack, kernel = interop.stack_address[family], interop.kernel_address[family]
    listener = interop.kernel.socket(inet(family))
    listener.settimeout(60)
    listener.bind((kernel, number))
    listener.listen(5)
    with listener:
        with interop.new_peer() as peer:
            peer.connect(stack, kernel, number, port=local, echo=True)
            old, _ = listener.accept()
            old.settimeout(60)
            old.sendall(b"before")
            assert old.recv(100) == b"before"
            peer.kill()
        before = interop.kernel.counters()
        with interop.new_peer() as peer, old:
            job = peer.connect(stack, kernel, number, port=local, echo=True)
            one, _ = listener.accept()
            with pytest.raises(ConnectionResetError):
                old.recv(100)
            with one:
                one.settimeout(60)
                one.sendall(b"again")
                assert one.recv(100) == b"again"
            assert peer.done(job)["received"] == 5
    after = difference(interop.kernel.counters(), before)
    assert after["TcpExtTCPSYNChallenge"] + after["TcpExtTCPChallengeACK"] > 0


CHILD = """
import socket, sys
family, address, number, local = map(eval, sys.argv[1:])
one = socket.socket(socket.AF_INET if family == 4 else socket.AF_INET6)
one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
one.bind(("", local))
one.connect((address, number))
while data := one.recv(1 << 16):
    print(len(data), flush=True)
"""


@families
def test_killed_kernel_client_reconnects_from_its_port(interop, family):
    """kill -9 of the kernel's receiving process: the stack's connection ends, and the next one
    comes from the same port at once."""
    peer, number, local = interop.peer(), port(), port()
    stack = interop.stack_address[family]
    job = peer.listen(stack, number, send=10_000_000_000, times=1)
    argv = [sys.executable, "-c", CHILD, family, repr(stack), number, local]
    with subprocess.Popen(interop.kernel.command(argv), stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout.readline()
        finally:
            os.kill(child.pid, signal.SIGKILL)
    assert peer.ended(job)["error"] in ("ECONNRESET", "EPIPE")
    job = peer.listen(stack, number, send=1000, times=1)
    KernelEnd(interop.kernel, family, expect=1000).connect(stack, number, local).wait()
    peer.done(job)


# ---- unreachable peers  --------------------------------------------------------------------------


def test_keepalive_detects_an_unreachable_peer(interop):
    """An idle connection is probed and answered; when the kernel is unreachable, the connection
    ends (RFC 1122 4.2.3.6)."""
    peer, number = interop.peer(), port()
    before = peer.counters()
    words = {"keepalive": 1, "keepalive_interval": 1, "keepalive_probes": 5}
    job = peer.listen(interop.stack_address[4], number, echo=True, times=1, **words)
    with interop.kernel.socket() as one:
        one.connect((interop.stack_address[4], number))
        wait_until(lambda: peer.counters()["keepalives"] > before["keepalives"] + 1, "two probes")
        assert peer.talking(job)[0]["state"] == "established"
        interop.link.set(loss=1)
        assert peer.ended(job)["error"] == "ETIMEDOUT"
        interop.link.set(loss=0)


def test_user_timeout_ends_unacknowledged_connections(interop):
    """Data stays unacknowledged for longer than the application's limit."""
    peer = interop.peer()
    words, before = {"user_timeout": 10_000}, peer.counters()
    flow = flow_begin(interop, peer, 6, "server", "upload", 10_000_000_000, 1, words)
    wait_until(lambda: flow.end.received > 1_000_000, "it runs")
    interop.link.set(loss=1)
    assert peer.ended(flow.job)["error"] == "ETIMEDOUT"
    after = difference(peer.counters(), before)
    assert after["timed_out"] == 1 and after["timeouts"] > 0
    interop.link.set(loss=0)
    flow.end.one.shutdown(socket.SHUT_RDWR)
    flow.end.join()


def test_eighty_connections_transfer_over_a_bad_link(interop):
    """The link delays, loses, reorders, duplicates and corrupts."""
    peer = interop.peer()
    interop.link.set(delay_ms=1, loss=0.01, duplicate=0.02, reorder=0.05, reorder_distance=5)
    flows = [
        flow_begin(interop, peer, family, role, way, 20_000, 8)
        for _ in range(10)
        for family, role, way in itertools.product((4, 6), ROLES, WAYS)
    ]
    for flow in flows:
        flow_finish(peer, flow, 20_000)
    interop.link.set(defaults="")
    assert transfer(interop, peer, 4, 10_000).stack["timed_out"] == 0

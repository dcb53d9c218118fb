# SPDX-License-Identifier: Apache-2.0
"""Steelyard's TCP stack and Linux's: windows, changing paths, urgent data, floods, Nagle and
delayed acknowledgements."""

import contextlib
import socket
import struct
import threading

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from tests.lab.clients import receive_exactly
from tests.lab.peer import KernelEnd, inet
from tests.lab.wait import wait_until
from tests.wire.interop import (
    difference,
    families,
    flow_begin,
    flow_finish,
    port,
    transfer,
)

SMALL = [(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)]
NARROW = {"mtu": 1300, "router4": "10.9.9.9", "router6": "fd00:9::9"}
HEADERS = {4: 20 + 20 + 12, 6: 40 + 20 + 12}  # with timestamps


# ---- windows -------------------------------------------------------------------------------------


@families
def test_kernel_probes_the_stacks_closed_window(interop, family):
    """The stack's application does not read; the kernel continues when the window opens."""
    peer = interop.peer()
    before = interop.kernel.counters()
    words = {"hold": True, "receive_buffer": 20_000}
    flow = flow_begin(interop, peer, family, "server", "download", 300_000, 1, words)

    def probed():
        counts = difference(interop.kernel.counters(), before)
        return counts["TcpExtTCPWinProbe"] > 1

    wait_until(probed, "the kernel probes the window")
    (talk,) = peer.talking(flow.job)
    assert talk["received"] == 0 and 10_000 < talk["unread"] <= 20_000
    peer.resume(flow.job)
    flow_finish(peer, flow, 300_000)


def probing(interop, family, size, probes):
    """Returns a stack and its upload to a kernel that does not read, once it has sent so many
    probes."""
    peer = interop.peer()
    before = peer.counters()["window_probes"]
    flow = flow_begin(interop, peer, family, "server", "upload", size, 2, hold=True, options=SMALL)
    wait_until(lambda: peer.counters()["window_probes"] >= before + probes, "the stack probes")
    return peer, flow


@families
def test_stack_probes_the_kernels_closed_window(interop, family):
    """The kernel's application does not read; the stack continues when the window opens."""
    peer, flow = probing(interop, family, 300_000, 2)
    (talk,) = peer.talking(flow.job)
    assert talk["peer_window"] < talk["mss"]
    flow.end.resume()
    flow_finish(peer, flow, 300_000)


@families
def test_probe_detects_a_window_whose_updates_were_lost(interop, family):
    """Each of the kernel's window updates is lost."""
    peer, flow = probing(interop, family, 100_000, 1)
    interop.link.set("ab", loss=1)
    flow.end.resume()
    lost = interop.link.stats("ab")["drops"]["loss"]
    wait_until(lambda: interop.link.stats("ab")["drops"]["loss"] > lost, "an update is lost")
    interop.link.set("ab", loss=0)
    flow_finish(peer, flow, 100_000)


@families
@pytest.mark.parametrize("buffer", (2048, 6000), ids=("2k", "6k"))
def test_receive_buffers_of_few_segments_suffice(interop, family, buffer):
    """In both directions, with buffers of a segment or two at both ends."""
    peer = interop.peer()
    interop.link.set(delay_us=200, loss=0.005)
    options = [(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)]
    outcome = transfer(interop, peer, family, 60_000, {"receive_buffer": buffer}, options=options)
    for flow in outcome.flows:
        assert flow.talk["peer_window" if flow.way == "upload" else "receive_window"] < 8192
    # No silly windows (RFC 9293 3.8.6.2): segments are not much smaller than the window allows.
    packets = outcome.stack["packets_out"] + outcome.stack["packets_in"]
    assert packets < 4 * 60_000 / 200


@families
def test_slow_reader_advertises_no_silly_window(interop, family):
    """The stack's application reads little at a time: the window is never advertised in small
    pieces."""
    peer = interop.peer()
    words = {"read": 3000, "read_ms": 10, "receive_buffer": 30_000}
    before = peer.counters()
    flow = flow_begin(interop, peer, family, "server", "download", 100_000, 4, words)
    flow_finish(peer, flow, 100_000)
    after = difference(peer.counters(), before)
    assert after["packets_in"] < 200 and after["packets_out"] < 200


# ---- the path changes ----------------------------------------------------------------------------


@families
def test_transfers_follow_a_narrowing_path(interop, family):
    """During the transfers, a router reports that packets are too big."""
    peer = interop.peer()
    interop.link.set(delay_ms=1)
    outcome = transfer(interop, peer, family, 500_000, between=lambda: interop.link.set(**NARROW))
    assert outcome.stack["too_big"] == 2
    for flow in outcome.flows:
        if flow.way == "upload":
            assert flow.talk["mss"] == 1300 - HEADERS[family]
        else:
            assert flow.end.info["pmtu"] == 1300


@families
def test_transfers_survive_a_black_hole(interop, family):
    """During the transfers the path becomes narrower without an ICMP error (RFC 4821, RFC 8899
    4.3)."""
    peer = interop.peer()
    interop.kernel.sysctl("ipv4.tcp_mtu_probing", 1)
    interop.kernel.sysctl("ipv4.tcp_retries1", 1)  # retransmissions until it assumes a black hole
    interop.link.set(delay_ms=1)
    changes = {"mtu": 1300, "too_big": "silent"}
    try:
        outcome = transfer(
            interop, peer, family, 500_000, between=lambda: interop.link.set(**changes)
        )
    finally:
        interop.kernel.sysctl("ipv4.tcp_mtu_probing", 0)
        interop.kernel.sysctl("ipv4.tcp_retries1", 3)
    assert all(outcome.link[way]["drops"]["mtu"] for way in ("ab", "ba"))
    assert outcome.stack["too_big"] == 0 and outcome.stack["timeouts"]
    for flow in outcome.uploads():
        # Not smaller than the base sizes of RFC 8899 5.1.2.
        assert {4: 1200, 6: 1280}[family] <= flow.talk["mss"] + HEADERS[family] <= 1300


# ---- urgent data ---------------------------------------------------------------------------------


@families
def test_stack_reports_the_kernels_urgent_byte(interop, family):
    """The byte stays inline, among the others (RFC 6093)."""
    peer, number = interop.peer(), port()
    job = peer.listen(interop.stack_address[family], number, times=1)
    with interop.kernel.socket(inet(family)) as one:
        one.settimeout(60)
        one.connect((interop.stack_address[family], number))
        stream = KernelEnd(interop.kernel, family).stream
        one.sendall(stream.part(0, 5000))
        one.send(stream.part(5000, 100), socket.MSG_OOB)
        one.sendall(stream.part(5100, 5000))
        one.shutdown(socket.SHUT_WR)
        assert one.recv(100) == b""
    talk = peer.done(job)
    assert talk["received"] == 10_100 and talk["urgent"] == 1


@families
def test_kernel_finds_the_stacks_urgent_mark(interop, family):
    peer, number = interop.peer(), port()
    job = peer.listen(interop.stack_address[family], number, send=10_000, urgent=7000, times=1)
    one = interop.kernel.socket(inet(family))
    one.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
    one.settimeout(60)
    with one:
        one.connect((interop.stack_address[family], number))
        stream, received, marks = KernelEnd(interop.kernel, family).stream, 0, []
        while True:
            if at_mark(one):
                marks.append(received)
            data = one.recv(1000)  # never beyond the mark
            if not data:
                break
            stream.compare(received, data)
            received += len(data)
        one.shutdown(socket.SHUT_WR)
    assert received == 10_000
    assert marks[0] == 6999  # before the last urgent byte
    peer.done(job)


def at_mark(one):
    """sockatmark(3)."""
    import fcntl

    return struct.unpack("i", fcntl.ioctl(one, 0x8905, struct.pack("i", 0)))[0]


# ---- a flood -------------------------------------------------------------------------------------


class SynFlood:
    """SYNs with sources behind the client: at most ten thousand a second, so that a slow machine
    can run other programs."""

    BURST = 50

    FORGED = {4: "198.18.0.1", 6: "2001:db8:f::1"}

    def __init__(self, interop, family, number):
        self.interop, client = interop, interop.lab["client"].ns
        far = interop.lab["far"].ns
        gateway = interop.link.address("a", family)
        source = self.FORGED[family]
        far.ip(f"-{family} route replace {source} via {gateway}")
        first = bytes(
            Ether(src=client.mac(interop.link.name), dst=far.mac(interop.link.name))
            / (IP if family == 4 else IPv6)(src=source, dst=interop.stack_address[family])
            / TCP(sport=0, dport=number, options=[("MSS", 1460)])
        )
        header = 14 + (20 if family == 4 else 40)
        self.frames = [self.from_port(first, header, n) for n in range(1024, 1624)]
        self.socket = interop.lab.capture("client", interop.link.name)
        self.over = threading.Event()
        self.sent = 0
        self.thread = threading.Thread(target=self.run, daemon=True)

    @staticmethod
    def from_port(frame, at, number):
        """Returns the frame with another source port, which was 0, and its checksum."""
        (old,) = struct.unpack_from("!H", frame, at + 16)
        total = (old ^ 0xFFFF) + number
        new = bytearray(frame)
        struct.pack_into("!H", new, at, number)
        struct.pack_into("!H", new, at + 16, (total + (total >> 16)) & 0xFFFF ^ 0xFFFF)
        return bytes(new)

    def run(self):
        while not self.over.wait(0.005):
            for _ in range(self.BURST):
                with contextlib.suppress(OSError):  # the interface's queue is full
                    self.socket.socket.send(self.frames[self.sent % len(self.frames)])
                    self.sent += 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


@families
def test_syn_flood_is_survived_by_cookies(interop, family):
    """While forged SYNs fill the backlog, clients connect by cookies and are served; later clients
    connect without cookies."""
    number = port()
    with interop.new_peer() as peer:
        address = interop.stack_address[family]
        job = peer.listen(address, number, send=20_000)
        with SynFlood(interop, family, number):
            wait_until(lambda: peer.counters()["cookies_sent"] > 1000, "SYNs get cookies")
            before = peer.counters()
            ends = [
                KernelEnd(interop.kernel, family, expect=20_000).connect(address, number)
                for _ in range(30)
            ]
            for end in ends:
                end.wait()
            after = difference(peer.counters(), before)
            # A half-open connection may have ended just then.
            assert after["cookies_right"] > 20 and after["cookies_wrong"] == 0
        assert peer.done(job, 30)["scale"]  # a cookie's timestamp contains it
        usage = peer.stats()["usage"]
        assert usage["half_open"] <= 256
    interop.lab.close_captures()


# ---- who waits for whose acknowledgement ---------------------------------------------------------


class Packets:
    """TCP packets with data or new acknowledgements, as captured at the client's interface:
    (sender, bytes, kernel's time in ns). Others are left out: after a long stall of the machine, a
    side retransmits."""

    SO_TIMESTAMPNS = 35

    def __init__(self, interop):
        self.capture = interop.lab.capture("client", interop.link.name)
        self.capture.close()  # its thread discards time stamps
        with interop.kernel.entered():
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 20)
        self.socket.setsockopt(socket.SOL_SOCKET, self.SO_TIMESTAMPNS, 1)
        self.socket.bind((interop.link.name, 3))

    def read(self):
        found, last = [], {}
        with self.socket, contextlib.suppress(BlockingIOError):
            while True:
                data, told, _, address = self.socket.recvmsg(2000, 200, socket.MSG_DONTWAIT)
                frame = Ether(data)
                if TCP not in frame or frame[TCP].flags & 0x07:  # SYN, FIN, RST
                    continue
                who = "kernel" if address[2] == 4 else "stack"
                size = len(frame[TCP].payload)
                end = (frame[TCP].seq + size) % 2**32
                if size and who in last and (last[who] - end) % 2**32 < 2**31:
                    continue
                if size:
                    last[who] = end
                seconds, ns = struct.unpack("qq", told[0][2])
                found.append((who, size, seconds * 1_000_000_000 + ns))
        return found


def delayed(packets, sender):
    """Returns times at which the sender continued only after a bare acknowledgement 30 ms or more
    after its bytes: the 40 ms stall."""
    stalls = 0
    for before, ack, after in zip(packets, packets[1:], packets[2:], strict=False):
        if before[0] == sender == after[0] and before[1] and after[1]:
            stalls += ack[0] != sender and not ack[1] and ack[2] - before[2] >= 30_000_000
    return stalls


def ask(interop, peer, asks, parts, **words):
    """The stack sends requests to the kernel's echo, which answers whole requests."""
    number = port()
    packets = Packets(interop)
    whole = sum(map(int, parts.split(",")))
    one = KernelEnd(interop.kernel, 4, echo=whole).listen(interop.kernel_address[4], number)
    job = peer.connect(
        interop.stack_address[4], interop.kernel_address[4], number, asks=asks, parts=parts, **words
    )
    peer.done(job)
    one.wait()
    return packets.read()


def test_one_poll_iteration_makes_one_segment(interop):
    """With Nagle's algorithm or without."""
    packets = ask(interop, interop.peer(), 40, "100,50")
    assert [length for who, length, _ in packets if who == "stack" and length] == [150] * 40
    assert delayed(packets, "stack") == 0


def test_nagle_meets_the_delayed_acknowledgement(interop):
    """Two writes with a pause between, and a read: the second write often waits for the kernel's
    delayed acknowledgement."""
    packets = ask(interop, interop.peer(), 30, "100,50", part_ms=1)
    assert [length for who, length, _ in packets if who == "stack" and length] == [100, 50] * 30
    assert delayed(packets, "stack") > 0


@contextlib.contextmanager
def kept_acknowledgements(interop, peer, **words):
    """A request of 100 and 50 bytes while the kernel's packets are held back. Yields the kernel's
    end and the stack's job, which has written everything."""
    number = port()
    interop.know_neighbours()
    interop.link.set("ab", delay_s=900)
    one = KernelEnd(interop.kernel, 4, echo=True).listen(interop.kernel_address[4], number)
    address = interop.kernel_address[4]
    job = peer.connect(
        interop.stack_address[4], address, number, asks=1, parts="100,50", part_ms=1, **words
    )
    wait_until(lambda: interop.link.stats("ab")["on_the_way"], "the SYN is answered")
    interop.link.hurry()
    wait_until(lambda: one.received >= 100, "the first part arrives")
    wait_until(lambda: peer.talking(job)[0]["written"] == 150, "all is written")
    yield one, job
    interop.link.set("ab", defaults="")
    interop.link.hurry()
    peer.done(job)
    one.wait()
    assert one.received == 150


def test_nagle_holds_back_the_second_part(interop):
    """Until the first part is acknowledged (RFC 896)."""
    peer = interop.peer()
    with kept_acknowledgements(interop, peer) as (one, job):
        assert one.received == 100 and peer.talking(job)[0]["unsent"] == 150


def test_nodelay_sends_the_second_part_at_once(interop):
    with kept_acknowledgements(interop, interop.peer(), no_delay=True) as (one, _):
        wait_until(lambda: one.received == 150, "the second part arrives")


def test_more_holds_back_a_part(interop):
    """Until the application writes the rest."""
    packets = ask(interop, interop.peer(), 10, "100,50", part_ms=1, more=True, no_delay=True)
    assert [length for who, length, _ in packets if who == "stack" and length] == [150] * 10


def test_last_small_segment_is_sent_despite_nagle(interop):
    """Minshall's variant: small segments wait only for unacknowledged small segments."""
    peer, number = interop.peer(), port()
    job = peer.listen(interop.stack_address[4], number, echo=True, hold=True, times=1)
    with interop.kernel.socket() as one:
        one.settimeout(60)
        one.connect((interop.stack_address[4], number))
        one.sendall(b"x" * 4000)

        def has_come():
            talks = peer.talking(job)
            return talks and talks[0]["unread"] == 4000

        wait_until(has_come, "the question is there")
        interop.know_neighbours()
        interop.link.set("ab", delay_s=900)
        peer.resume(job)
        assert receive_exactly(one, 4000) == b"x" * 4000
        interop.link.set("ab", defaults="")
        interop.link.hurry()
        one.shutdown(socket.SHUT_WR)
        assert one.recv(1) == b""
    peer.done(job)


def kernel_asks(interop, asks, **words):
    """The kernel writes its requests in two parts; the stack answers whole requests."""
    peer, number = interop.peer(), port()
    packets = Packets(interop)
    job = peer.listen(interop.stack_address[4], number, echo=True, answer=150, times=1, **words)
    with interop.kernel.socket() as one:
        one.settimeout(60)
        one.connect((interop.stack_address[4], number))
        for _ in range(asks):
            one.sendall(b"x" * 100)
            one.sendall(b"y" * 50)
            left = 150
            while left:
                left -= len(one.recv(left))
        one.shutdown(socket.SHUT_WR)
        assert one.recv(1) == b""
    peer.done(job)
    return packets.read()


def test_kernel_waits_for_the_stacks_delayed_acknowledgement(interop):
    """Unless the application requests quick acknowledgements."""
    packets = kernel_asks(interop, 15)
    assert delayed(packets, "kernel") > 10

    def is_quick():
        """Not while the machine stands still."""
        return delayed(kernel_asks(interop, 15, quick_ack=True), "kernel") < 5

    wait_until(is_quick, "the stack acknowledges at once")


@families
def test_cork_sends_full_segments_only(interop, family):
    """Until the end of the stream."""
    peer = interop.peer()
    packets = Packets(interop)
    words = {"cork": True, "write": 700}
    flow = flow_begin(interop, peer, family, "server", "upload", 100_000, 5, words)
    flow_finish(peer, flow, 100_000)
    lengths = [length for who, length, _ in packets.read() if who == "stack" and length]
    # The last bytes leave with the FIN.
    assert set(lengths) == {1500 - HEADERS[family]}

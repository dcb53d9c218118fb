# SPDX-License-Identifier: Apache-2.0
"""Senders of datagrams at a rate, and receivers that count them."""

import contextlib
import socket
import struct
import threading
import time
from collections import Counter

from tests.lab.readiness import Reader
from tests.lab.servers import wait_listening

SO_RCVBUFFORCE = 33  # socket(7)
TAG = struct.Struct("!I")
# Bytes of the IPv4 or IPv6 header and of the UDP header.
HEADERS = {4: 28, 6: 48}


class Receiver:
    """Records each datagram that arrives at a UDP port, until it is closed; a context manager."""

    def __init__(self, host, port, family=4, options=()):
        kind = socket.AF_INET if family == 4 else socket.AF_INET6
        self.socket = host.ns.socket(kind, socket.SOCK_DGRAM)
        for option in options:
            self.socket.setsockopt(*option)
        self.socket.bind((host.address(family), port))
        wait_listening(host.ns, port, "udp")
        self._reader = Reader([self.socket], self._receive)

    def note(self, data, ancillary):
        """Records one datagram: its content, and the kernel's ancillary data."""
        raise NotImplementedError

    def _receive(self, one):
        with contextlib.suppress(BlockingIOError):  # its checksum was invalid
            data, ancillary, _, _ = one.recvmsg(65535, 64, socket.MSG_DONTWAIT)
            self.note(data, ancillary)

    def close(self):
        self._reader.close()
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Sink(Receiver):
    """Counts datagrams at a UDP port, by the tag that a Sender puts in front: `packets`, `bytes` of
    IP packets, and `classes`, {(tag, class): packets}, by TOS or traffic class."""

    def __init__(self, host, port, family=4):
        self.headers = HEADERS[family]
        self.packets, self.bytes, self.classes = Counter(), Counter(), Counter()
        asks = (
            (socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
            if family == 4
            else (socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
        )
        room = (socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
        super().__init__(host, port, family, [room, asks])

    def note(self, data, ancillary):
        (tag,) = TAG.unpack_from(data)
        # One byte of TOS; a traffic class is an int.
        kind = int.from_bytes(ancillary[0][2], "little") if ancillary else 0
        self.bytes[tag] += len(data) + self.headers
        self.classes[tag, kind] += 1
        self.packets[tag] += 1


class Sender:
    """Sends datagrams of `size` bytes of IP packet from one port, `rate` per second, until stopped
    or until `count` are sent. It catches up after a stall."""

    def __init__(self, host, address, port, tag=1, size=1000, rate=1000, count=0, kind=0):
        family = 6 if ":" in address else 4
        self.socket = host.ns.socket(
            socket.AF_INET6 if family == 6 else socket.AF_INET, socket.SOCK_DGRAM
        )
        if kind and family == 4:
            self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, kind)
        elif kind:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, kind)
        self.to = (address, port)
        self.data = TAG.pack(tag).ljust(size - HEADERS[family], b".")
        self.rate, self.count, self.sent = rate, count, 0
        self.began = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)

    def start(self):
        self.began = time.monotonic()
        self._thread.start()
        return self

    def _send(self):
        while not self._end.wait(0.001):
            due = int((time.monotonic() - self.began) * self.rate) + 1
            due = min(due, self.count) if self.count else due
            # A few at a time: queues on the path are finite.
            for _ in range(min(due - self.sent, 64)):
                self.socket.sendto(self.data, self.to)
                self.sent += 1
            if self.count and self.sent >= self.count:
                return

    def finish(self):
        """Waits until `count` datagrams are sent."""
        self._thread.join()
        self.socket.close()
        return self.sent

    def stop(self):
        self._end.set()
        return self.finish()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()


def send(host, address, port, count, **options):
    """Sends a number of datagrams."""
    return Sender(host, address, port, count=count, **options).start().finish()

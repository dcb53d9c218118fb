# SPDX-License-Identifier: Apache-2.0
"""When requests arrived, as the kernel stamps them where a veth hands them over: on the sender's
core, before anybody receives them."""

import itertools
import socket
import statistics
import struct

ETH_P_IP, PACKET_HOST = 0x0800, 0
SO_RCVBUFFORCE, SO_TIMESTAMPNS = 33, 35
BUFFER = 64 << 20  # all of a run waits there
HEAD = 14 + 20 + 20  # Ethernet, IPv4, TCP without options
PAUSE_NS = 25_000_000  # between bursts, at least


class Stamps:
    """A context manager: stamps of the requests that come in on an interface, a server's port."""

    def __init__(self, ns, interface, port):
        self.port = port
        self.one = ns.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_IP))
        self.one.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
        self.one.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.one.setblocking(False)
        self.one.bind((interface, ETH_P_IP))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.one.close()

    def taken(self):
        """Nanoseconds, in the order of arrival."""
        found = []
        while True:
            try:
                frame, ancillary, _, where = self.one.recvmsg(HEAD, socket.CMSG_SPACE(16))
            except BlockingIOError:
                return found
            if where[2] == PACKET_HOST and is_request(frame, self.port):
                found.append(stamp(ancillary))


def is_request(frame, port):
    """Whether a TCP segment to this port has bytes."""
    if len(frame) < HEAD or frame[14] >> 4 != 4 or frame[23] != socket.IPPROTO_TCP:
        return False
    (length,) = struct.unpack_from("!H", frame, 16)
    headers = (frame[14] & 15) * 4 + (frame[46] >> 4) * 4
    return struct.unpack_from("!H", frame, 36)[0] == port and length > headers


def stamp(ancillary):
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
            seconds, ns = struct.unpack("qq", data)
            return seconds * 1_000_000_000 + ns
    raise ValueError("the kernel has not stamped a packet")


def bursts(stamps, size):
    """Those of whole bursts: lists of so many stamps. If the sum is right, they come one after
    another, whatever has interrupted them; else some have lost a packet, or had one again."""
    if len(stamps) % size == 0:
        return [stamps[at : at + size] for at in range(0, len(stamps), size)]
    found, last = [], None
    for one in stamps:
        if last is None or one - last > PAUSE_NS:
            found.append([])
        found[-1].append(one)
        last = one
    return [burst for burst in found if len(burst) == size]


def rate(burst):
    """Requests a second, from the first to the last."""
    return (len(burst) - 1) * 1e9 / (burst[-1] - burst[0])


def longest_us(burst):
    """The longest time between two of them."""
    return max(after - before for before, after in itertools.pairwise(burst)) / 1000


def summary(found):
    """Of several bursts: the median rate, and the median of their longest gaps."""
    return statistics.median(map(rate, found)), statistics.median(map(longest_us, found))

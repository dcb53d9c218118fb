# SPDX-License-Identifier: Apache-2.0
"""Bursts are found in time stamps of packets, and a real veth stamps them."""

import socket
import struct

from bench import stamps

MS = 1_000_000


def frame(port=7, data=64, options=12, protocol=6):
    length = 20 + 20 + options + data
    ip = struct.pack("!BBHIBBHII", 0x45, 0, length, 0, 64, protocol, 0, 1, 2)
    tcp = struct.pack("!HHIIBBHI", 5000, port, 1, 1, (20 + options) // 4 << 4, 0x10, 0, 0)
    return bytes(12) + b"\x08\x00" + ip + tcp


def test_segments_with_bytes_are_requests():
    assert stamps.is_request(frame(), 7)
    assert not stamps.is_request(frame(data=0), 7)  # an acknowledgement
    assert not stamps.is_request(frame(port=8), 7)
    assert not stamps.is_request(frame(protocol=17), 7)
    assert not stamps.is_request(frame()[:40], 7)


def test_stamp_is_the_kernels():
    data = struct.pack("qq", 3, 5)
    other = (socket.SOL_SOCKET, 1, b"")
    assert stamps.stamp([other, (socket.SOL_SOCKET, stamps.SO_TIMESTAMPNS, data)]) == 3_000_000_005


def test_incomplete_bursts_are_left_out():
    first = [50 * MS + 1000 * n for n in range(4)]
    second = [100 * MS + 2000 * n for n in range(3)]  # one is missing
    third = [150 * MS, 150 * MS + 1000, 150 * MS + 5000, 150 * MS + 6000]
    found = stamps.bursts(first + second + third, 4)
    assert found == [first, third]
    assert stamps.rate(first) == 1_000_000 and stamps.rate(third) == 500_000
    assert stamps.summary(found) == (750_000, 2.5)
    assert stamps.bursts([], 4) == []


def test_interrupted_burst_is_complete():
    late = [50 * MS, 51 * MS, 90 * MS, 91 * MS]
    assert stamps.bursts(late + [100 * MS] * 4, 4) == [late, [100 * MS] * 4]

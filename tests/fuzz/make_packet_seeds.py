#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seed frames of fuzz_packet into corpus/packet beside this file."""

import pathlib
import struct

MACS = bytes.fromhex("020000000001020000000002")
V4 = bytes([10, 0, 0, 1]), bytes([192, 0, 2, 1])
V6 = bytes.fromhex("20010db8" + "00" * 11 + "01"), bytes.fromhex("20010db8" + "00" * 11 + "02")


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(v4, proto, l4, at):
    """Returns l4 with its checksum at this offset, behind Ethernet and IP headers."""
    addrs = b"".join(V4 if v4 else V6)
    pseudo = b"" if proto == 1 else addrs + struct.pack("!HH", proto, len(l4))
    l4 = l4[:at] + struct.pack("!H", checksum(pseudo + l4)) + l4[at + 2 :]
    if not v4:
        ip = struct.pack("!IHBB", 6 << 28, len(l4), proto, 64) + addrs
        return MACS + b"\x86\xdd" + ip + l4
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(l4), 1, 0x4000, 64, proto, 0) + addrs
    ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
    return MACS + b"\x08\x00" + ip + l4


def with_headers(plain, more, first=None):
    """Returns the frame with options, or extension headers, after its IP header."""
    if plain[12] == 0x08:
        ip = bytearray(plain[14:34] + more)
        ip[0] = 0x45 + len(more) // 4
        ip[2:4] = struct.pack("!H", len(plain) - 14 + len(more))
        ip[10:12] = b"\0\0"
        ip[10:12] = struct.pack("!H", checksum(bytes(ip)))
        return plain[:14] + bytes(ip) + plain[34:]
    ip = bytearray(plain[14:54])
    ip[4:6] = struct.pack("!H", len(plain) - 54 + len(more))
    ip[6] = first
    return plain[:14] + bytes(ip) + more + plain[54:]


def fragment_v4(plain, field):
    ip = bytearray(plain[14:34])
    ip[6:8] = struct.pack("!H", field)
    ip[10:12] = b"\0\0"
    ip[10:12] = struct.pack("!H", checksum(bytes(ip)))
    return plain[:14] + bytes(ip) + plain[34:]


def tcp(flags, options=b"", payload=b""):
    offset = (5 + len(options) // 4) << 4
    head = struct.pack("!HHIIBBHHH", 40000, 443, 1, 2, offset, flags, 65535, 0, 0)
    return head + options + payload


def seeds():
    syn_options = bytes.fromhex("020405b4 0402080a 00000001 00000000 01030307")
    unusual_options = bytes.fromhex("01020405 b4010100")
    for v4 in (True, False):
        family = "v4" if v4 else "v6"
        yield f"tcp-ack-{family}", frame(v4, 6, tcp(0x10, payload=b"hello"), 16)
        yield f"tcp-syn-{family}", frame(v4, 6, tcp(2, syn_options), 16)
        yield f"tcp-syn-options-{family}", frame(v4, 6, tcp(2, unusual_options), 16)
        udp = struct.pack("!HHHH", 5353, 53, 13, 0) + b"query"
        yield f"udp-{family}", frame(v4, 17, udp, 6)
        yield (
            f"udp-long-{family}",
            frame(v4, 17, struct.pack("!HHHH", 5353, 53, 1408, 0) + bytes(1400), 6),
        )
        echo = struct.pack("!BBHHH", 8 if v4 else 128, 0, 0, 7, 1) + b"ping"
        yield f"echo-{family}", frame(v4, 1 if v4 else 58, echo, 2)
        whole = frame(v4, 6, tcp(0x10, payload=b"options!"), 16)
        long = frame(v4, 17, struct.pack("!HHHH", 5353, 53, 72, 0) + bytes(64), 6)
        if v4:
            yield "options-v4", with_headers(whole, bytes([7, 7, 4, 0, 0, 0, 0, 0]))
            yield "first-v4", fragment_v4(long, 0x2000)
            yield "later-v4", fragment_v4(long, 0x2010)
        else:
            hop, dst = bytes([60, 0, 5, 2, 0, 0, 1, 0]), bytes([6, 0, 1, 4, 0, 0, 0, 0])
            yield "options-v6", with_headers(whole, hop + dst, 0)
            yield "first-v6", with_headers(long, bytes([17, 0, 0, 1, 1, 2, 3, 4]), 44)
            yield "later-v6", with_headers(long, bytes([17, 0, 5, 0xA9, 1, 2, 3, 4]), 44)
        yield f"tagged-{family}", whole[:12] + bytes([0x88, 0xA8, 0, 1, 0x81, 0, 0, 2]) + whole[12:]
        sack = bytes.fromhex("0101050a 00000005 00000009".replace(" ", ""))
        yield f"sack-{family}", frame(v4, 6, tcp(0x10, sack), 16)
        proto, name = (1, "v4") if v4 else (58, "v6")
        # Errors about a whole segment, a segment's first bytes, and a tunnel packet.
        unreachable = struct.pack("!BBHI", 3 if v4 else 1, 1, 0, 0)
        too_big = struct.pack("!BBHI", *((3, 4) if v4 else (2, 0)), 0, 1400)
        yield f"error-{name}", frame(v4, proto, unreachable + whole[14:], 2)
        yield f"too-big-{name}", frame(v4, proto, too_big + whole[14:][: 28 if v4 else 48], 2)
        for inner_v4 in (True, False):
            inner = frame(inner_v4, 6, tcp(0x10, payload=b"tunnel"), 16)[14:]
            outer = frame(v4, 4 if inner_v4 else 41, inner + bytes(8), len(inner))[14:]
            yield f"tunnel{4 if inner_v4 else 6}-{name}", frame(v4, proto, too_big + outer, 2)


def main():
    folder = pathlib.Path(__file__).parent / "corpus" / "packet"
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in seeds():
        (folder / name).write_bytes(data)


main()

# SPDX-License-Identifier: Apache-2.0
"""Builds dataplane/packet/tests/packets.golden: what each function makes of a frame, by scapy.

Every line is an operation of test_golden.c, the input frame and the expected output frame, in
hexadecimal. `python -m tests.golden.make_packets` writes the file.
"""

from pathlib import Path

from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6EchoRequest,
    ICMPv6PacketTooBig,
    ICMPv6TimeExceeded,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
)
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

FILE = Path(__file__).parents[2] / "dataplane/packet/tests/packets.golden"

MACS = {"src": "02:00:00:00:0c:01", "dst": "02:00:00:00:f0:01"}
SWAPPED = {"src": MACS["dst"], "dst": MACS["src"]}
NO_MACS = {"src": "00:00:00:00:00:00", "dst": "00:00:00:00:00:00"}
CLIENT = {4: "10.0.0.10", 6: "2001:db8::10"}
VIP = {4: "192.0.2.80", 6: "2001:db8::80"}
LOCAL = {4: "10.1.0.200", 6: "fd00:1::200"}
SERVER = {4: "10.1.0.11", 6: "fd00:1::11"}
ROUTER = {4: "198.51.100.7", 6: "2001:db8:7::7"}
FAMILIES = (4, 6)
DATA = b"GET / HTTP/1.1\r\n"
FLOW = 0xDEADBEEF & 0xFFFFF


def ip(family, src, dst, hops=64, tos=0, **fields):
    if family == 4:
        return IP(src=src[4], dst=dst[4], ttl=hops, tos=tos, **({"id": 0, "flags": "DF"} | fields))
    return IPv6(src=src[6], dst=dst[6], hlim=hops, tc=tos, **fields)


def client_tcp(**fields):
    return TCP(**({"sport": 40000, "dport": 80, "flags": "A", "seq": 1000, "ack": 2000} | fields))


def server_tcp(**fields):
    return client_tcp(sport=1234, dport=8080, **fields)


def quoted(packet, size=None):
    """Returns the packet as a router quotes it: with its own checksums, perhaps truncated."""
    return Raw(bytes(packet)[:size])


def from_vip(family, payload):
    """Returns an ICMP packet that the forwarder originates."""
    if family == 4:
        return ip(4, VIP, CLIENT, tos=0xC0) / payload
    return ip(6, VIP, CLIENT) / payload


def tunnels():
    for outer in FAMILIES:
        for inner in FAMILIES:
            proto = (
                {"proto": 4 if inner == 4 else 41}
                if outer == 4
                else {"nh": 4 if inner == 4 else 41}
            )
            if outer == 4:
                # IPv6 packets of up to 1280 bytes must pass; IPv4's DF bit decides.
                head = ip(
                    4, LOCAL, SERVER, tos=0xB9, id=7, flags="DF" if inner == 4 else 0, **proto
                )
            else:
                head = ip(6, LOCAL, SERVER, tos=0xB9, fl=FLOW, **proto)
            yield (
                f"encapsulate-{outer}",
                Ether(**MACS) / ip(inner, CLIENT, VIP, hops=61, tos=0xB9) / client_tcp() / DATA,
                Ether(**MACS)
                / head
                / ip(inner, CLIENT, VIP, hops=60, tos=0xB9)
                / client_tcp()
                / DATA,
            )
    yield (
        "encapsulate-4",
        Ether(**MACS) / Dot1Q(vlan=5) / ip(4, CLIENT, VIP, hops=2, id=3, flags=0) / client_tcp(),
        Ether(**MACS)
        / ip(4, LOCAL, SERVER, id=7, flags=0, proto=4)
        / ip(4, CLIENT, VIP, hops=1, id=3, flags=0)
        / client_tcp(),
    )


def translations():
    yield (
        "translate",
        Ether(**MACS) / ip(6, CLIENT, VIP, hops=30, tos=0x28, fl=77) / client_tcp() / DATA,
        Ether(**MACS)
        / ip(4, LOCAL, SERVER, hops=29, tos=0x28, id=99, flags=0)
        / server_tcp()
        / DATA,
    )
    yield (
        "translate",
        Ether(**MACS) / ip(6, CLIENT, VIP) / IPv6ExtHdrDestOpt() / client_tcp() / (b"x" * 1300),
        Ether(**MACS) / ip(4, LOCAL, SERVER, hops=63, id=99) / server_tcp() / (b"x" * 1300),
    )
    later = IPv6ExtHdrFragment(nh=17, offset=181, m=1, id=0x12345678)
    yield (
        "translate",
        Ether(**MACS) / ip(6, CLIENT, VIP) / later / Raw(b"y" * 64),
        Ether(**MACS)
        / ip(4, LOCAL, SERVER, hops=63, id=0x5678, flags="MF", frag=181, proto=17)
        / Raw(b"y" * 64),
    )
    yield (
        "translate",
        Ether(**MACS)
        / ip(4, CLIENT, VIP, tos=0x28)
        / UDP(sport=40000, dport=53, chksum=0)
        / b"query",
        Ether(**MACS)
        / ip(6, LOCAL, SERVER, hops=63, tos=0x28)
        / UDP(sport=1234, dport=8080)
        / b"query",
    )
    yield (
        "translate",
        Ether(**MACS) / ip(4, CLIENT, VIP, id=0x4321, flags=0, frag=100, proto=17) / Raw(b"z" * 13),
        Ether(**MACS)
        / ip(6, LOCAL, SERVER, hops=63)
        / IPv6ExtHdrFragment(nh=17, offset=100, m=0, id=0x4321)
        / Raw(b"z" * 13),
    )


def segments():
    timestamp = [("Timestamp", (1, 2)), ("NOP", None), ("NOP", None)]
    toa = {
        4: (254, bytes.fromhex("9c40cb007105")),
        6: (253, bytes.fromhex("9c4020010db8" + "00" * 11 + "05")),
    }
    for family in FAMILIES:
        head = Ether(**MACS) / ip(family, CLIENT, VIP)
        for address, option in toa.items():
            yield (
                f"toa-{address}",
                head / client_tcp(options=timestamp) / DATA,
                head / client_tcp(options=[option, *timestamp]) / DATA,
            )
        sack = [("NOP", None), ("SAck", (0x22345678, 0x32345678, 1, 2)), ("EOL", None)]
        down = [
            ("NOP", None),
            ("SAck", (0x22345678 - 0x12345677, 0x32345678 - 0x12345677, 0xEDCBA98A, 0xEDCBA98B)),
            ("EOL", None),
        ]
        yield (
            "shift-ack",
            head / client_tcp(ack=0x12345678, options=sack) / DATA,
            head / client_tcp(ack=1, options=down) / DATA,
        )
        yield (
            "shift-seq",
            head / client_tcp(seq=0x89ABCDEF) / DATA,
            head / client_tcp(seq=0x13579BDE) / DATA,
        )
        line = b"PROXY UNKNOWN a b c d\r\n"
        for flags, data in (("A", b""), ("AU", b"odd"), ("AFE", bytes(DATA))):
            yield (
                "prepend",
                head / client_tcp(flags=flags, urgptr=2, options=timestamp) / data,
                head
                / client_tcp(flags=flags + "P", urgptr=25 if "U" in flags else 2, options=timestamp)
                / (line + data),
            )
            yield (
                "strip",
                head / client_tcp(flags=flags, urgptr=2, options=timestamp) / data,
                head / client_tcp(flags="A", options=timestamp),
            )
        back = Ether(**SWAPPED) / ip(family, VIP, CLIENT)
        reset = {"sport": 80, "dport": 40000, "window": 0}
        yield (
            "reset-answer",
            head / client_tcp(flags="S", ack=0),
            back / TCP(**reset, flags="RA", seq=0, ack=1001),
        )
        yield (
            "reset-answer",
            head / client_tcp(flags="FPA") / DATA,
            back / TCP(**reset, flags="R", seq=2000, ack=0),
        )
        yield (
            "reset-make",
            head / client_tcp(),
            Ether(**NO_MACS)
            / ip(family, CLIENT, VIP)
            / TCP(sport=40000, dport=80, flags="RA", seq=0x01020304, ack=0x05060708, window=0),
        )


def own_errors():
    numbers = {"port": ((3, 3), 4), "host": ((3, 1), 3), "prohibited": ((3, 13), 1)}
    for family in FAMILIES:
        packet = ip(family, CLIENT, VIP) / UDP(sport=40000, dport=53) / b"query"
        for name, ((kind, code), code6) in numbers.items():
            error = ICMP(type=kind, code=code) if family == 4 else ICMPv6DestUnreach(code=code6)
            yield (
                f"unreachable-{name}",
                Ether(**MACS) / packet,
                Ether(**SWAPPED) / from_vip(family, error / quoted(packet)),
            )


def too_big(family, mtu):
    if family == 4:
        return ICMP(type=3, code=4, nexthopmtu=mtu)
    return ICMPv6PacketTooBig(mtu=mtu)


def errors():
    for family in FAMILIES:
        # The quotation is the packet as sent, and as the client sent it except for its hop limit.
        for size in (None, 28 if family == 4 else 48):
            for transport in ("tcp", "udp"):
                if transport == "tcp":
                    sent, seen = server_tcp() / DATA, client_tcp() / DATA
                else:
                    sent = UDP(sport=1234, dport=8080) / DATA
                    seen = UDP(sport=40000, dport=80) / DATA
                yield (
                    "error-translate",
                    Ether(**MACS)
                    / ip(family, ROUTER, LOCAL)
                    / too_big(family, 1400)
                    / quoted(ip(family, LOCAL, SERVER, hops=60) / sent, size),
                    Ether(**MACS)
                    / ip(family, VIP, CLIENT, hops=63)
                    / too_big(family, 1400)
                    / quoted(ip(family, CLIENT, VIP, hops=60) / seen, size),
                )
        for outer in FAMILIES:
            inner = ip(family, CLIENT, VIP, hops=60) / client_tcp() / DATA
            proto = 4 if family == 4 else 41
            head = ip(outer, LOCAL, SERVER, **({"proto": proto} if outer == 4 else {"nh": proto}))
            mtu = 1500 - (20 if outer == 4 else 40)
            yield (
                "error-tunnelled",
                Ether(**MACS)
                / ip(outer, ROUTER, LOCAL)
                / too_big(outer, 1500)
                / quoted(head / inner),
                Ether(**MACS) / from_vip(family, too_big(family, mtu) / quoted(inner)),
            )
    # Our clients' packets went to the other family.
    four = ip(4, LOCAL, SERVER, hops=60) / server_tcp() / DATA
    six = ip(6, LOCAL, SERVER, hops=60) / server_tcp() / DATA
    about = {
        4: ip(4, CLIENT, VIP, hops=60) / client_tcp() / DATA,
        6: ip(6, CLIENT, VIP, hops=60) / client_tcp() / DATA,
    }
    pairs = [
        (ICMP(type=3, code=4, nexthopmtu=1400), ICMPv6PacketTooBig(mtu=1420)),
        (ICMP(type=3, code=1), ICMPv6DestUnreach(code=0)),
        (ICMP(type=3, code=3), ICMPv6DestUnreach(code=4)),
        (ICMP(type=3, code=13), ICMPv6DestUnreach(code=1)),
        (ICMP(type=11, code=0), ICMPv6TimeExceeded(code=0)),
    ]
    for error, other in pairs:
        yield (
            "error-6",
            Ether(**MACS) / ip(4, ROUTER, LOCAL) / error / quoted(four),
            Ether(**MACS) / from_vip(6, other / quoted(about[6])),
        )
    pairs = [
        (ICMPv6PacketTooBig(mtu=1400), ICMP(type=3, code=4, nexthopmtu=1380)),
        (ICMPv6DestUnreach(code=0), ICMP(type=3, code=1)),
        (ICMPv6DestUnreach(code=1), ICMP(type=3, code=10)),
        (ICMPv6DestUnreach(code=4), ICMP(type=3, code=3)),
        (ICMPv6TimeExceeded(code=0), ICMP(type=11, code=0)),
    ]
    for error, other in pairs:
        yield (
            "error-4",
            Ether(**MACS) / ip(6, ROUTER, LOCAL) / error / quoted(six),
            Ether(**MACS) / from_vip(4, other / quoted(about[4])),
        )


def echoes():
    yield (
        "echo",
        Ether(**MACS) / ip(4, CLIENT, VIP) / ICMP(type=8, id=77, seq=3) / b"ping",
        Ether(**MACS) / ip(4, LOCAL, SERVER, hops=63) / ICMP(type=8, id=1234, seq=3) / b"ping",
    )
    yield (
        "echo",
        Ether(**MACS) / ip(6, CLIENT, VIP) / ICMPv6EchoRequest(id=77, seq=3, data=b"ping"),
        Ether(**MACS)
        / ip(6, LOCAL, SERVER, hops=63)
        / ICMPv6EchoRequest(id=1234, seq=3, data=b"ping"),
    )


def lines():
    for part in (tunnels, translations, segments, own_errors, errors, echoes):
        for name, before, after in part():
            yield f"{name} {bytes(before).hex()} {bytes(after).hex()}\n"


if __name__ == "__main__":
    FILE.write_text("".join(lines()))

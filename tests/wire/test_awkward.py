# SPDX-License-Identifier: Apache-2.0
"""Unusual packets in every mode: each reaches a server intact, or is dropped with its own
reason."""

import os
from collections import Counter

import pytest
from scapy.layers.dns import DNS, DNSQR
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import (
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
)
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

from tests.lab import wait_until
from tests.lab.mode_table import ROWS

rows = pytest.mark.parametrize("row", ROWS, ids=str)

# Bytes that may precede the transport header.
OPTIONS = {
    "record-route": b"\x07\x07\x04" + bytes(4) + b"\0",
    "timestamp": b"\x44\x0c\x05\x00" + bytes(8),
    "padding": b"\x01" * 40,
}
EXTENSIONS = {
    "hop-by-hop": IPv6ExtHdrHopByHop(),
    "destination": IPv6ExtHdrDestOpt(),
    "both": IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt(),
    "atomic-fragment": IPv6ExtHdrFragment(id=7),
    "routing-used-up": IPv6ExtHdrRouting(type=2, segleft=0, addresses=["fd00::99"]),
}


class Sender:
    """Sends packets as `far`, on the link where `far`'s router would."""

    def __init__(self, modes, row):
        self.lab, self.row = modes.lab, row
        self.wire = modes.lab.capture("router")
        self.ends = {
            "src": modes.lab["far"].address(row.client),
            "dst": row.vip,
        }

    def ip(self, **fields):
        return (IP if self.row.client == 4 else IPv6)(**(self.ends | fields))

    def syn(self, **fields):
        port = int.from_bytes(os.urandom(2)) % 60000 + 2000
        return TCP(**({"sport": port, "dport": self.row.ports[0], "flags": "S"} | fields))

    def send(self, packet, tag=None):
        macs = {
            "src": self.lab["router"].ns.mac("eth0"),
            "dst": self.lab["forwarder"].ns.mac("front"),
        }
        kind = 0x0800 if self.row.client == 4 else 0x86DD
        if tag:
            tag.type = kind
            self.wire.send(Ether(**macs) / tag / packet)
        else:
            self.wire.send(Ether(**macs, type=kind) / packet)


def frame_with(captures, marker):
    """Returns the frame that carried the marker to a server."""

    def arrived():
        return [
            data
            for one in captures
            for sent, data in list(one.frames)
            if not sent and marker in data
        ]

    return wait_until(arrived, "it reaches a server")[0]


@rows
def test_headers_before_the_transport_header_reach_the_server(modes, row):
    """Including IP options and extension headers, except where the address family changes."""
    sender = Sender(modes, row)
    captures = [modes.lab.capture(host.name) for host in modes.lab.servers()]
    for name, extra in (OPTIONS if row.client == 4 else EXTENSIONS).items():
        marker = os.urandom(4)
        syn = sender.syn(seq=int.from_bytes(marker))
        if row.client == 4:
            packet, kept = sender.ip(options=extra) / syn, extra
        else:
            # As scapy builds it, with next-header numbers filled in.
            packet = sender.ip() / extra / syn
            kept = bytes(packet)[40 : -len(bytes(syn))]
        sender.send(packet)
        data = frame_with(captures, marker)
        in_place = row.mode != "fnat" or row.client == row.server
        assert (kept in data) == in_place, name


@rows
def test_priority_tag_is_removed(modes, row):
    """As switches send it: VID 0 means no VLAN."""
    sender, marker = Sender(modes, row), os.urandom(4)
    captures = [modes.lab.capture(host.name) for host in modes.lab.servers()]
    syn = sender.syn(seq=int.from_bytes(marker))
    sender.send(sender.ip() / syn, Dot1Q(prio=5, vlan=0))
    assert Ether(frame_with(captures, marker)).type in (0x0800, 0x86DD)


def question_without_checksum(sender, name):
    question = DNS(qd=DNSQR(qname=f"{name}.lab"))
    return sender.ip() / UDP(sport=5555, dport=sender.row.ports[1], chksum=0) / question


@pytest.mark.drops("icmp-unhandled")  # the client's kernel has not sent such a request
@pytest.mark.parametrize("row", [row for row in ROWS if row.client == 4], ids=str)
def test_udp_over_ipv4_may_omit_its_checksum(modes, row):
    """The checksum stays absent, or the forwarder computes it for IPv6 servers."""
    sender, name = Sender(modes, row), os.urandom(8).hex()
    captures = [modes.lab.capture(host.name) for host in modes.lab.servers()]
    sender.send(question_without_checksum(sender, name))
    packet = Ether(frame_with(captures, name.encode()))
    assert (packet[UDP].chksum == 0) == (row.mode != "fnat" or row.server == 4)


@pytest.mark.drops("bad-l4-checksum")
@pytest.mark.parametrize("row", [row for row in ROWS if row.client == 6], ids=str)
def test_udp_over_ipv6_without_checksum_is_dropped(modes, row):
    sender = Sender(modes, row)
    sender.send(question_without_checksum(sender, "none"))
    wait_until(lambda: modes.accounting.dropped().get("bad-l4-checksum") == 1, "it is dropped")


def bad_packets(sender):
    """(Reason, packet)."""
    ip, syn, four = sender.ip, sender.syn, sender.row.client == 4
    whole = bytes(ip() / syn())
    for size in range(20 if four else 40, len(whole)):
        yield "truncated", Raw(whole[:size])
    yield "land", ip(src=sender.row.vip) / syn(sport=sender.row.ports[0])
    yield "bad-l4-checksum", ip() / syn(chksum=0x1234)
    yield "bad-l4-header", ip() / syn(dataofs=4)
    yield "bad-l4-header", ip() / syn(dataofs=15)
    yield "bad-tcp-flags", ip() / syn(flags="SF")
    yield "bad-tcp-flags", ip() / syn(flags="")
    yield "bad-tcp-flags", ip() / syn(flags="SR")
    if four:
        yield "truncated", ip(len=len(whole) + 1) / syn()
        yield "bad-ip-header", ip(len=19) / syn()
        yield "bad-ip-checksum", ip(chksum=0x1234) / syn()
        yield "ip-options", ip(options=b"\x07\x09\x04\x00") / syn()
        yield "ip-options", ip(options=b"\x01" * 39 + b"\x07") / syn()
        yield "source-route", ip(options=b"\x83\x07\x04" + bytes(5)) / syn()
        yield "source-route", ip(options=b"\x89\x07\x04" + bytes(5)) / syn()
    else:
        yield "truncated", ip(plen=len(whole) - 39) / syn()
        yield "extension-header", ip() / IPv6ExtHdrDestOpt(len=255) / syn()
        headers = ip()
        for _ in range(9):
            headers /= IPv6ExtHdrDestOpt()
        yield "extension-header", headers / syn()
        yield "routing-header", ip() / IPv6ExtHdrRouting(addresses=["fd00::99"]) / syn()


@rows
def test_bad_packets_are_dropped_by_name(modes, row, request):
    sender = Sender(modes, row)
    bad = list(bad_packets(sender))
    expected = Counter(reason for reason, _ in bad)
    request.node.add_marker(pytest.mark.drops(*expected))
    for _, packet in bad:
        sender.send(packet)
    wait_until(
        lambda: modes.accounting.dropped() == expected,
        lambda: f"drops are {expected}, not {modes.accounting.dropped()}",
    )
    modes.hosts.check(row, "udp")

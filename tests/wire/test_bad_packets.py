# SPDX-License-Identifier: Apache-2.0
"""Frames that no correct stack sends: each is dropped with its own reason, without other
effects."""

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_LSRR, IPOption_SSRR
from scapy.layers.inet6 import (
    ICMPv6EchoReply,
    ICMPv6TimeExceeded,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrRouting,
)
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from tests.lab import wait_until
from tests.lab.clients import http_get
from tests.lab.steelyard import VIP, WEB

C4, C6 = "10.0.0.10", "fd00::10"


def v4(**fields):
    return IP(**({"src": C4, "dst": VIP[4]} | fields))


def v6(**fields):
    return IPv6(**({"src": C6, "dst": VIP[6]} | fields))


def syn(**fields):
    return TCP(**({"sport": 3333, "dport": WEB, "flags": "S"} | fields))


def cut(packet, size):
    return Raw(bytes(packet)[:size])


# Reason, and the IP packets that cause it.
BAD = {
    "truncated": [cut(v4() / syn(), 30), cut(v6() / syn(), 50)],
    "bad-ip-header": [v4(ihl=4) / syn(), v4(len=10) / syn()],
    "bad-ip-checksum": [v4(chksum=0x1234) / syn()],
    "bad-source": [
        v4(src="127.0.0.1") / syn(),
        v4(src="224.0.0.1") / syn(),
        v4(src="255.255.255.255") / syn(),
        v4(src="240.0.0.1") / syn(),
        v4(src="0.1.2.3") / syn(),
        v6(src="::1") / syn(),
        v6(src="ff02::1") / syn(),
    ],
    "link-local": [v4(src="169.254.7.8") / syn(), v6(src="fe80::7") / syn()],
    "land": [v4(src=VIP[4]) / syn(sport=WEB), v6(src=VIP[6]) / syn(sport=WEB)],
    "ip-options": [v4(options=b"\x07\x09\x04\x00") / syn()],
    "source-route": [
        v4(options=IPOption_LSRR(routers=["10.9.9.9"])) / syn(),
        v4(options=IPOption_SSRR(routers=["10.9.9.9"])) / syn(),
    ],
    "extension-header": [v6() / IPv6ExtHdrDestOpt(len=9) / syn(), v6(nh=135) / Raw(b"x" * 20)],
    "routing-header": [
        v6() / IPv6ExtHdrRouting(addresses=["fd00::99"]) / syn(),
        v6() / IPv6ExtHdrRouting(type=4, addresses=["fd00::99"]) / syn(),
    ],
    "tiny-fragment": [
        v4(flags="MF", len=36, proto=6) / cut(syn(), 16),
        v4(frag=1, proto=6) / Raw(b"x" * 16),
        v6() / IPv6ExtHdrFragment(m=1, nh=6) / cut(syn(), 16),
        v6() / IPv6ExtHdrFragment(offset=1, nh=6) / Raw(b"x" * 16),
    ],
    "bad-fragment": [
        v4(flags="MF", proto=17) / Raw(b"x" * 20),
        v4(frag=8191, proto=17) / Raw(b"x" * 24),
        v6() / IPv6ExtHdrFragment(offset=8191, nh=17) / Raw(b"x" * 24),
    ],
    "unknown-protocol": [
        v4(proto=132) / Raw(b"x" * 20),
        v6(nh=132) / Raw(b"x" * 20),
        v6(nh=51) / Raw(b"x" * 20),
    ],
    "bad-l4-header": [v4() / syn(dataofs=4), v4() / UDP(sport=1, dport=53, len=4) / b"xxxx"],
    "bad-tcp-flags": [v4() / syn(flags="SF"), v4() / syn(flags=""), v6() / syn(flags="SR")],
    "bad-l4-checksum": [v4() / syn(chksum=0x1234), v6() / syn(chksum=0x1234)],
    "no-session": [v4() / syn(flags="A", sport=4444), v6() / syn(flags="A", sport=4444)],
    "ttl-expired": [v4(ttl=1) / syn(sport=4445), v6(hlim=1) / syn(sport=4445)],
    "icmp-unhandled": [v4() / ICMP(type=13), v6() / ICMPv6EchoReply()],
    "icmp-no-session": [
        v4() / ICMP(type=3) / v4(src=VIP[4], dst="10.0.0.10") / UDP(sport=53, dport=4447),
        v6() / ICMPv6TimeExceeded() / v6(src=VIP[6], dst="fd00::10") / UDP(sport=53, dport=4447),
    ],
}


@pytest.mark.parametrize("reason", BAD)
def test_bad_packets_are_dropped_by_name(stage, request, reason):
    request.node.add_marker(pytest.mark.drops(reason))
    mac = stage.lab["forwarder"].ns.mac("front")
    wire = stage.lab.capture("client")
    for packet in BAD[reason]:
        family = 0x86DD if bytes(packet)[0] >> 4 == 6 else 0x0800
        wire.send(Ether(src=stage.client.ns.mac("eth0"), dst=mac, type=family) / packet)
    count = len(BAD[reason])
    wait_until(
        lambda: stage.accounting.dropped().get(reason, 0) >= count,
        lambda: f"{count} packets dropped as {reason}, of {stage.accounting.dropped()}",
    )
    assert http_get(stage.client, VIP[4], WEB)


@pytest.mark.drops("other-host")
@pytest.mark.parametrize("mac", ("02:00:00:00:be:ef", "ff:ff:ff:ff:ff:ff"), ids=("other", "all"))
def test_frames_for_other_macs_are_dropped(stage, mac):
    """A switch floods them to this port; only the address's owner, if any, answers."""
    wire = stage.lab.capture("client")
    for packet in (v4() / syn(sport=4446), v6() / syn(sport=4446)):
        wire.send(Ether(src=stage.client.ns.mac("eth0"), dst=mac) / packet)
    wait_until(
        lambda: stage.accounting.dropped().get("other-host", 0) >= 2,
        lambda: f"2 packets dropped as other-host, of {stage.accounting.dropped()}",
    )
    assert http_get(stage.client, VIP[4], WEB)

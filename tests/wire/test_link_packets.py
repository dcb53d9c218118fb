# SPDX-License-Identifier: Apache-2.0
"""Packets on the link emulator: MTU, fragments, TCP transfers, offloads and VLAN tags."""

import hashlib
import os
import socket
import struct
import threading

import pytest

from tests.lab import wait_until
from tests.lab.link import path_mtu
from tests.lab.vlan import tagging
from tests.wire.link_stage import PORT, Flow, families, inet, outcome_counters

IP_MTU_DISCOVER, IPV6_MTU_DISCOVER = 10, 23
UDP_SEGMENT = 103
ETH_P_ALL, SOL_PACKET, PACKET_AUXDATA = 3, 263, 8
PMTUDISC_DONT, PMTUDISC_DO, PMTUDISC_PROBE = 0, 2, 3


# ---- MTU -----------------------------------------------------------------------------------------


def choose_discovery(one, family, value):
    if family == 4:
        one.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, value)
    else:
        one.setsockopt(socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER, value)


@families
def test_oversized_packets_report_the_mtu(link_lab, link, family):
    """The sender's kernel learns the MTU from a router's message, and then respects it."""
    client, address = link_lab["client"], link.address("b", family)
    with Flow(link, family) as flow:
        link.set("ab", mtu=1300, router4="10.99.0.9", router6="fd00:99::9")
        choose_discovery(flow.source, family, PMTUDISC_DO)
        heard = link_lab.capture("client", link.name)
        flow.send(1, 1400)
        wait_until(lambda: path_mtu(client, address) == 1300, "the kernel has learnt the MTU")
        router = "10.99.0.9" if family == 4 else "fd00:99::9"
        heard.wait_for(
            lambda p: (p.haslayer("IP") and p["IP"].src == router)
            or (p.haslayer("IPv6") and p["IPv6"].src == router),
            "the router's message",
            outgoing=False,
        )
        flow.source.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)  # of the first datagram
        with pytest.raises(OSError, match="too long"):
            flow.source.send(bytes(1400))
        flow.source.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        flow.send(1, 1200)
        assert flow.received() == [0]
        stats = link.stats()
        assert stats["ab"]["drops"]["mtu"] == stats["ba"]["answers"] == 1


@families
def test_black_hole_drops_silently(link_lab, link, family):
    """Large packets are lost without an ICMP error."""
    with Flow(link, family) as flow:
        link.set("ab", mtu=1300, too_big="silent")
        choose_discovery(flow.source, family, PMTUDISC_PROBE)
        flow.send(5, 1400)
        flow.send(1, 1200)
        assert flow.received() == [0]
        stats = link.stats()
        assert stats["ab"]["drops"]["mtu"] == 5
        assert stats["ba"]["answers"] == 0
        assert path_mtu(link_lab["client"], link.address("b", family)) is None


def test_oversized_packets_are_fragmented_without_df(link_lab, link):
    """The receiver reassembles the fragments."""
    with Flow(link) as flow:
        before = link_lab["far"].ns.counters()
        link.set("ab", mtu=700)
        choose_discovery(flow.source, 4, PMTUDISC_DONT)
        flow.send(10, 1400)
        assert flow.received() == list(range(10))
        assert link_lab["far"].ns.counters()["IpReasmOKs"] - before["IpReasmOKs"] == 10
        assert link.stats("ab")["fragmented"] == 10


# ---- TCP -----------------------------------------------------------------------------------------

SIZE = 50_000_000
BAD = {"delay_us": 300, "jitter_us": 200, "loss": 0.002, "duplicate": 0.002}
BAD |= {"reorder": 0.01, "reorder_distance": 4, "corrupt": 0.0005}


def pour(one, content):
    one.sendall(content)
    one.shutdown(socket.SHUT_WR)


def test_tcp_transfers_arrive_whole(link_lab, link):
    """50 MB in each direction at once over a bad link, one connection each of IPv4 and IPv6."""
    content = os.urandom(SIZE // 2)
    ends, sums = [], {}
    link.set(**BAD)

    def drain(key, one):
        found = hashlib.sha256()
        while part := one.recv(1 << 18):
            found.update(part)
        sums[key] = found.digest()

    for family in (4, 6):
        listener = link_lab["far"].ns.socket(inet(family))
        listener.bind((link.address("b", family), PORT))
        listener.listen(1)
        near = link_lab["client"].ns.socket(inet(family))
        near.settimeout(120)
        near.connect((link.address("b", family), PORT))
        far, _ = listener.accept()
        far.settimeout(120)
        listener.close()
        ends += [near, far]
    threads = [threading.Thread(target=pour, args=(one, content)) for one in ends]
    threads += [threading.Thread(target=drain, args=item) for item in enumerate(ends)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in ends:
        one.close()
    expected = hashlib.sha256(content).digest()
    assert [sums[n] for n in range(4)] == [expected] * 4
    for stats in (link.stats("ab"), link.stats("ba")):
        assert all(
            n for name, n in outcome_counters(stats).items() if not name.startswith("burst")
        ), stats
        assert stats["drops"]["receive-ring"] == stats["drops"]["send"] == 0


def test_offloaded_frames_are_refused(link_lab, link):
    """Frames with an unfinished checksum or a pending segmentation are dropped and counted
    separately."""
    client = link_lab["client"].ns
    with Flow(link) as flow:
        client.run(["ethtool", "-K", link.name, "tx", "on"])
        flow.send(3)
        assert link.stats("ab")["drops"]["unfinished-sum"] == 3
        client.run(["ethtool", "-K", link.name, "gso", "on", "tx-udp-segmentation", "on"])
        flow.source.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 1000)
        flow.send(2, 4000)
        assert link.stats("ab")["drops"]["oversize"] == 2
        assert flow.received() == []
        offload = ["tx", "off", "gso", "off", "tx-udp-segmentation", "off"]
        client.run(["ethtool", "-K", link.name, *offload])


def test_vlan_tags_arrive(link_lab, link):
    """A VLAN tag that the sender left to offload is in the arriving frame."""
    with link_lab["far"].ns.entered():
        wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    with wire:
        wire.bind((link.name, ETH_P_ALL))
        wire.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        wire.settimeout(60)
        with Flow(link) as flow, tagging(link_lab, "client", 5, link.name):
            flow.send(1)
            while True:
                data, ancillary, _, _ = wire.recvmsg(2000, 64)
                if data.endswith(b"." * 96):
                    break
        # struct tpacket_auxdata: packet(7).
        assert struct.unpack_from("IIIHHHH", ancillary[0][2])[-2:] == (5, 0x8100)

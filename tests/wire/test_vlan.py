# SPDX-License-Identifier: Apache-2.0
"""VLAN frames on a port without a VLAN, tagged in the frame or by offload; truncated frames."""

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1AD, Dot1Q, Ether
from scapy.packet import Raw

from tests.lab import wait_until
from tests.lab.clients import connect, http_get
from tests.lab.steelyard import VIP, WEB
from tests.lab.vlan import tagging

families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))


def packet(family):
    if family == 4:
        return IP(src="10.0.0.10", dst=VIP[4]) / TCP(sport=3334, dport=WEB)
    return IPv6(src="fd00::10", dst=VIP[6]) / TCP(sport=3334, dport=WEB)


def wait_dropped(stage, reason, count):
    wait_until(
        lambda: stage.accounting.dropped().get(reason, 0) >= count,
        lambda: f"{count} packets dropped as {reason}, of {stage.accounting.dropped()}",
    )


@pytest.mark.drops("vlan")
@families
def test_tagged_frames_are_dropped(stage, family):
    """Including tags behind priority tags, which a kernel would skip."""
    wire = stage.lab.capture("client")
    mac = stage.lab["forwarder"].ns.mac("front")
    stacks = ([5], [0, 5], [5, 0], [0, 0], [5, 6], [0, 0, 0, 0, 0, 0])
    for vlans in stacks:
        frame = Ether(src=stage.client.ns.mac("eth0"), dst=mac)
        for i, vlan in enumerate(vlans):
            frame /= (Dot1AD if i + 1 < len(vlans) else Dot1Q)(vlan=vlan)
        wire.send(frame / packet(family))
    wait_dropped(stage, "vlan", len(stacks))
    assert http_get(stage.client, VIP[family], WEB)


@pytest.mark.drops("vlan")
@families
def test_offloaded_tag_is_dropped(stage, family):
    """A veth's sender leaves it beside the frame, like hardware that strips tags."""
    with tagging(stage.lab, "client", 5):
        with pytest.raises(TimeoutError):
            connect(stage.client, VIP[family], WEB, timeout_s=0.5)
        wait_dropped(stage, "vlan", 1)
    assert http_get(stage.client, VIP[family], WEB)


@families
def test_offloaded_priority_tag_is_accepted(stage, family):
    """A priority tag is not a VLAN."""
    with tagging(stage.lab, "client", 0):
        assert http_get(stage.client, VIP[family], WEB)


@pytest.mark.drops("truncated")
def test_truncated_headers_are_dropped(stage):
    wire = stage.lab.capture("client")
    mac = stage.lab["forwarder"].ns.mac("front")
    for kind, family, size in ((0x0800, 4, 19), (0x86DD, 6, 39)):
        whole = bytes(packet(family))
        frame = Ether(src=stage.client.ns.mac("eth0"), dst=mac, type=kind)
        wire.send(frame / Raw(whole[:size]))
    wait_dropped(stage, "truncated", 2)

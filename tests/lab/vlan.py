# SPDX-License-Identifier: Apache-2.0
"""Hosts that tag their packets with a VLAN, because not every kernel has VLAN interfaces."""

from pathlib import Path

from tests.lab.classifier import attached

SOURCE = Path(__file__).with_name("vlan.bpf.c")


def tagging(lab, host, vlan, interface="eth0"):
    """Tags all IP packets that the host sends, within the block. The tags are left to offload, as
    VLAN interfaces do."""
    return attached(lab, host, interface, "egress", SOURCE, f"VLAN={vlan}")

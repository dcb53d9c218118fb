# SPDX-License-Identifier: Apache-2.0
"""Hosts that tag their packets with a VLAN, by a BPF classifier, because not every kernel has VLAN
interfaces."""

import contextlib
import sysconfig
from pathlib import Path

from tests.lab.process import run

SOURCE = Path(__file__).with_name("vlan.bpf.c")


@contextlib.contextmanager
def tagging(lab, host, vlan, interface="eth0"):
    """Tags all IP packets that the host sends. The tags are left to offload, as VLAN interfaces
    do."""
    program = lab.dir / f"vlan-{vlan}.o"
    if not program.exists():
        headers = f"-I/usr/include/{sysconfig.get_config_var('MULTIARCH')}"
        run(
            ["clang", "-O2", "-g", "-Wall", "-Werror", "-target", "bpf", headers]
            + [f"-DVLAN={vlan}", "-c", SOURCE, "-o", program]
        )
    ns, device = lab[host].ns, ["dev", interface]
    ns.run(["tc", "qdisc", "add", *device, "clsact"])
    try:
        bpf = ["bpf", "direct-action", "obj", program, "sec", "tc"]
        ns.run(["tc", "filter", "add", *device, "egress", *bpf])
        yield
    finally:
        ns.run(["tc", "qdisc", "del", *device, "clsact"])

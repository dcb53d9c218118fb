# SPDX-License-Identifier: Apache-2.0
"""A link that loses TCP segments, by a BPF classifier: not every kernel has netem."""

import contextlib
import sysconfig
from pathlib import Path

from tests.lab.process import run

SOURCE = Path(__file__).with_name("loss.bpf.c")


@contextlib.contextmanager
def losing(lab, hosts, permille, interface="eth0"):
    """Drops segments that these hosts receive. (Drops on sending would be visible to their TCP.)"""
    program = lab.dir / f"loss-{permille}.o"
    if not program.exists():
        headers = f"-I/usr/include/{sysconfig.get_config_var('MULTIARCH')}"
        run(
            ["clang", "-O2", "-g", "-Wall", "-Werror", "-target", "bpf", headers]
            + [f"-DLOSS={permille}", "-c", SOURCE, "-o", program]
        )
    device = ["dev", interface]
    with contextlib.ExitStack() as stack:
        for host in hosts:
            ns = lab[host].ns
            ns.run(["tc", "qdisc", "add", *device, "clsact"])
            stack.callback(ns.run, ["tc", "qdisc", "del", *device, "clsact"])
            bpf = ["bpf", "direct-action", "obj", program, "sec", "tc"]
            ns.run(["tc", "filter", "add", *device, "ingress", *bpf])
        yield

# SPDX-License-Identifier: Apache-2.0
"""A link that loses TCP segments, by a BPF classifier, because not every kernel has netem."""

import contextlib
import sysconfig
from pathlib import Path

from tests.lab.process import run

SOURCE = Path(__file__).with_name("loss.bpf.c")


def lose(lab, host, permille, interface):
    """Drops segments that this host receives, as long as the interface exists. (Its own TCP would
    notice drops on sending.)"""
    ns, device = lab[host].ns, ["dev", interface]
    program = lab.dir / f"loss-{permille}.o"
    if not program.exists():
        headers = f"-I/usr/include/{sysconfig.get_config_var('MULTIARCH')}"
        run(
            ["clang", "-O2", "-g", "-Wall", "-Werror", "-target", "bpf", headers]
            + [f"-DLOSS={permille}", "-c", SOURCE, "-o", program]
        )
    ns.run(["tc", "qdisc", "add", *device, "clsact"])
    bpf = ["bpf", "direct-action", "obj", program, "sec", "tc"]
    ns.run(["tc", "filter", "add", *device, "ingress", *bpf])


@contextlib.contextmanager
def losing(lab, hosts, permille, interface="eth0"):
    """The same for several hosts, within the block."""
    with contextlib.ExitStack() as stack:
        for host in hosts:
            lose(lab, host, permille, interface)
            undo = ["tc", "qdisc", "del", "dev", interface, "clsact"]
            stack.callback(lab[host].ns.run, undo)
        yield

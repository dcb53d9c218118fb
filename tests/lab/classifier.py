# SPDX-License-Identifier: Apache-2.0
"""BPF classifiers on interfaces of a lab's hosts."""

import contextlib
import sysconfig

from tests.lab.process import run


def attach(lab, host, interface, direction, source, definition):
    """Attaches a program for "ingress" or "egress". It is compiled with a definition, for example
    LOSS=20."""
    ns, device = lab[host].ns, ["dev", interface]
    program = lab.dir / f"{source.name}-{definition}.o"
    if not program.exists():
        headers = f"-I/usr/include/{sysconfig.get_config_var('MULTIARCH')}"
        run(
            ["clang", "-O2", "-g", "-Wall", "-Werror", "-target", "bpf", headers]
            + [f"-D{definition}", "-c", source, "-o", program]
        )
    ns.run(["tc", "qdisc", "add", *device, "clsact"])
    bpf = ["bpf", "direct-action", "obj", program, "sec", "tc"]
    ns.run(["tc", "filter", "add", *device, direction, *bpf])


@contextlib.contextmanager
def attached(lab, host, interface, *program):
    """Attaches a program within the block."""
    attach(lab, host, interface, *program)
    try:
        yield
    finally:
        lab[host].ns.run(["tc", "qdisc", "del", "dev", interface, "clsact"])

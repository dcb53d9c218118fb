# SPDX-License-Identifier: Apache-2.0
"""A link that loses TCP segments, because not every kernel has netem."""

import contextlib
from pathlib import Path

from tests.lab.classifier import attach, attached

SOURCE = Path(__file__).with_name("loss.bpf.c")


def lose(lab, host, permille, interface):
    """Drops segments that this host receives, as long as the interface exists. (Its own TCP would
    notice drops on sending.)"""
    attach(lab, host, interface, "ingress", SOURCE, f"LOSS={permille}")


@contextlib.contextmanager
def losing(lab, hosts, permille, interface="eth0"):
    """The same for several hosts, within the block."""
    with contextlib.ExitStack() as stack:
        for host in hosts:
            program = ("ingress", SOURCE, f"LOSS={permille}")
            stack.enter_context(attached(lab, host, interface, *program))
        yield
